//! The loop that looks after those who wait: what is heard of the lines, and the polls that make up for what is not.
//!
//! Each proxy reads by itself who waits through it and where they stand. Events only make it faster.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use crate::agent::core::{LineHint, jitter};
use crate::error::Result;
use crate::ids::{LineName, NodeEpoch, Player};
use crate::node::LeaseEvent;
use crate::queue::{Left, LineEvent, POSITIONS_MAX, Standing, TicketText, lines};
use crate::store::boot_ms;

use super::client::{QueueClient, Why};
use super::line_handle::LineHandle;
use super::reconcile::Cause;
use super::sweep::{end_if_removed, server_of};
use super::waiter::{Ending, Moment, Waiter};

/// Of how many polls one is full: it reads who waits through this node, also where the number of them is right, and tells
/// positions.
const FULL: u32 = 3;
/// With more players than this in a line the number of them is compared in a full poll only.
const MANY: usize = 1_000;
/// Tickets of a line that one poll reads.
const TICKETS: usize = 256;
/// The same after the connection to the store was made anew, of those that were not read since.
const TICKETS_ANEW: usize = 1_024;
/// Places without a player that one poll gives up.
const ORPHANS: usize = 256;
/// Requests that are looked after at the same time.
const CONCURRENT: usize = 32;
/// Longest time until a line that is new in the config is polled.
const IDLE: Duration = Duration::from_secs(1);

/// When a line is polled next.
struct Schedule {
    at: Instant,
    round: u32,
}

/// Looks after those who wait through this proxy, until the agent stops.
pub(in crate::agent) async fn poll_lines(client: Arc<QueueClient>) {
    let (mut hints, mut lease) = (client.core.line_events.subscribe(), client.core.lease.events());
    let mut schedules: BTreeMap<LineName, Schedule> = BTreeMap::new();
    let stop = client.core.stop.clone();
    loop {
        let next = schedules.values().map(|schedule| schedule.at).min();
        let next = next.unwrap_or_else(Instant::now).min(Instant::now() + IDLE);
        let round = async {
            let mut all = false;
            tokio::select! {
                biased;
                event = lease.recv() => match event {
                    // Every ticket names the old epoch, or went to away, or is lost with the store's data.
                    Ok(LeaseEvent::Joined { .. } | LeaseEvent::Resumed { .. } | LeaseEvent::Rejoined { .. })
                    | Err(RecvError::Lagged(_)) => all = true,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return false,
                },
                hint = hints.recv() => match hint {
                    Ok(LineHint::Event(event)) => client.on_event(event),
                    Ok(LineHint::Gap) | Err(RecvError::Lagged(_)) => all = true,
                    Err(RecvError::Closed) => return false,
                },
                () = sleep_until(next) => {}
            }
            client.poll_due(&mut schedules, all).await;
            true
        };
        if stop.run_until_cancelled(round).await != Some(true) {
            break;
        }
    }
    // The tickets go to away with this proxy's row: their players keep their sequences for the grace.
    for waiter in client.everybody() {
        client.refuse(&waiter, Why::Cancelled("the proxy leaves; the place is kept for a while"));
    }
}

impl QueueClient {
    fn everybody(&self) -> Vec<Arc<Waiter>> {
        self.table().all()
    }

    /// An event is a hint: what it says is looked up, and only for this node's own players.
    fn on_event(self: &Arc<Self>, event: LineEvent) {
        let (line, players, cause) = match event {
            LineEvent::Admitted { line, players } => (line, players, Cause::Turn),
            LineEvent::Drained { line, player, .. } => {
                self.table().drained(&line, boot_ms());
                (line, vec![player], Cause::Turn)
            }
            LineEvent::Left { line, player } => (line, vec![player], Cause::Other),
            LineEvent::Entered { .. } | LineEvent::Paused { .. } => return,
        };
        let mut own = self.table().among(&line, &players);
        own.retain(|waiter| waiter.on_event());
        let Some(first) = own.first() else { return };
        let (client, line, stop) = (Arc::clone(self), Arc::clone(&first.line), self.core.stop.clone());
        self.core.tasks.spawn(async move {
            let reconciling = client.reconcile(&line.line, &own, cause);
            if let Some(Err(error)) = stop.run_until_cancelled(reconciling).await {
                tracing::debug!(line = %line.name(), %error, "could not look after an event; the next tick does");
            }
        });
    }

    /// After a gap the store may have tickets of this proxy in wait lines of which it knows nobody: an older state of it came
    /// back. They are looked through like the others.
    async fn watch_wait_lines(&self) -> Result<()> {
        let config = self.core.config();
        for name in lines(&self.core.store).await? {
            if name == LineName::wait() || server_of(&name).is_some() {
                let line = Arc::new(LineHandle::wait(&self.core, name, &config.wait)?);
                self.table().watch(&line);
            }
        }
        Ok(())
    }

    async fn poll_due(&self, schedules: &mut BTreeMap<LineName, Schedule>, all: bool) {
        if all && let Err(error) = self.watch_wait_lines().await {
            tracing::warn!(%error, "could not look for wait lines after a gap; tickets that came back in them stay for the grace");
        }
        let mut lines: BTreeMap<LineName, Arc<LineHandle>> =
            self.table().lines().into_iter().map(|line| (line.name().clone(), line)).collect();
        for name in self.core.config().lines.keys() {
            if let Ok(line) = self.line(name) {
                lines.insert(name.clone(), line);
            }
        }
        schedules.retain(|name, _| lines.contains_key(name));
        for (name, line) in lines {
            let now = Instant::now();
            let schedule = schedules.entry(name.clone()).or_insert(Schedule { at: now, round: 0 });
            if !all && schedule.at > now {
                continue;
            }
            schedule.at = now + jitter(line.tick);
            let is_full = all || schedule.round.is_multiple_of(FULL);
            schedule.round = schedule.round.wrapping_add(1);
            if let Err(error) = self.poll(&line, is_full).await {
                tracing::debug!(line = %name, %error, "could not look at a line; the next tick does");
            }
        }
        self.table().expire(self.core.store.clock().now_ms());
    }

    /// One poll of a line: who does not wait any more is told what became of them, who lost the ticket enters again, and in a
    /// full one everybody hears where they stand.
    async fn poll(&self, handle: &LineHandle, is_full: bool) -> Result<()> {
        let line = &handle.line;
        let waiting = self.table().waiting(line.name());
        self.give_up_overdue(&waiting).await;
        // Without a lease nothing can be done for them; they keep their sequences for the grace.
        let Ok(me) = self.core.acting() else { return Ok(()) };
        if waiting.is_empty() && !is_full {
            return Ok(());
        }
        let now = Moment { epoch: me.epoch, ..self.moment() };
        let holder = NodeEpoch { id: me.id, epoch: me.epoch };
        let (mut own, changed): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|waiter| {
            let held = waiter.held();
            held.known.epoch == me.epoch && !held.doubtful
        });
        self.reconcile(line, &changed, Cause::Other).await?;
        let is_outdated = own.iter().any(|waiter| self.is_outdated(&waiter.held()));
        let number = u64::try_from(own.len()).unwrap_or(u64::MAX);
        if is_full || is_outdated || (own.len() <= MANY && line.count_through(&holder).await? != number) {
            let names = line.waiting_through(&holder).await?;
            let through: HashSet<Player> = names.into_iter().filter_map(|name| Player::new(name).ok()).collect();
            let unlisted: Vec<_> = own.extract_if(.., |waiter| !through.contains(&waiter.player)).collect();
            own.iter().for_each(|waiter| waiter.is_listed(now));
            self.reconcile(line, &unlisted, Cause::Unlisted).await?;
            if is_full {
                self.tell_places(handle, &own).await?;
                self.give_up_orphans(handle, &holder, &through).await?;
                if through.is_empty() {
                    self.table().unwatch(line.name());
                }
                self.end_if_removed(handle).await?;
            }
        }
        self.read_in_turn(handle, &own, now).await
    }

    /// Reads the tickets some at a time: one of an earlier visit stands in the index as well as the right one. Those first that
    /// the store may have lost since.
    async fn read_in_turn(&self, handle: &LineHandle, own: &[Arc<Waiter>], now: Moment) -> Result<()> {
        let is_anew = |waiter: &&Arc<Waiter>| waiter.held().known.connection_generation != now.connection_generation;
        let mut some: Vec<_> = own.iter().filter(is_anew).take(TICKETS_ANEW).cloned().collect();
        if some.is_empty() {
            some = self.table().in_turn(handle.name(), own, TICKETS);
        }
        let players: Vec<Player> = some.iter().map(|waiter| waiter.player.clone()).collect();
        let tickets = handle.line.tickets_of(&players).await?;
        let mut others = Vec::new();
        for (waiter, ticket) in some.into_iter().zip(tickets) {
            match ticket {
                Some(TicketText::Good(ticket)) if ticket.session == waiter.session() => {
                    waiter.is_there(&ticket.session, now);
                }
                _ => others.push(waiter),
            }
        }
        self.reconcile(&handle.line, &others, Cause::Other).await
    }

    /// The waits that took too long end, unless their turn has just come.
    async fn give_up_overdue(&self, waiting: &[Arc<Waiter>]) {
        let most = self.core.config().wait.max_wait_ms;
        if most == 0 {
            return;
        }
        let most = Duration::from_millis(most);
        let overdue =
            waiting.iter().filter(|waiter| matches!(waiter.ending, Ending::Token(_)) && waiter.waited() >= most);
        let overdue: Vec<_> = overdue.map(Arc::clone).collect();
        let ending = overdue.into_iter().map(|waiter| self.give_up_one(waiter));
        stream::iter(ending).buffer_unordered(CONCURRENT).collect::<()>().await;
    }

    async fn give_up_one(&self, waiter: Arc<Waiter>) {
        if let Err(error) = self.end_overdue(&waiter).await {
            tracing::debug!(player = %waiter.player, %error, "leaves with the next tick");
        }
    }

    async fn end_overdue(&self, waiter: &Arc<Waiter>) -> Result<()> {
        let turn = self.turns.lock(&waiter.key()).await;
        if waiter.is_over() {
            return Ok(());
        }
        waiter.outstay();
        let held = waiter.held();
        let left = waiter.line.line.leave(&self.holder(&held), &waiter.player, &held.session).await?;
        if matches!(left, Left::Left | Left::Away) {
            self.refuse(waiter, Why::TooLong);
            return Ok(());
        }
        drop(turn);
        self.reconcile(&waiter.line.line, std::slice::from_ref(waiter), Cause::Other).await
    }

    /// A call whose outcome nobody learnt left a ticket here. Its place is kept for the grace, for somebody who comes back: in
    /// the line it would take a place from those who wait.
    async fn give_up_orphans(&self, handle: &LineHandle, holder: &NodeEpoch, through: &HashSet<Player>) -> Result<()> {
        let line = &handle.line;
        let orphans = self.table().orphans(line.name(), through, ORPHANS);
        let mut astray = Vec::new();
        for (player, ticket) in orphans.iter().zip(line.tickets_of(&orphans).await?) {
            let Some(TicketText::Good(ticket)) = ticket else {
                astray.push(player.clone());
                continue;
            };
            if ticket.holder == *holder && !self.table().knows(line.name(), player) {
                tracing::debug!(line = %line.name(), %player, "gave up a place without a player");
                line.away(holder, player, &ticket.session).await?;
            }
        }
        // Put out at the head of the line: whose set it was nobody could read there.
        if !astray.is_empty() {
            line.heal_held(holder, &astray).await?;
        }
        Ok(())
    }

    /// Tells everybody who waits in the line where they stand.
    async fn tell_places(&self, handle: &LineHandle, own: &[Arc<Waiter>]) -> Result<()> {
        if own.is_empty() {
            return Ok(());
        }
        let line = &handle.line;
        let standing = match handle.config() {
            Some(_) => Some(line.standing(POSITIONS_MAX).await?),
            None => None,
        };
        let (order, waiting) = match &standing {
            Some(standing) => (standing.first.clone(), standing.waiting),
            None => {
                let order = line.positions(POSITIONS_MAX).await?;
                let waiting = u64::try_from(order.len()).unwrap_or(u64::MAX);
                (order, waiting)
            }
        };
        // Listed in full, or not: of a wait line only the first are read.
        let is_whole = if standing.is_some() { waiting <= POSITIONS_MAX } else { waiting < POSITIONS_MAX };
        if let Some(standing) = &standing {
            let last = standing.wait_ms(waiting.saturating_sub(1));
            metrics::gauge!("maitred_line_estimate_seconds", "line" => line.name().to_string())
                .set(last.map_or(f64::INFINITY, |ms| Duration::from_millis(ms).as_secs_f64()));
        }
        let places: HashMap<&Player, u64> = order.iter().zip(1_u64..).collect();
        let mut unlisted = Vec::new();
        for waiter in own {
            match places.get(&waiter.player) {
                Some(place) => self.tell_counted(waiter, standing.as_ref(), Some(*place), place.saturating_sub(1)),
                // All are listed, so this one has just left the line: something else is said of it, or its ticket could not
                // be read and was put out at the head.
                None if is_whole => unlisted.push(Arc::clone(waiter)),
                None => {
                    let held = waiter.held();
                    let ahead = standing.as_ref().map_or(0, |now| moved_up(held.ahead, held.counted_ms, now));
                    self.tell_counted(waiter, standing.as_ref(), None, ahead);
                }
            }
        }
        self.reconcile(line, &unlisted, Cause::Unlisted).await
    }

    fn tell_counted(&self, waiter: &Waiter, standing: Option<&Standing>, position: Option<u64>, ahead: u64) {
        if let Some(standing) = standing {
            waiter.counted(ahead, standing.at_ms);
        }
        self.tell_place(waiter, position, standing.and_then(|standing| standing.wait_ms(ahead)));
    }

    /// The line of a server that is on no roster may have to end.
    async fn end_if_removed(&self, handle: &LineHandle) -> Result<()> {
        match server_of(handle.name()) {
            Some(server) if self.core.directory.snapshot().get(&server).is_none() => {
                end_if_removed(&self.core, &server).await
            }
            _ => Ok(()),
        }
    }
}

/// How many are before one who is beyond the list: moved up by what was admitted since they were last counted.
fn moved_up(ahead: u64, counted_ms: u64, standing: &Standing) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "a time between two polls")]
    let seconds = standing.at_ms.saturating_sub(counted_ms) as f64 / 1_000.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; no NaN, no sign")]
    let passed = (standing.state.pace(standing.at_ms) * seconds) as u64;
    ahead.saturating_sub(passed).clamp(POSITIONS_MAX, standing.waiting.max(POSITIONS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::LineState;

    // QUE-8: a player far back must see that it goes on, and never a number that is not theirs.
    #[test]
    fn que_8_who_is_beyond_the_list_moves_up_by_the_pace_and_never_into_it() {
        let standing = |rate, at_ms| Standing {
            first: Vec::new(),
            waiting: 30_000,
            state: LineState { rate, busy_since_ms: at_ms, ..LineState::default() },
            at_ms,
        };
        assert_eq!(moved_up(20_000, 1_000, &standing(1_000, 5_000)), 16_000, "4,000 went ahead in four seconds");
        assert_eq!(moved_up(16_000, 5_000, &standing(1_000, 60_000)), POSITIONS_MAX, "not below what the list shows");
        assert_eq!(moved_up(40_000, 5_000, &standing(0, 60_000)), 30_000, "nor behind the end");
    }
}
