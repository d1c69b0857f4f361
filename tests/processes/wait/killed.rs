//! A backend that is killed while it serves those who wait.

use std::collections::BTreeSet;

use maitred::agent::{Outcome, Request, WaitUpdate};
use maitred::store::scripts;
use maitred::token::ReleaseOutcome;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixtures::agents::{LIMIT, SECRET, player, state};
use crate::fixtures::waiting::{end, tickets, wait_proxy, waits_for_any};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const PLAYERS: usize = 60;
/// Those who are served before.
const SERVED: usize = 10;
const NETWORK: &str = "heartbeat: { intervalMs: 500 }\ndirectory: { suspectMs: 1300, offlineMs: 1750 }\n\
                       tokens: { reapIntervalMs: 400, claimReanimateMs: 1000 }\n";

async fn backend(url: &str, dir: &TempDir, id: &str) -> Node {
    let mut options = NodeOptions::new(id, "backend", url, "eu").env("MAITRED_SECRET", SECRET);
    options.config = Some(dir.path().join("network.yml"));
    let mut node = Node::spawn(&options);
    let first = node.next_line(LIMIT).await;
    assert_eq!(first["event"], "ready", "{first}");
    node
}

async fn ask(node: &mut Node, message: Value) -> Value {
    node.send(&message);
    let id = message["id"].clone();
    node.wait_for(|line| line["id"] == id && line["outcome"].is_string(), LIMIT).await
}

// QUE-9: whoever was in the middle of it is served by another one, and lands once.
#[tokio::test]
async fn que_9_a_backend_killed_while_it_serves_leaves_no_half_moved_player() {
    let store = TestStore::start();
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("network.yml"), NETWORK).expect("a config");
    let wire = FaultProxy::start(&store);
    let mut dies = backend(&wire.url(), &dir, "b1").await;
    let p1 = wait_proxy("p1", &store.url()).await;
    let mut waiting = Vec::new();
    for n in 0..PLAYERS {
        waiting.push(waits_for_any(&p1, &format!("p{n:02}")).await);
    }
    dies.send(&json!({"op": "places", "id": "s1", "count": SERVED, "region": "main"}));
    for _ in 0..SERVED {
        dies.wait_for(|line| line["event"] == "place_promised", LIMIT).await;
    }
    // It dies between a promise that stands in the store and the answer to it.
    wire.drop_replies_of(&format!("EVALSHA {}", scripts::QUEUE_DRAIN.pinned()), 1_000, Action::Silent);
    dies.send(&json!({"op": "places", "id": "s3", "count": PLAYERS, "region": "main"}));
    eventually("an answer is lost", LIMIT, async || wire.dropped() > 0).await;
    dies.sigkill();

    let mut heir = backend(&store.url(), &dir, "b2").await;
    ask(&mut heir, json!({"op": "places", "id": "s2", "count": PLAYERS, "region": "main"})).await;
    let (mut landed, mut by_the_dead) = (BTreeSet::new(), 0);
    for handle in &mut waiting {
        let name = handle.player().to_string();
        let WaitUpdate::Transfer(mut transfer) = end(handle).await else { panic!("{name} was turned away") };
        if transfer.server.as_str() == "b1" {
            // The application cannot connect them there, and asks again.
            by_the_dead += 1;
            let released = p1.failed(&transfer, "not_moved").await.expect("an answer");
            assert!(!matches!(released, ReleaseOutcome::Landed), "{name} is on nobody's server");
            transfer = eventually("they are placed again", LIMIT, async || {
                match p1.dispatch(Request::new(player(&name)).bypassing()).await {
                    Outcome::Transfer(transfer) => Some(transfer),
                    _ => None,
                }
            })
            .await;
        }
        assert_eq!(transfer.server.as_str(), "b2");
        let joined = ask(&mut heir, json!({"op": "redeem", "id": name, "player": name})).await;
        assert_eq!((&joined["outcome"], &joined["token"]), (&json!("landed"), &json!(transfer.token.id)), "{joined}");
        assert!(landed.insert(joined["place"].to_string()), "two on one place: {joined}");
    }
    assert!(by_the_dead < PLAYERS, "it was killed in the middle: {by_the_dead}");
    let mut conn = store.conn().await;
    assert!(tickets(&mut conn, "wait").await.is_empty());
    for handle in &waiting {
        assert_eq!(state(&mut conn, handle.player().as_str()).await, "CONSUMED");
    }
    let status = ask(&mut heir, json!({"op": "status", "id": "t"})).await;
    assert_eq!((&status["free"], &status["promised"]), (&json!(0), &json!(0)));
}
