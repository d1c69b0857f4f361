//! The way into a wait line, and out of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::agent::config::{Config, OnNoCandidate};
use crate::agent::core::Core;
use crate::agent::model::{Reason, Request};
use crate::agent::proxy::{Charge, Proxy};
use crate::error::{Error, Result};
use crate::ids::{LineName, NodeEpoch, Player, RequestId};
use crate::queue::{Attributes, Entered, Left, Line};
use crate::token::CancelOutcome;

use super::options;
use super::slot::{Slot, Visit};
use super::update::WaitUpdate;

/// An enter that took so long may have been sent more than once.
const REPEATED_AFTER: Duration = Duration::from_millis(5);

/// The line that a request which ended for `reason` waits in; `None` where it does not wait. Errors where its wish does not
/// fit into a ticket.
pub(in crate::agent) fn line_for(
    core: &Core,
    config: &Config,
    request: &Request,
    reason: Reason,
) -> Result<Option<LineName>> {
    let queues = config.selector.on_no_candidate == OnNoCandidate::Queue;
    if !queues || request.bypass || !matches!(reason, Reason::NoCandidate | Reason::Refused) {
        return Ok(None);
    }
    let line = match &request.ask.server {
        // The line of a server that nobody knows would end at once.
        Some(server) => core.directory.snapshot().get(server).map(|_| LineName::wait_for(server)),
        None => Some(LineName::wait()),
    };
    // Whoever served it might not have what was asked for.
    let ask = &request.ask;
    Attributes::of_wish(&RequestId::short(), ask.region.as_ref(), ask.world.as_deref())?;
    Ok(line)
}

/// Puts the player of `request` into `line`. Dropped on its way it leaves the line in the background.
pub(in crate::agent) async fn queue(
    proxy: &Arc<Proxy>,
    line: LineName,
    request: &Request,
    config: &Config,
    charge: Charge,
) -> std::result::Result<Arc<Slot>, (Reason, String)> {
    let core = &proxy.core;
    let failed = |error: &Error| (Reason::of(error), error.to_string());
    let visit = Visit::fresh(core.lease.epoch());
    let line = Line::new(core.store.clone(), core.verifier.clone(), core.control.clone(), options(line, &config.wait))
        .map_err(|error| failed(&error))?;
    let slot = Arc::new(Slot::new(line, request.clone(), visit.clone(), charge));
    let attributes = slot.attributes(&visit).map_err(|error| failed(&error))?;
    let _entering = slot.entering.lock().await;
    // Known before the ticket stands, so that no event about it is missed.
    let replaced = proxy.waits.add(&slot).and_then(|other| {
        let why = "another request of the player has its place in the line";
        proxy.end_wait(&other, WaitUpdate::Refused(proxy.refusal(Reason::Lost, why)));
        // One whose turn came a moment ago has its place.
        other.refusal().map(|_| slot.take_over(&other))
    });
    let mut entering = Entering { proxy, slot: &slot, is_definite: false };
    // Where the turn of an earlier request has come just now its ticket is gone, and its place is this one's.
    let mut place = (0, 0);
    for other in replaced.unwrap_or_default() {
        // The last word is the newest request's.
        drop(other.entering.lock().await);
        let had = other.visit();
        if had.entered {
            place = (had.lane, had.seq);
        }
    }
    if let Some(refusal) = slot.refusal() {
        return Err((refusal.reason, refusal.detail));
    }
    let (asked, gaps) = (Instant::now(), core.lease.generation());
    let claimant = core.acting().map_err(|error| failed(&error))?;
    match slot.line.enter_again(&claimant, &request.player, &visit.session, &attributes, place).await {
        Ok(Entered::Waiting(place)) => {
            // Over already, by a cancel or another request that may have found no ticket yet.
            if let Some(refusal) = slot.refusal() {
                return Err((refusal.reason, refusal.detail));
            }
            entering.is_definite = true;
            slot.placed(&place, claimant.epoch, gaps);
            if asked.elapsed() >= REPEATED_AFTER {
                slot.doubt();
            }
            // Its turn came before this answer, which may be that of a repeat.
            if slot.is_over() {
                proxy.leave_until_definite(&slot, &slot.visit());
            }
            slot.tell(Some(place.position), proxy.waits.estimate_ms(slot.line.name(), place.position));
            Ok(Arc::clone(&slot))
        }
        Ok(Entered::Full) => {
            entering.is_definite = true;
            proxy.waits.remove(&slot);
            slot.abandon();
            Err((Reason::QueueFull, format!("the line {} holds {} players", slot.line.name(), config.wait.max_waiting)))
        }
        // Only where a pass was written for a line that gives none.
        Ok(Entered::Admitted(_)) => Err((Reason::Refused, format!("{} gives no passes", slot.line.name()))),
        Err(error) => Err(failed(&error)),
    }
}

/// An enter under way: dropped before it is definite, it is undone.
struct Entering<'a> {
    proxy: &'a Arc<Proxy>,
    slot: &'a Arc<Slot>,
    is_definite: bool,
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        if !self.is_definite {
            self.proxy.abandon(self.slot);
        }
        // Their own tickets may still be there; or their turn had come, and they have tokens.
        for replaced in self.slot.take_replaced() {
            self.proxy.retire_until_definite(replaced);
        }
    }
}

impl Proxy {
    /// Ends a wait, once. What comes for one that is over already is given up.
    pub(super) fn end_wait(self: &Arc<Self>, slot: &Arc<Slot>, end: WaitUpdate) {
        self.waits.remove(slot);
        let (word, transfer) = match &end {
            WaitUpdate::Transfer(transfer) => ("transfer", Some(transfer.clone())),
            WaitUpdate::Refused(refusal) => (refusal.reason.as_str(), None),
            WaitUpdate::Position { .. } => return,
        };
        if let Some(transfer) = &transfer {
            self.remember(slot.request.id.clone(), transfer);
        }
        if slot.close(end) {
            metrics::counter!("maitred_waits_total", "outcome" => word).increment(1);
        } else if let Some(transfer) = transfer {
            self.transfers().remove(&slot.request.id);
            self.release_until_definite(transfer.token, transfer.claim_op);
        }
    }

    /// The handle is gone: the player leaves the line, or gives the place up that nobody heard of.
    pub(in crate::agent) fn abandon(self: &Arc<Self>, slot: &Arc<Slot>) {
        self.waits.remove(slot);
        let never_entered = slot.refusal().is_some() && !slot.visit().entered;
        // Whoever took it over retires it, once the place is theirs; and one that is kept is put away by whoever asked for it.
        if slot.is_taken_over() || slot.is_kept() {
            slot.abandon();
            return;
        }
        match slot.abandon() {
            Some(_) if never_entered => self.retire_until_definite(Arc::clone(slot)),
            None => self.retire_until_definite(Arc::clone(slot)),
            Some(WaitUpdate::Transfer(transfer)) => self.release_until_definite(transfer.token, transfer.claim_op),
            Some(_) => {}
        }
    }

    pub(super) fn holder(&self) -> NodeEpoch {
        self.claimant()
    }

    /// No ticket and no live token stays. The mark comes first: a drain meets it, or was before it and left a token that the
    /// same call ends.
    async fn retire(&self, slot: &Slot) -> Result<CancelOutcome> {
        let (visit, player) = (slot.visit(), &slot.request.player);
        let outcome = self.core.book.cancel(player, &visit.wish, &self.claimant(), Some(&visit.op), &[]).await;
        if !outcome.as_ref().is_err_and(Error::is_retryable) {
            slot.line.leave(&self.holder(), player, &visit.session).await?;
        }
        outcome
    }

    fn retire_until_definite(self: &Arc<Self>, slot: Arc<Slot>) {
        let proxy = Arc::clone(self);
        let retiring = async move {
            // Whoever is finding out what became of the ticket may enter it again.
            let _one = slot.deciding.lock().await;
            while let Err(error) = proxy.retire(&slot).await
                && proxy.core.again("end of a wait", &slot.request.player, &error, None).await
            {}
        };
        // A handle can be dropped outside of every runtime.
        self.core.tasks.spawn_on(retiring, &self.core.runtime);
    }

    /// Takes the ticket of a visit away that stands although its turn has come.
    pub(super) fn leave_until_definite(self: &Arc<Self>, slot: &Arc<Slot>, visit: &Visit) {
        let (proxy, slot, session) = (Arc::clone(self), Arc::clone(slot), visit.session.clone());
        let leaving = async move {
            let player = &slot.request.player;
            while let Err(error) = slot.line.leave(&proxy.holder(), player, &session).await
                && proxy.core.again("leave of a wait line", player, &error, None).await
            {}
        };
        self.core.tasks.spawn_on(leaving, &self.core.runtime);
    }

    /// The player of a waiting request went away for good. What the store does not answer goes on in the background.
    pub(in crate::agent) async fn cancel_wait(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<CancelOutcome> {
        let refusal = self.refusal(Reason::Cancelled, "the player went away");
        self.end_wait(slot, WaitUpdate::Refused(refusal));
        let _one = slot.deciding.lock().await;
        let outcome = self.retire(slot).await;
        if outcome.as_ref().is_err_and(Error::is_retryable) {
            self.retire_until_definite(Arc::clone(slot));
        }
        outcome
    }

    /// Keeps the place of a wait that is over for the grace. The first answer is told; what goes on does so in the background.
    async fn put_away(self: &Arc<Self>, slot: Arc<Slot>) -> Result<bool> {
        let (proxy, (tell, told)) = (Arc::clone(self), oneshot::channel());
        let going = async move {
            // Its own enter may still be under way.
            drop(slot.entering.lock().await);
            let _one = slot.deciding.lock().await;
            let (player, session, mut tell) = (&slot.request.player, slot.visit().session, Some(tell));
            loop {
                let left = slot.line.away(&proxy.holder(), player, &session).await;
                let goes_on = match &left {
                    // An enter whose answer nobody waited for may still come.
                    Ok(Left::None) => slot.may_enter_late(),
                    Ok(_) => false,
                    Err(error) => error.is_retryable(),
                };
                tracing::debug!(%player, ?left, "dropped out of a wait line");
                if let Some(tell) = tell.take() {
                    let kept = left.map(|left| left == Left::Away || (left == Left::None && goes_on));
                    // Whoever asked may be gone.
                    let _ = tell.send(kept);
                }
                if !goes_on || !proxy.core.before_retry().await {
                    return;
                }
            }
        };
        self.core.tasks.spawn_on(going, &self.core.runtime);
        told.await.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Leaves the line because the wait took too long. False where there was no ticket any more.
    pub(super) async fn give_up_wait(&self, slot: &Slot) -> Result<bool> {
        slot.outstay();
        let left = slot.line.leave(&self.holder(), &slot.request.player, &slot.visit().session).await?;
        Ok(matches!(left, Left::Left | Left::Away))
    }

    /// The connection of a player whose request waits dropped: the place is kept for the grace. False where the request does
    /// not wait here.
    pub(in crate::agent) async fn away(self: &Arc<Self>, player: &Player, request: &RequestId) -> Result<bool> {
        let Some(slot) = self.waits.of_request(player, request) else { return Ok(false) };
        slot.keep();
        let refusal = self.refusal(Reason::Cancelled, "the connection dropped; the place is kept for a while");
        self.end_wait(&slot, WaitUpdate::Refused(refusal));
        self.put_away(slot).await
    }
}
