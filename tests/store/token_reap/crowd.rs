//! Many reapers, and the one that only looks.

use std::collections::BTreeSet;
use std::sync::Arc;

use maitred::ids::Role;
use maitred::token::{BookOptions, ReapOptions, ReapReport, reap};
use redis::AsyncCommands;
use tokio::task::JoinSet;

use crate::fixtures::tokens::{Bench, HOUR_MS, player, request, say};
use maitred_testkit::store::TestStore;

const TOKENS: usize = 10_000;
const REAPERS: usize = 10;
const ISSUERS: usize = 50;

// TOK-6, STO-16: each token is reaped by one of them, the sum is what was due, and nothing of the index is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tok_6_ten_reapers_at_once_reap_each_of_10000_due_tokens_once() {
    let server = TestStore::start();
    // Times that no machine is too slow for: whatever is due is due because it was made older.
    let times = BookOptions { ttl_ms: HOUR_MS, claim_reanimate_ms: HOUR_MS, audit_ms: HOUR_MS };
    let bench = Bench::with_times(&server, "crowd", times).await;
    let backends =
        [Arc::new(bench.join("b1", Role::backend()).await), Arc::new(bench.join("b2", Role::backend()).await)];
    let mut issuers = JoinSet::new();
    for n in 0..ISSUERS {
        let backend = Arc::clone(&backends[n % 2]);
        issuers.spawn(async move {
            for m in 0..TOKENS / ISSUERS {
                backend.issued(&player(&format!("player-{n}-{m}")), &request("r"), 1).await;
            }
        });
    }
    issuers.join_all().await;
    let rows = bench.token_keys().await.iter().filter(|key| key.starts_with("token:")).count();
    assert_eq!(rows, TOKENS);
    let early = reap(&backends[0].book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(early, ReapReport::default(), "nothing is due yet");
    bench.age(bench.times.ttl_ms).await;

    let mut ear = bench.listen().await;
    let mut reapers = JoinSet::new();
    for n in 0..REAPERS {
        let book = bench.book().await;
        // Batches of every size, so that the sweeps do not run in step.
        let options = ReapOptions { batch: 16 + 12 * n, ..ReapOptions::default() };
        reapers.spawn(async move { reap(&book, None, options).await.unwrap() });
    }
    let mut sum = ReapReport::default();
    for report in reapers.join_all().await {
        sum.add(&report);
    }
    let tokens = u64::try_from(TOKENS).unwrap();
    assert_eq!((sum.expired, sum.reopened, sum.kept, sum.healed), (tokens, 0, 0, 0), "{sum:?}");
    let heard = ear.heard().await;
    let ended: BTreeSet<&str> =
        heard.iter().map(|event| event.strip_prefix("ended ").unwrap().split(' ').nth(1).unwrap()).collect();
    assert_eq!((heard.len(), ended.len()), (TOKENS, TOKENS), "each place comes home once");
    let left: Vec<String> = bench.token_keys().await.into_iter().filter(|key| !key.starts_with("token:")).collect();
    assert!(left.is_empty(), "{left:?}");
    let again = reap(&backends[0].book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(again, ReapReport::default());
}

/// A zone in which a sweep has something of everything to do.
async fn mixed(server: &TestStore) -> (Bench, ReapReport) {
    let mut bench = Bench::new(server, "mixed").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let b2 = bench.join("b2", Role::backend()).await;
    bench.lease_ms = 1_000;
    let dead = bench.join("dead", Role::proxy()).await;
    for name in ["over-1", "over-2"] {
        b1.issued(&player(name), &request("r"), 1).await;
    }
    let late = b2.issued(&player("over-3"), &request("r"), 1).await;
    assert_eq!(say(&dead.claim(&late).await), "Claimed");
    bench.age(bench.times.ttl_ms - 10_000).await;
    let mut dead = dead;
    dead.rejoin().await;
    let open = b1.issued(&player("reopened"), &request("r"), 1).await;
    assert_eq!(say(&dead.claim(&open).await), "Claimed");
    b2.issued(&player("kept"), &request("r"), 1).await;
    let gone = b2.issued(&player("gone"), &request("r"), 1).await;
    bench.age(10_000).await;
    b1.issued(&player("young"), &request("r"), 1).await;
    let mut raw = bench.raw.clone();
    let _: () = raw.del(bench.key(&format!("token:{}", gone.player))).await.unwrap();
    let _: () = raw.sadd(bench.key("due"), "b9").await.unwrap();
    let report = ReapReport { expired: 3, reopened: 1, kept: 1, healed: 1, skipped: 0, servers: 2 };
    (bench, report)
}

// TOK-6: what a dry run says is what a sweep then does, and a dry run does nothing.
#[tokio::test]
async fn tok_6_a_dry_run_changes_nothing_and_says_what_a_sweep_would_do() {
    let server = TestStore::start();
    let (bench, expected) = mixed(&server).await;
    let book = bench.book().await;
    let before = bench.dump().await;
    let mut ear = bench.listen().await;
    let dry = reap(&book, None, ReapOptions { dry_run: true, ..ReapOptions::default() }).await.unwrap();
    assert_eq!(dry, expected);
    assert_eq!(bench.dump().await, before, "not one byte of the zone changed");
    assert!(ear.heard().await.is_empty(), "and nobody was told anything");

    let done = reap(&book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(done, expected);
    assert_eq!(ear.heard().await.len(), 4, "three ended, one reopened");
    assert_eq!(bench.due_servers().await, ["b1", "b2"], "a server without an index is off the list");
    let again = reap(&book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(again, ReapReport::default());
}

// TOK-6: a limit is kept, and what it leaves is found by the next sweep.
#[tokio::test]
async fn tok_6_a_sweep_keeps_its_limit_and_the_next_goes_on() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "limit").await;
    for name in ["b1", "b2"] {
        let backend = bench.join(name, Role::backend()).await;
        for n in 0..10 {
            backend.issued(&player(&format!("{name}-{n}")), &request("r"), 1).await;
        }
    }
    bench.age(bench.times.ttl_ms).await;
    let book = bench.book().await;
    let mut swept = Vec::new();
    for batch in [1, 3, 1_000] {
        let options = ReapOptions { limit: 8, batch, ..ReapOptions::default() };
        swept.push(reap(&book, None, options).await.unwrap().expired);
    }
    assert_eq!(swept, [8, 8, 4]);
    assert!(bench.due_servers().await.is_empty());
}
