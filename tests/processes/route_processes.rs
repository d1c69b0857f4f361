//! Objects that move among real processes, which are killed and stopped meanwhile. If this fails a change that a player was
//! told of is gone, or was made twice.
//!
//! The processes are this test binary again, as [`member_process`].

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use maitred::Error;
use maitred::ids::NodeId;
use maitred::node::LivenessLimits;
use maitred::route::{Ack, KindOptions, RouteTimes};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt;

use crate::fixtures::member::{Member, Options, PATIENCE, id};
use crate::fixtures::routes::{Client, Count, Counter, Host, Increment, object};
use maitred_testkit::fleet::Node;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const SENDERS: usize = 8;
/// Calls of one sender under way at once.
const LANES: usize = 2;
const INCREMENTS: usize = 1_250;
const MOVES: usize = 50;
const CALL: Duration = Duration::from_secs(10);
/// A busy machine may keep a process from its beats for a while.
const LEASE_MS: u64 = 5_000;
/// Longest time for all moves, the kill among them; a busy machine does not reach it.
const MOVES_TAKE: Duration = Duration::from_secs(240);
const LIMITS: LivenessLimits = LivenessLimits { suspect_ms: 4_000, offline_ms: 5_000, removed_ms: 60_000 };
const KEY: &str = "counter:moving";

/// A dozen members that look around all the time would take a good part of two cores.
fn options() -> Options {
    let (beat_every, look_every) = (Duration::from_millis(500), Duration::from_millis(250));
    Options { lease_ms: LEASE_MS, limits: LIMITS, beat_every, look_every, ..Options::default() }
}

/// One process that hosts the counter and does what it is told, a line an order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is what the other tests start as a process"]
async fn member_process() {
    let (Ok(name), Ok(url)) = (std::env::var("ROUTE_MEMBER"), std::env::var("ROUTE_STORE")) else { return };
    let ack = if std::env::var_os("ROUTE_MEMORY").is_some() { Ack::Memory } else { Ack::Saved };
    let member = Member::join_with(&url, &name, options()).await;
    let counter = Counter::new(KindOptions { ack, ..KindOptions::default() });
    let mut host = Host::join_as(member, counter, RouteTimes::default()).await;
    say(&json!({ "event": "ready" }));
    let key = object(KEY);
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let order: Value = serde_json::from_str(&line).unwrap();
        let done = |outcome: maitred::Result<()>| match outcome {
            Ok(()) => json!({ "done": true }),
            Err(Error::NotOwner { owner, .. }) => json!({ "done": false, "owner": owner }),
            Err(error) => json!({ "done": false, "error": error.to_string() }),
        };
        let mut answer = match order["op"].as_str().unwrap() {
            "take" => done(host.keeper.acquire(&key).await.map(|_| ())),
            "save" => done(host.keeper.save(&key).await),
            "move" => {
                let target = NodeId::new(order["target"].as_str().unwrap()).unwrap();
                done(host.keeper.transfer(&key, &target, true).await.map(|_| ()))
            }
            "rejoin" => {
                host.member.join_again().await;
                done(Ok(()))
            }
            "look" => json!({
                "held": host.keeper.held_back(),
                "hops": host.counter.most_hops.load(Ordering::SeqCst),
                "told": host.counter.told(),
                "objects": host.keeper.len(),
            }),
            other => panic!("{other}"),
        };
        answer["id"] = order["id"].clone();
        say(&answer);
    }
}

fn say(value: &Value) {
    let mut out = std::io::stdout().lock();
    // The test harness may have begun a line of its own.
    let _ = writeln!(out, "\n{value}").and_then(|()| out.flush());
}

struct Process {
    node: Node,
    name: String,
    orders: usize,
}

impl Process {
    async fn start(url: &str, name: &str, memory: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["route_processes::member_process", "--exact", "--ignored", "--nocapture", "--test-threads", "1"]);
        command.env("ROUTE_MEMBER", name).env("ROUTE_STORE", url);
        if memory {
            command.env("ROUTE_MEMORY", "1");
        }
        let mut node = Node::from_command(name, command);
        node.wait_for(|line| line["event"] == "ready", PATIENCE).await;
        Self { node, name: name.to_owned(), orders: 0 }
    }

    async fn ask(&mut self, mut order: Value) -> Value {
        self.orders += 1;
        order["id"] = self.orders.into();
        self.node.send(&order);
        let id = self.orders;
        self.node.wait_for(move |line| line["id"] == id, Duration::from_secs(40)).await
    }
}

/// How the calls of one sender ended: which were acknowledged, by the lane and its number.
struct Sent {
    acknowledged: Vec<(String, usize)>,
    refused: usize,
}

async fn send_all(client: Arc<Client>, done: Arc<AtomicUsize>) -> Sent {
    let lanes = (0..LANES).map(|lane| {
        let (client, done) = (Arc::clone(&client), Arc::clone(&done));
        let sender = format!("{}.{lane}", client.member.id);
        tokio::spawn(async move {
            let key = object(KEY);
            let (mut acknowledged, mut refused) = (Vec::new(), 0);
            for number in 0..INCREMENTS / LANES {
                let increment = Increment { sender: sender.clone(), number };
                let call = client.router.call(&key, "inc", &increment, CALL);
                let ended = tokio::time::timeout(CALL * 2, call).await;
                match ended.expect("RTE-10: a call ends inside its timeout") {
                    Ok(_) => acknowledged.push((sender.clone(), number)),
                    Err(
                        Error::Routed { .. }
                        | Error::Timeout { .. }
                        | Error::NodeOffline(_)
                        | Error::ServiceNotFound { .. }
                        | Error::Busy { .. }
                        | Error::LeaseLost { .. }
                        | Error::Unreachable { .. },
                    ) => {
                        refused += 1;
                        // An owner that was killed is replaced when its lease is over; no need to use up all calls by then.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    Err(other) => panic!("{other:?}"),
                }
                done.fetch_add(1, Ordering::SeqCst);
            }
            (acknowledged, refused)
        })
    });
    let mut sent = Sent { acknowledged: Vec::new(), refused: 0 };
    for lane in futures_util::future::join_all(lanes).await {
        let (acknowledged, refused) = lane.unwrap();
        sent.acknowledged.extend(acknowledged);
        sent.refused += refused;
    }
    sent
}

// RTE-8, RTE-9, RTE-10, R-19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_ten_thousand_increments_survive_50_moves_and_a_kill() {
    let server = TestStore::start();
    let url = server.url();
    let mut processes = Vec::new();
    for name in ["b1", "b2", "b3", "b4"] {
        processes.push(Process::start(&url, name, false).await);
    }
    let mut clients = Vec::new();
    for n in 0..SENDERS {
        let patient = Options { lease_ms: 90_000, ..options() };
        clients.push(Arc::new(Client::join_with(&url, &format!("s{n}"), patient).await));
    }
    for client in &clients {
        eventually("a sender sees all hosts", PATIENCE, async || {
            let view = client.member.directory.snapshot();
            let hosts = view.nodes.iter().filter(|view| view.record.offers("object.counter"));
            hosts.count() == 4
        })
        .await;
    }
    let key = object(KEY);
    processes[0].ask(json!({ "op": "take" })).await;
    let done = Arc::new(AtomicUsize::new(0));
    let sending: Vec<_> =
        clients.iter().map(|client| tokio::spawn(send_all(Arc::clone(client), Arc::clone(&done)))).collect();

    let book = clients[0].router.book();
    let (mut moved, mut hops) = (0, 0);
    let until = Instant::now() + MOVES_TAKE;
    while moved < MOVES {
        assert!(Instant::now() < until, "after {moved} moves it goes on no more");
        // The moves are spread over the whole of the increments.
        let due = moved * SENDERS * INCREMENTS / MOVES;
        eventually("increments go on", Duration::from_secs(120), async || done.load(Ordering::SeqCst) >= due).await;
        let owner = book.read(&key).await.unwrap().and_then(|route| route.owner).map(|owner| owner.id.to_string());
        let Some(at) = processes.iter().position(|process| owner.as_deref() == Some(&*process.name)) else {
            // The owner was killed; a message makes another take over.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if moved == MOVES / 2 && processes.len() == 4 {
            let mut killed = processes.remove(at);
            killed.node.sigkill();
            continue;
        }
        let target = processes[(at + 1) % processes.len()].name.clone();
        let answer = processes[at].ask(json!({ "op": "move", "target": target })).await;
        moved += usize::from(answer["done"] == true);
    }
    let mut sent = Vec::new();
    for sender in sending {
        sent.push(sender.await.unwrap());
    }

    for process in &mut processes {
        let look = process.ask(json!({ "op": "look" })).await;
        assert_eq!(look["held"], 0, "{} holds messages back: {look}", process.name);
        hops = hops.max(look["hops"].as_u64().unwrap());
    }
    assert!(hops <= 16, "{hops} hops");
    let stored = book.load(&key).await.unwrap().expect("saved");
    let count: Count = serde_json::from_str(&stored.data).unwrap();
    assert_eq!(count.twice, 0, "an increment was made twice");
    let (mut acknowledged, mut refused) = (0, 0);
    for sent in &sent {
        for (sender, number) in &sent.acknowledged {
            assert!(count.has(sender, *number), "{sender} {number} was acknowledged and is lost");
        }
        acknowledged += sent.acknowledged.len();
        refused += sent.refused;
    }
    eprintln!("{acknowledged} acknowledged, {refused} refused, {} made, {hops} hops at most", count.value);
    assert_eq!(acknowledged + refused, SENDERS * INCREMENTS);
    assert_eq!(u64::try_from(count.different()).unwrap(), count.value);
    assert!(acknowledged > SENDERS * INCREMENTS * 3 / 4, "too few were acknowledged to prove anything: {acknowledged}");
}

// RTE-3, R-18. A server that hung for a while must not write its old island over the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_3_an_owner_that_was_stopped_past_its_lease_writes_nothing() {
    let server = TestStore::start();
    let url = server.url();
    let (mut a, mut b) = (Process::start(&url, "a", true).await, Process::start(&url, "b", true).await);
    let client = Client::join(&url, "c").await;
    let key = object(KEY);
    assert_eq!(a.ask(json!({ "op": "take" })).await["done"], true);
    assert_eq!(client.inc(&key, 1).await.unwrap(), 1);
    a.node.sigstop();
    let mut tries = 0;
    loop {
        let answer = b.ask(json!({ "op": "take" })).await;
        if answer["done"] == true {
            break;
        }
        assert_eq!(answer["owner"], "a", "{answer}");
        tries += 1;
        assert!(tries < 2_000, "the lease of a stopped process does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.router.table().read(&key).await.unwrap();
    assert_eq!(client.inc(&key, 2).await.unwrap(), 1, "what was not saved is gone with its owner");
    assert_eq!(b.ask(json!({ "op": "save" })).await["done"], true);

    a.node.sigcont();
    let unheld = a.ask(json!({ "op": "save" })).await;
    assert_eq!(unheld["done"], false, "{unheld}");
    a.ask(json!({ "op": "rejoin" })).await;
    if unheld["owner"].is_null() {
        let refused = a.ask(json!({ "op": "save" })).await;
        assert_eq!((&refused["done"], &refused["owner"]), (&json!(false), &json!("b")), "{refused}");
    }
    let look = a.ask(json!({ "op": "look" })).await;
    let told = look["told"].as_array().unwrap();
    let lost = format!("removed {KEY} 1 Lost(Some({:?}))", id("b").as_str());
    assert!(told.contains(&json!(lost)) && look["objects"] == 0, "{look}");
    let stored = client.router.book().load(&key).await.unwrap().unwrap();
    let count: Count = serde_json::from_str(&stored.data).unwrap();
    assert!(count.has("c", 2) && !count.has("c", 1), "{count:?}");
    assert_eq!(client.inc(&key, 3).await.unwrap(), 2);
}
