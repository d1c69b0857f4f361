//! Who goes where: a weighted random pick over free capacity. Pure: the seed comes in.

use std::collections::HashMap;

use crate::ids::{Epoch, NodeId, Role};
use crate::node::{Liveness, NodeRecord, NodeState, NodeView, Snapshot};

use super::new_players::is_too_fast;

/// Backends, and as many links, that one round considers. A fleet of thousands costs a round no more than these.
pub const TARGETS_MAX: usize = 8;

/// What an admission is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Choice {
    /// A backend.
    #[default]
    Backend,
    /// A backend and the link to it.
    BackendAndLink,
    /// A link only.
    LinkOnly,
}

impl Choice {
    /// The roles that are picked from: of the backend, of the link.
    pub fn picks(self) -> (bool, bool) {
        match self {
            Self::Backend => (true, false),
            Self::BackendAndLink => (true, true),
            Self::LinkOnly => (false, true),
        }
    }
}

/// A node that players may be sent to, as one's own view has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetNode {
    /// Its id.
    pub id: NodeId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Where players are sent.
    pub addr: String,
    /// The heartbeat that this is read from.
    pub seq: u64,
    /// Players on it.
    pub players: u64,
    /// Players it wants at most; 0 for no such number.
    pub soft_cap: u64,
    /// Most players that may be sent there now, whatever is free; `None` where it does not report how many are new.
    pub new_left: Option<u64>,
}

/// Where an admission goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destination {
    /// The backend.
    pub server: Option<TargetNode>,
    /// The link.
    pub link: Option<TargetNode>,
}

/// The nodes of `role` that take new players: not suspect or stale, ready, accepting, not killed, draining, overloaded or
/// full, and with no more new players a second than `new_players_max` and some slack. What may be sent to one of them is for
/// the caller to say.
pub fn targets(
    snapshot: &Snapshot,
    role: &Role,
    stale_after_ms: u64,
    new_players_max: Option<u32>,
    is_stopped: impl Fn(&NodeRecord) -> bool,
) -> Vec<TargetNode> {
    let takes = |view: &&NodeView| {
        let record = &view.record;
        let too_fast = new_players_max.zip(record.load.new_players_per_second);
        record.role == *role
            && view.liveness == Liveness::Online
            && view.age_ms < stale_after_ms
            && matches!(record.state, NodeState::Ready | NodeState::Degraded)
            && record.accepting
            && !is_stopped(record)
            && record.load.overloaded != Some(true)
            && too_fast.is_none_or(|(limit, reported)| !is_too_fast(reported, limit))
            && (record.soft_cap == 0 || record.players < record.soft_cap)
    };
    let target = |view: &NodeView| TargetNode {
        id: view.record.id.clone(),
        epoch: view.record.epoch,
        addr: view.record.addr.clone(),
        seq: view.record.seq,
        players: view.record.players,
        soft_cap: view.record.soft_cap,
        new_left: view.record.load.new_players_per_second.map(|_| u64::MAX),
    };
    snapshot.nodes.iter().filter(takes).map(target).collect()
}

/// Free places as the last rounds found them. Heartbeats do not say what is promised, so what a script counted is kept
/// until a newer heartbeat comes.
#[derive(Debug, Clone, Default)]
pub struct Places {
    known: HashMap<NodeId, Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    epoch: Epoch,
    seq: u64,
    free: u64,
    promised: u64,
}

impl Places {
    /// What a script counted.
    pub fn counted(&mut self, target: &TargetNode, free: i64) {
        let free = u64::try_from(free).unwrap_or(0);
        let promised = target.soft_cap.saturating_sub(target.players).saturating_sub(free);
        let known = Known { epoch: target.epoch, seq: target.seq, free, promised };
        self.known.insert(target.id.clone(), known);
    }

    /// Forgets nodes that are not among `targets`.
    pub fn retain(&mut self, targets: &[TargetNode]) {
        if self.known.len() > targets.len().saturating_mul(2) {
            self.known.retain(|id, _| targets.iter().any(|target| target.id == *id));
        }
    }

    /// The free places to weigh `target` with, 0 where none is expected: it is only counted again. A node without a soft
    /// cap weighs as much as one with a single free place.
    pub fn weight(&self, target: &TargetNode) -> u64 {
        let room = target.soft_cap.saturating_sub(target.players);
        match self.known.get(&target.id) {
            Some(known) if (known.epoch, known.seq) == (target.epoch, target.seq) => {
                if target.soft_cap == 0 {
                    known.free.min(1)
                } else {
                    known.free
                }
            }
            _ if target.soft_cap == 0 => 1,
            Some(known) if known.epoch == target.epoch => room.saturating_sub(known.promised),
            _ => room,
        }
    }
}

/// A source of numbers that look random and follow from the seed.
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// From this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        u64::try_from((u128::from(word) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// The place of a weighted pick; none where no weight is left.
    pub fn weighted(&mut self, weights: &[u64]) -> Option<usize> {
        let total = weights.iter().fold(0_u64, |sum, weight| sum.saturating_add(*weight));
        let mut at = self.below(total);
        weights.iter().position(|weight| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here && *weight > 0
        })
    }
}

/// At most `most` of the targets, without repetition, each the likelier the more places it has free, and those places.
/// What room is left on the list goes to some that are expected to be full: nobody is sent there, but their places are
/// counted again.
pub fn shortlist(targets: &[TargetNode], places: &Places, most: usize, rng: &mut SeededRng) -> Vec<(TargetNode, u64)> {
    let mut weights: Vec<u64> = targets.iter().map(|target| places.weight(target)).collect();
    let mut full: Vec<u64> = weights.iter().map(|weight| u64::from(*weight == 0)).collect();
    let mut list = Vec::new();
    while list.len() < most {
        let (at, left) = match rng.weighted(&weights) {
            Some(at) => (at, &mut weights),
            None => match rng.weighted(&full) {
                Some(at) => (at, &mut full),
                None => break,
            },
        };
        let (Some(target), Some(left)) = (targets.get(at), left.get_mut(at)) else { break };
        *left = 0;
        list.push((target.clone(), places.weight(target)));
    }
    list
}

/// One pick for each of `count` players, each the likelier the more places are free then; fewer where the places run out, or
/// where no server may be sent more.
pub fn assign(count: usize, list: &[(TargetNode, u64)], rng: &mut SeededRng) -> Vec<usize> {
    let mut free: Vec<u64> = list.iter().map(|(_, free)| *free).collect();
    let mut new_left: Vec<u64> = list.iter().map(|(target, _)| target.new_left.unwrap_or(u64::MAX)).collect();
    for (free, new_left) in free.iter_mut().zip(&new_left) {
        if *new_left == 0 {
            *free = 0;
        }
    }
    let unlimited: Vec<bool> = list.iter().map(|(target, _)| target.soft_cap == 0).collect();
    let mut picks = Vec::new();
    while picks.len() < count {
        let Some(at) = rng.weighted(&free) else { break };
        if let (Some(free), Some(new_left)) = (free.get_mut(at), new_left.get_mut(at)) {
            *new_left -= 1;
            if unlimited.get(at) == Some(&false) {
                *free -= 1;
            }
            if *new_left == 0 {
                *free = 0;
            }
        }
        picks.push(at);
    }
    picks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, players: u64, soft_cap: u64) -> TargetNode {
        let id = NodeId::new(name).expect("valid");
        TargetNode { id, epoch: Epoch(1), addr: String::new(), seq: 1, players, soft_cap, new_left: None }
    }

    // QUE-5: without the weights a nearly full backend gets as many as an empty one, and people wait for nothing.
    #[test]
    fn que_5_picks_follow_the_free_places_and_never_exceed_them() {
        let targets = [target("b1", 100, 400), target("b2", 300, 400), target("b3", 400, 400)];
        let list: Vec<(TargetNode, u64)> = targets.iter().map(|t| (t.clone(), t.soft_cap - t.players)).collect();
        let mut counts = [0_u32; 3];
        for seed in 0..2_000 {
            for at in assign(1, &list, &mut SeededRng::new(seed)) {
                counts[at] += 1;
            }
        }
        assert_eq!(counts[2], 0, "it is full");
        assert!((1_400..=1_600).contains(&counts[0]), "three of four places are on b1: {counts:?}");

        let all = assign(1_000, &list, &mut SeededRng::new(7));
        assert_eq!(all.len(), 400, "as many as there are places");
        assert_eq!(all.iter().filter(|at| **at == 0).count(), 300);
        assert_eq!(assign(1_000, &list, &mut SeededRng::new(7)), all, "the seed decides");
        assert!(assign(3, &[], &mut SeededRng::new(1)).is_empty());
    }

    #[test]
    fn que_5_the_shortlist_has_each_once_and_none_that_is_full() {
        let targets: Vec<TargetNode> = (0..100).map(|n| target(&format!("b{n}"), n % 2 * 10, 10)).collect();
        let mut places = Places::default();
        targets.iter().filter(|target| target.players == 10).for_each(|full| places.counted(full, 0));
        let list = shortlist(&targets, &places, 8, &mut SeededRng::new(3));
        assert_eq!(
            shortlist(&targets, &places, 60, &mut SeededRng::new(3)).iter().filter(|(_, free)| *free > 0).count(),
            50
        );
        let ids: std::collections::BTreeSet<_> = list.iter().map(|(target, _)| target.id.clone()).collect();
        assert_eq!(ids.len(), 8);
        assert!(list.iter().all(|(target, free)| target.players == 0 && *free == 10));
    }

    // maxOnlineNew, also of a server without a soft cap.
    #[test]
    fn que_5_nobody_is_sent_where_enough_are_new_already() {
        let mut targets = [target("b1", 0, 400), target("b2", 0, 0), target("b3", 0, 3)];
        for (target, new_left) in targets.iter_mut().zip([5, 2, 9]) {
            target.new_left = Some(new_left);
        }
        let list: Vec<(TargetNode, u64)> = targets.iter().zip([400, 1, 3]).map(|(t, free)| (t.clone(), free)).collect();
        let picks = assign(100, &list, &mut SeededRng::new(1));
        let of = |at: usize| picks.iter().filter(|pick| **pick == at).count();
        assert_eq!([of(0), of(1), of(2)], [5, 2, 3]);
    }

    #[test]
    fn que_15_what_a_script_counted_holds_until_the_next_heartbeat() {
        let mut places = Places::default();
        let mut b1 = target("b1", 5, 20);
        assert_eq!(places.weight(&b1), 15);
        places.counted(&b1, 2);
        assert_eq!(places.weight(&b1), 2, "13 are promised");
        (b1.seq, b1.players) = (2, 10);
        assert_eq!(places.weight(&b1), 0, "as many promised as before, as far as is known");
        let list = shortlist(std::slice::from_ref(&b1), &places, 8, &mut SeededRng::new(1));
        assert_eq!(list, [(b1.clone(), 0)], "it is counted again");
        assert!(assign(1, &list, &mut SeededRng::new(1)).is_empty());
        assert_eq!(
            places.weight(&TargetNode { epoch: Epoch(2), ..b1 }),
            10,
            "another incarnation has promised nothing"
        );
    }
}
