//! CLI-3: `maitred node` as real processes, steered by JSON lines. If one of these fails, an application in another
//! language loses its players, or hangs on a line that is never answered.

mod clients;
mod life;
mod lines;
mod queue;
mod reload;

use std::path::PathBuf;
use std::time::Duration;

use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);
const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A store, and a config with a lease of 1.75 s.
struct Fleet {
    store: TestStore,
    dir: TempDir,
}

impl Fleet {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let times = "heartbeat: { intervalMs: 500 }\ndirectory: { suspectMs: 1300, offlineMs: 1750 }\n\
                     dispatch: { cooldownMs: 0 }\n";
        std::fs::write(dir.path().join("network.yml"), times).expect("a config");
        Self { store: TestStore::start(), dir }
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("network.yml")
    }

    fn options(&self, id: &str, role: &str) -> NodeOptions {
        let mut options = NodeOptions::new(id, role, &self.store.url(), "eu").env("MAITRED_SECRET", SECRET);
        options.addr = format!("{id}.example:25565");
        options.config = Some(self.config());
        options
    }

    /// Starts a node that listens on TCP too, and waits for its first line.
    async fn node(&self, id: &str, role: &str) -> (Node, Value) {
        let mut options = self.options(id, role);
        options.args = ["--listen", "127.0.0.1:0"].map(str::to_owned).to_vec();
        let mut node = Node::spawn(&options);
        let ready = node.next_line(LIMIT).await;
        assert_eq!((&ready["event"], &ready["id"]), (&json!("ready"), &json!(id)), "the first line: {ready}");
        assert!(ready["epoch"].as_u64().is_some_and(|epoch| epoch > 1_600_000_000_000), "{ready}");
        (node, ready)
    }
}

/// Sends a line and waits for its answer.
async fn ask(node: &mut Node, line: Value) -> Value {
    node.send(&line);
    node.wait_for(|answer| answer["id"] == line["id"] && answer.get("outcome").is_some(), LIMIT).await
}

/// Waits until the proxy has the backend and its places in view.
async fn sees(proxy: &mut Node, player: &str) -> Value {
    let mut n = 0;
    eventually("the proxy finds a place", LIMIT, async || {
        n += 1;
        let answer = ask(proxy, json!({"op": "dispatch", "id": format!("{player}-{n}"), "player": player})).await;
        (answer["outcome"] == "transfer").then_some(answer)
    })
    .await
}
