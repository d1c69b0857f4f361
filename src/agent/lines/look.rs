//! What is heard of the lines, and the looks that make up for what is not.
//!
//! Each proxy with players in a line reads by itself who waits through it and where they stand. Events only make it faster.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use crate::agent::core::{LineHint, jitter};
use crate::error::{Class, Error, Result, StoreRefusal};
use crate::ids::{LineName, NodeEpoch, Player, SessionId};
use crate::queue::{Admission, Entered, LineEvent, POSITIONS_MAX, PassRow, Standing, Ticket, TicketText};

use super::desk::Desk;
use super::entry::Departure;
use super::goodbye::{Going, Goodbye};
use super::room::Room;
use super::turns::Key;
use super::visit::OutReason;
use super::visits::Pending;

/// Positions are told every third tick.
const TICKS: u32 = 3;
/// With more players than this in a line, who of them still waits is looked at every third tick only.
const MANY: usize = 1_000;
/// Places without a player that one look gives up.
const GHOSTS_MAX: usize = 256;
/// How many players enter again at the same time: less than what the store lets through at once, so that none of them waits
/// behind a later one.
const AGAIN_AT_ONCE: usize = 64;
/// Longest time until a line that is new in the config is looked at.
const IDLE: Duration = Duration::from_secs(1);

/// When a line is looked at next.
struct Schedule {
    at: Instant,
    tick: u32,
    /// Players who wait through this node in the store's eyes alone, as of the last look.
    ghosts: HashSet<String>,
}

/// Takes hints and looks at the lines until the agent stops.
pub(in crate::agent) async fn run(desk: Arc<Desk>, mut hints: broadcast::Receiver<LineHint>) {
    let mut epochs = desk.core.status.subscribe();
    let mut lines: BTreeMap<LineName, Schedule> = BTreeMap::new();
    loop {
        let next = lines.values().map(|line| line.at).min().unwrap_or_else(|| Instant::now() + IDLE);
        let next = next.min(Instant::now() + IDLE);
        let mut all = false;
        tokio::select! {
            biased;
            () = desk.core.stop.cancelled() => return,
            // Another epoch: everybody enters again.
            changed = epochs.changed() => match changed {
                Ok(()) => all = true,
                Err(_) => return,
            },
            hint = hints.recv() => match hint {
                Ok(LineHint::Event(event)) => {
                    if let Err(error) = desk.hear(event).await {
                        tracing::debug!(%error, "could not look after an event of a line; the next tick does");
                    }
                }
                Ok(LineHint::Gap) | Err(RecvError::Lagged(_)) => all = true,
                Err(RecvError::Closed) => return,
            },
            () = sleep_until(next) => {}
        }
        let mut names = desk.visits().lines();
        names.extend(desk.core.config().lines.keys().cloned());
        lines.retain(|name, _| names.contains(name));
        for name in names {
            let now = Instant::now();
            let line =
                lines.entry(name.clone()).or_insert_with(|| Schedule { at: now, tick: 0, ghosts: HashSet::new() });
            if !all && line.at > now {
                continue;
            }
            let Ok(room) = desk.known_room(&name) else { continue };
            line.at = now + jitter(Duration::from_millis(room.config.tick_ms));
            let is_third = line.tick.is_multiple_of(TICKS);
            line.tick = line.tick.wrapping_add(1);
            let looked = tokio::select! {
                () = desk.core.stop.cancelled() => return,
                looked = desk.look(&room, all || is_third, &mut line.ghosts) => looked,
            };
            if let Err(error) = looked {
                tracing::debug!(line = %name, %error, "could not look at a line; the next tick does");
            }
        }
        desk.visits().expire(desk.core.store.clock().now_ms());
    }
}

impl Desk {
    /// An event is a hint: what it says is looked up, and only for one's own players.
    async fn hear(&self, event: LineEvent) -> Result<()> {
        match event {
            LineEvent::Admitted { line, players } => {
                let waiting = self.visits().heard(&line, &players);
                if waiting.is_empty() {
                    return Ok(());
                }
                let room = self.known_room(&line)?;
                let names: Vec<Player> = waiting.iter().map(|(player, _)| player.clone()).collect();
                let passes = room.line.passes_of(&names).await?;
                for ((_, session), pass) in waiting.iter().zip(passes) {
                    // Anything else is no admission of this visit, whatever was said; the next look knows.
                    if let Some(row) = pass.ok().flatten().filter(|row| self.lets_in(row, session)) {
                        self.deliver(session, row).await;
                    }
                }
                Ok(())
            }
            LineEvent::Left { line, player } => {
                let waiting = self.visits().heard(&line, &[player]);
                if waiting.is_empty() { Ok(()) } else { self.inspect(&*self.known_room(&line)?, waiting, false).await }
            }
            LineEvent::Entered { .. } | LineEvent::Drained { .. } | LineEvent::Paused { .. } => Ok(()),
        }
    }

    fn lets_in(&self, row: &PassRow, session: &SessionId) -> bool {
        row.redeemed_at_ms.is_none()
            && !row.void
            && row.session.as_ref().is_none_or(|own| own == session)
            && self.core.store.clock().now_ms() < row.pass.expires_at_ms
    }

    /// True for the admission of another visit that came from the place of this one. One that is older than the place says
    /// nothing: the player has been in before.
    fn is_of_a_newer_visit(&self, row: &PassRow, key: &Key, session: &SessionId) -> bool {
        let is_others = !row.void && row.session.as_ref().is_some_and(|other| other != session);
        is_others && self.visits().seq_of(key, session).is_none_or(|seq| row.pass.serial / 1_000 >= seq)
    }

    async fn deliver(&self, session: &SessionId, row: PassRow) {
        let PassRow { pass, seq, lane, .. } = row;
        let admitted = self.hand_out(Admission { pass, seq, lane, session: session.clone() }).await;
        self.admitted(session, &admitted);
    }

    /// One look at a line: who does not wait any more is told what became of them, who lost the place enters again, and
    /// where `tells`, everybody hears where they stand.
    async fn look(&self, room: &Room, tells: bool, ghosts: &mut HashSet<String>) -> Result<()> {
        let line = &room.line;
        let pending = self.visits().pending(line.name());
        if !tells && (pending.is_empty() || pending.len() > MANY) {
            return Ok(());
        }
        // Without a lease nothing can be done for them; they keep their places for the grace.
        let Ok(me) = self.core.acting() else { return Ok(()) };
        let (own, strays): (Vec<Pending>, Vec<Pending>) =
            pending.into_iter().partition(|pending| pending.epoch == me.epoch);
        self.enter_again(room, &me, strays).await?;
        let breaks = self.core.store.connection_generation();
        let through: HashSet<String> = line.waiting_through(&me).await?.into_iter().collect();
        self.visits().found(line.name(), &through, breaks);
        let lost = own.iter().filter(|pending| !through.contains(pending.player.as_str()));
        let lost: Vec<_> = lost.map(|pending| (pending.player.clone(), pending.session.clone())).collect();
        if !lost.is_empty() {
            self.inspect(room, lost, true).await?;
        }
        if tells {
            if !own.is_empty() {
                let standing = line.standing(POSITIONS_MAX).await?;
                let last = standing.wait_ms(standing.waiting.saturating_sub(1));
                metrics::gauge!("maitred_line_estimate_seconds", "line" => line.name().to_string())
                    .set(last.map_or(f64::INFINITY, |ms| Duration::from_millis(ms).as_secs_f64()));
                self.visits().tell(line.name(), &standing);
                if standing.waiting <= POSITIONS_MAX {
                    self.inspect(room, unlisted(&own, &through, &standing), true).await?;
                }
            }
            *ghosts = self.give_up_ghosts(room, &me, through, ghosts).await?;
        }
        Ok(())
    }

    /// Looks up what became of players who may not wait any more. Where they are `lost` to the index of those who wait,
    /// whoever has the place still enters again; whoever holds a player's turn must not say so.
    pub(super) async fn inspect(&self, room: &Room, players: Vec<(Player, SessionId)>, lost: bool) -> Result<()> {
        let line = &room.line;
        let names: Vec<Player> = players.iter().map(|(player, _)| player.clone()).collect();
        let me = self.core.acting()?;
        // Before anything is read: who stands in an earlier epoch is about to enter again, and has no place until then.
        let strays: HashSet<Player> = {
            let mut visits = self.visits();
            let is_stray = |(player, session): &&(Player, SessionId)| {
                !visits.is_of_epoch(&(line.name().clone(), player.clone()), session, me.epoch)
            };
            players.iter().filter(is_stray).map(|(player, _)| player.clone()).collect()
        };
        let tickets = line.tickets_of(&names).await?;
        let (mut without, mut gone, mut again) = (Vec::new(), Vec::new(), HashSet::new());
        for ((player, session), ticket) in players.into_iter().zip(tickets) {
            match ticket {
                None => without.push((player, session)),
                Some(TicketText::Good(ticket)) if is_elsewhere(&ticket, &session, &me) => {
                    gone.push((player, session, OutReason::Elsewhere, Some(ticket.joined_at_ms)));
                }
                Some(TicketText::Good(_) | TicketText::Forged) if lost => {
                    again.insert(player);
                }
                // Of another build's version, or only said to have changed.
                Some(_) => {}
            }
        }
        let names: Vec<Player> = without.iter().map(|(player, _)| player.clone()).collect();
        let passes = line.passes_of(&names).await?;
        for ((player, session), pass) in without.into_iter().zip(passes) {
            let pass = match pass {
                // A key of another type is no pass.
                Err(Error::Refused { refusal: StoreRefusal::WrongType, .. }) => Ok(None),
                pass => pass,
            };
            match pass {
                Ok(Some(row)) if self.lets_in(&row, &session) => self.deliver(&session, row).await,
                Ok(row) => {
                    let key = (line.name().clone(), player);
                    let is_others = row.is_some_and(|row| self.is_of_a_newer_visit(&row, &key, &session));
                    let why = if is_others { OutReason::Elsewhere } else { OutReason::Gone };
                    gone.push((key.1, session, why, (!is_others).then_some(0)));
                }
                // Nobody acts on what does not verify; it was audited.
                Err(error) if error.class() == Class::Trust => {
                    tracing::debug!(%player, %error, "could not look a pass up");
                }
                Err(error) => return Err(error),
            }
        }
        // A store that was wiped knows of nobody: this node will have to join again, and then they all enter again.
        if !gone.is_empty() && self.core.is_known(me.epoch).await? {
            // Asked after that answer: by now a break is known of.
            let breaks = self.core.store.connection_generation();
            for (player, session, why, since_ms) in gone {
                if since_ms == Some(0) && strays.contains(&player) {
                    continue;
                }
                let key = (line.name().clone(), player);
                let is_lost = since_ms.is_some_and(|ms| self.visits().may_be_lost(&key, &session, (breaks, ms)));
                if !is_lost {
                    self.visits().out(&key, &session, why);
                } else if lost {
                    again.insert(key.1);
                }
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        let pending = self.visits().pending(line.name());
        let pending = pending.into_iter().filter(|pending| again.contains(&pending.player)).collect();
        self.enter_again(room, &me, pending).await
    }

    /// Enters players again who wait here, the foremost first, each under the session of the visit. The store takes the
    /// calls in the order in which they are sent, so that many may be under way.
    async fn enter_again(&self, room: &Room, me: &NodeEpoch, pending: Vec<Pending>) -> Result<()> {
        let mut pending = pending.into_iter();
        // One that has forgotten the scripts, or whose time is another, is asked twice: not in the middle of the others.
        if let Some(foremost) = pending.next() {
            self.enter_one_again(room, me, foremost).await?;
        }
        let calls = stream::iter(pending.map(|pending| self.enter_one_again(room, me, pending)));
        // Under tokio's budget those that have used it up are woken the other way round, and sent so.
        unconstrained(calls.buffered(AGAIN_AT_ONCE).try_collect::<()>()).await
    }

    async fn enter_one_again(&self, room: &Room, me: &NodeEpoch, pending: Pending) -> Result<()> {
        let Pending { player, session, lane, attributes, .. } = pending;
        // Whoever stands in a lane that was taken away is served with the last one that is left.
        let last = room.config.lanes.len().saturating_sub(1);
        let lane = lane.min(u16::try_from(last).unwrap_or(u16::MAX));
        let key = (room.line.name().clone(), player);
        let _turn = self.turns.take(&key).await;
        if !self.visits().waits(&key, &session) {
            return Ok(());
        }
        let breaks = self.core.store.connection_generation();
        match room.line.enter(me, &key.1, lane, &session, &attributes, None).await {
            // A pass that nobody can believe must not keep the others waiting.
            Err(error) if matches!(error.class(), Class::Trust | Class::Caller) => {
                tracing::debug!(player = %key.1, %error, "could not enter a player again");
            }
            Err(error) => return Err(error),
            Ok(Entered::Admitted(admission)) => {
                let admitted = self.hand_out(admission).await;
                self.admitted(&session, &admitted);
            }
            Ok(Entered::Waiting(waiting)) => {
                let now_ms = self.core.store.clock().now_ms();
                self.visits().renewed(&key, me.epoch, &waiting, now_ms, breaks);
            }
            Ok(Entered::Full) => self.visits().out(&key, &session, OutReason::Full),
        }
        Ok(())
    }

    /// Places that this node holds for players it does not know, twice in a row: a call whose outcome nobody learnt left
    /// them. They are kept for the grace, for somebody who comes back. Those seen for the first time are returned.
    async fn give_up_ghosts(
        &self,
        room: &Room,
        holder: &NodeEpoch,
        through: HashSet<String>,
        before: &HashSet<String>,
    ) -> Result<HashSet<String>> {
        let name = room.line.name();
        let unknown = |player: &String| Player::new(player).is_ok_and(|player| !self.visits().knows(name, &player));
        let ghosts: HashSet<String> = through.into_iter().filter(unknown).collect();
        let seen_twice = ghosts.iter().filter(|player| before.contains(*player)).take(GHOSTS_MAX);
        let players: Vec<Player> = seen_twice.filter_map(|player| Player::new(player).ok()).collect();
        if players.is_empty() {
            return Ok(ghosts);
        }
        let mut astray = Vec::new();
        for (player, ticket) in players.iter().zip(room.line.tickets_of(&players).await?) {
            let Some(TicketText::Good(ticket)) = ticket else {
                astray.push(player.clone());
                continue;
            };
            if ticket.holder == *holder && !self.visits().knows(name, player) {
                tracing::debug!(line = %name, %player, "gave up a place without a player");
                self.goodbyes.leave_behind(Goodbye {
                    key: (name.clone(), player.clone()),
                    epoch: holder.epoch,
                    what: Going::Visit { session: ticket.session, departure: Departure::Dropped },
                });
            }
        }
        // Put out at the head of the line: whose set it was nobody could read there.
        if !astray.is_empty() {
            room.line.heal_held(holder, &astray).await?;
        }
        Ok(ghosts)
    }
}

/// Players whose wait nothing stands for but the index of those who wait through this node, in a line that is listed as a
/// whole: a ticket that could not be read was put out at the head.
fn unlisted(own: &[Pending], through: &HashSet<String>, standing: &Standing) -> Vec<(Player, SessionId)> {
    let listed: HashSet<&Player> = standing.first.iter().collect();
    let is_unlisted =
        |pending: &&Pending| through.contains(pending.player.as_str()) && !listed.contains(&pending.player);
    own.iter().filter(is_unlisted).map(|pending| (pending.player.clone(), pending.session.clone())).collect()
}

/// True for a ticket of another visit. One of an earlier visit through this node is not: the present visit writes it anew.
fn is_elsewhere(ticket: &Ticket, session: &SessionId, me: &NodeEpoch) -> bool {
    ticket.session != *session && ticket.holder.id != me.id
}
