//! What a proxy knows of its players in lines. Pure bookkeeping: no store, no clock of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::ids::{Epoch, LineName, Player, SessionId};
use crate::queue::{Admission, Attributes, POSITIONS_MAX, Standing, Waiting};

use super::entry::Admitted;
use super::turns::Key;
use super::visit::{OutReason, Update, Visit, VisitState};
use super::waiter::Waiter;

/// Most admissions that are remembered for `arrived`, `failed_admission` and `left`; of more, those that expire first are
/// forgotten.
const ADMITTED_MAX: usize = 65_536;

/// One player of a line.
#[derive(Debug)]
pub(super) struct Record {
    pub lane: u16,
    pub attributes: Attributes,
    pub session: SessionId,
    /// Whose ticket it is, as far as is known: that of this epoch.
    pub epoch: Epoch,
    pub since: Instant,
    pub stage: Stage,
}

/// How far a player is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The store is being asked.
    Asking {
        /// Something was said of the player meanwhile: look when the answer is there.
        heard: bool,
    },
    Waiting(Waiter),
    Admitted {
        admission: Admission,
        /// The session of a report of failure whose outcome is not known.
        failing: Option<SessionId>,
    },
}

/// A visit that waits, as a look at the line needs it.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub player: Player,
    pub session: SessionId,
    pub epoch: Epoch,
    pub lane: u16,
    pub attributes: Attributes,
    /// Orders them: the foremost first.
    pub rank: (u64, u64),
}

#[derive(Debug, Default)]
pub(super) struct Visits {
    lines: BTreeMap<LineName, HashMap<Player, Record>>,
    /// Those that were admitted, by the time at which the pass expires.
    admitted: BTreeSet<(u64, LineName, Player)>,
}

impl Visits {
    fn record(&mut self, key: &Key) -> Option<&mut Record> {
        self.lines.get_mut(&key.0)?.get_mut(&key.1)
    }

    /// The record of this session, none where a newer one has taken its place.
    fn of_session(&mut self, key: &Key, session: &SessionId) -> Option<&mut Record> {
        self.record(key).filter(|record| record.session == *session)
    }

    /// Players of the line, at every stage.
    pub fn count(&self, line: &LineName) -> usize {
        self.lines.get(line).map_or(0, HashMap::len)
    }

    /// A new visit begins. An earlier one of the player ends; its session is returned.
    pub fn begin(
        &mut self,
        key: &Key,
        lane: u16,
        attributes: &Attributes,
        session: &SessionId,
        epoch: Epoch,
    ) -> Option<SessionId> {
        let earlier = self.take(key).map(|record| {
            record.end(Update::Out { why: OutReason::Elsewhere });
            record.session
        });
        let record = Record {
            lane,
            attributes: attributes.clone(),
            session: session.clone(),
            epoch,
            since: Instant::now(),
            stage: Stage::Asking { heard: false },
        };
        self.lines.entry(key.0.clone()).or_default().insert(key.1.clone(), record);
        earlier
    }

    /// The visit waits. True where something was said of it meanwhile.
    pub fn wait(&mut self, key: &Key, waiting: &Waiting, now_ms: u64, breaks: u64) -> (Visit, bool) {
        let state = VisitState { position: waiting.shown(), estimate_ms: waiting.estimate_ms, end: None };
        let (told, receiver) = watch::channel(state);
        let mut was_heard = false;
        if let Some(record) = self.of_session(key, &waiting.session) {
            was_heard = matches!(record.stage, Stage::Asking { heard: true });
            record.lane = waiting.lane;
            let ahead = waiting.position.saturating_sub(1);
            record.stage =
                Stage::Waiting(Waiter { seq: waiting.seq, ahead, at_ms: now_ms, entered_ms: now_ms, breaks, told });
        }
        let visit = Visit::new(key.0.clone(), key.1.clone(), waiting.session.clone(), receiver);
        (visit, was_heard)
    }

    /// A waiting player was given the place anew.
    pub fn renewed(&mut self, key: &Key, epoch: Epoch, waiting: &Waiting, now_ms: u64, breaks: u64) {
        let Some(record) = self.of_session(key, &waiting.session) else { return };
        record.epoch = epoch;
        record.lane = waiting.lane;
        if let Stage::Waiting(waiter) = &mut record.stage {
            (waiter.seq, waiter.entered_ms, waiter.breaks) = (waiting.seq, now_ms, breaks);
            waiter.tell(waiting.shown(), waiting.position.saturating_sub(1), now_ms, waiting.estimate_ms);
        }
    }

    /// The player of this session was admitted; when the visit began. None where nobody waits for it.
    pub fn admit(&mut self, key: &Key, session: &SessionId, admitted: &Admitted) -> Option<Instant> {
        let record = self.of_session(key, session)?;
        if matches!(record.stage, Stage::Admitted { .. }) {
            return None;
        }
        record.end(Update::Admitted(Box::new(admitted.clone())));
        record.stage = Stage::Admitted { admission: admitted.admission.clone(), failing: None };
        let since = record.since;
        self.admitted.insert((admitted.admission.pass.expires_at_ms, key.0.clone(), key.1.clone()));
        while self.admitted.len() > ADMITTED_MAX {
            self.forget_first();
        }
        Some(since)
    }

    /// The admission, with the session of a report of failure under way.
    pub fn admission(&mut self, key: &Key) -> Option<(Admission, Attributes, Option<SessionId>)> {
        let record = self.record(key)?;
        match &record.stage {
            Stage::Admitted { admission, failing } => {
                Some((admission.clone(), record.attributes.clone(), failing.clone()))
            }
            Stage::Asking { .. } | Stage::Waiting(_) => None,
        }
    }

    /// A report of failure begins under this session.
    pub fn failing(&mut self, key: &Key, session: &SessionId) {
        if let Some(Stage::Admitted { failing, .. }) = self.record(key).map(|record| &mut record.stage) {
            *failing = Some(session.clone());
        }
    }

    /// The visit does not wait any more.
    pub fn out(&mut self, key: &Key, session: &SessionId, why: OutReason) {
        if self.waits(key, session)
            && let Some(record) = self.take(key)
        {
            record.end(Update::Out { why });
        }
    }

    /// Takes the player's record out.
    pub fn take(&mut self, key: &Key) -> Option<Record> {
        let players = self.lines.get_mut(&key.0)?;
        let record = players.remove(&key.1)?;
        if players.is_empty() {
            self.lines.remove(&key.0);
        }
        if let Stage::Admitted { admission, .. } = &record.stage {
            self.admitted.remove(&(admission.pass.expires_at_ms, key.0.clone(), key.1.clone()));
        }
        Some(record)
    }

    /// Takes the record of this session out.
    pub fn take_session(&mut self, key: &Key, session: &SessionId) -> Option<Record> {
        self.of_session(key, session)?;
        self.take(key)
    }

    /// Forgets admissions whose pass has expired.
    pub fn expire(&mut self, now_ms: u64) {
        while self.admitted.first().is_some_and(|(expires_at_ms, ..)| *expires_at_ms <= now_ms) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, line, player)) = self.admitted.pop_first() {
            self.take(&(line, player));
        }
    }

    /// Something was said of these players: those of them who wait here.
    pub fn heard(&mut self, line: &LineName, players: &[Player]) -> Vec<(Player, SessionId)> {
        let Some(records) = self.lines.get_mut(line) else { return Vec::new() };
        let mut waiting = Vec::new();
        for player in players {
            let Some(record) = records.get_mut(player) else { continue };
            match &mut record.stage {
                Stage::Asking { heard } => *heard = true,
                Stage::Waiting(_) => waiting.push((player.clone(), record.session.clone())),
                Stage::Admitted { .. } => {}
            }
        }
        waiting
    }

    /// The lines in which somebody waits.
    pub fn lines(&self) -> Vec<LineName> {
        self.lines.keys().cloned().collect()
    }

    /// Those of this session's players who wait, the foremost first.
    pub fn pending(&self, line: &LineName) -> Vec<Pending> {
        let records = self.lines.get(line).into_iter().flatten();
        let mut pending: Vec<Pending> = records
            .filter_map(|(player, record)| match &record.stage {
                Stage::Waiting(waiter) => Some(Pending {
                    player: player.clone(),
                    session: record.session.clone(),
                    epoch: record.epoch,
                    lane: record.lane,
                    attributes: record.attributes.clone(),
                    rank: (waiter.ahead, waiter.seq),
                }),
                Stage::Asking { .. } | Stage::Admitted { .. } => None,
            })
            .collect();
        pending.sort_unstable_by_key(|pending| pending.rank);
        pending
    }

    /// True where the player has a record, at whatever stage.
    pub fn knows(&self, line: &LineName, player: &Player) -> bool {
        self.lines.get(line).is_some_and(|players| players.contains_key(player))
    }

    /// These wait, as the store has it.
    pub fn found(&mut self, line: &LineName, players: &HashSet<String>, breaks: u64) {
        for (_, record) in
            self.lines.get_mut(line).into_iter().flatten().filter(|(player, _)| players.contains(player.as_str()))
        {
            if let Stage::Waiting(waiter) = &mut record.stage {
                waiter.breaks = waiter.breaks.max(breaks);
            }
        }
    }

    /// True where the store may have lost the place of this session with the last of its data: the connection has broken
    /// since the place was last known to be there, and what stands in its stead is from before the session's time.
    pub fn may_be_lost(&mut self, key: &Key, session: &SessionId, (breaks, since_ms): (u64, u64)) -> bool {
        self.waiter(key, session).is_some_and(|waiter| waiter.breaks != breaks && since_ms < waiter.entered_ms)
    }

    /// True where the ticket of this session is one of that epoch.
    pub fn is_of_epoch(&mut self, key: &Key, session: &SessionId, epoch: Epoch) -> bool {
        self.of_session(key, session).is_some_and(|record| record.epoch == epoch)
    }

    /// The place of this session while it waits.
    pub fn seq_of(&mut self, key: &Key, session: &SessionId) -> Option<u64> {
        self.waiter(key, session).map(|waiter| waiter.seq)
    }

    fn waiter(&mut self, key: &Key, session: &SessionId) -> Option<&mut Waiter> {
        match &mut self.of_session(key, session)?.stage {
            Stage::Waiting(waiter) => Some(waiter),
            Stage::Asking { .. } | Stage::Admitted { .. } => None,
        }
    }

    /// True while this session waits.
    pub fn waits(&mut self, key: &Key, session: &SessionId) -> bool {
        self.waiter(key, session).is_some()
    }

    /// Tells everybody who waits in the line where they stand. Whoever is beyond the list is moved up by what was
    /// admitted since they were last counted.
    pub fn tell(&mut self, line: &LineName, standing: &Standing) {
        let places: HashMap<&Player, u64> = standing.first.iter().zip(1_u64..).collect();
        let pace = standing.state.pace(standing.at_ms);
        for (player, record) in self.lines.get_mut(line).into_iter().flatten() {
            let Stage::Waiting(waiter) = &mut record.stage else { continue };
            let (position, ahead) = match places.get(player) {
                Some(position) => (Some(*position), position.saturating_sub(1)),
                // All are listed, so this one has just left the line, and something else is said of it.
                None if standing.waiting <= POSITIONS_MAX => continue,
                None => (None, waiter.moved_up(pace, standing.at_ms).clamp(POSITIONS_MAX, standing.waiting)),
            };
            waiter.tell(position, ahead, standing.at_ms, standing.wait_ms(ahead));
        }
    }
}

impl Record {
    /// Tells whoever listens the last update.
    fn end(&self, update: Update) {
        if let Stage::Waiting(waiter) = &self.stage {
            waiter.told.send_modify(|state| state.end = Some(update));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::queue::LineState;

    fn key(player: &str) -> Key {
        (LineName::new("login").expect("a name"), Player::new(player).expect("a player"))
    }

    fn waits(visits: &mut Visits, player: &str, position: u64) -> (Visit, SessionId) {
        let session = SessionId::fresh();
        visits.begin(&key(player), 0, &Attributes::default(), &session, Epoch(1));
        let waiting = Waiting { session: session.clone(), seq: position, lane: 0, position, estimate_ms: None };
        (visits.wait(&key(player), &waiting, 1_000, 0).0, session)
    }

    /// At a pace of `rate` a second, with `listed` players before all others.
    fn standing(waiting: u64, rate: u64, listed: &[&str], at_ms: u64) -> Standing {
        let first = listed.iter().map(|player| Player::new(player).expect("a player")).collect();
        Standing { first, waiting, state: LineState { rate, busy_since_ms: at_ms, ..LineState::default() }, at_ms }
    }

    // QUE-8: a player far back must see that it goes on, and never a number that is not theirs.
    #[test]
    fn que_8_who_is_beyond_the_list_is_told_so_and_moves_up_by_the_pace() {
        let mut visits = Visits::default();
        let (mut far, _) = waits(&mut visits, "far", 20_001);
        let (mut near, _) = waits(&mut visits, "near", 9_000);
        assert_eq!((far.position(), near.position()), (None, Some(9_000)));
        let line = key("far").0;
        visits.tell(&line, &standing(30_000, 1_000, &["x", "near"], 5_000));
        assert_eq!((far.position(), far.estimate_ms()), (None, Some(16_001)), "4,000 went ahead in four seconds");
        assert_eq!((near.position(), near.estimate_ms()), (Some(2), Some(2)));
        visits.tell(&line, &standing(30_000, 1_000, &["near"], 60_000));
        assert_eq!(far.estimate_ms(), Some(10_001), "not below what the list would have shown");
        // A slow reader hears the newest only.
        assert_eq!(
            near.next().now_or_never().flatten(),
            Some(Update::Position { position: Some(1), estimate_ms: Some(1) })
        );
        assert!(near.next().now_or_never().is_none() && far.next().now_or_never().is_some());
        // Listed in full and not among them: something else is said of these two.
        visits.tell(&line, &standing(1, 1_000, &["x"], 61_000));
        assert_eq!(near.position(), Some(1));
    }

    // what is said of an earlier visit must not end the one that came after it.
    #[test]
    fn r_21_only_the_present_session_is_spoken_of() {
        let mut visits = Visits::default();
        let (mut old, old_session) = waits(&mut visits, "alice", 1);
        let (mut new, session) = waits(&mut visits, "alice", 1);
        let elsewhere = Some(Update::Out { why: OutReason::Elsewhere });
        assert_eq!(old.next().now_or_never().flatten(), elsewhere);
        assert_eq!(old.next().now_or_never(), Some(None), "and nothing after that");
        visits.out(&key("alice"), &old_session, OutReason::Gone);
        assert!(visits.waits(&key("alice"), &session) && new.next().now_or_never().is_none());
        visits.out(&key("alice"), &session, OutReason::Gone);
        assert_eq!(new.next().now_or_never().flatten(), Some(Update::Out { why: OutReason::Gone }));
        assert!(!visits.knows(&key("alice").0, &key("alice").1) && visits.lines().is_empty());
    }

    #[test]
    fn r_23_those_who_enter_again_do_so_in_the_order_of_their_places() {
        let mut visits = Visits::default();
        let _kept: Vec<_> = [("c", 7), ("a", 1), ("d", 20_000), ("b", 2)]
            .map(|(player, position)| waits(&mut visits, player, position))
            .into();
        let names: Vec<String> = visits.pending(&key("a").0).iter().map(|pending| pending.player.to_string()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert!(visits.heard(&key("a").0, &[key("a").1, key("x").1]).len() == 1, "own players only");
    }
}
