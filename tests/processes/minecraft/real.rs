//! Real clients, real servers, two proxies: one server is killed, then the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::edge::{Edge, LIMIT};
use crate::fixtures::agents::{SECRET, config, pending, proxy};
use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const VERSIONS: [&str; 3] = ["1.8.8", "1.19.2", "1.21.1"];
const REFUSED: &str = "Every table is taken tonight.";
const NETWORK: &str = "\
heartbeat: { intervalMs: 2000 }
directory: { suspectMs: 6000, offlineMs: 9000 }
initialRouting: { servers: [lobby-a, lobby-b], timeoutSeconds: 10 }
texts: { notPlaced: Every table is taken tonight. }
store: { commandTimeoutMs: 5000, connectTimeoutMs: 5000, operationTimeoutMs: 10000 }
";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/minecraft")
}

/// Why the real thing cannot run here.
fn missing() -> Option<&'static str> {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !node.is_ok_and(|status| status.success()) {
        return Some("there is no Node.js");
    }
    let installed = folder().join("node_modules/.package-lock.json").is_file();
    (!installed).then_some("minecraft-protocol is not installed; `make minecraft` does it")
}

fn script(name: &str) -> Node {
    let mut command = Command::new("node");
    command.arg(format!("{name}.js")).current_dir(folder());
    Node::from_command(name, command)
}

/// A Minecraft server, its sidecar, and who reached it.
struct Server {
    game: Node,
    sidecar: Node,
    seen: Vec<Value>,
}

impl Server {
    /// Waits until the game listens and its sidecar is a member.
    async fn announced(id: &str, mut game: Node, store: &TestStore, network: &Path, load: Value) -> Self {
        let port = game.wait_for(|line| line["event"] == "listening", LIMIT).await["port"].clone();
        let mut options = NodeOptions::new(id, "backend", &store.url(), "eu").env("MAITRED_SECRET", SECRET);
        options.addr = format!("127.0.0.1:{port}");
        options.config = Some(network.to_owned());
        let mut sidecar = Node::spawn(&options);
        sidecar.wait_for(|line| line["event"] == "ready", LIMIT).await;
        sidecar.send(&load);
        sidecar.send(&json!({ "op": "places", "id": "places", "count": 20 }));
        sidecar.wait_for(|line| line["id"] == "places", LIMIT).await;
        Self { game, sidecar, seen: Vec::new() }
    }

    /// Reads until this many logins came in all.
    async fn logins(&mut self, count: usize) -> Vec<String> {
        while self.names().len() < count {
            self.seen.push(self.game.next_line(LIMIT).await);
        }
        self.names()
    }

    fn names(&self) -> Vec<String> {
        let logins = self.seen.iter().filter(|line| line["event"] == "login");
        logins.map(|line| line["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Ends the game with SIGKILL and reads what it said to the end.
    async fn kill(&mut self) -> Vec<String> {
        self.game.sigkill();
        while let Some(line) = self.game.line().await {
            self.seen.extend(serde_json::from_str::<Value>(&line));
        }
        self.names()
    }
}

/// All clients, in one process.
struct Clients {
    node: Node,
    ends: BTreeMap<String, Vec<Value>>,
}

impl Clients {
    fn login(&self, name: &str, edge: &Edge, version: &str) {
        self.node.send(&json!({ "op": "login", "name": name, "port": edge.addr.port(), "version": version }));
    }

    /// Reads until each of them was told `event`, and hands the lines back.
    async fn all(&mut self, names: &[String], event: &str) -> Vec<Value> {
        let has = |ends: &BTreeMap<String, Vec<Value>>, name: &String| {
            ends.get(name).and_then(|lines| lines.iter().find(|line| line["event"] == event).cloned())
        };
        loop {
            let found: Vec<Value> = names.iter().filter_map(|name| has(&self.ends, name)).collect();
            if found.len() == names.len() {
                return found;
            }
            let line = self.node.next_line(LIMIT).await;
            let name = line["name"].as_str().unwrap_or_default().to_owned();
            if event == "joined" {
                assert!(line["event"] == "joined" || !names.contains(&name), "{line}");
            }
            self.ends.entry(name).or_default().push(line);
        }
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}_{n}")).collect()
}

fn set(names: &[String]) -> BTreeSet<&String> {
    names.iter().collect()
}

// PLC-1, PLC-4, PLC-6, DSP-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plc_6_real_clients_log_in_once_each_and_later_ones_on_what_is_left() {
    if let Some(why) = missing() {
        return eprintln!("skipped: {why}");
    }
    let (games, node) = (["server", "server"].map(script), script("clients"));
    let store = TestStore::start();
    let dir = tempfile::tempdir().expect("a directory");
    let network = dir.path().join("network.yml");
    std::fs::write(&network, NETWORK).expect("a config");
    // All clients come from one address.
    let args = ["--spread", "--per-address", "1000"].map(str::to_owned);
    let edge = async |id: &str| Edge::start(id, &store.url(), &network, &args).await;
    let (edges, waiter) =
        tokio::join!(async { [edge("edge-1").await, edge("edge-2").await] }, proxy(config("p", "proxy", &store.url())));
    let [first, second] = games;
    let load = |players: u64, cap: u64| json!({ "op": "load", "players": players, "soft_cap": cap });
    let (mut a, mut b) = tokio::join!(
        Server::announced("lobby-a", first, &store, &network, load(3, 50)),
        Server::announced("lobby-b", second, &store, &network, load(4, 70)),
    );
    let mut clients = Clients { node, ends: BTreeMap::new() };
    clients.node.wait_for(|line| line["event"] == "ready", LIMIT).await;

    // The server list of both proxies shows the fleet, once they see it.
    for edge in &edges {
        for version in VERSIONS {
            loop {
                clients.node.send(&json!({ "op": "status", "port": edge.addr.port(), "version": version }));
                let line = clients.node.next_line(LIMIT).await;
                assert_eq!((&line["event"], &line["description"]["text"]), (&json!("status"), &json!("Good evening")));
                if line["players"] == json!({ "online": 7, "max": 120 }) {
                    break;
                }
            }
        }
    }

    // Four have a place at the second server already, sixty come fresh; through both proxies, of all ages.
    let waiting = names("waiting", 4);
    for name in &waiting {
        eventually("a place waits", LIMIT, async || {
            waiter.agent().directory().view_of(&crate::fixtures::agents::id("lobby-b")).is_some()
        })
        .await;
        pending(&waiter, "lobby-b", name).await;
    }
    let fresh = names("fresh", 60);
    let early: Vec<String> = waiting.iter().chain(&fresh).cloned().collect();
    for (n, name) in early.iter().enumerate() {
        clients.login(name, &edges[n % 2], VERSIONS[n % 3]);
    }
    clients.all(&early, "joined").await;
    let at_b: Vec<String> = {
        let (mut at_a, mut at_b) = (0, 0);
        // Each server has said so before its client was told.
        while at_a + at_b < early.len() {
            tokio::select! {
                line = a.game.next_line(LIMIT) => { at_a += usize::from(line["event"] == "login"); a.seen.push(line); }
                line = b.game.next_line(LIMIT) => { at_b += usize::from(line["event"] == "login"); b.seen.push(line); }
            }
        }
        b.names()
    };
    let at_a = a.names();
    assert!(at_a.len() > 10 && at_b.len() > 10, "spread over both: {} and {}", at_a.len(), at_b.len());
    assert!(set(&at_a).is_disjoint(&set(&at_b)), "a client's bytes reached two servers");
    assert!(set(&at_b).is_superset(&set(&waiting)), "a place that waits is where its player goes");
    for name in &waiting {
        b.sidecar.send(&json!({ "op": "redeem", "id": name, "player": name }));
        let answer = b.sidecar.wait_for(|line| line["id"] == name.as_str(), LIMIT).await;
        assert_eq!(answer["outcome"], "landed", "{answer}");
    }

    // One server dies; its players are cut off, those of the other are not. Its sidecar goes on announcing it.
    let at_a = a.kill().await;
    clients.all(&at_a, "ended").await;
    let late = names("late", 40);
    for (n, name) in late.iter().enumerate() {
        clients.login(name, &edges[n % 2], VERSIONS[n % 3]);
    }
    clients.all(&late, "joined").await;
    let at_b = b.logins(early.len() - at_a.len() + late.len()).await;
    assert!(at_b.iter().all(|name| !clients.ends[name].iter().any(|line| line["event"] == "ended")), "cut off");
    assert!(set(&at_b).is_superset(&set(&late)));

    // Nobody is left: what the client shows is what the operator wrote.
    let at_b = b.kill().await;
    let refused = names("refused", 6);
    for (n, name) in refused.iter().enumerate() {
        clients.login(name, &edges[n % 2], VERSIONS[n % 3]);
    }
    for line in clients.all(&refused, "disconnected").await {
        let reason: Value = serde_json::from_str(line["reason"].as_str().expect("text")).expect("a component");
        assert_eq!(reason, json!({ "text": REFUSED }));
    }

    // Every login that was ever read by a server, once.
    let mut all: Vec<String> = at_a.into_iter().chain(at_b).collect();
    all.sort_unstable();
    let mut wanted: Vec<String> = early.into_iter().chain(late).collect();
    wanted.sort_unstable();
    assert_eq!(all, wanted);
    for server in [&a, &b] {
        let strange: Vec<&Value> = server.seen.iter().filter(|line| line["event"] == "error").collect();
        assert!(strange.is_empty(), "{strange:?}");
        // What the client said first arrived as it was.
        let hosts = server.seen.iter().filter(|line| line["event"] == "handshake");
        let ports: BTreeSet<u64> = hosts.filter_map(|line| line["port"].as_u64()).collect();
        assert_eq!(ports, edges.iter().map(|edge| u64::from(edge.addr.port())).collect());
    }
    for mut edge in edges {
        assert!(edge.node.sigterm().success());
    }
    waiter.leave().await;
}
