//! What a backend or link does with the pass that a player brings.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::agent::Agent;
use crate::error::Result;
use crate::ids::{OperationId, Player};
use crate::queue::{LineOptions, LoginPass, PassRefusal};

use super::room::line;

/// Most redemptions whose outcome is not known. Of more, those whose pass ends first are forgotten, and the next try of
/// those may be told that the pass was redeemed before.
const UNSETTLED_MAX: usize = 16_384;

/// The operations of redemptions whose outcome is not known, so that the next try is a repeat.
#[derive(Debug, Default)]
pub(in crate::agent) struct Redemptions {
    unsettled: Mutex<BTreeMap<(u64, OperationId), OperationId>>,
}

impl Redemptions {
    fn unsettled(&self) -> MutexGuard<'_, BTreeMap<(u64, OperationId), OperationId>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operation that redeems the pass.
    fn begin(&self, pass: &LoginPass) -> OperationId {
        let mut unsettled = self.unsettled();
        while unsettled.len() >= UNSETTLED_MAX {
            unsettled.pop_first();
        }
        unsettled.entry(key(pass)).or_insert_with(OperationId::fresh).clone()
    }

    fn settled(&self, pass: &LoginPass) {
        self.unsettled().remove(&key(pass));
    }
}

fn key(pass: &LoginPass) -> (u64, OperationId) {
    (pass.expires_at_ms, pass.op.clone())
}

impl Agent {
    /// Opens and checks the pass that `player` brought, without the store: that it is for this node and this player, and
    /// has not expired. Whether it was redeemed only [`redeem_pass`](Self::redeem_pass) knows.
    ///
    /// Errors with why it lets nobody in; what does not open is audited.
    pub fn verify_pass(&self, sealed: &str, player: &Player) -> Result<LoginPass, PassRefusal> {
        let core = self.core();
        LoginPass::verify(&core.verifier, sealed, &core.identity.id, player, core.store.clock().now_ms())
    }

    /// Spends a verified pass, once: the player comes in. Where the place was not taken in time (`arriveMs`) it takes a
    /// free one, else the pass is void. Runs `queue/redeem`.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`](crate::Error::LeaseLost),
    /// [`Error::Fenced`](crate::Error::Fenced). The inner error says why nobody may come in.
    ///
    /// Cancel safe: after [`Error::Unreachable`](crate::Error::Unreachable), or where the future was dropped, the same call
    /// gives the definite answer.
    pub async fn redeem_pass(&self, pass: &LoginPass) -> Result<Result<(), PassRefusal>> {
        let core = self.core();
        let me = core.acting()?;
        let config = core.config();
        let options = match config.lines.get(&pass.line) {
            Some(line) => line.options(&pass.line),
            None => LineOptions::new(pass.line.clone()),
        };
        let op = core.redemptions.begin(pass);
        let redeemed = line(core, options)?.counting(core.arrivals.clone()).redeem(&me, pass, &op).await?;
        core.redemptions.settled(pass);
        Ok(redeemed)
    }
}
