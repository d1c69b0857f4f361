//! Giving up a request, however far it is.

use std::sync::Arc;

use crate::agent::model::Transfer;
use crate::agent::queue::Progress;
use crate::error::{Error, Result};
use crate::ids::{OperationId, Player, RequestId};
use crate::token::{CancelOutcome, ReleaseOutcome};

use super::state::Proxy;

impl Proxy {
    /// Releases the claim of a transfer. `reason` is a word.
    pub async fn release(&self, transfer: &Transfer, reason: &str) -> Result<ReleaseOutcome> {
        let (token, op) = (&transfer.token, Some(&transfer.claim_op));
        self.core.book.release_claim(token, &self.core.releasing(), op, reason).await
    }

    /// Ends a request at whatever step it is: from here on it makes no other. What the store does not answer goes on in the
    /// background.
    pub async fn cancel(self: &Arc<Self>, player: &Player, request: &RequestId) -> Result<CancelOutcome> {
        let key = (player.clone(), request.clone());
        let (op, transfer) = match self.queue.requests.cancel(&key) {
            Some(Progress::Waiting(line)) => match self.queue.cancel_wait(player, request, &line).await {
                Some(outcome) => return outcome,
                None => (OperationId::fresh(), None),
            },
            Some(Progress::UnderWay(op)) => (op, None),
            Some(Progress::Moving(transfer)) => (transfer.claim_op.clone(), Some(transfer)),
            None => (OperationId::fresh(), None),
        };
        let outcome = self.core.book.cancel(player, request, &self.core.releasing(), Some(&op), &[]).await;
        // Given the token of another request, or of a wait: the mark does not reach that.
        let other = transfer.filter(|transfer| transfer.token.request != *request);
        let outcome = match (outcome, &other) {
            (Ok(CancelOutcome::Marked), Some(transfer)) => self.release(transfer, "cancelled").await.map(as_cancelled),
            (outcome, _) => outcome,
        };
        if outcome.as_ref().is_err_and(Error::is_retryable) {
            self.cancel_until_definite(player.clone(), request.clone(), op, Vec::new());
            if let Some(transfer) = other {
                self.release_until_definite(transfer.token, transfer.claim_op);
            }
        } else {
            self.queue.requests.forget_moving(&key);
        }
        outcome
    }
}

fn as_cancelled(released: ReleaseOutcome) -> CancelOutcome {
    match released {
        ReleaseOutcome::Released => CancelOutcome::Released,
        ReleaseOutcome::Landed => CancelOutcome::Landed,
        ReleaseOutcome::Lost => CancelOutcome::Lost,
        ReleaseOutcome::Ended(_) | ReleaseOutcome::None => CancelOutcome::Marked,
    }
}
