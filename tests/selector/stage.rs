//! A moment to choose in, with everything in it as a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use maitred::ids::{Epoch, Incarnation, NodeId, Region, Role};
use maitred::node::{Liveness, Load, NodeRecord, NodeState, NodeView, Snapshot, Switches};
use maitred::select::{Ask, Memory, Order, Ranking, Rule, Scene, Scorer, rank};

pub const HALFLIFE_MS: u64 = 10_000;

pub fn id(name: &str) -> NodeId {
    NodeId::new(name).expect("an id")
}

pub fn region(name: &str) -> Region {
    Region::new(name).expect("a region")
}

/// A backend that is up and says nothing of its load.
pub fn view(name: &str) -> NodeView {
    let record = NodeRecord {
        id: id(name),
        role: Role::backend(),
        addr: "h:1".to_owned(),
        epoch: Epoch(1),
        incarnation: Incarnation::new("i").expect("valid"),
        seq: 1,
        sent_at_ms: 0,
        state: NodeState::Ready,
        accepting: true,
        kill: false,
        players: 0,
        soft_cap: 0,
        load: Load::default(),
        services: Vec::new(),
        labels: BTreeMap::new(),
    };
    NodeView { record: Arc::new(record), liveness: Liveness::Online, age_ms: 0 }
}

pub fn with(mut view: NodeView, change: impl FnOnce(&mut NodeRecord)) -> NodeView {
    let mut record = (*view.record).clone();
    change(&mut record);
    view.record = Arc::new(record);
    view
}

pub fn in_regions(name: &str, regions: &[(&str, Option<u64>)]) -> NodeView {
    with(view(name), |record| {
        record.load.regions = regions.iter().map(|(name, kept)| (region(name), *kept)).collect();
    })
}

/// What a choice is made from, owned.
pub struct Stage {
    pub snapshot: Snapshot,
    pub ask: Ask,
    pub switches: Switches,
    pub memory: Memory,
    pub rules: BTreeMap<String, Rule>,
    pub weights: BTreeMap<NodeId, f64>,
    pub locality: Option<String>,
    pub now_ms: u64,
    pub most: usize,
}

impl Stage {
    pub fn new(nodes: Vec<NodeView>) -> Self {
        Self {
            snapshot: Snapshot { nodes, as_of_ms: 0, stale: false },
            ask: Ask::default(),
            switches: Switches::default(),
            memory: Memory::default(),
            rules: Rule::defaults(),
            weights: BTreeMap::new(),
            locality: None,
            now_ms: 1_000,
            most: 4,
        }
    }

    fn rank(&self, order: Order<'_>) -> Ranking {
        let scene = Scene {
            snapshot: &self.snapshot,
            ask: &self.ask,
            own: &id("own"),
            locality: self.locality.as_deref(),
            stale_after_ms: 3_000,
            switches: &self.switches,
            memory: &self.memory,
            now_ms: self.now_ms,
        };
        rank(&scene, order, self.most)
    }

    pub fn by_score(&self) -> Ranking {
        self.rank(Order::Score(&Scorer::new(self.rules.values(), &self.weights, HALFLIFE_MS)))
    }

    pub fn by_kept(&self) -> Ranking {
        self.rank(Order::MostKept)
    }

    /// Chooses by score and remembers the pick, as a proxy does.
    pub fn pick(&mut self) -> NodeId {
        let best = self.by_score().picks.swap_remove(0).node.id.clone();
        self.memory.picked(&best, self.now_ms, HALFLIFE_MS, false);
        best
    }

    /// Leaves only recent picks to count.
    pub fn only_recent_picks(mut self) -> Self {
        self.rules.retain(|name, _| name == "recentPicks");
        self
    }
}

/// `server:region`, best first.
pub fn names(ranking: &Ranking) -> Vec<String> {
    let region = |region: &Option<Region>| region.as_ref().map_or("-".to_owned(), ToString::to_string);
    ranking.picks.iter().map(|pick| format!("{}:{}", pick.node.id, region(&pick.region))).collect()
}
