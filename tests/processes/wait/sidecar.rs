//! CLI-3: `maitred node` lets players wait.

use serde_json::{Value, json};

use crate::fixtures::agents::{LIMIT, SECRET};
use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;

const NETWORK: &str = "heartbeat: { intervalMs: 500 }\ndirectory: { suspectMs: 1300, offlineMs: 1750 }\n\
                       dispatch: { cooldownMs: 0 }\nselector: { onNoCandidate: queue }\n";

async fn ask(node: &mut Node, message: Value) -> Value {
    node.send(&message);
    let id = message["id"].clone();
    node.wait_for(|line| line["id"] == id && line["outcome"].is_string(), LIMIT).await
}

#[tokio::test]
async fn cli_3_a_player_waits_by_lines_and_hears_of_the_end() {
    let (store, dir) = (TestStore::start(), tempfile::tempdir().expect("a directory"));
    std::fs::write(dir.path().join("network.yml"), NETWORK).expect("a config");
    let spawn = |id: &str, role: &str| {
        let mut options = NodeOptions::new(id, role, &store.url(), "eu").env("MAITRED_SECRET", SECRET);
        options.config = Some(dir.path().join("network.yml"));
        Node::spawn(&options)
    };
    let (mut backend, mut proxy) = (spawn("b1", "backend"), spawn("p1", "proxy"));
    assert_eq!(backend.next_line(LIMIT).await["event"], "ready");
    assert_eq!(proxy.next_line(LIMIT).await["event"], "ready");

    let dispatch = |id: &str, player: &str| json!({"op": "dispatch", "id": id, "player": player});
    for (n, name) in ["alice", "bob", "carol"].iter().enumerate() {
        let waits = ask(&mut proxy, dispatch(name, name)).await;
        assert_eq!((&waits["outcome"], &waits["line"]), (&json!("waiting"), &json!("wait")), "{waits}");
        assert_eq!((&waits["position"], &waits["estimate_ms"]), (&json!(n + 1), &Value::Null));
    }
    let again = ask(&mut proxy, dispatch("alice", "alice")).await;
    assert_eq!(again["outcome"], "error", "the id stands for the request that waits: {again}");
    let mut fast = dispatch("dave", "dave");
    fast["bypass"] = true.into();
    assert_eq!(ask(&mut proxy, fast).await["outcome"], "refused");

    let dropped = json!({"op": "cancel", "id": "c1", "player": "alice", "request": "alice", "dropped": true});
    assert_eq!(ask(&mut proxy, dropped).await["outcome"], "away");
    proxy.send(&json!({"op": "cancel", "id": "c2", "player": "bob", "request": "bob"}));
    let gone = proxy.wait_for(|line| line["event"] == "refused" && line["id"] == "bob", LIMIT).await;
    assert_eq!((&gone["player"], &gone["reason"]), (&json!("bob"), &json!("cancelled")));
    assert_eq!(ask(&mut proxy, dispatch("back", "alice")).await["position"], 1, "where she stood");

    ask(&mut backend, json!({"op": "places", "id": "s1", "count": 1})).await;
    let moved = proxy.wait_for(|line| line["event"] == "transfer", LIMIT).await;
    assert_eq!((&moved["id"], &moved["player"], &moved["server"]), (&json!("back"), &json!("alice"), &json!("b1")));
    let landed = ask(&mut backend, json!({"op": "redeem", "id": "r1", "player": "alice"})).await;
    assert_eq!((&landed["outcome"], &landed["token"]), (&json!("landed"), &moved["token"]));
    let told = proxy.wait_for(|line| line["event"] == "position" && line["id"] == "carol", LIMIT).await;
    assert_eq!(told["position"], 1);
    ask(&mut backend, json!({"op": "places", "id": "s2", "count": 1})).await;
    let moved = proxy.wait_for(|line| line["event"] == "transfer", LIMIT).await;
    let release = json!({"op": "release", "id": "r2", "player": "carol", "request": moved["id"]});
    assert_eq!(ask(&mut proxy, release).await["outcome"], "released");
}
