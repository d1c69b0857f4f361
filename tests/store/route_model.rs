//! A naive map of owners against the real one: random lists of operations by three nodes on two objects, with leases that
//! end, nodes that restart, owners that save nothing for too long and writes by those who lost an object long ago, compared
//! after every step. A list that fails is shrunk to the shortest one that still does.
//!
//! `MAITRED_MODEL_CASES` raises the number of lists, `MAITRED_MODEL_SEED` repeats a run by the seed that it printed.

mod world;

use crate::fixtures::nodes::open;
use maitred_testkit::store::TestStore;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use world::{NODES, OBJECTS, World};

const CASES: u32 = 150;

#[derive(Debug, Clone)]
enum Op {
    Acquire {
        node: usize,
        object: usize,
        fenced: bool,
    },
    Renew {
        node: usize,
        object: usize,
    },
    /// `stale`: from a number that was read before the last write.
    Save {
        node: usize,
        object: usize,
        stale: bool,
    },
    /// The last save of a node, sent again.
    SaveAgain {
        node: usize,
        object: usize,
    },
    Release {
        node: usize,
        object: usize,
        delete: bool,
    },
    Transfer {
        node: usize,
        object: usize,
        target: usize,
    },
    /// The lease ends.
    Lapse {
        node: usize,
    },
    /// The same process has a lease again.
    Resume {
        node: usize,
    },
    /// Another process has the id.
    Restart {
        node: usize,
    },
    /// The owner has not saved for the lock timeout.
    Silent {
        object: usize,
    },
    Sweep,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (node, object) = (0..NODES, 0..OBJECTS);
    let both = || (node.clone(), object.clone());
    let op = prop_oneof![
        6 => (both(), prop::bool::weighted(0.7)).prop_map(|((node, object), fenced)| Op::Acquire { node, object, fenced }),
        3 => both().prop_map(|(node, object)| Op::Renew { node, object }),
        5 => (both(), prop::bool::weighted(0.2)).prop_map(|((node, object), stale)| Op::Save { node, object, stale }),
        2 => both().prop_map(|(node, object)| Op::SaveAgain { node, object }),
        2 => (both(), prop::bool::weighted(0.3)).prop_map(|((node, object), delete)| Op::Release { node, object, delete }),
        3 => (both(), 0..NODES).prop_map(|((node, object), target)| Op::Transfer { node, object, target }),
        2 => node.clone().prop_map(|node| Op::Lapse { node }),
        2 => node.clone().prop_map(|node| Op::Resume { node }),
        1 => node.clone().prop_map(|node| Op::Restart { node }),
        2 => object.clone().prop_map(|object| Op::Silent { object }),
        1 => Just(Op::Sweep),
    ];
    prop::collection::vec(op, 1..30)
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

// RTE-1 to RTE-4, R-17, R-20.
#[test]
fn rte_2_random_operations_end_as_a_naive_map_of_owners_says() {
    let cases = variable("MAITRED_MODEL_CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap());
    let seed = variable("MAITRED_MODEL_SEED").unwrap_or_else(rand::random);
    eprintln!("route model: {cases} lists, MAITRED_MODEL_SEED={seed}");
    let server = TestStore::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (store, conn) = runtime.block_on(async { (open(&server.url()).await, server.conn().await) });
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let outcome = runner
        .run(&ops(), |list| runtime.block_on(World::live_through(&store, &conn, &list)).map_err(TestCaseError::fail));
    if let Err(failure) = outcome {
        panic!("MAITRED_MODEL_SEED={seed}: {failure}");
    }
}
