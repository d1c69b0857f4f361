//! A moment to choose in, with everything in it as a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use maitred::ids::{Epoch, Incarnation, NodeId, Region, Role};
use maitred::node::{Liveness, Load, NodeRecord, NodeState, NodeView, Snapshot, Switches};
use maitred::select::{Ask, Candidates, Order, RankContext, Ranking, Rule, Setting, rank};

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
    pub nodes: Vec<NodeView>,
    pub ask: Ask,
    pub switches: Switches,
    pub table: Candidates,
    pub rules: BTreeMap<String, Rule>,
    pub weights: BTreeMap<NodeId, f64>,
    pub locality: Option<String>,
    pub now_ms: u64,
    pub most: usize,
}

impl Stage {
    pub fn new(nodes: Vec<NodeView>) -> Self {
        let mut stage = Self {
            nodes,
            ask: Ask::default(),
            switches: Switches::default(),
            table: Candidates::default(),
            rules: Rule::defaults(),
            weights: BTreeMap::new(),
            locality: None,
            now_ms: 1_000,
            most: 4,
        };
        stage.take_in();
        stage
    }

    /// Brings the table to what the stage says now.
    pub fn take_in(&mut self) {
        let own = id("own");
        let setting = Setting {
            rules: &self.rules,
            weights: &self.weights,
            halflife_ms: HALFLIFE_MS,
            own: &own,
            locality: self.locality.as_deref(),
        };
        let snapshot = Snapshot { nodes: self.nodes.clone(), as_of_ms: 0, stale: false };
        self.table.take_in(&Arc::new(snapshot), &Arc::new(self.switches.clone()), &setting, self.now_ms);
    }

    fn rank(&mut self, order: Order) -> Ranking {
        self.take_in();
        let fixture = RankContext { ask: &self.ask, order, stale_after_ms: 3_000, now_ms: self.now_ms };
        rank(&self.table, &fixture, self.most)
    }

    pub fn by_score(&mut self) -> Ranking {
        self.rank(Order::Score)
    }

    pub fn by_kept(&mut self) -> Ranking {
        self.rank(Order::MostKept)
    }

    /// Chooses by score and remembers the pick, as a proxy does.
    pub fn pick(&mut self) -> NodeId {
        let best = self.by_score().picks.swap_remove(0).node.id.clone();
        self.table.picked(&best, self.now_ms, false);
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
