//! A fleet of processes, steered by an operator whose every command is a process that ends.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixtures::agents::{LIMIT, SECRET, ZONE};
use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const TIMES: &str = "heartbeat: { intervalMs: 300 }\ndirectory: { suspectMs: 1900, offlineMs: 2500 }\n\
    dispatch: { attemptTimeoutMs: 10000, cooldownMs: 0 }\nstore: { operationTimeoutMs: 10000 }\n\
    peers: { b9: { addr: 'b9.example:1' }, b1: { addr: 'b1.example:1' } }\n";

struct Fleet {
    store: TestStore,
    dir: TempDir,
    backends: Vec<Node>,
    proxies: Vec<Node>,
    asked: u64,
}

impl Fleet {
    async fn new() -> Self {
        let store = TestStore::with_args(&["--appendonly", "yes", "--appendfsync", "always"]);
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("network.yml"), TIMES).expect("the config is written");
        let mut fleet = Self { store, dir, backends: Vec::new(), proxies: Vec::new(), asked: 0 };
        for id in ["b1", "b2"] {
            let node = fleet.node(id, "backend").await;
            fleet.backends.push(node);
        }
        for id in ["p1", "p2"] {
            let node = fleet.node(id, "proxy").await;
            fleet.proxies.push(node);
        }
        fleet
    }

    async fn node(&self, id: &str, role: &str) -> Node {
        let mut options = NodeOptions::new(id, role, &self.store.url(), ZONE).env("MAITRED_SECRET", SECRET);
        options.config = Some(self.dir.path().join("network.yml"));
        let mut node = Node::spawn(&options);
        node.wait_for(|line| line["event"] == "ready", LIMIT).await;
        if role == "backend" {
            node.send(&json!({ "op": "places", "count": 50 }));
        }
        node
    }

    /// One command of an operator; the process has ended when this comes back.
    fn operator(&self, args: &[&str]) -> Value {
        let output = Command::new(maitred_testkit::program::maitred())
            .args(args)
            .args(["--json", "--zone", ZONE, "--store", &self.store.url(), "--config"])
            .arg(self.dir.path().join("network.yml"))
            .env("MAITRED_SECRET", SECRET)
            .env_remove("MAITRED_LOG")
            .output()
            .expect("the binary starts");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The row of `nodes --json`.
    fn shown(&self, id: &str) -> Value {
        let nodes = self.operator(&["nodes"]);
        let rows = nodes["nodes"].as_array().expect("nodes").iter();
        rows.clone().find(|node| node["id"] == id).cloned().unwrap_or(Value::Null)
    }

    /// A request of a new player at one of the proxies.
    async fn ask(&mut self, proxy: usize, server: Option<&str>) -> Value {
        self.asked += 1;
        let id = format!("r{}", self.asked);
        let player = format!("player-{}", self.asked);
        let proxy = &mut self.proxies[proxy];
        proxy.send(&json!({ "op": "dispatch", "id": id, "player": player, "server": server }));
        proxy.wait_for(|line| line["id"] == id.as_str(), LIMIT).await
    }

    /// Waits until a named request at each proxy has this end.
    async fn named(&mut self, server: &str, ends: &str) {
        for proxy in [0, 1] {
            eventually(&format!("{server} ends with {ends}"), LIMIT, async || {
                let answer = self.ask(proxy, Some(server)).await;
                let done = answer["outcome"] == ends || answer["reason"] == ends;
                // What a proxy does not know yet of a drain, the backend or its row tells it.
                assert!(done || ends != "draining", "{answer}");
                done
            })
            .await;
        }
    }

    /// Bare requests at both proxies all end at `server`.
    async fn all_go_to(&mut self, server: &str) {
        for n in 0..6 {
            let answer = self.ask(n % 2, None).await;
            assert_eq!((&answer["outcome"], &answer["server"]), (&json!("transfer"), &json!(server)), "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nod_13_a_drain_and_a_kill_outlive_the_operators_terminal_the_node_and_the_store() {
    let mut fleet = Fleet::new().await;
    fleet.named("b1", "transfer").await;
    fleet.named("b2", "transfer").await;
    let before = fleet.ask(0, Some("b1")).await;
    assert_eq!(before["outcome"], "transfer", "{before}");

    let said = fleet.operator(&["drain", "b1", "--by", "olga"]);
    assert_eq!((&said["node"], &said["draining"], &said["by"]), (&json!("b1"), &json!(true), &json!("olga")));
    let heard = fleet.backends[0].wait_for(|line| line["event"] == "draining", LIMIT).await;
    assert_eq!(heard, json!({ "event": "draining", "by": "olga", "at": said["at"] }));
    // Both proxies say why; nobody new comes, and who has a place lands.
    fleet.named("b1", "draining").await;
    let answer = fleet.ask(1, Some("b1")).await;
    assert_eq!(answer["message"], "That server is being emptied. Please choose another one.");
    assert!(answer["detail"].as_str().is_some_and(|text| text.contains("olga")), "{answer}");
    fleet.all_go_to("b2").await;
    fleet.backends[0].send(&json!({ "op": "redeem", "id": "j1", "player": before["player"] }));
    let landed = fleet.backends[0].wait_for(|line| line["id"] == "j1", LIMIT).await;
    assert_eq!(landed["outcome"], "landed", "it keeps those who were promised a place: {landed}");
    eventually("its row says that it heard", LIMIT, async || fleet.shown("b1")["drain_heard"] == true).await;
    let row = fleet.shown("b1");
    assert_eq!((&row["draining"], &row["accepting"]), (&json!(true), &json!(false)), "{row}");
    assert_eq!(row["drain"], json!({ "by": "olga", "at": said["at"] }));
    assert_eq!(row["labels"]["draining"], "olga");

    // Restarts of the node: one that says goodbye, one that does not.
    assert!(fleet.backends[0].sigterm().success());
    fleet.backends[0] = fleet.node("b1", "backend").await;
    fleet.backends[0].wait_for(|line| line["event"] == "draining", LIMIT).await;
    fleet.backends[0].sigkill();
    fleet.backends[0] = fleet.node("b1", "backend").await;
    let heard = fleet.backends[0].wait_for(|line| line["event"] == "draining", LIMIT).await;
    assert_eq!(heard["by"], "olga");
    fleet.all_go_to("b2").await;

    // The other one is killed, and the store dies with what it has on its disk; a proxy comes back as a new process.
    fleet.operator(&["kill", "on", "--node", "b2"]);
    fleet.backends[1].wait_for(|line| line["event"] == "kill" && line["on"] == true, LIMIT).await;
    fleet.named("b2", "no_candidate").await;
    fleet.store.kill();
    fleet.store.restart_with_data();
    fleet.proxies[1].sigkill();
    fleet.proxies[1] = fleet.node("p2", "proxy").await;
    let drains = fleet.operator(&["drain", "--status"]);
    assert_eq!((&drains["drains"][0]["node"], &drains["drains"][0]["by"]), (&json!("b1"), &json!("olga")), "{drains}");
    eventually("both are back", LIMIT, async || ["b1", "b2"].iter().all(|id| fleet.shown(id)["liveness"] == "online"))
        .await;
    eventually("the new proxy sees them", LIMIT, async || {
        let answer = fleet.ask(1, None).await;
        answer["detail"].as_str().is_some_and(|text| text.contains("b1: Draining") && text.contains("b2: Killed"))
    })
    .await;
    let answer = fleet.ask(0, None).await;
    assert_eq!(answer["reason"], "no_candidate", "one is drained, one is killed: {answer}");

    fleet.operator(&["undrain", "b1", "--by", "olga"]);
    fleet.backends[0].wait_for(|line| line["event"] == "undrained", LIMIT).await;
    fleet.named("b1", "transfer").await;
    fleet.all_go_to("b1").await;
    assert_eq!(fleet.operator(&["drain", "--status"])["drains"], json!([]));
    fleet.operator(&["kill", "off", "--node", "b2"]);
    fleet.named("b2", "transfer").await;
    assert_eq!(fleet.shown("b1")["drain"], Value::Null);

    // NOD-12: of the two that the config expects, one is there and one never was.
    let nodes = fleet.operator(&["nodes"]);
    let waiting = json!([{ "id": "b9", "role": "backend", "addr": "b9.example:1", "liveness": "connecting" }]);
    assert_eq!(nodes["peers"], waiting);
    let answer = fleet.ask(0, Some("b9")).await;
    assert_eq!(answer["reason"], "no_candidate", "nobody is sent to a node that is not there: {answer}");
    let b1 = fleet.backends[0].sigterm();
    assert!(b1.success());
    let peers = fleet.operator(&["nodes"])["peers"].clone();
    assert_eq!((&peers[0]["id"], &peers[0]["liveness"]), (&json!("b1"), &json!("offline")), "it was there: {peers}");
}
