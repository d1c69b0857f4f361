use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use serde::Serialize;

use crate::ids::{NodeId, Region};
use crate::node::{Liveness, NodeRecord, NodeState, NodeView, Snapshot, Switches};

use super::memory::{Known, Memory};
use super::score::{Circumstances, Scorer};

/// Backends that were left out and are named in a [`Ranking`]; the others are only counted.
pub const NAMED_MAX: usize = 16;

/// What a request wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ask {
    /// This backend and no other.
    pub server: Option<NodeId>,
    /// A place in this region.
    pub region: Option<Region>,
    /// A backend that has this world loaded.
    pub world: Option<String>,
    /// Rather a backend that serves this region, by the weight of the metric with the source `stickyRegion`.
    pub prefer: Option<Region>,
}

impl Ask {
    /// True where any backend and any region will do.
    pub fn is_bare(&self) -> bool {
        self.server.is_none() && self.region.is_none() && self.world.is_none()
    }
}

/// Everything that a choice is made from: one moment of one proxy.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The nodes.
    pub snapshot: &'a Snapshot,
    /// What is wanted.
    pub ask: &'a Ask,
    /// Who chooses: never picked.
    pub own: &'a NodeId,
    /// Where it is: its label `locality`.
    pub locality: Option<&'a str>,
    /// Age of a backend's last beat from which it is not picked.
    pub stale_after_ms: u64,
    /// Kill switches and drain entries.
    pub switches: &'a Switches,
    /// Cooldowns, recent picks, round trips.
    pub memory: &'a Memory,
    /// Now, on the clock of `memory`.
    pub now_ms: u64,
}

/// What makes one backend better than another.
#[derive(Debug, Clone, Copy)]
pub enum Order<'a> {
    /// The lowest score (SEL-1), ties by node id.
    Score(&'a Scorer<'a>),
    /// The most kept places in one region (SEL-6), ties by node id, then region. Who publishes no count is left out.
    MostKept,
}

/// Why a node was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Its last beat is late.
    Suspect,
    /// Its row is older than the limit.
    Stale,
    /// Not ready, or on its way out.
    NotReady,
    /// It takes no new players.
    NotAccepting,
    /// A kill switch is on for it.
    Killed,
    /// An operator drains it.
    Draining,
    /// It refused or did not answer a moment ago.
    Cooling,
    /// It does not serve the region, or publishes no kept counts to choose by.
    NoRegion,
    /// It has not loaded the world.
    NoWorld,
}

/// A backend to ask, and for which region.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// Its row in the snapshot.
    pub node: Arc<NodeRecord>,
    /// The region to ask for; `None` leaves it to the backend.
    pub region: Option<Region>,
}

/// Backends in the order to ask them, and why others are not among them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranking {
    /// Best first, no more than were asked for.
    pub picks: Vec<Pick>,
    /// Backends that were left out, the first [`NAMED_MAX`] of them.
    pub excluded: Vec<(NodeId, Exclusion)>,
    /// How many were left out.
    pub left_out: usize,
}

/// The `most` best backends of a snapshot for a request.
///
/// Filters first (SEL-4), then `order`. A named backend is never replaced by another one. Nodes of the roles `proxy`,
/// `lobby`, `link` and `service` are never picked, nor is `own`. The same scene gives the same ranking, whatever the order
/// of its nodes. One walk over the snapshot; nothing is allocated for a single backend but for the `most` and the
/// [`NAMED_MAX`] that the answer names.
pub fn rank(scene: &Scene<'_>, order: Order<'_>, most: usize) -> Ranking {
    match order {
        Order::Score(scorer) => by_score(scene, scorer, most),
        Order::MostKept => by_kept(scene, most),
    }
}

/// A backend that passed the filters. An index is half as long as a reference.
struct Candidate {
    index: usize,
    plain: f64,
    picks: f64,
}

fn by_score(scene: &Scene<'_>, scorer: &Scorer<'_>, most: usize) -> Ranking {
    let nodes = &scene.snapshot.nodes;
    let around = Circumstances { ask: scene.ask, locality: scene.locality };
    let mut candidates = Vec::with_capacity(nodes.len());
    let mut highest = 0.0_f64;
    let mut ranking = filter(scene, |index, record, known| {
        if let Some(region) = &scene.ask.region
            && !record.load.regions.contains_key(region)
        {
            return Err(Exclusion::NoRegion);
        }
        let picks = scorer.recent(known, scene.now_ms);
        highest = highest.max(picks);
        candidates.push(Candidate { index, plain: scorer.plain(record, known, around), picks });
        Ok(())
    });
    let mut best = Best::new(most);
    for candidate in &candidates {
        if let Some(view) = nodes.get(candidate.index) {
            let id = &view.record.id;
            let score = scorer.whole(candidate.plain, candidate.picks, highest, id);
            best.offer((Score(score), id), &view.record);
        }
    }
    ranking.picks = best.into_picks(|_| scene.ask.region.clone());
    ranking
}

fn by_kept(scene: &Scene<'_>, most: usize) -> Ranking {
    let mut best = Best::new(most);
    let mut ranking = filter(scene, |_, record, _| {
        let counted = record.load.regions.iter().filter_map(|(region, kept)| Some(((*kept)?, region)));
        // The last of equal maxima wins, so walk backwards to end at the first region by name.
        let (kept, region) = counted.rev().max_by_key(|(kept, _)| *kept).ok_or(Exclusion::NoRegion)?;
        best.offer((Reverse(kept), &record.id, region), record);
        Ok(())
    });
    ranking.picks = best.into_picks(|(_, _, region)| Some((*region).clone()));
    ranking
}

/// Shows `take` every backend that passes the filters; it may leave one out itself.
fn filter<'a>(
    scene: &Scene<'a>,
    mut take: impl FnMut(usize, &'a Arc<NodeRecord>, Option<&'a Known>) -> Result<(), Exclusion>,
) -> Ranking {
    let mut ranking = Ranking::default();
    let mut beside = scene.memory.beside();
    for (index, view) in scene.snapshot.nodes.iter().enumerate().filter(|(_, view)| is_candidate(view, scene)) {
        let record = &view.record;
        let known = beside.look(&record.id);
        if let Err(exclusion) = check(view, scene, known).and_then(|()| take(index, record, known)) {
            ranking.left_out += 1;
            if ranking.excluded.len() < NAMED_MAX {
                ranking.excluded.push((record.id.clone(), exclusion));
            }
        }
    }
    ranking
}

fn is_candidate(view: &NodeView, scene: &Scene<'_>) -> bool {
    let record = &view.record;
    match &scene.ask.server {
        Some(server) => record.id == *server,
        None => record.role.gives_places() && record.id != *scene.own,
    }
}

/// The filters of SEL-4 but for the region.
fn check(view: &NodeView, scene: &Scene<'_>, known: Option<&Known>) -> Result<(), Exclusion> {
    let record = &view.record;
    if view.liveness != Liveness::Online {
        return Err(Exclusion::Suspect);
    }
    if view.age_ms >= scene.stale_after_ms {
        return Err(Exclusion::Stale);
    }
    if record.kill || scene.switches.is_killed(&record.id) {
        return Err(Exclusion::Killed);
    }
    if scene.switches.is_draining(&record.id) {
        return Err(Exclusion::Draining);
    }
    if !matches!(record.state, NodeState::Ready | NodeState::Degraded) {
        return Err(Exclusion::NotReady);
    }
    if !record.accepting {
        return Err(Exclusion::NotAccepting);
    }
    if known.is_some_and(|known| known.cooling_until_ms > scene.now_ms) {
        return Err(Exclusion::Cooling);
    }
    if scene.ask.world.as_ref().is_some_and(|world| !record.load.worlds.contains(world)) {
        return Err(Exclusion::NoWorld);
    }
    Ok(())
}

/// A score as something that can be sorted; none is no number.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The best few of many, in order.
struct Best<'a, K> {
    most: usize,
    kept: Vec<(K, &'a Arc<NodeRecord>)>,
}

impl<'a, K: Ord> Best<'a, K> {
    fn new(most: usize) -> Self {
        Self { most, kept: Vec::with_capacity(most.saturating_add(1)) }
    }

    fn offer(&mut self, key: K, record: &'a Arc<NodeRecord>) {
        if self.kept.len() >= self.most && self.kept.last().is_none_or(|(worst, _)| *worst <= key) {
            return;
        }
        let at = self.kept.partition_point(|(better, _)| *better <= key);
        self.kept.insert(at, (key, record));
        self.kept.truncate(self.most);
    }

    fn into_picks(self, region: impl Fn(&K) -> Option<Region>) -> Vec<Pick> {
        self.kept.into_iter().map(|(key, record)| Pick { node: Arc::clone(record), region: region(&key) }).collect()
    }
}
