//! POL-5: `maitred config push` and the nodes that take it over. When one of these fails, a fleet runs with rules that its
//! operator believes to be gone, or whoever has the store's password sets them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt;
use maitred::envelope::{Keyring, Kind, Secret};
use maitred::ids::Zone;
use maitred::node::ControlEntry;
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);
const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const CONTROL: &str = "maitred:{eu}:control";

/// A store, the file of its nodes, and the file of an operator.
struct Fleet {
    store: TestStore,
    dir: TempDir,
}

impl Fleet {
    fn new() -> Self {
        let fleet = Self { store: TestStore::start(), dir: tempfile::tempdir().expect("a directory") };
        fleet.nodes_file("");
        fleet
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn nodes_file(&self, more: &str) {
        let times = "heartbeat: { intervalMs: 500 }\ndirectory: { suspectMs: 1300, offlineMs: 1750 }\n\
                     texts: { noCandidate: \"of the file\" }\n";
        std::fs::write(self.path("network.yml"), format!("{times}{more}")).expect("a file");
    }

    async fn node(&self, id: &str, role: &str, url: &str) -> (Node, Value) {
        let mut options = NodeOptions::new(id, role, url, "eu").env("MAITRED_SECRET", SECRET);
        options.config = Some(self.path("network.yml"));
        let mut node = Node::spawn(&options);
        let ready = node.wait_for(|line| line["event"] == "ready", LIMIT).await;
        (node, ready)
    }

    /// Runs the binary as an operator does: exit code and output.
    fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(maitred_testkit::program::maitred());
        command.args(args).args(["--store", &self.store.url(), "--zone", "eu"]).env("MAITRED_SECRET", SECRET);
        let output = command.output().expect("the binary runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("UTF-8"))
    }

    fn json(&self, args: &[&str]) -> Value {
        let (code, said) = self.run(&[args, &["--json"]].concat());
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// Pushes a text, and gives its version.
    fn push(&self, text: &str) -> u64 {
        std::fs::write(self.path("push.yml"), text).expect("a file");
        let told = self.json(&["config", "push", self.path("push.yml").to_str().expect("UTF-8")]);
        told["version"].as_u64().expect("a version")
    }

    /// Waits until every node says that it runs with this version.
    async fn everywhere(&self, count: usize, version: Option<u64>) {
        eventually("every node has it", LIMIT, async || {
            let told = self.json(&["nodes"]);
            let nodes = told["nodes"].as_array().expect("a list");
            nodes.len() == count && nodes.iter().all(|node| node["config"].as_u64() == version)
        })
        .await;
    }
}

async fn ask(node: &mut Node, line: Value) -> Value {
    node.send(&line);
    node.wait_for(|answer| answer["id"] == line["id"] && answer.get("outcome").is_some(), LIMIT).await
}

/// What a proxy tells a player for whom there is no server.
async fn refusal(proxy: &mut Node) -> String {
    let line = json!({"op": "dispatch", "id": "r", "player": "alice", "server": "nobody"});
    ask(proxy, line).await["message"].as_str().unwrap_or_default().to_owned()
}

async fn heard(node: &mut Node, version: Option<u64>) {
    node.wait_for(|line| line["event"] == "config" && line["version"].as_u64() == version, LIMIT).await;
}

/// An entry that a member signed.
fn entry(value: &str, version: u64) -> String {
    let zone = Zone::new("eu").expect("a zone");
    let keyring = Keyring::new(zone, Secret::from_base64("TEST", SECRET).expect("a secret"), Vec::new());
    let text = version.to_string();
    let sig = keyring.sign(Kind::Control, &["config", value, &text, "ops", &text, "1"]).as_str().to_owned();
    let entry = ControlEntry { value: value.to_owned(), version, by: "ops".to_owned(), at: version, v: 1, sig };
    serde_json::to_string(&entry).expect("JSON")
}

/// Puts bytes where the entry stands, and says so or not.
async fn put(conn: &mut MultiplexedConnection, bytes: &str, tells: bool) {
    let () = conn.hset(CONTROL, "config", bytes).await.expect("HSET");
    if tells {
        let () = conn.publish("maitred:{eu}:events:control", "control config").await.expect("PUBLISH");
    }
}

/// Waits until the node dropped one more thing for `reason`.
async fn audited(node: &mut Node, reason: &str, count: u64) {
    let mut n = 0;
    eventually(reason, LIMIT, async || {
        n += 1;
        let status = ask(node, json!({"op": "status", "id": format!("{reason}-{n}")})).await;
        status["audit"][reason].as_u64() == Some(count)
    })
    .await;
}

// POL-5: of a broken file nothing, of a good one everything on every node, with its version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_5_a_push_is_in_force_on_every_node_and_a_broken_one_nowhere() {
    let fleet = Fleet::new();
    let (mut proxy, _) = fleet.node("p1", "proxy", &fleet.store.url()).await;
    let (mut backend, _) = fleet.node("b1", "backend", &fleet.store.url()).await;
    let mut conn = fleet.store.conn().await;
    let file = fleet.path("push.yml");
    let file = file.to_str().expect("UTF-8");

    std::fs::write(file, "zone: eu\ndispatch:\n  maxRetries: 99\ntriggers:\n  joyn: true\n").expect("a file");
    let (code, said) = fleet.run(&["config", "push", file]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("dispatch.maxRetries: 99 is out of range (line 3, column 15)"), "{said}");
    assert!(said.contains("triggers.joyn: unknown key (line 5") && said.contains("2 problems"), "{said}");
    std::fs::write(file, "zone: eu\nheartbeat: { intervalMs: 700 }\n").expect("a file");
    let (code, said) = fleet.run(&["config", "push", file]);
    assert!(code == Some(2) && said.contains("dispatch, triggers, texts"), "{said}");
    let there: bool = conn.exists(CONTROL).await.expect("EXISTS");
    assert!(!there, "nothing was changed");
    assert!(fleet.run(&["config", "show"]).1.contains("no config is pushed"));

    let text = "zone: eu\nheartbeat: { intervalMs: 700 }\ntexts: { noCandidate: \"of the push\" }\n";
    std::fs::write(file, text).expect("a file");
    let (code, said) = fleet.run(&["config", "push", file]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("texts.noCandidate") && said.contains("stays with each host: zone, heartbeat.intervalMs"));
    assert!(said.contains("checks it together with its own file") && said.contains("`maitred nodes`"), "{said}");
    let shown = fleet.json(&["config", "show"]);
    assert_eq!(shown["value"], json!({"texts": {"noCandidate": "of the push"}}));
    let version = shown["version"].as_u64();
    assert!(said.contains(&version.expect("a version").to_string()), "{said}");
    heard(&mut proxy, version).await;
    heard(&mut backend, version).await;
    fleet.everywhere(2, version).await;
    assert_eq!(refusal(&mut proxy).await, "of the push");
    let (_, table) = fleet.run(&["nodes"]);
    assert_eq!(table.matches(&version.expect("a version").to_string()).count(), 2, "{table}");
    assert!(table.contains("CONFIG"), "{table}");

    // A reload of the file does not undo it, and a node that comes later has it from its start.
    fleet.nodes_file("triggers: { join: true }\n");
    proxy.sighup();
    let told = proxy.wait_for(|line| line["event"] == "reloaded", LIMIT).await;
    assert_eq!(told["changed"], json!(["triggers"]), "{told}");
    assert_eq!(refusal(&mut proxy).await, "of the push");
    let (mut late, ready) = fleet.node("p2", "proxy", &fleet.store.url()).await;
    assert_eq!(ready["config"].as_u64(), version, "{ready}");
    assert_eq!(refusal(&mut late).await, "of the push");
    fleet.everywhere(3, version).await;

    assert_eq!(fleet.run(&["config", "unpush"]).0, Some(0));
    heard(&mut proxy, None).await;
    fleet.everywhere(3, None).await;
    assert_eq!(refusal(&mut proxy).await, "of the file");
}

fn limits(prefix: &str, count: usize) -> String {
    let lines: String = (0..count).map(|n| format!("  {prefix}{n}: {{ cooldownMs: 500 }}\n")).collect();
    format!("limits:\n{lines}")
}

async fn reloads(fleet: &Fleet, node: &mut Node, file: &str) -> Value {
    fleet.nodes_file(file);
    node.sighup();
    node.wait_for(|line| line["event"] == "reloaded", LIMIT).await["outcome"].clone()
}

// POL-5: a push that clashes with one host's file leaves what was in force there, over a restart too, and comes into force
// with the mended file. If this fails, one host stays apart from the fleet for good, or falls back to its bare file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_5_a_push_that_clashes_with_a_file_waits_for_a_mended_one() {
    let fleet = Fleet::new();
    fleet.nodes_file(&limits("f", 40));
    let (mut proxy, _) = fleet.node("p1", "proxy", &fleet.store.url()).await;
    let first = fleet.push("texts: { noCandidate: \"of the push\" }\n");
    heard(&mut proxy, Some(first)).await;
    let second = fleet.push(&limits("g", 40));
    audited(&mut proxy, "unusable_config", 1).await;
    assert_eq!(refusal(&mut proxy).await, "of the push");

    let anew = format!("messages: {{ maxConcurrent: 99 }}\n{}", limits("f", 40));
    assert_eq!(reloads(&fleet, &mut proxy, &anew).await, "restarted");
    let ready = proxy.wait_for(|line| line["event"] == "ready", LIMIT).await;
    assert_eq!(ready["config"].as_u64(), Some(first), "{ready}");
    assert_eq!(refusal(&mut proxy).await, "of the push");

    let mended = format!("messages: {{ maxConcurrent: 99 }}\n{}", limits("f", 5));
    // Only once it met the push again is there one that waits.
    audited(&mut proxy, "unusable_config", 1).await;
    assert_eq!(reloads(&fleet, &mut proxy, &mended).await, "swapped");
    fleet.everywhere(1, Some(second)).await;
}

// POL-5: in force within two heartbeats, also where the event was never heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_5_two_heartbeats_after_a_push_every_node_says_its_version() {
    let fleet = Fleet::new();
    let (_proxy, ready) = fleet.node("p1", "proxy", &fleet.store.url()).await;
    let (_backend, _) = fleet.node("b1", "backend", &fleet.store.url()).await;
    let mut conn = fleet.store.conn().await;
    let client = redis::Client::open(fleet.store.url()).expect("a client");
    let mut pubsub = client.get_async_pubsub().await.expect("a subscription");
    for channel in ["maitred:{eu}:events:node", "maitred:{eu}:events:control", "marker"] {
        pubsub.subscribe(channel).await.expect("SUBSCRIBE");
    }
    let mut messages = pubsub.on_message();
    let base = ready["epoch"].as_u64().expect("an epoch") + 1_000;
    for (n, tells) in [(1, true), (2, false), (3, true), (4, false)] {
        let version = base + n;
        let value = format!("{{\"dispatch\":{{\"maxRetries\":{n}}}}}");
        put(&mut conn, &entry(&value, version), tells).await;
        let () = conn.publish("marker", version.to_string()).await.expect("PUBLISH");
        // The messages come in the order of the store: which beats of each node came behind the push, and what they said.
        let (mut behind, mut beats) = (false, [("p1", 0, false), ("b1", 0, false)]);
        while beats.iter().any(|(_, _, said)| !said) {
            let message = tokio::time::timeout(LIMIT, messages.next()).await.expect("they beat").expect("a message");
            let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
            behind |= message.get_channel_name() == "marker" && text == version.to_string();
            for (id, count, said) in &mut beats {
                if behind && !*said && text.contains(&format!("2:{id},")) && text.contains("4:node,") {
                    *count += 1;
                    *said = text.contains(&format!("\"config\":\"{version}\""));
                    assert!(*said || *count < 2, "{id} beat twice and does not say {version}: {text}");
                }
            }
        }
    }
}

// POL-5: a node whose link was cut while the push came takes it once it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_5_a_push_arrives_after_a_cut() {
    let fleet = Fleet::new();
    let wire = FaultProxy::start(&fleet.store);
    let (mut proxy, _) = fleet.node("p1", "proxy", &wire.url()).await;
    let (mut other, _) = fleet.node("p2", "proxy", &fleet.store.url()).await;
    wire.refuse(true);
    wire.cut_all();
    let version = fleet.push("texts: { noCandidate: \"while it was away\" }\n");
    heard(&mut other, Some(version)).await;
    assert_eq!(refusal(&mut other).await, "while it was away");
    let status = ask(&mut proxy, json!({"op": "status", "id": "t1"})).await;
    assert_eq!(status["config"], Value::Null);
    wire.refuse(false);
    heard(&mut proxy, Some(version)).await;
    fleet.everywhere(2, Some(version)).await;
}

// POL-5, R-32, R-6: without the secret nobody sets a config, going back to an older one is audited, and one that this build
// cannot use leaves the last one in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_5_a_forged_an_older_and_an_unusable_push_change_nothing_and_are_audited() {
    let fleet = Fleet::new();
    let mut conn = fleet.store.conn().await;
    let (mut proxy, _) = fleet.node("p1", "proxy", &fleet.store.url()).await;
    fleet.push("texts: { noCandidate: \"the first\" }\n");
    let older: String = conn.hget(CONTROL, "config").await.expect("HGET");
    let version = fleet.push("texts: { noCandidate: \"the second\" }\n");
    heard(&mut proxy, Some(version)).await;
    let genuine: String = conn.hget(CONTROL, "config").await.expect("HGET");

    put(&mut conn, &genuine.replace("the second", "mallory's"), true).await;
    audited(&mut proxy, "forged_control", 1).await;
    assert_eq!(refusal(&mut proxy).await, "the second");
    put(&mut conn, &older, true).await;
    audited(&mut proxy, "older_control", 1).await;
    assert_eq!(refusal(&mut proxy).await, "the second");

    // Of a newer build, of a defective one, and one that reaches for what stays with the host.
    let unusable = [
        "{\"dispatch\":{\"ofTomorrow\":1}}".to_owned(),
        "{\"dispatch\":{\"maxRetries\":999}}".to_owned(),
        "{\"store\":{\"url\":\"redis://mallory:1\"}}".to_owned(),
        format!("{{\"texts\":{{\"lost\":\"{}\"}}}}", "x".repeat(70_000)),
    ];
    for (n, value) in (1..).zip(unusable) {
        put(&mut conn, &entry(&value, version + n), true).await;
        audited(&mut proxy, "unusable_config", n).await;
        assert_eq!(refusal(&mut proxy).await, "the second");
    }
    let status = ask(&mut proxy, json!({"op": "status", "id": "t2"})).await;
    assert_eq!(status["config"].as_u64(), Some(version), "it says what is in force, not what it was offered");
    assert!(proxy.stderr().contains("dispatch.ofTomorrow: unknown key"), "{}", proxy.stderr());

    // A good one behind all of them is taken.
    let last = fleet.push("texts: { noCandidate: \"the last\" }\n");
    heard(&mut proxy, Some(last)).await;
    assert_eq!(refusal(&mut proxy).await, "the last");
}
