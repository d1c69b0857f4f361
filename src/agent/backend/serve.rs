//! How a backend serves the wait lines: the zone's, and its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::agent::model::PlaceRequest;
use crate::error::{Error, Result, StoreRefusal};
use crate::ids::{LineName, NodeEpoch, Region, TokenId};
use crate::node::NodeState;
use crate::queue::{DRAINED_ATTEMPT, Drained, Line, Wish, pages};
use crate::token::IssueOrder;

use super::inventory::{BackendEvent, Inventory, Offer};
use super::scan_cursor::{Offered, is_sold_out};
use super::state::{Backend, Unknown};
use super::unmet_demand::UnmetDemand;

/// Wishes of each line that one poll reads.
const PAGE: usize = 64;
/// Wishes of each line that one poll reads further back, where none of the first can be served here and places may be left.
const DEEP: usize = 1_024;
/// A drain that the store did not answer cannot have its effect any more after this time, in ms: the script refuses what was
/// signed more than 5 s ago.
const LATE_MS: u64 = 10_000;

/// How far one wish came.
pub(in crate::agent) enum Served {
    /// Its player has the place.
    Issued,
    /// It wants none any more, or somebody else serves it. The place is home.
    NotNeeded,
    /// There is none for it.
    NoPlace,
    /// There is one, which came in after somebody in front was told that there is none. The place is home.
    Overtakes,
}

/// What one poll found.
struct Found {
    wishes: Vec<(Line, Wish)>,
    /// Up to where both lines were read, where there are more behind it.
    more_after: Option<u64>,
}

/// What went wrong concerns one player's rows or payload.
fn is_of_one(error: &Error) -> bool {
    match error {
        Error::Refused { refusal, .. } => *refusal == StoreRefusal::WrongType,
        Error::OutOfBounds { .. } | Error::Protocol { .. } | Error::InvalidId(_) => true,
        _ => false,
    }
}

impl<I: Inventory> Backend<I> {
    /// Looks at the lines once, and gives places to whoever can have one.
    pub async fn serve_lines(self: &Arc<Self>) {
        let _one = self.serving.busy.lock().await;
        let mut awaited = UnmetDemand::default();
        let served = self.serve_all(&mut awaited).await;
        if let Err(error) = served {
            // Nobody is known to be gone.
            tracing::debug!(%error, "could not serve the wait lines; the next tick tries again");
            if awaited == UnmetDemand::default() {
                return;
            }
        }
        self.serving.set_unmet(awaited);
    }

    /// As whom it may promise places now.
    fn may_promise(&self) -> Option<NodeEpoch> {
        let (core, condition) = (&self.core, self.core.condition());
        let own = &core.identity.id;
        let closed = condition.state == NodeState::ShuttingDown
            || !condition.accepting
            || core.stop.is_cancelled()
            || core.control.is_killed(own)
            || core.control.drain(own).is_some();
        if closed { None } else { core.acting().ok() }
    }

    /// Serves in order until there is no place or nobody is left. `awaited` becomes what is waited for then.
    async fn serve_all(self: &Arc<Self>, awaited: &mut UnmetDemand) -> Result<()> {
        let lines = self.wait_lines()?;
        loop {
            *awaited = UnmetDemand::default();
            let has = self.offered();
            let restocks = self.serving.restocks();
            let mut exhausted = BTreeSet::new();
            let first = self.find(&lines, None, PAGE).await?;
            let more_after = first.more_after;
            let none = BTreeSet::new();
            let settled = self.serve_found(&lines, first, &has, &none, &mut exhausted, awaited).await?;
            let Some(end) = more_after.filter(|_| !is_sold_out(&has.regions, &exhausted)) else { return Ok(()) };
            if settled > 0 {
                continue;
            }
            // None of the first can be served here, and places may be left.
            let (after, passed) = {
                let mut depth = self.serving.cursor();
                (depth.begin(end, has.clone()), depth.passed().clone())
            };
            passed.iter().for_each(|region| awaited.add(region.as_ref()));
            let deep = self.find(&lines, Some(after), DEEP).await?;
            if self.serving.restocks() != restocks {
                // A place that came in since is for those in front.
                continue;
            }
            let more_after = deep.more_after;
            if self.serve_found(&lines, deep, &has, &passed, &mut exhausted, awaited).await? == 0 {
                // Without places there is nothing to look for, and the next one is for somebody here.
                if !is_sold_out(&has.regions, &exhausted) {
                    self.serving.cursor().pass(more_after, exhausted);
                }
                return Ok(());
            }
        }
    }

    /// Serves those of `found` whom it can, and answers how many it has served or found to want nothing any more. Of what was `passed` or is `exhausted` nobody is served.
    async fn serve_found(
        self: &Arc<Self>,
        lines: &[Line],
        found: Found,
        has: &Offered,
        passed: &BTreeSet<Option<Region>>,
        exhausted: &mut BTreeSet<Option<Region>>,
        awaited: &mut UnmetDemand,
    ) -> Result<usize> {
        let restocks = self.serving.restocks();
        let paused = paused(lines, &found.wishes).await?;
        let (mut issued, mut gone, mut failed) = (0_usize, 0_usize, None);
        let mut is_held_up = false;
        for (line, wish) in found.wishes {
            if !has.suits(wish.region.as_ref(), wish.world.as_deref()) {
                continue;
            }
            let none_left =
                [passed, &*exhausted].iter().any(|of| of.contains(&wish.region) || is_sold_out(&has.regions, of));
            // Others of the line that was not read to its end may come before this one.
            let is_early = issued > 0 && found.more_after.is_some_and(|end| wish.seq() > Some(end));
            // Whoever was away itself cannot know who is dead: the line waits for its foremost then.
            is_held_up = is_held_up || (!self.core.may_judge() && line.is_silent(&wish).await?);
            if is_held_up || failed.is_some() || none_left || is_early || paused.contains(line.name()) {
                awaited.add(wish.region.as_ref());
                continue;
            }
            let refused_at = (!exhausted.is_empty()).then_some(restocks);
            match self.serve_one(&line, &wish, refused_at).await {
                Ok(Served::Issued) => issued += 1,
                // The lines are looked at from the front again: the place that came in has asked for that.
                Ok(Served::Overtakes) => return Ok(issued + gone + 1),
                Ok(Served::NotNeeded) => gone += 1,
                Ok(Served::NoPlace) => {
                    awaited.add(wish.region.as_ref());
                    exhausted.insert(wish.region);
                }
                // Those behind have nothing to do with it.
                Err(error) if is_of_one(&error) => {
                    tracing::warn!(player = %wish.player, line = %line.name(), %error, "cannot serve this player");
                }
                Err(error) => {
                    awaited.add(wish.region.as_ref());
                    failed = Some(error);
                }
            }
        }
        failed.map_or(Ok(issued + gone), Err)
    }

    /// The regions and worlds of which it may have places.
    fn offered(&self) -> Offered {
        let regions = self.inventory.regions().into_keys().collect();
        Offered { regions, worlds: self.core.worlds().into_iter().collect() }
    }

    fn wait_lines(&self) -> Result<[Line; 2]> {
        let (core, config) = (&self.core, self.core.config());
        let leads_here = self.lines_hold_ms().is_some();
        let line = |name| {
            let options = config.wait.options(name);
            let line = Line::new(core.store.clone(), core.verifier.clone(), core.control.clone(), options)?;
            Ok::<_, Error>(if leads_here { line.counting(core.arrivals.clone()) } else { line })
        };
        Ok([line(LineName::wait())?, line(LineName::wait_for(&core.identity.id))?])
    }

    /// Those of both lines behind the place `after`, at most so many of each, by when they came. One round trip where nobody
    /// waits.
    async fn find(&self, lines: &[Line], after: Option<u64>, most: usize) -> Result<Found> {
        let mut found = Found { wishes: Vec::new(), more_after: None };
        for (line, page) in lines.iter().zip(pages(lines, after, most).await?) {
            found.more_after = [found.more_after, page.more_after].into_iter().flatten().min();
            if !page.players.is_empty() {
                found.wishes.extend(line.wishes_of(&page.players).await?.into_iter().map(|wish| (line.clone(), wish)));
            }
        }
        found.wishes.sort_by_key(|(_, wish)| wish.seq());
        Ok(found)
    }

    /// `refused_at`: somebody in front was told that there is no place, when places had come in so often.
    async fn serve_one(self: &Arc<Self>, line: &Line, wish: &Wish, refused_at: Option<u64>) -> Result<Served> {
        let Some(server) = self.may_promise() else { return Ok(Served::NoPlace) };
        let times = self.core.config().book_options();
        if wish.seq().is_none() {
            // Nobody gets a place for what no member wrote: it is put out.
            line.drain(&server, wish, &TokenId::fresh(), RawValue::NULL, &times).await?;
            return Ok(Served::NotNeeded);
        }
        let now = self.core.store.clock().now_ms();
        let request = PlaceRequest {
            player: wish.player.clone(),
            request: wish.request.clone(),
            attempt: DRAINED_ATTEMPT,
            region: wish.region.clone(),
            deadline_ms: now.saturating_add(self.core.config().dispatch.attempt_timeout_ms),
            earlier: Vec::new(),
            bypass: false,
        };
        let Some(Offer { place, payload }) = self.reserve_in_time(request.clone()).await else {
            return Ok(Served::NoPlace);
        };
        if refused_at.is_some_and(|restocks| restocks != self.serving.restocks()) {
            self.inventory.give_back(place);
            return Ok(Served::Overtakes);
        }
        // Whoever left meanwhile promises nothing any more.
        let Some(server) = self.may_promise() else {
            self.inventory.give_back(place);
            return Ok(Served::NoPlace);
        };
        let order = IssueOrder {
            id: TokenId::fresh(),
            player: request.player,
            request: request.request,
            attempt: request.attempt,
            payload,
            deadline_ms: request.deadline_ms,
            earlier: request.earlier,
            issued_at_ms: self.core.store.clock().now_ms(),
        };
        self.serving.drains().insert(order.id.clone(), (line.clone(), wish.clone()));
        self.ledger().issuing(&order, server.epoch, place, order.issued_at_ms.saturating_add(times.ttl_ms));
        self.notify(BackendEvent::PlacePromised { player: order.player.clone(), token: order.id.clone() });
        metrics::counter!("maitred_places_promised_total").increment(1);
        self.settle_drain(&server, &order, false).await
    }

    /// A place for a wish. The inventory's answer is never cut off: one that comes too late goes straight back.
    async fn reserve_in_time(self: &Arc<Self>, request: PlaceRequest) -> Option<Offer<I::Place>> {
        let limit = Duration::from_millis(self.core.config().dispatch.attempt_timeout_ms);
        let (answer, offer) = oneshot::channel();
        let backend = Arc::clone(self);
        self.core.tasks.spawn(async move {
            let offer = backend.inventory.reserve(&request).await;
            if let Err(Some(late)) = answer.send(offer) {
                backend.inventory.give_back(late.place);
            }
        });
        let mut offer = offer;
        match timeout(limit, &mut offer).await {
            Ok(offer) => offer.ok().flatten(),
            Err(_) => {
                offer.close();
                offer.try_recv().ok().flatten()
            }
        }
    }

    /// Asks the store until it is definite whether the ticket became the token of `order`. An outcome that is not known is
    /// left to the settling loop, with the place.
    pub(in crate::agent) async fn settle_drain(
        &self,
        server: &NodeEpoch,
        order: &IssueOrder,
        repeat: bool,
    ) -> Result<Served> {
        let guard = Unknown::new(self, &order.id);
        let times = self.core.config().book_options();
        let Some((line, wish)) = self.serving.drains().get(&order.id).cloned() else {
            // Settled by somebody else.
            guard.settled();
            return Ok(Served::NotNeeded);
        };
        let outcome = line.drain(server, &wish, &order.id, &order.payload, &times).await;
        let (ended, reason) = match outcome {
            Ok(Drained::Issued(token)) => {
                let hinted = self.ledger().issued(&token);
                self.serving.drains().remove(&order.id);
                guard.settled();
                if hinted {
                    self.check_row(token.id.clone(), token.player.clone()).await;
                }
                return Ok(Served::Issued);
            }
            Ok(Drained::Gone) => (Ok(Served::NotNeeded), "line_changed"),
            Ok(Drained::Away) => (Ok(Served::NotNeeded), "holder_gone"),
            Ok(Drained::NotNeeded) => (Ok(Served::NotNeeded), "not_needed"),
            Ok(Drained::NoPlace) => (Ok(Served::NoPlace), "promised_to_lines"),
            Err(error) if error.may_have_changed() || (repeat && self.may_still_come(order, &error)) => {
                return Err(error);
            }
            Err(error) => (Err(error), "refused"),
        };
        let place = self.ledger().not_issued(&order.id);
        self.serving.drains().remove(&order.id);
        guard.settled();
        if let Some(place) = place {
            // Not a reason to look at the lines again: whoever serves them goes on by itself.
            self.return_place(&order.id, &order.player, place, reason);
        }
        ended
    }

    /// The refusal of a repeat says nothing of the first try, as long as that one can still reach the store.
    fn may_still_come(&self, order: &IssueOrder, error: &Error) -> bool {
        let age_ms = self.core.store.clock().now_ms().saturating_sub(order.issued_at_ms);
        age_ms < LATE_MS && !matches!(error, Error::Fenced { .. })
    }
}

/// The lines among those of `wishes` that an operator paused.
async fn paused(lines: &[Line], wishes: &[(Line, Wish)]) -> Result<BTreeSet<LineName>> {
    let mut paused = BTreeSet::new();
    for line in lines {
        if wishes.iter().any(|(of, _)| of.name() == line.name()) && line.is_paused().await? {
            paused.insert(line.name().clone());
        }
    }
    Ok(paused)
}
