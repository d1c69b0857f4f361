//! A naive book against the real one: random lists of operations by three proxies and two backends, with leases that
//! end, processes that restart and answers that nobody hears, compared after every step. A list that fails is shrunk to
//! the shortest one that still does.
//!
//! `MAITRED_MODEL_CASES` raises the number of lists, `MAITRED_MODEL_SEED` repeats a run by the seed that it printed.

mod acts;
mod backend;
mod op;
mod oracle;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use maitred_testkit::store::TestStore;
use world::{SEEN, World};

const CASES: u32 = 200;
const WORKERS: u32 = 4;
/// Answers that a run of [`CASES`] lists gives dozens of times.
const EVERY_RUN_HAS: [&str; 15] = [
    "issue Issued",
    "issue Taken",
    "issue Attempt",
    "issue Cancelled",
    "claim Claimed",
    "claim Lost",
    "claim ServerGone",
    "consume Consumed",
    "consume NotClaimed",
    "consume NotYours",
    "reap Expired",
    "reap Reopened",
    "release Released",
    "release Landed",
    "release Lost",
];

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn runner(cases: u32, seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

// TOK-1 to TOK-8, R-11 to R-16: whatever happens in whatever order, the store and a book that a child could keep agree,
// no token is used twice, and every place is used or comes home.
#[test]
fn tok_1_random_operations_end_as_a_naive_book_says() {
    let cases = variable("MAITRED_MODEL_CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap());
    let seed = variable("MAITRED_MODEL_SEED").unwrap_or_else(rand::random);
    eprintln!("token model: {cases} lists, MAITRED_MODEL_SEED={seed}");
    let server = TestStore::start();
    let zones = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|n| {
                let (server, zones) = (&server, &zones);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let share = cases.div_ceil(WORKERS);
                    runner(share, seed.wrapping_add(u64::from(n))).run(&op::lists(), |list| {
                        let zone = format!("model-{}", zones.fetch_add(1, Ordering::Relaxed));
                        runtime.block_on(World::live_through(server, &zone, &list)).map_err(TestCaseError::fail)
                    })
                })
            })
            .collect();
        for worker in workers {
            if let Err(failure) = worker.join().unwrap() {
                panic!("MAITRED_MODEL_SEED={seed}: {failure}");
            }
        }
    });
    let seen = SEEN.lock().unwrap();
    eprintln!("{seen:#?}");
    if cases >= CASES {
        for answer in EVERY_RUN_HAS {
            assert!(seen.contains_key(answer), "no list came to {answer:?}: they prove less than they should");
        }
    }
}
