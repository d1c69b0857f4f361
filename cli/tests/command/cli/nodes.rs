use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use maitred::ids::{NodeId, Role, ServiceName};
use maitred::node::{KILL, NodeRecord, drain_name, kill_name};
use maitred::token::BookOptions;
use serde_json::{Value, json};

use crate::fixtures::command::{CliFixture, backend, node, proxy, region};
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(20);

fn busy_backend() -> NodeRecord {
    let mut record = backend("b1");
    (record.players, record.soft_cap) = (42, 100);
    record.load.regions = [(region("arena"), Some(3)), (region("lobby"), None)].into();
    record.services = vec![ServiceName::new("places").expect("valid")];
    record.labels = [("build".to_owned(), "7.1".to_owned())].into();
    record
}

// CLI-1, NOD-6, NOD-14: what an operator needs to know of a node at a glance, proxies included.
#[tokio::test]
async fn nod_14_nodes_are_shown_with_what_they_publish() {
    let calm = "directory: {suspectMs: 300000, offlineMs: 400000}\n";
    let fixture = CliFixture::with_config(calm, BookOptions::default()).await;
    let (_b1, owner) = fixture.join(busy_backend()).await;
    let (_p1, _) = fixture.join(proxy("p1")).await;

    let ran = fixture.run(&["nodes"]).code(0);
    let cells = ran.cells("b1");
    assert_eq!(cells[1..4], ["backend", "b1.example:25565", "online"], "{cells:?}");
    assert_eq!(cells[5..12], ["ready", "42/100", "-", "file", "arena:3 lobby", "places", "7.1"], "{cells:?}");
    assert_eq!(cells[12], owner.epoch.to_string());
    assert_eq!(ran.cells("p1")[1], "proxy");
    ran.shows(&["zone eu: 2 nodes, 2 online; 42 players on backends with room for 100"]);

    let told = fixture.json(&["nodes"]);
    assert_eq!((&told["zone"], &told["kill"]["on"], &told["gone"]), (&json!("eu"), &json!(false), &json!([])));
    assert_eq!(told["not_believed"], json!({"count": 0, "reasons": {}, "rows": []}));
    let b1 = &told["nodes"][0];
    assert_eq!(b1["regions"], json!({"arena": 3, "lobby": null}));
    assert_eq!((&b1["id"], &b1["epoch"], &b1["liveness"]), (&json!("b1"), &json!(owner.epoch.0), &json!("online")));
    assert!(told["as_of"].as_u64() >= b1["sent_at"].as_u64(), "{told}");

    // Only one roster.
    let told = fixture.json(&["nodes", "--role", "proxy"]);
    assert_eq!((told["nodes"].as_array().map(Vec::len), &told["nodes"][0]["id"]), (Some(1), &json!("p1")));
    fixture.run(&["nodes", "--role", "nobody"]).code(0).shows(&["zone eu: 0 nodes"]);
    fixture.run(&["nodes", "--role", "a b"]).code(2);
}

// NOD-7: by the limits of the fleet's config; a node that died must not look alive.
#[tokio::test]
async fn nod_7_the_age_of_a_beat_turns_a_node_suspect_offline_and_gone() {
    let config = "heartbeat: {intervalMs: 50}\ndirectory: {suspectMs: 500, offlineMs: 1000, removedMs: 60000}\n";
    let fixture = CliFixture::with_config(config, BookOptions::default()).await;
    let (_b1, _) = fixture.join(backend("b1")).await;
    fixture.join(backend("b2")).await;
    fixture.dies("b2").await;
    let mut seen: Vec<String> = Vec::new();
    eventually("b1 is offline and b2 is gone", LIMIT, async || {
        let told = fixture.json(&["nodes"]);
        let liveness = told["nodes"][0]["liveness"].as_str().expect("b1 is listed").to_owned();
        if seen.last() != Some(&liveness) {
            seen.push(liveness);
        }
        told["nodes"][0]["liveness"] == "offline" && told["gone"][0]["id"] == "b2"
    })
    .await;
    let order = ["online", "suspect", "offline"];
    assert!(seen.is_sorted_by_key(|state| order.iter().position(|known| known == state)), "{seen:?}");
    let told = fixture.json(&["nodes"]);
    let gone = &told["gone"][0];
    let number = |of: &Value| of.as_u64().expect("a number");
    assert_eq!(number(&gone["last_beat_at"]) + number(&gone["age_ms"]), number(&told["as_of"]), "since when: {told}");
    assert_eq!(told["gone"][0]["role"], "backend");
    let ran = fixture.run(&["nodes"]).code(0).shows(&["1 offline", "and 1 gone without a goodbye"]);
    assert_eq!(ran.cells("b2")[3], "gone");
}

// ENV-5, R-5: an attacker with the store's password cannot put a node on an operator's screen, nor hide one.
#[tokio::test]
async fn env_5_rows_that_do_not_verify_are_counted_and_named() {
    let fixture = CliFixture::new().await;
    for id in ["b1", "b2", "b3", "b4", "b5"] {
        fixture.join(backend(id)).await;
    }
    let key = |id: &str| format!("maitred:{{eu}}:node:{id}");
    fixture.by_hand(&["HSET", &key("b1"), "players", "9999"]).await;
    fixture.by_hand(&["HDEL", &key("b2"), "sig"]).await;
    fixture.by_hand(&["HSET", &key("b3"), "v", "2"]).await;
    fixture.by_hand(&["COPY", &key("b5"), &key("b6")]).await;
    fixture.by_hand(&["ZADD", "maitred:{eu}:nodes:backend", "1", "b6"]).await;
    fixture.by_hand(&["SET", &key("b7"), "x"]).await;
    fixture.by_hand(&["ZADD", "maitred:{eu}:nodes:backend", "1", "b7"]).await;

    let told = fixture.json(&["nodes"]);
    let ids: Vec<&Value> = told["nodes"].as_array().expect("a list").iter().map(|node| &node["id"]).collect();
    assert_eq!(ids, [&json!("b4"), &json!("b5")]);
    let reasons = json!({
        "bad_signature": 1, "missing_signature": 1, "schema_version": 1, "wrong_key": 1, "wrong_type": 1,
    });
    assert_eq!((&told["not_believed"]["count"], &told["not_believed"]["reasons"]), (&json!(5), &reasons));
    let ran = fixture.run(&["nodes"]).code(0);
    ran.shows(&["zone eu: 2 nodes", "not believed: 5 (bad_signature 1, missing_signature 1", "node:b1", "node:b7"]);
}

// NOD-13, R-32: what an operator ordered shows at the node, and a forged order shows as one.
#[tokio::test]
async fn r_32_kill_and_drain_show_and_forged_entries_are_counted() {
    let fixture = CliFixture::new().await;
    let (b1, b2) = (NodeId::new("b1").expect("valid"), NodeId::new("b2").expect("valid"));
    fixture.join(backend("b1")).await;
    fixture.join(NodeRecord { accepting: false, ..backend("b2") }).await;
    fixture.join(proxy("p1")).await;
    let put = async |name: &str| {
        fixture
            .control
            .put(&fixture.store, &fixture.verifier, name, "on", "alice")
            .await
            .expect("the entry is written");
    };
    put(&kill_name(&b1)).await;
    put(&drain_name(&b2)).await;
    let ran = fixture.run(&["nodes"]).code(0);
    assert_eq!(ran.cells("b1")[7], "kill not heard yet");
    let flags = ran.cells("b2").swap_remove(7);
    assert!(flags.starts_with("drained by alice ") && flags.ends_with(" ago, not heard yet, not accepting"), "{flags}");
    assert_eq!(ran.cells("p1")[7], "-", "nobody asks a proxy for places");

    put(KILL).await;
    fixture.by_hand(&["HSET", "maitred:{eu}:control", "kill:p1", "{\"value\":\"on\"}"]).await;
    let ran = fixture.run(&["nodes"]).code(0);
    ran.shows(&["KILL SWITCH ON for the whole fleet, by alice", "control entries not believed: 1"]);
    let told = fixture.json(&["nodes"]);
    assert_eq!((&told["kill"]["on"], &told["kill"]["by"]), (&json!(true), &json!("alice")));
    assert_eq!((&told["nodes"][1]["draining"], &told["control_not_believed"]), (&json!(true), &json!(1)));
}

// NOD-13: what an operator types, and reads.
#[tokio::test]
async fn nod_13_drain_undrain_and_status_say_what_is_in_force() {
    let fixture = CliFixture::new().await;
    fixture.run(&["drain", "--status"]).code(0).shows(&["no node is drained"]);
    // Also before the node ever joined.
    fixture.run(&["drain", "b1", "--by", "olga"]).code(0).shows(&["drain of b1: on (version "]);
    assert_eq!(fixture.run(&["drain", "--status"]).code(0).cells("b1")[1], "olga");
    fixture.run(&["drain", "b2", "--status"]).code(0).shows(&["b2 is not drained"]);
    assert_eq!(fixture.json(&["drain", "--status"])["drains"][0]["node"], "b1", "asking changes nothing");
    fixture.by_hand(&["HSET", "maitred:{eu}:control", "drain:b2", "{\"value\":\"on\"}"]).await;
    let told = fixture.json(&["drain", "--status"]);
    assert_eq!((told["drains"].as_array().map(Vec::len), &told["not_believed"]), (Some(1), &json!(1)), "R-32");
    let lifted = fixture.json(&["undrain", "b1"]);
    assert_eq!((&lifted["draining"], &lifted["by"]), (&json!(false), &json!("cli")));
    assert_eq!(fixture.json(&["drain", "--status"])["drains"], json!([]));
    fixture.run(&["drain"]).code(2);
    fixture.run(&["undrain", "a b"]).code(2);
}

// NOD-12: an operator has to see what is missing, and not only what is there.
#[tokio::test]
async fn nod_12_nodes_that_the_config_expects_show_as_connecting_or_offline() {
    let peers =
        "peers: { b1: { addr: 'b1.example:1' }, b2: { addr: 'b2.example:1' }, p9: { role: proxy, addr: 'p9:1' } }";
    let fixture = CliFixture::with_config(peers, BookOptions::default()).await;
    let (mut b1, _) = fixture.join(backend("b1")).await;
    let ran = fixture.run(&["nodes"]).code(0).shows(&["zone eu: 1 node, 1 online, 2 expected and not there"]);
    assert_eq!(ran.cells("b1")[3], "online", "the row wins");
    assert_eq!(ran.cells("b2")[..4], ["b2", "backend", "b2.example:1", "connecting"]);
    assert_eq!(ran.cells("p9")[3], "connecting");
    b1.leave().await.expect("it leaves");
    let ran = fixture.run(&["nodes", "--role", "backend"]).code(0);
    assert_eq!(ran.cells("b1")[3], "offline", "it was there");
    assert!(!ran.out.contains("p9"), "{}", ran.out);
    let ids = fixture.json(&["nodes"])["peers"].as_array().expect("a list").len();
    assert_eq!(ids, 3);
}

// A node's own texts must not steer the terminal of whoever looks at them.
#[tokio::test]
async fn cli_1_control_characters_in_a_row_are_shown_and_not_sent() {
    let fixture = CliFixture::new().await;
    let mut record = node("s1", Role::new("service").expect("valid"));
    record.labels = [("build".to_owned(), "\u{1b}[2J\u{9b}x\n".to_owned())].into();
    fixture.join(record).await;
    let ran = fixture.run(&["nodes"]).code(0);
    assert_eq!(ran.cells("s1")[11], "\\u{1b}[2J\\u{9b}x\\n");
}

#[tokio::test]
async fn cli_1_watch_shows_again_until_it_is_interrupted() {
    let fixture = CliFixture::new().await;
    fixture.join(backend("b1")).await;
    let mut child = fixture
        .command(&["nodes", "--watch", "50ms", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for _ in 0..3 {
        let line = lines.next().expect("it goes on").expect("UTF-8");
        let told: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(told["nodes"][0]["id"], "b1");
    }
    super::reap::interrupt(&child);
    assert!(child.wait().expect("it ends").success());
}

// REL-4: an operator would read "0 nodes" and exit 0 while the whole role is hidden behind a key of another program.
#[tokio::test]
async fn rel_4_a_roster_of_another_type_is_named_and_fails() {
    let fixture = CliFixture::new().await;
    fixture.join(proxy("p1")).await;
    // Before any backend came: not even the list of roles knows of them.
    fixture.by_hand(&["SET", "maitred:{eu}:nodes:backend", "x"]).await;
    let ran = fixture.run(&["nodes"]).code(1);
    ran.shows(&["zone eu: 1 node", "not believed: 1 (wrong_type 1): nodes:backend", "not shown", "TYPE"]);
    fixture.run(&["nodes", "--role", "proxy"]).code(0);
    let told = fixture.run(&["nodes", "--json"]).code(1).json();
    assert_eq!(told["not_believed"]["rows"], json!([{ "key": "nodes:backend", "reason": "wrong_type" }]));
    assert_eq!(told["nodes"][0]["id"], "p1");
    fixture.run(&["doctor"]).code(1).shows(&["WRONGTYPE at nodes:backend", "TYPE"]);
    fixture.by_hand(&["DEL", "maitred:{eu}:nodes:backend"]).await;
    fixture.run(&["nodes"]).code(0);
}
