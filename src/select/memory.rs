use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;

use crate::ids::NodeId;

use super::picks::Decaying;

/// Share of a new round trip in the smoothed one, as TCP has it (RFC 6298).
const RTT_SHARE: f64 = 0.125;
/// A count below this is as good as none.
const PICKS_MIN: f64 = 0.01;
/// Entries over which what is of no use any more is looked for.
const PRUNE_OVER: usize = 64;

/// What one proxy remembers of one backend.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Left out until then.
    pub cooling_until_ms: u64,
    /// Recent picks: this proxy's own, or with shared picks all proxies'.
    pub picks: Decaying,
    /// Picks of this proxy that the others were not told of yet.
    unshared: u32,
    /// Picks that they are being told of.
    in_flight: u32,
    /// Smoothed round trip.
    pub rtt_ms: Option<f64>,
}

/// What one proxy remembers of the backends: who refused or did not answer a moment ago, who was picked, how far away
/// each is. Never published. Times are in ms of any one clock that only goes forward.
#[derive(Debug, Default)]
pub struct Memory {
    known: BTreeMap<NodeId, Known>,
    prune_at: usize,
}

impl Memory {
    fn known(&mut self, id: &NodeId) -> &mut Known {
        self.known.entry(id.clone()).or_default()
    }

    /// Leaves `id` out until `until_ms`.
    pub fn cool(&mut self, id: &NodeId, until_ms: u64) {
        self.known(id).cooling_until_ms = until_ms;
    }

    /// True while `id` is left out.
    pub fn is_cooling(&self, id: &NodeId, now_ms: u64) -> bool {
        self.known.get(id).is_some_and(|known| known.cooling_until_ms > now_ms)
    }

    /// `id` was picked once more. With `share` the pick is counted for [`take_unshared`](Self::take_unshared).
    pub fn picked(&mut self, id: &NodeId, now_ms: u64, halflife_ms: u64, share: bool) {
        let known = self.known(id);
        known.picks.add(1.0, now_ms, halflife_ms);
        known.unshared = if share { known.unshared.saturating_add(1) } else { 0 };
    }

    /// Recent picks of `id`.
    pub fn picks(&self, id: &NodeId, now_ms: u64, halflife_ms: u64) -> f64 {
        self.known.get(id).map_or(0.0, |known| known.picks.at(now_ms, halflife_ms))
    }

    /// A call of `id` took `rtt_ms` from the question to the answer.
    pub fn answered(&mut self, id: &NodeId, rtt_ms: f64) {
        let known = self.known(id);
        known.rtt_ms = Some(known.rtt_ms.map_or(rtt_ms, |rtt| rtt + RTT_SHARE * (rtt_ms - rtt)));
    }

    /// The smoothed round trip to `id`, in ms.
    pub fn rtt_ms(&self, id: &NodeId) -> Option<f64> {
        self.known.get(id)?.rtt_ms
    }

    /// Picks that the other proxies were not told of, at most `most` backends; they count as under way until
    /// [`told`](Self::told).
    pub fn take_unshared(&mut self, most: usize) -> Vec<(NodeId, u32)> {
        let waiting = self.known.iter_mut().filter(|(_, known)| known.unshared > 0).take(most);
        waiting
            .map(|(id, known)| {
                known.in_flight = std::mem::take(&mut known.unshared);
                (id.clone(), known.in_flight)
            })
            .collect()
    }

    /// The other proxies can know of what was taken.
    pub fn told(&mut self) {
        for known in self.known.values_mut() {
            known.in_flight = 0;
        }
    }

    /// The picks of all proxies as they were read at `now_ms`; this proxy's own that they do not hold are added. A backend
    /// that is not among them was not picked by anybody.
    pub fn hear(&mut self, shared: &BTreeMap<NodeId, f64>, now_ms: u64) {
        for id in shared.keys() {
            self.known(id);
        }
        for (id, known) in &mut self.known {
            let all = shared.get(id).copied().unwrap_or(0.0);
            known.picks = Decaying::new(all + f64::from(known.unshared) + f64::from(known.in_flight), now_ms);
        }
    }

    /// Forgets backends of which nothing is of use any more: not in view, not cooling, not picked. Cheap where there is
    /// nothing to forget.
    pub fn prune(&mut self, in_view: impl Fn(&NodeId) -> bool, now_ms: u64, halflife_ms: u64) {
        if self.known.len() <= self.prune_at.max(PRUNE_OVER) {
            return;
        }
        self.known.retain(|id, known| {
            known.cooling_until_ms > now_ms
                || known.picks.at(now_ms, halflife_ms) > PICKS_MIN
                || known.unshared + known.in_flight > 0
                || in_view(id)
        });
        self.prune_at = self.known.len().saturating_mul(2);
    }

    /// Walks the memory beside a snapshot.
    pub(super) fn beside(&self) -> Beside<'_> {
        Beside { all: &self.known, next: self.known.range::<NodeId, _>(..).peekable(), last: None }
    }
}

/// A walk along the memory in the order of ids: a snapshot is in that order too, so that a lookup is mostly a step. In any
/// other order it is a search.
pub(super) struct Beside<'a> {
    all: &'a BTreeMap<NodeId, Known>,
    next: Peekable<Range<'a, NodeId, Known>>,
    last: Option<&'a NodeId>,
}

impl<'a> Beside<'a> {
    pub(super) fn look(&mut self, id: &'a NodeId) -> Option<&'a Known> {
        if self.all.is_empty() {
            return None;
        }
        if self.last.is_some_and(|last| id <= last) {
            return self.all.get(id);
        }
        self.last = Some(id);
        while let Some((at, known)) = self.next.peek() {
            match (*at).cmp(id) {
                std::cmp::Ordering::Less => {
                    self.next.next();
                }
                std::cmp::Ordering::Equal => return Some(known),
                std::cmp::Ordering::Greater => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> NodeId {
        NodeId::new(name).expect("valid")
    }

    #[test]
    fn sel_5_a_backend_is_out_for_its_cooldown_and_no_longer() {
        let mut memory = Memory::default();
        memory.cool(&id("b1"), 2_100);
        assert!(memory.is_cooling(&id("b1"), 2_099) && !memory.is_cooling(&id("b1"), 2_100));
        assert!(!memory.is_cooling(&id("b2"), 0));
    }

    #[test]
    fn sel_3_the_round_trip_is_smoothed() {
        let mut memory = Memory::default();
        assert_eq!(memory.rtt_ms(&id("b1")), None);
        memory.answered(&id("b1"), 80.0);
        memory.answered(&id("b1"), 160.0);
        assert_eq!(memory.rtt_ms(&id("b1")), Some(90.0), "an eighth of the way");
    }

    #[test]
    fn sel_9_picks_of_all_proxies_and_those_they_do_not_know_of_yet_count_once() {
        let mut memory = Memory::default();
        for _ in 0..3 {
            memory.picked(&id("b1"), 0, 10_000, true);
        }
        assert_eq!(memory.take_unshared(8), [(id("b1"), 3)]);
        memory.picked(&id("b1"), 0, 10_000, true);
        // What is under way may or may not be in the store: counted until it is known.
        memory.hear(&BTreeMap::from([(id("b2"), 5.0)]), 0);
        assert!((memory.picks(&id("b1"), 0, 10_000) - 4.0).abs() < 1e-9);
        assert!((memory.picks(&id("b2"), 0, 10_000) - 5.0).abs() < 1e-9);
        memory.told();
        memory.hear(&BTreeMap::from([(id("b1"), 3.0)]), 0);
        assert!((memory.picks(&id("b1"), 0, 10_000) - 4.0).abs() < 1e-9);
        assert!(memory.picks(&id("b2"), 0, 10_000) < 1e-9, "nobody picks it any more");
        assert_eq!(memory.take_unshared(8), [(id("b1"), 1)]);
        assert_eq!(memory.take_unshared(8), []);
    }

    #[test]
    fn what_is_of_no_use_any_more_takes_no_memory() {
        let mut memory = Memory::default();
        for n in 0..1_000 {
            memory.picked(&id(&format!("b{n}")), 0, 1_000, false);
        }
        memory.cool(&id("b7"), 90_000);
        memory.prune(|id| id.as_str() == "b8", 60_000, 1_000);
        let left: Vec<&str> = memory.known.keys().map(NodeId::as_str).collect();
        assert_eq!(left, ["b7", "b8"]);
    }

    #[test]
    fn a_walk_finds_what_a_search_finds_in_any_order() {
        let mut memory = Memory::default();
        for n in [1, 3, 4, 8] {
            memory.answered(&id(&format!("b{n}")), f64::from(n));
        }
        let names: Vec<NodeId> = [0, 1, 2, 4, 3, 3, 9, 8, 1].map(|n| id(&format!("b{n}"))).into();
        let mut walk = memory.beside();
        for name in &names {
            assert_eq!(walk.look(name).and_then(|known| known.rtt_ms), memory.rtt_ms(name), "{name}");
        }
    }
}
