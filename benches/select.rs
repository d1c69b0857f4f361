//! CPU cost of choosing a backend: `cargo bench --bench select`. One of 1,000 backends takes under 50 µs, one of 5,000
//! under 250 µs, with every default metric there (SEL-1).

use std::collections::BTreeMap;
use std::sync::Arc;

use divan::{AllocProfiler, Bencher};
use maitred::ids::{Epoch, Incarnation, NodeId, Region, Role};
use maitred::node::{Liveness, Load, NodeRecord, NodeState, NodeView, Snapshot, Switches};
use maitred::select::{Ask, Memory, Order, Rule, Scene, Scorer, rank};

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

fn node(number: usize) -> NodeView {
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
        id: id(number),
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
    snapshot: Snapshot,
    memory: Memory,
    ask: Ask,
    own: NodeId,
    switches: Switches,
    rules: BTreeMap<String, Rule>,
    weights: BTreeMap<NodeId, f64>,
}

impl Fleet {
    /// Backends of which the proxy has measured and picked each.
    fn new(backends: usize) -> Self {
        let mut memory = Memory::default();
        for number in 0..backends {
            memory.picked(&id(number), 0, HALFLIFE_MS, false);
            memory.answered(&id(number), 3.0);
        }
        Self {
            snapshot: Snapshot { nodes: (0..backends).map(node).collect(), as_of_ms: 0, stale: false },
            memory,
            ask: Ask { prefer: Region::new("main").ok(), ..Ask::default() },
            own: NodeId::new("proxy-1").expect("an id"),
            switches: Switches::default(),
            rules: Rule::defaults(),
            weights: BTreeMap::new(),
        }
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            snapshot: &self.snapshot,
            ask: &self.ask,
            own: &self.own,
            locality: Some("eu"),
            stale_after_ms: 3_000,
            switches: &self.switches,
            memory: &self.memory,
            now_ms: 1_000,
        }
    }
}

#[divan::bench(args = SIZES)]
fn by_score(bencher: Bencher, backends: usize) {
    let fleet = Fleet::new(backends);
    bencher.bench_local(|| {
        let scorer = Scorer::new(fleet.rules.values(), &fleet.weights, HALFLIFE_MS);
        rank(&fleet.scene(), Order::Score(&scorer), MOST)
    });
}

/// Every backend with a weight of its own, some drained and some resting.
#[divan::bench(args = SIZES)]
fn by_score_with_everything(bencher: Bencher, backends: usize) {
    let mut fleet = Fleet::new(backends);
    for number in (0..backends).step_by(10) {
        fleet.switches.draining.insert(id(number));
        fleet.memory.cool(&id(number + 1), 2_000);
    }
    fleet.weights = (0..backends.min(512)).map(|number| (id(number), 2.0)).collect();
    bencher.bench_local(|| {
        let scorer = Scorer::new(fleet.rules.values(), &fleet.weights, HALFLIFE_MS);
        rank(&fleet.scene(), Order::Score(&scorer), MOST)
    });
}

#[divan::bench(args = SIZES)]
fn by_kept_places(bencher: Bencher, backends: usize) {
    let fleet = Fleet::new(backends);
    bencher.bench_local(|| rank(&fleet.scene(), Order::MostKept, MOST));
}
