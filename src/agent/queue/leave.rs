//! The one way out of a line, for whoever goes and by whichever call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::sleep;

use crate::agent::core::jitter;
use crate::error::{Error, Result};
use crate::ids::SessionId;
use crate::queue::{Failed, Left};
use crate::token::{CancelOutcome, ReleaseOutcome};

use super::client::{QueueClient, Why};
use super::leaves::{LeaveKind, LeaveRequest};
use super::told::End;
use super::waiter::{Ending, Held, Stage, Waiter};

/// How many are sent at the same time.
const AT_ONCE: usize = 16;
/// Time between two tries.
const AGAIN: Duration = Duration::from_millis(200);

/// What became of a request to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub left: Left,
    /// Of a request: what became of its token.
    pub token: Option<CancelOutcome>,
    /// False where an enter may still reach the store: to be sent again.
    pub is_definite: bool,
}

impl Sent {
    fn definite(left: Left) -> Self {
        Self { left, token: None, is_definite: true }
    }
}

/// A request to leave that is on its way: left to the background where this is dropped before the answer is definite.
pub(super) struct Leaving<'a> {
    client: &'a QueueClient,
    request: Option<LeaveRequest>,
}

impl<'a> Leaving<'a> {
    pub fn new(client: &'a QueueClient, waiter: &Arc<Waiter>, kind: LeaveKind) -> Self {
        Self { client, request: Some(LeaveRequest::Waiter(Arc::clone(waiter), kind)) }
    }

    /// Tells the store once, with the store's own repeats. Whoever calls this holds the player's turn.
    pub async fn send(mut self) -> Result<Sent> {
        let Some(request) = self.request.clone() else { return Ok(Sent::definite(Left::None)) };
        let sent = self.client.send_leave(&request).await;
        if sent.as_ref().map_or_else(|error| !error.is_retryable(), |sent| sent.is_definite) {
            self.request = None;
        }
        sent
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.client.leaves.leave_behind(request);
        }
    }
}

impl QueueClient {
    async fn send_leave(&self, request: &LeaveRequest) -> Result<Sent> {
        match request {
            LeaveRequest::Ticket { line, player, holder, session, kind } => {
                let line = &line.line;
                Ok(Sent::definite(match kind {
                    LeaveKind::Keep => line.away(holder, player, session).await?,
                    LeaveKind::Quit => line.leave(holder, player, session).await?,
                }))
            }
            LeaveRequest::Waiter(waiter, kind) => {
                let held = waiter.held();
                let mut sent = match &waiter.ending {
                    Ending::Pass(_) => self.leave_login_line(waiter, &held, *kind).await?,
                    Ending::Token(_) => self.leave_wait_line(waiter, &held, *kind).await?,
                };
                sent.is_definite = sent.left != Left::None || !waiter.may_enter_late();
                Ok(sent)
            }
        }
    }

    async fn leave_login_line(&self, waiter: &Waiter, held: &Held, kind: LeaveKind) -> Result<Sent> {
        let (line, player, holder) = (&waiter.line.line, &waiter.player, self.holder(held));
        Ok(Sent::definite(match (&held.stage, kind) {
            // The place of a player who dropped is where the admission came from.
            (Stage::Admitted { admission, failing }, LeaveKind::Keep) => {
                let op = failing.clone().unwrap_or_else(SessionId::fresh);
                waiter.fails_under(&op);
                let attributes = waiter.attributes(held)?;
                match line.failed(&self.core.acting()?, admission, &op, &attributes, true).await? {
                    Failed::Back | Failed::Away => Left::Away,
                    Failed::Out => Left::Left,
                    Failed::Late | Failed::Landed => Left::None,
                }
            }
            (_, LeaveKind::Keep) => line.away(&holder, player, &held.session).await?,
            (_, LeaveKind::Quit) => line.leave(&holder, player, &held.session).await?,
        }))
    }

    async fn leave_wait_line(&self, waiter: &Waiter, held: &Held, kind: LeaveKind) -> Result<Sent> {
        let (line, player, holder) = (&waiter.line.line, &waiter.player, self.holder(held));
        if kind == LeaveKind::Keep {
            let left = line.away(&holder, player, &held.session).await?;
            // Where there is no ticket any more the turn has come: nobody takes that ticket.
            if left != Left::None || waiter.may_enter_late() {
                return Ok(Sent::definite(left));
            }
        }
        // The mark comes first: a drain meets it, or was before it and left a token that the same call ends.
        let token = self.give_up_token(waiter, held).await;
        if token.as_ref().is_err_and(Error::is_retryable) {
            return Err(token.err().unwrap_or(Error::ShuttingDown));
        }
        let left =
            if kind == LeaveKind::Keep { Left::None } else { line.leave(&holder, player, &held.session).await? };
        Ok(Sent { left, token: Some(token?), is_definite: true })
    }

    /// No live token stays that came of this wait.
    async fn give_up_token(&self, waiter: &Waiter, held: &Held) -> Result<CancelOutcome> {
        let (book, claimant) = (&self.core.book, self.core.releasing());
        let outcome = book.cancel(&waiter.player, &held.wish, &claimant, Some(&held.op), &[]).await?;
        // The mark does not reach that of another request.
        let Some(token) = held.claiming.as_ref().filter(|_| outcome == CancelOutcome::Marked) else {
            return Ok(outcome);
        };
        Ok(match book.release_claim(token, &claimant, Some(&held.op), "cancelled").await? {
            ReleaseOutcome::Released => CancelOutcome::Released,
            ReleaseOutcome::Landed => CancelOutcome::Landed,
            ReleaseOutcome::Lost | ReleaseOutcome::Ended(_) | ReleaseOutcome::None => CancelOutcome::Marked,
        })
    }

    /// The handle of a request that waits is gone before its end: the player leaves, or gives the place up that nobody heard
    /// of.
    pub(in crate::agent) fn abandon(&self, waiter: &Arc<Waiter>) {
        let is_unheard = matches!(waiter.end(), Some(End::Transfer(_)));
        if is_unheard || self.refuse(waiter, Why::Cancelled("nobody waits for it any more")) {
            self.leaves.leave_behind(LeaveRequest::Waiter(Arc::clone(waiter), LeaveKind::Quit));
        }
    }

    /// Sends one, in the player's turn: whoever is finding out what became of the ticket may enter it again. Answers it where it
    /// has to be sent again.
    async fn leave_in_turn(&self, request: LeaveRequest) -> Option<LeaveRequest> {
        let _turn = match &request {
            LeaveRequest::Waiter(waiter, _) => Some(self.turns.lock(&waiter.key()).await),
            LeaveRequest::Ticket { .. } => None,
        };
        let player = request.player();
        let goes_on = match self.send_leave(&request).await {
            Ok(sent) => {
                tracing::debug!(%player, ?sent, "left a line");
                !sent.is_definite
            }
            Err(error) if error.is_retryable() => {
                tracing::debug!(%player, %error, "leaving a line again");
                true
            }
            Err(error) => {
                tracing::warn!(%player, %error, "could not leave a line");
                false
            }
        };
        goes_on.then_some(request)
    }
}

/// Sends what was left behind, until the agent stops.
pub(in crate::agent) async fn send_leaves(client: Arc<QueueClient>) {
    let stop = &client.core.stop;
    while stop.run_until_cancelled(client.leaves.more.notified()).await.is_some() {
        loop {
            let all = client.leaves.take();
            if all.is_empty() {
                break;
            }
            let sending = stream::iter(all.into_iter().map(|request| client.leave_in_turn(request)));
            let again = sending.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect::<Vec<_>>();
            let Some(again) = stop.run_until_cancelled(again).await else { return };
            if again.is_empty() {
                continue;
            }
            again.into_iter().for_each(|request| client.leaves.leave_behind(request));
            if stop.run_until_cancelled(sleep(jitter(AGAIN))).await.is_none() {
                return;
            }
        }
    }
}
