//! All who wait through this proxy, and those of a login line who have a pass and have not arrived. Pure bookkeeping: no
//! store, no clock of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::ids::{LineName, Player};

use super::keyed_mutex::Key;
use super::line_handle::LineHandle;
use super::pace::Pace;
use super::waiter::Waiter;

/// Most admissions that are remembered for `arrived`, `failed_admission` and `left`; of more, those that expire first are
/// forgotten.
const ADMITTED_MAX: usize = 65_536;

/// One line as this proxy knows it.
#[derive(Default)]
struct Players {
    /// Under which it is polled.
    line: Option<Arc<LineHandle>>,
    waiters: HashMap<Player, Arc<Waiter>>,
    pace: Pace,
    /// The place of the last one whose ticket was read in turn.
    read_to: u64,
    /// Who waits through this node in the store's eyes alone, as of the last poll.
    orphans: HashSet<Player>,
}

#[derive(Default)]
pub(super) struct Table {
    lines: BTreeMap<LineName, Players>,
    /// Those that were admitted, by the time at which the pass expires.
    admitted: BTreeSet<(u64, LineName, Player)>,
}

impl Table {
    /// Answers the player's earlier one.
    pub fn insert(&mut self, waiter: &Arc<Waiter>) -> Option<Arc<Waiter>> {
        let players = self.lines.entry(waiter.line_name().clone()).or_default();
        players.line = Some(Arc::clone(&waiter.line));
        players.waiters.insert(waiter.player.clone(), Arc::clone(waiter))
    }

    /// The line is polled from now on, although nobody here waits in it: the store may have tickets of this proxy there.
    pub fn watch(&mut self, line: &Arc<LineHandle>) {
        self.lines.entry(line.name().clone()).or_default().line.get_or_insert_with(|| Arc::clone(line));
    }

    /// The store has no ticket of this proxy in the line. Where nobody here waits in it either, it is polled no more.
    pub fn unwatch(&mut self, line: &LineName) {
        let Some(players) = self.lines.get_mut(line).filter(|players| players.waiters.is_empty()) else { return };
        players.line = None;
        // The pace of the zone's wait line outlives those who wait; other lines come and go.
        if *line != LineName::wait() {
            self.lines.remove(line);
        }
    }

    /// Takes this very one out, where it is still there.
    pub fn remove(&mut self, waiter: &Arc<Waiter>) {
        let Some(players) = self.lines.get_mut(waiter.line_name()) else { return };
        if players.waiters.get(&waiter.player).is_some_and(|known| Arc::ptr_eq(known, waiter)) {
            players.waiters.remove(&waiter.player);
        }
    }

    pub fn get(&self, (line, player): &Key) -> Option<Arc<Waiter>> {
        self.lines.get(line)?.waiters.get(player).cloned()
    }

    /// True where the player is known, at whatever stage.
    pub fn knows(&self, line: &LineName, player: &Player) -> bool {
        self.lines.get(line).is_some_and(|players| players.waiters.contains_key(player))
    }

    /// Players of the line, at every stage.
    pub fn count(&self, line: &LineName) -> usize {
        self.lines.get(line).map_or(0, |players| players.waiters.len())
    }

    /// The lines that are polled: somebody is in them, or was until a moment ago.
    pub fn lines(&self) -> Vec<Arc<LineHandle>> {
        self.lines.values().filter_map(|players| players.line.clone()).collect()
    }

    /// Everybody, at every stage.
    pub fn all(&self) -> Vec<Arc<Waiter>> {
        self.lines.values().flat_map(|players| players.waiters.values()).cloned().collect()
    }

    /// Those of the line who wait, the foremost first.
    pub fn waiting(&self, line: &LineName) -> Vec<Arc<Waiter>> {
        let waiters = self.lines.get(line).into_iter().flat_map(|players| players.waiters.values());
        let mut waiting: Vec<_> = waiters
            .filter_map(|waiter| {
                let held = waiter.held();
                held.is_waiting().then(|| ((held.ahead, held.seq), Arc::clone(waiter)))
            })
            .collect();
        waiting.sort_unstable_by_key(|(rank, _)| *rank);
        waiting.into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// Those of `players` whom the line has here.
    pub fn among(&self, line: &LineName, players: &[Player]) -> Vec<Arc<Waiter>> {
        let Some(known) = self.lines.get(line) else { return Vec::new() };
        players.iter().filter_map(|player| known.waiters.get(player).cloned()).collect()
    }

    /// The next `most` of `waiting` in turn, by their sequences, so that all of the line have theirs.
    pub fn in_turn(&mut self, line: &LineName, waiting: &[Arc<Waiter>], most: usize) -> Vec<Arc<Waiter>> {
        let mut placed: Vec<(u64, &Arc<Waiter>)> = waiting.iter().map(|waiter| (waiter.held().seq, waiter)).collect();
        placed.sort_unstable_by_key(|(seq, _)| *seq);
        let Some(line) = self.lines.get_mut(line) else { return Vec::new() };
        let next = placed.partition_point(|(seq, _)| *seq <= line.read_to);
        placed.rotate_left(next);
        placed.truncate(most);
        line.read_to = placed.last().map_or(0, |(seq, _)| *seq);
        placed.into_iter().map(|(_, waiter)| Arc::clone(waiter)).collect()
    }

    /// Of those who wait through this node in the store's eyes, at most `most` whom it does not know, now and at the last
    /// poll.
    pub fn orphans(&mut self, line: &LineName, through: &HashSet<Player>, most: usize) -> Vec<Player> {
        let players = self.lines.entry(line.clone()).or_default();
        let unknown = through.iter().filter(|player| !players.waiters.contains_key(*player));
        let now: HashSet<Player> = unknown.cloned().collect();
        let twice = now.intersection(&players.orphans).take(most).cloned().collect();
        players.orphans = now;
        twice
    }

    /// The admitted player is remembered until the pass expires.
    pub fn admitted(&mut self, waiter: &Waiter, expires_at_ms: u64) {
        self.admitted.insert((expires_at_ms, waiter.line_name().clone(), waiter.player.clone()));
        while self.admitted.len() > ADMITTED_MAX {
            self.forget_first();
        }
    }

    /// Forgets admissions whose pass has expired.
    pub fn expire(&mut self, now_ms: u64) {
        while self.admitted.first().is_some_and(|(expires_at_ms, ..)| *expires_at_ms <= now_ms) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((expires_at_ms, line, player)) = self.admitted.pop_first() else { return };
        // The player may have entered again since.
        if let Some(waiter) = self.get(&(line, player))
            && waiter.pass_expires_at_ms() == Some(expires_at_ms)
        {
            self.remove(&waiter);
        }
    }

    /// A token came out of a line.
    pub fn drained(&mut self, line: &LineName, now_ms: u64) {
        if let Some(players) = self.lines.get_mut(line) {
            players.pace.note(now_ms);
        }
    }

    /// How long the one at `position` of a wait line waits, in ms.
    pub fn estimate_ms(&mut self, line: &LineName, position: u64, now_ms: u64) -> Option<u64> {
        self.lines.get_mut(line)?.pace.wait_ms(position, now_ms)
    }
}
