use std::sync::Arc;

use crate::ids::OperationId;
use crate::token::Token;

use super::state::Proxy;

/// A claim of a token that another request of the player was given. Cancelling a request does not reach that token, so
/// the claim is released by itself where it was not taken over: unknown, or dropped on its way.
pub(in crate::agent) struct Claiming {
    proxy: Arc<Proxy>,
    op: OperationId,
    token: Option<Token>,
}

impl Claiming {
    pub fn new(proxy: &Arc<Proxy>, op: &OperationId) -> Self {
        Self { proxy: Arc::clone(proxy), op: op.clone(), token: None }
    }

    /// From now on the claim may stand.
    pub fn begin(&mut self, token: &Token) {
        self.token = Some(token.clone());
    }

    /// It certainly does not, or somebody holds it who releases it.
    pub fn settled(&mut self) {
        self.token = None;
    }
}

impl Drop for Claiming {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.proxy.release_until_definite(token, self.op.clone());
        }
    }
}
