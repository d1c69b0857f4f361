use serde::Serialize;
use serde_json::value::RawValue;

use crate::ids::{NodeId, OperationId, Player, RequestId};
use crate::store::{Store, boot_ms};
use crate::token::Token;

/// A transfer has to start this long before its token ends.
const TRANSFER_MARGIN_MS: u64 = 250;

/// A player to be moved: the token is claimed by this proxy.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Who.
    pub player: Player,
    /// The request.
    pub request: RequestId,
    /// Where to.
    pub server: NodeId,
    /// Its address.
    pub addr: String,
    /// The reservation; its payload is what the backend put in.
    pub token: Token,
    pub(in crate::agent) claim_op: OperationId,
    pub(super) deadline_boot_ms: u64,
}

impl Transfer {
    /// For a token that was claimed with `claim_op`, on behalf of `request`.
    pub(in crate::agent) fn claimed(
        store: &Store,
        request: RequestId,
        token: Token,
        addr: String,
        claim_op: OperationId,
    ) -> Self {
        let ends = store.clock().boot_time_of(token.expires_at_ms);
        Self {
            player: token.player.clone(),
            request,
            server: token.server.clone(),
            addr,
            deadline_boot_ms: ends.saturating_sub(TRANSFER_MARGIN_MS),
            token,
            claim_op,
        }
    }

    /// How long the player may still be moved, in ms, on a clock that counts suspension. To be asked again right before
    /// the move; 0: too late.
    pub fn left_ms(&self) -> u64 {
        self.deadline_boot_ms.saturating_sub(boot_ms())
    }

    /// What the backend put into the token.
    pub fn payload(&self) -> &RawValue {
        &self.token.payload
    }

    /// The operation of the claim.
    pub fn claim_op(&self) -> &OperationId {
        &self.claim_op
    }
}

/// A player who connects to a fleet without lobbies and gets no place: a backend all the same, so that they are
/// somewhere. It was not asked; nothing is reserved and no token stands for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balanced {
    /// Who.
    pub player: Player,
    /// The request.
    pub request: RequestId,
    /// Where to.
    pub server: NodeId,
    /// Its address.
    pub addr: String,
}
