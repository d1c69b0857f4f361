//! The loop of a proxy that looks after its requests that wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use crate::agent::background::jitter;
use crate::agent::core::LineHint;
use crate::agent::proxy::{Proxy, Reason};
use crate::error::Result;
use crate::ids::Player;
use crate::node::LeaseEvent;
use crate::queue::{Line, LineEvent, POSITIONS_MAX, TicketText};

use super::handle::WaitUpdate;
use super::slot::Slot;
use super::upkeep::end_if_removed;

/// Longest time between two looks.
const TICK: Duration = Duration::from_secs(1);
/// Of how many looks one tells positions.
const POSITIONS_ROUNDS: u32 = 3;
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
                    Ok(LineHint::Gap) | Err(RecvError::Lagged(_)) => proxy.look_at_waits().await,
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
                    proxy.look_at_waits().await;
                    if round.is_multiple_of(POSITIONS_ROUNDS) {
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
        let (line, player, drained) = match event {
            LineEvent::Drained { line, player, .. } => {
                self.waits.drained(&line);
                (line, player, true)
            }
            LineEvent::Left { line, player } => (line, player, false),
            _ => return,
        };
        let Some(slot) = self.waits.get(&line, &player) else { return };
        let proxy = Arc::clone(self);
        self.core.tasks.spawn(async move {
            let stop = proxy.core.stop.clone();
            stop.run_until_cancelled(proxy.decide(&slot, drained)).await;
        });
    }

    /// All that waits is compared with the store: an event may have been missed.
    async fn look_at_waits(self: &Arc<Self>) {
        for (line, slots) in self.waits.by_line() {
            match self.unlike(&line, slots).await {
                Ok(changed) => self.each(changed, async |proxy, slot| proxy.decide(&slot, false).await).await,
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

    async fn each(self: &Arc<Self>, slots: Vec<Arc<Slot>>, act: impl AsyncFn(Arc<Self>, Arc<Slot>)) {
        stream::iter(slots).for_each_concurrent(CONCURRENT, |slot| act(Arc::clone(self), slot)).await;
    }

    /// Those whose ticket is not theirs any more, has to be entered again, or may stand beside a token.
    async fn unlike(&self, line: &Line, slots: Vec<Arc<Slot>>) -> Result<Vec<Arc<Slot>>> {
        let players: Vec<Player> = slots.iter().map(|slot| slot.request.player.clone()).collect();
        let tickets = line.tickets_of(&players).await?;
        let changed = |(slot, ticket): (Arc<Slot>, Option<TicketText>)| {
            let visit = slot.visit();
            let same = matches!(ticket, Some(TicketText::Good(ticket)) if ticket.session == visit.session);
            (visit.entered && (visit.stale || visit.doubtful || !same)).then_some(slot)
        };
        Ok(slots.into_iter().zip(tickets).filter_map(changed).collect())
    }

    /// After a new lease: every ticket names the old epoch, or went to away, or is lost with the store's data.
    async fn enter_all_again(self: &Arc<Self>) {
        let all = self.waits.all();
        all.iter().for_each(|slot| slot.make_stale());
        // The foremost first; each says which place it had.
        stream::iter(all)
            .map(|slot| async move { self.decide(&slot, false).await })
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
