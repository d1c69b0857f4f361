//! Who may not act: no lease, an epoch that is over, a switch that is on. And what is refused for itself.

use maitred::envelope::AuditReason;
use maitred::ids::{Epoch, NodeEpoch, NodeId, OperationId, Role};
use maitred::node::{KILL, kill_name};
use maitred::token::{BookOptions, PAYLOAD_MAX_BYTES, ReapOptions, reap};
use redis::AsyncCommands;

use crate::fixtures::tokens::{Bench, Member, payload, player, request, say};
use maitred_testkit::store::TestStore;

async fn issue(server: &Member, name: &str) -> String {
    say(&server.book.issue(&server.who, &mut server.order(&player(name), &request("r"), 1)).await)
}

// TOK-3, R-1, R-4: without a lease nobody claims, issues or consumes, however the lease was lost.
#[tokio::test]
async fn tok_3_a_member_without_its_lease_neither_claims_nor_issues_nor_consumes() {
    let server = TestStore::start();
    let mut bench = Bench::new(&server, "lease").await;
    bench.lease_ms = 60_000;
    let mut b1 = bench.join("b1", Role::backend()).await;
    let mut a = bench.join("A", Role::proxy()).await;
    let token = b1.issued(&player("alice"), &request("r"), 1).await;

    bench.lapse(&a.who.id).await;
    assert_eq!(say(&a.claim(&token).await), "LeaseLost");
    a.rejoin().await;
    assert_eq!(say(&a.claim(&token).await), "Claimed");
    bench.lapse(&b1.who.id).await;
    assert_eq!(say(&b1.consume(&token).await), "LeaseLost");
    assert_eq!(issue(&b1, "bob").await, "LeaseLost");
    b1.rejoin().await;
    assert_eq!(say(&b1.consume(&token).await), "Consumed");

    // R-4: a store clock that stepped back makes beats of the future; their lease counts as over too.
    let token = b1.issued(&player("carol"), &request("r"), 1).await;
    let future = bench.now().await + 60_000 + 30_000;
    for id in ["A", "b1"] {
        let _: () = bench.raw.clone().hset(bench.key(&format!("node:{id}")), "beat_at", future).await.unwrap();
    }
    assert_eq!(say(&a.claim(&token).await), "LeaseLost");
    assert_eq!(issue(&b1, "dave").await, "LeaseLost");
    assert_eq!(say(&b1.consume(&token).await), "LeaseLost");
    assert_eq!(bench.row(&player("carol")).await["state"], "PENDING");
}

// TOK-3, TOK-8: a paused process wakes up after another one got its id.
#[tokio::test]
async fn tok_8_a_fenced_process_does_nothing_and_its_successor_cannot_use_its_tokens() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "fence").await;
    let mut old_b1 = bench.join("b1", Role::backend()).await;
    let mut old_a = bench.join("A", Role::proxy()).await;
    let (alice, bob) = (player("alice"), player("bob"));
    let claimed = old_b1.issued(&alice, &request("r"), 1).await;
    assert_eq!(say(&old_a.claim(&claimed).await), "Claimed");
    let pending = old_b1.issued(&bob, &request("r"), 1).await;
    let b1 = bench.replace(&mut old_b1).await;
    let a = bench.replace(&mut old_a).await;

    assert_eq!(issue(&old_b1, "carol").await, "Fenced");
    assert_eq!(say(&old_b1.consume(&claimed).await), "Fenced");
    assert_eq!(say(&b1.consume(&claimed).await), "NotYours", "a place goes to the process that reserved it only");
    assert_eq!(say(&old_a.claim(&pending).await), "Fenced");
    assert_eq!(say(&a.claim(&pending).await), "ServerGone", "R-12: nobody is sent to an incarnation that is gone");
    let released = b1.book.release_own(&pending.id, &bob, &b1.who, "x").await;
    assert_eq!(say(&released), "Lost");
    // TOK-2: what the gone incarnation promised is replaced, also while it was claimed.
    for player in [&alice, &bob] {
        let mut ear = bench.listen().await;
        let old = bench.row(player).await["id"].clone();
        let token = b1.issued(player, &request("other"), 1).await;
        assert_eq!(ear.heard().await, [format!("ended {player} {old} b1 SERVER_GONE")]);
        assert_eq!(say(&a.claim(&token).await), "Claimed");
    }
    let ended = old_b1.book.claim(&claimed, &a.who, &OperationId::fresh()).await;
    assert_eq!(say(&ended), "Ended(SERVER_GONE)");
}

// TOK-2: the same for another server whose lease is over, the index entry of the dead one included.
#[tokio::test]
async fn tok_2_a_token_of_a_dead_server_is_replaced() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "gone").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let b2 = bench.join("b2", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let alice = player("alice");
    let token = b1.issued(&alice, &request("r"), 1).await;
    assert_eq!(issue(&b2, "alice").await, "Taken");
    bench.lapse(&b1.who.id).await;
    assert_eq!(say(&a.claim(&token).await), "ServerGone");
    let mut ear = bench.listen().await;
    let next = b2.issued(&alice, &request("r2"), 1).await;
    assert_eq!(ear.heard().await, [format!("ended alice {} b1 SERVER_GONE", token.id)]);
    assert_eq!(bench.due_servers().await, ["b2"]);
    assert_eq!(bench.due_at(&b1.who.id, &alice).await, None);
    assert_eq!(say(&a.claim(&token).await), "Ended(SERVER_GONE)");
    assert_eq!(say(&a.claim(&next).await), "Claimed");
}

// R-32: what a switch stops, and what it must not stop.
#[tokio::test]
async fn r_32_a_kill_switch_stops_issue_and_claim_and_lets_the_rest_end_well() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "kill").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let b2 = bench.join("b2", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let b = bench.join("B", Role::proxy()).await;
    let operator = bench.join("ops", Role::new("service").unwrap()).await;
    let put = async |name: &str, value: &str| {
        operator.control.put(&operator.store, &bench.verifier, name, value, "ops").await.unwrap();
    };

    let pending = b1.issued(&player("p-pending"), &request("r"), 1).await;
    let mut claimed = Vec::new();
    for name in ["p-consumed", "p-released", "p-cancelled"] {
        let token = b1.issued(&player(name), &request("r"), 1).await;
        assert_eq!(say(&a.claim(&token).await), "Claimed");
        claimed.push(token);
    }
    put(KILL, "on").await;
    assert_eq!(issue(&b1, "new").await, "KillSwitch(fleet)");
    assert_eq!(say(&a.claim(&pending).await), "KillSwitch(fleet)");
    assert_eq!(say(&b1.consume(&claimed[0]).await), "Consumed");
    assert_eq!(say(&a.book.release_claim(&claimed[1], &a.who, None, "x").await), "Released");
    let cancelled = a.book.cancel(&claimed[2].player, &request("r"), &a.who, None, &[]).await;
    assert_eq!(say(&cancelled), "Released");
    put(KILL, "off").await;
    assert_eq!(issue(&b1, "new").await, "Issued");

    // A node's own switch stops that node and whatever needs it.
    put(&kill_name(&b1.who.id), "on").await;
    assert_eq!(issue(&b1, "other").await, "KillSwitch(b1)");
    assert_eq!(issue(&b2, "other").await, "Issued");
    assert_eq!(say(&a.claim(&pending).await), "KillSwitch(b1)");
    put(&kill_name(&b1.who.id), "off").await;
    put(&kill_name(&a.who.id), "on").await;
    assert_eq!(say(&a.claim(&pending).await), "KillSwitch(A)");
    assert_eq!(say(&b.claim(&pending).await), "Claimed");
    bench.age(bench.times.ttl_ms).await;
    let report = reap(&b.book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(report.expired, 3, "the sweep goes on as well");
}

// R-32, ENV-1: bytes that no member signed neither stop nor start anybody.
#[tokio::test]
async fn r_32_forged_kill_bytes_neither_stop_nor_start_anybody() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "forged").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let control = bench.key("control");
    let mut raw = bench.raw.clone();
    let unsigned = r#"{"value":"on","version":9999999999999,"by":"x","at":1,"v":1,"sig":"5ebd00f2.x"}"#;
    let of_later = unsigned.replace("\"v\":1", "\"v\":2");
    for (round, forged) in [unsigned, "on", "", "{}", &of_later].into_iter().enumerate() {
        for name in ["kill", "kill:b1", "kill:A"] {
            let _: () = raw.hset(&control, name, forged).await.unwrap();
        }
        let token = b1.issued(&player(&format!("p-{round}")), &request("r"), 1).await;
        assert_eq!(say(&a.claim(&token).await), "Claimed", "stopped by {forged}");
    }
    let audit = bench.verifier.audit();
    assert!(audit.count(AuditReason::ForgedControl) > 0 && audit.count(AuditReason::SchemaVersion) > 0);

    // A real switch stays on whatever is put in its place, also nothing, also its own older entry.
    let off = a.control.put(&a.store, &bench.verifier, KILL, "off", "ops").await.unwrap();
    let on = a.control.put(&a.store, &bench.verifier, KILL, "on", "ops").await.unwrap();
    assert!(on.version > off.version);
    assert_eq!(issue(&b1, "late").await, "KillSwitch(fleet)");
    let older = serde_json::to_string(&off).unwrap();
    let forged_off = serde_json::to_string(&on).unwrap().replace("\"on\"", "\"off\"");
    for bytes in [older.as_str(), forged_off.as_str(), "off"] {
        let _: () = raw.hset(&control, KILL, bytes).await.unwrap();
        assert_eq!(issue(&b1, "late").await, "KillSwitch(fleet)", "started by {bytes}");
    }
    let _: () = raw.del(&control).await.unwrap();
    assert_eq!(issue(&b1, "late").await, "KillSwitch(fleet)", "an entry that is gone is no verified value");
}

// TOK-2: what is too late, too early, too large.
#[tokio::test]
async fn tok_2_an_issue_past_its_deadline_or_over_its_size_is_refused() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "bounds").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let alice = player("alice");
    let mut late = b1.order(&alice, &request("r"), 1);
    late.deadline_ms = bench.now().await;
    assert_eq!(say(&b1.book.issue(&b1.who, &mut late).await), "Late");

    // A token that would be over as soon as it stood is too late as well.
    let times = BookOptions { ttl_ms: 0, ..bench.times };
    let short = Bench::with_times(&server, "bounds", times).await.join("b2", Role::backend()).await;
    assert_eq!(issue(&short, "alice").await, "Late");

    let mut order = b1.order(&alice, &request("r"), 1);
    order.payload = payload(&format!("\"{}\"", "x".repeat(PAYLOAD_MAX_BYTES - 1)));
    assert_eq!(say(&b1.book.issue(&b1.who, &mut order).await), "OutOfBounds(payload)");
    assert!(bench.token_keys().await.is_empty(), "nothing of these stands");

    order.payload = payload(&format!("\"{}\"", "ä".repeat((PAYLOAD_MAX_BYTES - 2) / 2)));
    assert_eq!(order.payload.get().len(), PAYLOAD_MAX_BYTES);
    assert_eq!(say(&b1.book.issue(&b1.who, &mut order).await), "Issued");
    let found = b1.book.find(&alice).await.unwrap().unwrap();
    assert_eq!(found.token.payload.get(), order.payload.get());
    assert_eq!(say(&b1.book.issue(&b1.who, &mut b1.order(&player("bob"), &request("r"), 0)).await), "Attempt");
}

// TOK-3: a router that is no member claims without a lease and, like everybody, holds the token alone.
#[tokio::test]
async fn tok_3_a_router_claims_with_epoch_0() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "router").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let router = NodeEpoch { id: NodeId::new("router").unwrap(), epoch: Epoch::NONE };
    let book = bench.book().await;
    let token = b1.issued(&player("alice"), &request("r"), 1).await;
    let op = OperationId::fresh();
    assert_eq!(say(&book.claim(&token, &router, &op).await), "Claimed");
    assert_eq!(say(&book.claim(&token, &router, &op).await), "Claimed");
    assert_eq!(say(&book.claim(&token, &router, &OperationId::fresh()).await), "Lost");
    let row = book.find(&player("alice")).await.unwrap().unwrap();
    assert_eq!(row.claim.unwrap().claimant_epoch, Epoch::NONE);
    assert_eq!(say(&book.release_claim(&token, &router, None, "full").await), "Released");
}
