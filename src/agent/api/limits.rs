//! Limits of the application's own.

use crate::error::Result;
use crate::ids::{LimitName, OperationId, Player};
use crate::limit::{Limits, Verdict};

use super::agent::Agent;

impl Agent {
    /// Charges an operation of a player against the limit `name` of the config; `None` where the config has no such limit,
    /// and then nothing is sent. See [`Limits::take`] for repeats, errors and cancelling. All nodes with one config agree.
    pub async fn take_limit(&self, name: &LimitName, player: &Player, op: &OperationId) -> Result<Option<Verdict>> {
        let core = self.core();
        match core.config().limits.get(name).copied() {
            Some(limit) => Limits::new(core.store.clone()).take(name, &limit, player, op).await.map(Some),
            None => Ok(None),
        }
    }

    /// Takes such a charge back: what was charged for did not happen. False where there is no such charge, or no such limit.
    /// See [`Limits::refund`].
    pub async fn refund_limit(&self, name: &LimitName, player: &Player, op: &OperationId) -> Result<bool> {
        let core = self.core();
        match core.config().limits.get(name).copied() {
            Some(limit) => Limits::new(core.store.clone()).refund(name, &limit, player, op).await,
            None => Ok(false),
        }
    }
}
