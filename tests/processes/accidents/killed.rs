//! A process that is killed between two steps, and one that starts while replies are lost.

use serde_json::json;

use maitred::store::scripts;

use super::{Fleet, LIMIT, at_once, calls_of, hash, lands, moved, number, ready};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::wait::eventually;

/// Two sweeps in a row may come late on a busy machine.
const SLACK_MS: u64 = 3_000;

/// A proxy claims, and is killed before it moves the player. `network` has these times.
async fn reopened_in_its_time(network: &str, reanimate_ms: u64, reap_ms: u64) {
    let fleet = Fleet::new(network);
    let mut backend = fleet.backend("b1").await;
    let (mut dies, mut heir) = (fleet.node("p1", "proxy").await, fleet.node("p2", "proxy").await);
    let mut conn = fleet.store.conn().await;
    let alice = moved(&mut dies, "alice", "b1").await;
    dies.sigkill();
    let claimed_at = number(&at_once(&mut conn, "alice").await.1, "claimed_at");
    let lease = hash(&mut conn, "node:p1").await;
    let lease_end = number(&lease, "beat_at") + number(&lease, "lease_ms");
    let due = lease_end.max(claimed_at + reanimate_ms);

    let mut last_claimed = 0;
    let (reopened, row) = eventually("the claim of the dead is reopened", LIMIT, async || {
        let (now, row) = at_once(&mut conn, "alice").await;
        if row["state"] == "CLAIMED" {
            last_claimed = now;
            return None;
        }
        Some((now, row))
    })
    .await;
    assert_eq!((row["state"].as_str(), row["last_claimant"].as_str()), ("PENDING", "p1"));
    assert!(reopened >= due, "{} ms too early: a proxy that is only slow loses its players", due - reopened);
    let latest = due + reap_ms + SLACK_MS;
    assert!(last_claimed <= latest, "{} ms after its time it was still held by the dead", last_claimed - due);

    let again = moved(&mut heir, "alice", "b1").await;
    assert_eq!((&again["token"], &again["server"]), (&alice["token"], &json!("b1")), "the place that was reserved");
    lands(&mut backend, &again).await;
    assert_eq!(hash(&mut conn, "token:alice").await["claimant"], "p2");
}

// TOK-6, DSP-5 with the default times: the age of the claim decides, for the lease ends before.
#[tokio::test]
async fn tok_6_the_player_of_a_killed_proxy_is_free_at_the_age_of_the_claim_and_another_proxy_finishes() {
    reopened_in_its_time("{}", 5_000, 2_000).await;
}

// TOK-6, DSP-5: the end of the lease decides, because it comes later.
#[tokio::test]
async fn tok_6_the_player_of_a_killed_proxy_is_free_at_the_end_of_its_lease_and_another_proxy_finishes() {
    reopened_in_its_time("tokens: { claimReanimateMs: 500, reapIntervalMs: 300 }", 500, 300).await;
}

// R-7, NOD-2: the join had its effect and only its answer is lost. A process that took its own row for a stranger's would
// wait here for its own lease to end, which is longer than this test does.
#[tokio::test]
async fn r_7_a_process_whose_join_lost_its_reply_gets_in_at_once() {
    let slow = "heartbeat: { intervalMs: 10000 }\ndirectory: { suspectMs: 25000, offlineMs: 35000 }\n";
    let fleet = Fleet::new(slow);
    let mut conn = fleet.store.conn().await;
    for (id, lost, action) in [("p1", 1, Action::Cut), ("p2", 1, Action::Silent), ("p3", 3, Action::Cut)] {
        let wire = FaultProxy::start(&fleet.store);
        let join = calls_of(&scripts::NODE_JOIN);
        wire.drop_replies_of(&join, lost, action);
        let (_node, first) = ready(&fleet.options(id, "proxy", &wire.url())).await;
        assert!(wire.dropped() >= 1 && wire.count(&join) > wire.dropped(), "{action:?}: {}", wire.count(&join));
        let row = hash(&mut conn, &format!("node:{id}")).await;
        assert_eq!(first["epoch"], number(&row, "epoch"), "{action:?}: it acts under the epoch that stands");
    }
}
