use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::{LineName, NodeId, Player, RequestId};
use crate::queue::Line;
use crate::store::boot_ms;

use super::pace::Pace;
use super::slot::Slot;

/// One wait line as this proxy knows it.
#[derive(Default)]
struct Lane {
    slots: HashMap<Player, Arc<Slot>>,
    pace: Pace,
    /// The place of the last one whose ticket was read in turn.
    read_to: u64,
    /// Who waits through this node in the store's eyes alone, as of the last look.
    ghosts: HashSet<Player>,
}

/// The requests of this proxy that wait.
#[derive(Default)]
pub(in crate::agent) struct Waits {
    lines: Mutex<HashMap<LineName, Lane>>,
}

impl Waits {
    fn lines(&self) -> MutexGuard<'_, HashMap<LineName, Lane>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the player's slot that was there before.
    pub fn add(&self, slot: &Arc<Slot>) -> Option<Arc<Slot>> {
        let mut lines = self.lines();
        let line = lines.entry(slot.line.name().clone()).or_default();
        line.slots.insert(slot.request.player.clone(), Arc::clone(slot))
    }

    /// Takes this very slot away.
    pub fn remove(&self, slot: &Arc<Slot>) {
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(slot.line.name()) else { return };
        if line.slots.get(&slot.request.player).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            line.slots.remove(&slot.request.player);
        }
        // Those of servers come and go with them.
        if line.slots.is_empty() && *slot.line.name() != LineName::wait() {
            lines.remove(slot.line.name());
        }
    }

    pub fn get(&self, line: &LineName, player: &Player) -> Option<Arc<Slot>> {
        self.lines().get(line)?.slots.get(player).cloned()
    }

    pub fn of_request(&self, player: &Player, request: &RequestId) -> Option<Arc<Slot>> {
        let lines = self.lines();
        let mut slots = lines.values().filter_map(|line| line.slots.get(player));
        slots.find(|slot| slot.request.id == *request).cloned()
    }

    /// All of them, the foremost first.
    pub fn all(&self) -> Vec<Arc<Slot>> {
        let mut all: Vec<(u64, Arc<Slot>)> = {
            let lines = self.lines();
            let slots = lines.values().flat_map(|line| line.slots.values());
            slots.map(|slot| (slot.visit().seq, Arc::clone(slot))).collect()
        };
        all.sort_by_key(|(seq, _)| *seq);
        all.into_iter().map(|(_, slot)| slot).collect()
    }

    /// The lines that somebody waits in, each with its slots.
    pub fn by_line(&self) -> Vec<(Line, Vec<Arc<Slot>>)> {
        let lines = self.lines();
        let slots = lines.values().map(|line| line.slots.values().cloned().collect::<Vec<_>>());
        slots.filter_map(|slots| Some((slots.first()?.line.clone(), slots))).collect()
    }

    /// The next `most` of `slots` in turn, by their places, so that all of the line have theirs.
    pub fn in_turn(&self, line: &LineName, slots: &[Arc<Slot>], most: usize) -> Vec<Arc<Slot>> {
        let mut placed: Vec<(u64, &Arc<Slot>)> = slots.iter().map(|slot| (slot.visit().seq, slot)).collect();
        placed.sort_unstable_by_key(|(seq, _)| *seq);
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(line) else { return Vec::new() };
        let next = placed.partition_point(|(seq, _)| *seq <= line.read_to);
        placed.rotate_left(next);
        placed.truncate(most);
        line.read_to = placed.last().map_or(0, |(seq, _)| *seq);
        placed.into_iter().map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// Of those who wait through this node in the store's eyes, at most `most` whom it does not know, now and at the last
    /// look.
    pub fn ghosts(&self, line: &LineName, through: HashSet<Player>, most: usize) -> Vec<Player> {
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(line) else { return Vec::new() };
        let now: HashSet<Player> = through.into_iter().filter(|player| !line.slots.contains_key(player)).collect();
        let twice = now.intersection(&line.ghosts).take(most).cloned().collect();
        line.ghosts = now;
        twice
    }

    /// The servers whose own line somebody waits in.
    pub fn servers(&self) -> Vec<NodeId> {
        let lines = self.lines();
        let waiting = lines.values().filter_map(|line| line.slots.values().next());
        waiting.filter_map(|slot| slot.request.ask.server.clone()).collect()
    }

    /// A token came out of a line.
    pub fn drained(&self, line: &LineName) {
        if let Some(line) = self.lines().get_mut(line) {
            line.pace.note(boot_ms());
        }
    }

    /// How long the one at `position` waits, in ms.
    pub fn estimate_ms(&self, line: &LineName, position: u64) -> Option<u64> {
        self.lines().get_mut(line)?.pace.wait_ms(position, boot_ms())
    }
}
