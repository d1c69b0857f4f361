//! What became of a ticket, and what follows from it.

use std::sync::Arc;

use crate::agent::model::{Reason, Transfer};
use crate::agent::proxy::{Proxy, address};
use crate::error::{Error, Result};
use crate::ids::Player;
use crate::queue::{Entered, TicketText};
use crate::token::{ClaimOutcome, TokenRow, TokenState};

use super::slot::{Slot, Visit};
use super::update::WaitUpdate;

/// Why somebody looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// An event said that it was drained: the token is looked at first.
    Drained,
    /// It is not among those who wait through this node: its ticket may have been put away.
    Unlisted,
    Other,
}

const OUTSTAYED: &str = "no place came in within wait.maxWaitMs";

impl Proxy {
    /// Finds out what became of a request that waits, where something happened to it. What the store does not answer is asked
    /// again with the next tick.
    pub(super) async fn decide(self: &Arc<Self>, slot: &Arc<Slot>, cause: Cause) {
        let _one = slot.deciding.lock().await;
        if slot.is_over() {
            return;
        }
        if let Err(error) = self.decided(slot, cause).await {
            tracing::debug!(player = %slot.request.player, line = %slot.line.name(), %error, "looked after with the next tick");
        }
    }

    async fn decided(self: &Arc<Self>, slot: &Arc<Slot>, cause: Cause) -> Result<()> {
        let (visit, player) = (slot.visit(), &slot.request.player);
        if cause == Cause::Drained || visit.doubtful {
            if let Some(row) = self.token_of(player).await?
                && row.token.request == visit.wish
                && row.is_live(self.core.store.clock().now_ms())
            {
                return self.claim_drained(slot, &visit, row).await;
            }
            slot.settle_doubt(&visit.session);
        }
        if !visit.entered {
            return Ok(());
        }
        // The ticket becomes a token in one step: looked at the other way round, neither might be there.
        match slot.line.tickets_of(std::slice::from_ref(player)).await?.pop().flatten() {
            Some(TicketText::Good(ticket)) if ticket.session == visit.session => {
                let stands = !self.is_outdated(&visit) && cause != Cause::Unlisted;
                return if stands { Ok(()) } else { self.stand(slot, &visit).await };
            }
            Some(TicketText::Good(_)) => {
                self.refuse_wait(slot, Reason::Lost, "the player waits through another request or proxy");
                return Ok(());
            }
            // Put out by whoever serves the line; or another build's.
            Some(TicketText::Forged | TicketText::Strange) => return Ok(()),
            None => {}
        }
        match self.token_of(player).await? {
            Some(row) if row.token.request == visit.wish => self.had_its_turn(slot, &visit, row).await,
            Some(row) if self.may_take_over(slot, &row) => self.claim_drained(slot, &visit, row).await,
            Some(row) if row.is_live(self.core.store.clock().now_ms()) => {
                let why = format!("another request of the player has a place at {}", row.token.server);
                self.refuse_wait(slot, Reason::Lost, why);
                Ok(())
            }
            // The sweep of another node may have been its end; with the lease it is entered again.
            _ if !self.core.lease.is_valid() => Ok(()),
            _ if self.is_outdated(&visit) => self.stand(slot, &visit).await,
            Some(row) if row.consumed_at_ms.is_some_and(|at| at >= visit.seq) => {
                self.refuse_wait(slot, Reason::Lost, format!("the player has landed at {}", row.token.server));
                Ok(())
            }
            // With the store's data the membership is gone too: this proxy joins again, and enters its players again.
            _ if !self.core.is_known(visit.epoch).await? => Ok(()),
            // The store did not answer when it left.
            _ if slot.is_outstayed() => {
                self.refuse_wait(slot, Reason::WaitedTooLong, OUTSTAYED);
                Ok(())
            }
            _ => {
                self.refuse_wait(slot, Reason::WaitEnded, format!("the place in {} is gone", slot.line.name()));
                Ok(())
            }
        }
    }

    /// The lease was over since the ticket was signed, whether the loop has heard of it or not.
    pub(super) fn is_outdated(&self, visit: &Visit) -> bool {
        let lease = &self.core.lease;
        visit.stale || visit.epoch != lease.epoch() || visit.gaps != lease.generation()
    }

    fn refuse_wait(self: &Arc<Self>, slot: &Arc<Slot>, reason: Reason, why: impl Into<String>) {
        self.end_wait(slot, WaitUpdate::Refused(self.refusal(reason, why)));
    }

    /// The player's token; none where the row does not verify, which was audited.
    async fn token_of(&self, player: &Player) -> Result<Option<TokenRow>> {
        match self.core.book.find(player).await {
            Err(Error::Untrusted { .. } | Error::SchemaVersion { .. }) => Ok(None),
            found => found,
        }
    }

    /// Another request of the player left a token that nobody moves them to, at a server that will do.
    fn may_take_over(&self, slot: &Slot, row: &TokenRow) -> bool {
        let fits = slot.request.ask.server.as_ref().is_none_or(|only| *only == row.token.server);
        fits && row.state == TokenState::Pending && row.is_live(self.core.store.clock().now_ms())
    }

    /// The ticket became a token.
    async fn had_its_turn(self: &Arc<Self>, slot: &Arc<Slot>, visit: &Visit, row: TokenRow) -> Result<()> {
        match (row.state, row.reason.as_deref()) {
            (TokenState::Consumed, _) => self.refuse_wait(slot, Reason::Lost, "the player has landed already"),
            (TokenState::Released, Some("cancelled")) => self.refuse_wait(slot, Reason::Cancelled, "it was cancelled"),
            _ if row.is_live(self.core.store.clock().now_ms()) => return self.claim_drained(slot, visit, row).await,
            _ => return self.stand_again(slot, visit).await,
        }
        Ok(())
    }

    async fn claim_drained(self: &Arc<Self>, slot: &Arc<Slot>, visit: &Visit, row: TokenRow) -> Result<()> {
        let (core, token) = (&self.core, row.token);
        let addr = match core.directory.snapshot().get(&token.server) {
            Some(view) => Some(view.record.addr.clone()),
            None => address(&core.store, &core.verifier, &token.server).await?,
        };
        let Some(addr) = addr else { return self.stand_again(slot, visit).await };
        match core.book.claim(&token, &core.acting()?, &visit.op).await {
            Ok(ClaimOutcome::Claimed(_)) => {
                let turn_ms = token.issued_at_ms;
                let transfer = Transfer::claimed(&core.store, slot.request.id.clone(), token, addr, visit.op.clone());
                self.end_wait(slot, WaitUpdate::Transfer(Box::new(transfer)));
                // The answer to an enter may have been lost, and its repeat have come after the turn. One that is still
                // under way finds that the wait is over.
                let entered = slot.visit();
                if entered.may_stand_twice(turn_ms) {
                    self.leave_until_definite(slot, &entered);
                }
            }
            Ok(ClaimOutcome::Lost) => {
                self.refuse_wait(slot, Reason::Lost, format!("another proxy moves them to {}", token.server));
            }
            Ok(ClaimOutcome::Expired | ClaimOutcome::Ended(_) | ClaimOutcome::None | ClaimOutcome::ServerGone) => {
                return self.stand_again(slot, visit).await;
            }
            // Asked again with the next tick, for as long as the token lives; by then as another epoch where this one is over.
            Err(error @ (Error::KillSwitch { .. } | Error::Fenced { .. })) => return Err(error),
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => self.refuse_wait(slot, Reason::of(&error), error.to_string()),
        }
        Ok(())
    }

    /// The turn had come and nothing came of it: the backend is gone, or the token ran out. The player stands in front
    /// again, as another visit.
    async fn stand_again(self: &Arc<Self>, slot: &Arc<Slot>, visit: &Visit) -> Result<()> {
        let visit = visit.again();
        slot.set_visit(visit.clone());
        self.stand(slot, &visit).await
    }

    /// Enters the line for a visit, at the place that it had. Until that is answered the visit stays stale.
    async fn stand(self: &Arc<Self>, slot: &Arc<Slot>, visit: &Visit) -> Result<()> {
        let (request, attributes) = (&slot.request, slot.attributes(visit)?);
        let gaps = self.core.lease.generation();
        let (holder, place) = (self.core.acting()?, (visit.lane, visit.seq));
        match slot.line.enter_again(&holder, &request.player, &visit.session, &attributes, place).await? {
            Entered::Waiting(place) => {
                slot.placed(&place, holder.epoch, gaps);
                slot.doubt();
                slot.tell(Some(place.position), self.waits.estimate_ms(slot.line.name(), place.position));
            }
            Entered::Full => self.refuse_wait(slot, Reason::QueueFull, "the line was full when it was entered again"),
            Entered::Admitted(_) => self.refuse_wait(slot, Reason::Refused, "a wait line gives no passes"),
        }
        Ok(())
    }

    /// The wait took too long: the player leaves, unless the turn has just come.
    pub(super) async fn overdue(self: &Arc<Self>, slot: &Arc<Slot>) {
        let one = slot.deciding.lock().await;
        if slot.is_over() {
            return;
        }
        match self.give_up_wait(slot).await {
            Ok(true) => self.refuse_wait(slot, Reason::WaitedTooLong, OUTSTAYED),
            Ok(false) => {
                drop(one);
                self.decide(slot, Cause::Other).await;
            }
            Err(error) => tracing::debug!(player = %slot.request.player, %error, "leaves with the next tick"),
        }
    }
}
