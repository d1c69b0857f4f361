//! CPU cost of choosing a backend: `cargo bench --bench select`. One of 1,000 backends takes under 50 µs, one of 5,000
//! under 250 µs, with every default metric there (SEL-1).

use std::collections::BTreeMap;
use std::sync::Arc;

use divan::{AllocProfiler, Bencher};
use maitred::ids::{Epoch, Incarnation, NodeId, Region, Role};
use maitred::node::{Liveness, Load, NodeRecord, NodeState, NodeView, Snapshot, Switches};
use maitred::select::{Ask, Candidates, Order, RankContext, Ranking, Rule, Setting, rank};

/// Counts what a choice allocates: the same for one backend as for thousands but for one list.
#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

const SIZES: [usize; 3] = [100, 1_000, 5_000];
const HALFLIFE_MS: u64 = 10_000;
/// The first attempt and the default three more.
const MOST: usize = 4;

fn main() {
    divan::main();
}

fn id(number: usize) -> NodeId {
    NodeId::new(format!("backend-{number:05}")).expect("an id")
}

fn node(number: usize, id: &NodeId) -> NodeView {
    let real = |modulus: usize| f64::from(u32::try_from(number * 7919 % modulus).expect("small"));
    let whole = |modulus: usize| u64::try_from(number * 104_729 % modulus).expect("small");
    let region = Region::new("main").expect("a region");
    let load = Load {
        mspt: Some(real(100)),
        queue_depth: Some(whole(64)),
        avg_pipeline_ms: Some(real(2_000)),
        heap_used: Some(whole(1_000)),
        heap_max: Some(1_000),
        regions: BTreeMap::from([(region, Some(whole(100)))]),
        ..Load::default()
    };
    let record = NodeRecord {
        id: id.clone(),
        role: Role::backend(),
        addr: "10.0.0.1:25565".to_owned(),
        epoch: Epoch(1_796_000_000_000),
        incarnation: Incarnation::fresh(),
        seq: 1,
        sent_at_ms: 1_796_000_000_000,
        state: NodeState::Ready,
        accepting: true,
        kill: false,
        players: whole(200),
        soft_cap: 200,
        load,
        services: Vec::new(),
        labels: BTreeMap::from([("locality".to_owned(), "eu".to_owned())]),
    };
    NodeView { record: Arc::new(record), liveness: Liveness::Online, age_ms: 500 }
}

struct Fleet {
    snapshot: Arc<Snapshot>,
    candidates: Candidates,
    switches: Arc<Switches>,
    ask: Ask,
    own: NodeId,
    rules: BTreeMap<String, Rule>,
    weights: BTreeMap<NodeId, f64>,
}

impl Fleet {
    /// Backends of which the proxy has measured and picked each.
    fn new(backends: usize) -> Self {
        let mut candidates = Candidates::default();
        for number in 0..backends {
            candidates.picked(&id(number), 0, false);
            candidates.answered(&id(number), 3.0);
        }
        Self {
            snapshot: snapshot(backends, 0),
            candidates,
            switches: Arc::default(),
            ask: Ask { prefer: Region::new("main").ok(), ..Ask::default() },
            own: NodeId::new("proxy-1").expect("an id"),
            rules: Rule::defaults(),
            weights: BTreeMap::new(),
        }
    }

    /// What a proxy does for a request: the table as of now, then the choice.
    fn choose(&mut self, order: Order) -> Ranking {
        let setting = Setting {
            rules: &self.rules,
            weights: &self.weights,
            halflife_ms: HALFLIFE_MS,
            own: &self.own,
            locality: Some("eu"),
        };
        self.candidates.take_in(&self.snapshot, &self.switches, &setting, 1_000);
        rank(&self.candidates, &RankContext { ask: &self.ask, order, stale_after_ms: 3_000, now_ms: 1_000 }, MOST)
    }
}

/// `backends` nodes, every one of them heard again since the moment before.
fn snapshot(backends: usize, moment: usize) -> Arc<Snapshot> {
    let nodes = (0..backends).map(|number| node(number + moment * 13, &id(number))).collect();
    Arc::new(Snapshot { nodes, as_of_ms: 0, stale: false })
}

#[divan::bench(args = SIZES)]
fn by_score(bencher: Bencher, backends: usize) {
    let mut fleet = Fleet::new(backends);
    fleet.choose(Order::Score);
    bencher.bench_local(|| fleet.choose(Order::Score));
}

/// Half a thousand backends with a weight of their own, a tenth drained, a tenth resting.
#[divan::bench(args = SIZES)]
fn by_score_with_everything(bencher: Bencher, backends: usize) {
    let mut fleet = Fleet::new(backends);
    let draining = (0..backends).step_by(10).map(id).collect();
    fleet.switches = Arc::new(Switches { draining, ..Switches::default() });
    (0..backends).step_by(10).for_each(|number| fleet.candidates.cool(&id(number + 1), 2_000));
    fleet.weights = (0..backends.min(512)).map(|number| (id(number), 2.0)).collect();
    fleet.choose(Order::Score);
    bencher.bench_local(|| fleet.choose(Order::Score));
}

#[divan::bench(args = SIZES)]
fn by_kept_places(bencher: Bencher, backends: usize) {
    let mut fleet = Fleet::new(backends);
    fleet.choose(Order::MostKept);
    bencher.bench_local(|| fleet.choose(Order::MostKept));
}

/// What a beat of every backend costs once, whatever number of choices follow: their new rows are read and scored.
#[divan::bench(args = SIZES)]
fn take_in_a_beat_of_all(bencher: Bencher, backends: usize) {
    let mut fleet = Fleet::new(backends);
    let moments = [snapshot(backends, 1), snapshot(backends, 2)];
    let mut turn = 0;
    bencher.bench_local(|| {
        turn += 1;
        fleet.snapshot = Arc::clone(&moments[turn % 2]);
        fleet.choose(Order::Score)
    });
}
