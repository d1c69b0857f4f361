//! What happens to every fleet sooner or later, with real processes and real signals: a proxy is killed or freezes in
//! the middle of a move, a reply is lost at the start, a machine's clock is wrong, the store goes away and comes back
//! empty, half of the fleet runs another build. If one of these fails, that accident loses players, places or nodes.

// A patched binary does not run where programs are signed.
#[cfg(target_os = "linux")]
mod builds;
mod clocks;
mod frozen;
mod killed;
mod outages;

use std::collections::BTreeMap;
use std::time::Duration;

use maitred::store::Script;
use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait for what has to happen; a busy machine does not reach it.
const LIMIT: Duration = Duration::from_secs(20);
const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A store and the processes of its zone, which all have one config.
struct Fleet {
    store: TestStore,
    dir: TempDir,
}

impl Fleet {
    /// `network` is the config; what it does not name has its default.
    fn new(network: &str) -> Self {
        Self::on(TestStore::start(), network)
    }

    fn on(store: TestStore, network: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("network.yml"), network).expect("a config");
        Self { store, dir }
    }

    fn options(&self, id: &str, role: &str, url: &str) -> NodeOptions {
        let mut options = NodeOptions::new(id, role, url, "eu").env("MAITRED_SECRET", SECRET);
        options.addr = format!("{id}.example:25565");
        options.config = Some(self.dir.path().join("network.yml"));
        options
    }

    async fn node(&self, id: &str, role: &str) -> Node {
        ready(&self.options(id, role, &self.store.url())).await.0
    }

    /// A backend with 50 free places in a region of its own name.
    async fn backend(&self, id: &str) -> Node {
        with_places(self.node(id, "backend").await, id).await
    }
}

/// Starts a node and waits until it is a member. Hands back its first line too.
async fn ready(options: &NodeOptions) -> (Node, Value) {
    let mut node = Node::spawn(options);
    let first = node.next_line(LIMIT).await;
    assert_eq!(first["event"], "ready", "the first line: {first}");
    (node, first)
}

async fn with_places(mut backend: Node, region: &str) -> Node {
    let set = ask(&mut backend, json!({ "op": "places", "count": 50, "region": region })).await;
    assert_eq!(set["outcome"], "ok", "{set}");
    backend
}

/// Sends a line under a fresh id.
fn say(node: &Node, mut line: Value) -> String {
    let id = format!("l{:016x}", rand::random::<u64>());
    line["id"] = id.as_str().into();
    node.send(&line);
    id
}

/// Sends a line under a fresh id, and waits for its answer.
async fn ask(node: &mut Node, line: Value) -> Value {
    let id = say(node, line);
    answer(node, &id).await
}

async fn answer(node: &mut Node, id: &str) -> Value {
    node.wait_for(|line| line["id"] == id && line.get("outcome").is_some(), LIMIT).await
}

/// Asks for a place in `region` until there is one: a proxy that has just started has not seen everybody yet.
async fn moved(proxy: &mut Node, player: &str, region: &str) -> Value {
    eventually(&format!("{player} gets a place in {region}"), LIMIT, async || {
        let answer = ask(proxy, json!({ "op": "dispatch", "player": player, "region": region })).await;
        (answer["outcome"] == "transfer").then_some(answer)
    })
    .await
}

/// Gives up the place of a transfer; the answer's word.
async fn released(proxy: &mut Node, transfer: &Value) -> Value {
    let line = json!({ "op": "release", "player": transfer["player"], "request": transfer["id"] });
    ask(proxy, line).await["outcome"].clone()
}

/// The player of a transfer joins, and takes the reserved place.
async fn lands(backend: &mut Node, transfer: &Value) {
    let landed = ask(backend, json!({ "op": "redeem", "player": transfer["player"] })).await;
    assert_eq!((&landed["outcome"], &landed["token"]), (&json!("landed"), &transfer["token"]), "{landed}");
}

async fn status(node: &mut Node) -> Value {
    ask(node, json!({ "op": "status" })).await
}

fn key(rest: &str) -> String {
    format!("maitred:{{eu}}:{rest}")
}

/// The label under which a fault proxy counts the calls of a script.
fn calls_of(script: &Script) -> String {
    format!("EVALSHA {}", script.pinned())
}

type Hash = BTreeMap<String, String>;

async fn hash(conn: &mut MultiplexedConnection, rest: &str) -> Hash {
    redis::cmd("HGETALL").arg(key(rest)).query_async(conn).await.expect("HGETALL")
}

/// The player's row, and the store's time at that very moment in ms.
async fn at_once(conn: &mut MultiplexedConnection, player: &str) -> (u64, Hash) {
    let script = "local t = redis.call('TIME') return {t[1], t[2], redis.call('HGETALL', KEYS[1])}";
    let (seconds, micros, fields): (u64, u64, Vec<String>) = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg(key(&format!("token:{player}")))
        .query_async(conn)
        .await
        .expect("EVAL");
    let row = fields.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    (seconds * 1_000 + micros / 1_000, row)
}

fn number(row: &Hash, field: &str) -> u64 {
    row.get(field).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no number in {field}: {row:?}"))
}
