//! A proxy that is frozen in the middle of a move (SIGSTOP: a long pause of its runtime, a machine that swaps, a
//! virtual machine that is moved).

use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use maitred::store::scripts;

use super::{Fleet, LIMIT, ask, calls_of, hash, key, lands, moved, number, ready, released, say, status};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::fleet::Node;
use maitred_testkit::wait::eventually;

/// When somebody looks at the player's token next, in store ms.
async fn due(conn: &mut MultiplexedConnection, player: &str) -> u64 {
    let score: Option<f64> =
        redis::cmd("ZSCORE").arg(key("due:b1")).arg(player).query_async(conn).await.expect("ZSCORE");
    format!("{:.0}", score.unwrap_or_default()).parse().expect("a time")
}

// TOK-6: slow is not dead. A sweep looks at the claim while the proxy is frozen, and leaves it.
#[tokio::test]
async fn tok_6_a_proxy_that_is_frozen_for_less_than_its_lease_keeps_its_claim() {
    // The lease has its default length of 3.5 s, so that the look falls into it on a busy machine too.
    let fleet = Fleet::new("tokens: { claimReanimateMs: 500, reapIntervalMs: 300 }");
    let mut backend = fleet.backend("b1").await;
    let (mut slow, mut other) = (fleet.node("p1", "proxy").await, fleet.node("p2", "proxy").await);
    let mut conn = fleet.store.conn().await;
    moved(&mut other, "warm", "b1").await;
    let first_look = due(&mut conn, "warm").await;
    // For its first lease a process says of nobody that they are dead, and looks at no claim.
    eventually("sweeps look at claims", LIMIT, async || due(&mut conn, "warm").await > first_look).await;
    let epoch = status(&mut slow).await["epoch"].clone();
    let alice = moved(&mut slow, "alice", "b1").await;
    slow.sigstop();
    let first_look = due(&mut conn, "alice").await;
    eventually("a sweep has looked at the claim", LIMIT, async || due(&mut conn, "alice").await > first_look).await;
    let beat_at = number(&hash(&mut conn, "node:p1").await, "beat_at");
    // Whoever asks meanwhile gets no second place.
    let asked = ask(&mut other, json!({ "op": "take", "player": "alice" })).await;
    assert_eq!((&asked["outcome"], &asked["reason"]), (&json!("refused"), &json!("lost")), "{asked}");
    slow.sigcont();

    eventually("it beats again", LIMIT, async || number(&hash(&mut conn, "node:p1").await, "beat_at") > beat_at).await;
    let now = status(&mut slow).await;
    assert_eq!((&now["agent"]["status"], &now["epoch"]), (&json!("member"), &epoch), "it never lost its lease");
    let row = hash(&mut conn, "token:alice").await;
    assert_eq!((row["state"].as_str(), row["claimant"].as_str()), ("CLAIMED", "p1"));
    assert!(!row.contains_key("last_claimant"), "it was never taken away: {row:?}");
    lands(&mut backend, &alice).await;
    assert_eq!(released(&mut slow, &alice).await, "landed");
}

/// Reads lines until the answer to `id` is there; all of them are kept.
async fn hear(node: &mut Node, heard: &mut Vec<Value>, fits: impl Fn(&Value) -> bool) -> Value {
    if let Some(line) = heard.iter().find(|line| fits(line)) {
        return line.clone();
    }
    loop {
        let line = node.next_line(LIMIT).await;
        heard.push(line.clone());
        if fits(&line) {
            return line;
        }
    }
}

// NOD-4, NOD-15, TOK-6, R-13: what a proxy that slept past its lease may do when it wakes, and what becomes of the players
// that it had on the way.
#[tokio::test]
async fn nod_4_a_proxy_that_was_frozen_past_its_lease_does_nothing_before_it_has_one_again() {
    let fleet = Fleet::new(
        "heartbeat: { intervalMs: 400 }\ndirectory: { suspectMs: 1100, offlineMs: 1400 }\n\
         tokens: { claimReanimateMs: 500, reapIntervalMs: 300 }\n\
         store: { commandTimeoutMs: 500, connectTimeoutMs: 500, operationTimeoutMs: 1500 }\n",
    );
    let wire = FaultProxy::start(&fleet.store);
    let mut backend = fleet.backend("b1").await;
    let (mut sleeper, _) = ready(&fleet.options("p1", "proxy", &wire.url())).await;
    let mut other = fleet.node("p2", "proxy").await;
    let mut conn = fleet.store.conn().await;
    let epoch = status(&mut sleeper).await["epoch"].clone();
    let mut before = Vec::new();
    for player in ["alice", "bob", "carol"] {
        before.push(moved(&mut sleeper, player, "b1").await);
    }
    let [alice, bob, carol] = before.as_slice() else { panic!("three players") };

    sleeper.sigstop();
    for player in ["alice", "bob", "carol"] {
        eventually("the claims of the sleeper are reopened", LIMIT, async || {
            hash(&mut conn, &format!("token:{player}")).await["state"] == "PENDING"
        })
        .await;
    }
    let taken = moved(&mut other, "alice", "b1").await;
    assert_eq!(taken["token"], alice["token"], "the same place, and never a second one");

    // It wakes, and no beat gets through yet.
    wire.hold();
    let acts = [&scripts::TOKEN_CLAIM, &scripts::TOKEN_RELEASE, &scripts::TOKEN_CANCEL];
    let sent = |wire: &FaultProxy| acts.map(|script| wire.count(&calls_of(script)));
    let asked_before = sent(&wire);
    let asked = [
        say(&sleeper, json!({ "op": "dispatch", "player": "dave", "region": "b1" })),
        say(&sleeper, json!({ "op": "take", "player": "bob" })),
    ];
    sleeper.sigcont();
    let mut heard = Vec::new();
    for id in &asked {
        let refused = hear(&mut sleeper, &mut heard, |line| line["id"] == id.as_str()).await;
        assert_eq!((&refused["outcome"], &refused["reason"]), (&json!("refused"), &json!("lease_lost")), "{refused}");
    }
    wire.resume();
    let resumed = hear(&mut sleeper, &mut heard, |line| line["event"] == "resumed").await;
    assert_eq!(resumed["epoch"], epoch, "nobody took its id: its epoch goes on");
    assert!(heard.iter().any(|line| line["event"] == "lost"), "the application was told: {heard:?}");
    assert_eq!(sent(&wire), asked_before, "nothing was held back that went out once the wire was free");

    // It is back by itself. What it had claimed is not its own any more.
    assert_eq!(released(&mut sleeper, alice).await, "lost");
    let cancelled = ask(&mut sleeper, json!({ "op": "cancel", "player": "alice", "request": alice["id"] })).await;
    assert_eq!(cancelled["outcome"], "lost", "{cancelled}");
    let row = hash(&mut conn, "token:alice").await;
    assert_eq!((row["state"].as_str(), row["claimant"].as_str()), ("CLAIMED", "p2"), "the other's claim stands");
    assert_eq!(released(&mut sleeper, bob).await, "lost", "reopened, and nobody's since");

    // arrival decides. These two were moved before their proxy fell asleep.
    for player in [alice, bob, carol] {
        lands(&mut backend, player).await;
    }
    for player in [alice, bob, carol] {
        assert_eq!(released(&mut sleeper, player).await, "landed");
    }
    assert_eq!(released(&mut other, &taken).await, "landed");
    let dave = moved(&mut sleeper, "dave", "b1").await;
    lands(&mut backend, &dave).await;
}
