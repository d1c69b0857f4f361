//! The loop of a proxy that looks after its requests that wait.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use crate::agent::core::{LineHint, jitter};
use crate::agent::model::Reason;
use crate::agent::proxy::Proxy;
use crate::error::Result;
use crate::ids::{NodeEpoch, Player};
use crate::node::LeaseEvent;
use crate::queue::{Line, LineEvent, POSITIONS_MAX, TicketText};

use super::decide::Cause;
use super::slot::Slot;
use super::update::WaitUpdate;
use super::upkeep::end_if_removed;

/// Longest time between two looks.
const TICK: Duration = Duration::from_secs(1);
/// Of how many looks one reads who waits, also where the number of them is right, and tells positions.
const FULL_ROUNDS: u32 = 3;
/// Tickets of a line that one look reads.
const TICKETS: usize = 256;
/// Places without a player that one look gives up.
const GHOSTS: usize = 256;
/// Requests that are looked after at the same time.
const CONCURRENT: usize = 32;

/// Looks after what waits on this proxy, until the agent stops.
pub(in crate::agent) async fn watch(proxy: Arc<Proxy>) {
    let core = &proxy.core;
    let (mut events, mut lease) = (core.line_events.subscribe(), core.lease.events());
    let (mut next, mut round) = (Instant::now() + jitter(TICK), 0_u32);
    loop {
        let work = async {
            tokio::select! {
                hint = events.recv() => match hint {
                    Ok(LineHint::Event(event)) => proxy.heard_of_line(event),
                    Ok(LineHint::Gap) | Err(RecvError::Lagged(_)) => proxy.look_at_waits(true).await,
                    Err(RecvError::Closed) => return false,
                },
                event = lease.recv() => match event {
                    Ok(LeaseEvent::Joined { .. } | LeaseEvent::Resumed { .. } | LeaseEvent::Rejoined { .. })
                    | Err(RecvError::Lagged(_)) => proxy.enter_all_again().await,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return false,
                },
                () = sleep_until(next) => {
                    next = Instant::now() + jitter(TICK);
                    round = round.wrapping_add(1);
                    let is_full = round.is_multiple_of(FULL_ROUNDS);
                    proxy.look_at_waits(is_full).await;
                    if is_full {
                        proxy.tell_positions().await;
                    }
                }
            }
            true
        };
        if core.stop.run_until_cancelled(work).await != Some(true) {
            break;
        }
    }
    // The tickets go to away with this proxy's row: their players keep their places for the grace.
    for slot in proxy.waits.all() {
        let refusal = proxy.refusal(Reason::Cancelled, "the proxy leaves; the place is kept for a while");
        proxy.end_wait(&slot, WaitUpdate::Refused(refusal));
    }
}

impl Proxy {
    fn heard_of_line(self: &Arc<Self>, event: LineEvent) {
        let (line, player, cause) = match event {
            LineEvent::Drained { line, player, .. } => {
                self.waits.drained(&line);
                (line, player, Cause::Drained)
            }
            LineEvent::Left { line, player } => (line, player, Cause::Other),
            _ => return,
        };
        let Some(slot) = self.waits.get(&line, &player) else { return };
        let proxy = Arc::clone(self);
        self.core.tasks.spawn(async move {
            let stop = proxy.core.stop.clone();
            stop.run_until_cancelled(proxy.decide(&slot, cause)).await;
        });
    }

    /// What waits is compared with the store: an event may have been missed. By the number of those who wait through this
    /// node; where that is not right, and in a full look, by their names; and the tickets some at a time.
    async fn look_at_waits(self: &Arc<Self>, is_full: bool) {
        for (line, slots) in self.waits.by_line() {
            match self.unlike(&line, slots, is_full).await {
                Ok(changed) => {
                    self.each(changed, async |proxy, (slot, cause)| proxy.decide(&slot, cause).await).await;
                }
                Err(error) => tracing::debug!(line = %line.name(), %error, "could not look at those who wait"),
            }
        }
        let most = self.core.config().wait.max_wait_ms;
        if most > 0 {
            let most = Duration::from_millis(most);
            let overdue = self.waits.all().into_iter().filter(|slot| slot.since.elapsed() >= most).collect();
            self.each(overdue, async |proxy, slot| proxy.overdue(&slot).await).await;
        }
    }

    async fn each<T>(self: &Arc<Self>, some: Vec<T>, act: impl AsyncFn(Arc<Self>, T)) {
        stream::iter(some).for_each_concurrent(CONCURRENT, |one| act(Arc::clone(self), one)).await;
    }

    /// Those of whom the store does not say what it should, whose ticket has to be entered again, or may stand beside a token.
    async fn unlike(&self, line: &Line, slots: Vec<Arc<Slot>>, is_full: bool) -> Result<Vec<(Arc<Slot>, Cause)>> {
        let holder = self.holder();
        let entered = slots.into_iter().filter(|slot| slot.visit().entered);
        let (mut own, doubtful): (Vec<_>, Vec<_>) = entered.partition(|slot| {
            let visit = slot.visit();
            !self.is_outdated(&visit) && !visit.doubtful
        });
        let mut changed: Vec<_> = doubtful.into_iter().map(|slot| (slot, Cause::Other)).collect();
        if is_full || line.count_through(&holder).await? != u64::try_from(own.len()).unwrap_or(u64::MAX) {
            let names = line.waiting_through(&holder).await?;
            let through: HashSet<Player> = names.into_iter().filter_map(|name| Player::new(name).ok()).collect();
            let unlisted = own.extract_if(.., |slot| !through.contains(&slot.request.player));
            changed.extend(unlisted.map(|slot| (slot, Cause::Unlisted)));
            if is_full {
                self.give_up_ghosts(line, &holder, through).await?;
            }
        }
        let some = self.waits.in_turn(line.name(), &own, TICKETS);
        let players: Vec<Player> = some.iter().map(|slot| slot.request.player.clone()).collect();
        for (slot, ticket) in some.into_iter().zip(line.tickets_of(&players).await?) {
            let session = slot.visit().session;
            if !matches!(ticket, Some(TicketText::Good(ticket)) if ticket.session == session) {
                changed.push((slot, Cause::Other));
            }
        }
        Ok(changed)
    }

    /// A call whose outcome nobody learnt left a ticket here. Its place is kept for the grace, for somebody who comes back:
    /// in the line it would take a place from those who wait.
    async fn give_up_ghosts(&self, line: &Line, holder: &NodeEpoch, through: HashSet<Player>) -> Result<()> {
        let ghosts = self.waits.ghosts(line.name(), through, GHOSTS);
        for (player, ticket) in ghosts.iter().zip(line.tickets_of(&ghosts).await?) {
            if let Some(TicketText::Good(ticket)) = ticket
                && ticket.holder == *holder
                && self.waits.get(line.name(), player).is_none()
            {
                tracing::debug!(line = %line.name(), %player, "gave up a place without a player");
                line.away(holder, player, &ticket.session).await?;
            }
        }
        Ok(())
    }

    /// After a new lease: every ticket names the old epoch, or went to away, or is lost with the store's data.
    async fn enter_all_again(self: &Arc<Self>) {
        let all = self.waits.all();
        all.iter().for_each(|slot| slot.make_stale());
        // The foremost first; each says which place it had.
        stream::iter(all)
            .map(|slot| async move { self.decide(&slot, Cause::Other).await })
            .buffered(CONCURRENT)
            .for_each(async |()| ())
            .await;
    }

    async fn tell_positions(self: &Arc<Self>) {
        for (line, slots) in self.waits.by_line() {
            let order = match line.positions(POSITIONS_MAX).await {
                Ok(order) => order,
                Err(error) => {
                    tracing::debug!(line = %line.name(), %error, "could not read the positions");
                    continue;
                }
            };
            let beyond = u64::try_from(order.len()).is_ok_and(|count| count >= POSITIONS_MAX);
            let places: HashMap<Player, u64> = order.into_iter().zip(1..).collect();
            for slot in slots {
                match places.get(&slot.request.player) {
                    Some(place) => slot.tell(Some(*place), self.waits.estimate_ms(line.name(), *place)),
                    None if beyond => slot.tell(None, None),
                    // Served, or away, a moment ago.
                    None => {}
                }
            }
        }
        for server in self.waits.servers() {
            if self.core.directory.snapshot().get(&server).is_none()
                && let Err(error) = end_if_removed(&self.core, &server).await
            {
                tracing::debug!(%server, %error, "could not see whether the server was removed");
            }
        }
    }
}
