//! POL-4: agents in process, with requests running all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maitred::agent::{AgentStatus, BackendAgent, Outcome, ProxyAgent, Reason, Redeemed, Request};
use maitred::envelope::Kind;
use maitred::node::{Control, ControlEntry, KILL, kill_name};
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, id, key, keyring, operator, player, proxy, quiet, refused, sees, transfer,
};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const WORKERS: u64 = 6;
const PLACES: u64 = 20_000;

struct Fleet {
    store: TestStore,
    shelves: [Stock; 2],
    backends: [Arc<BackendAgent<Stock>>; 2],
    proxies: [Arc<ProxyAgent>; 2],
}

impl Fleet {
    async fn new() -> Self {
        let store = TestStore::start();
        let url = store.url();
        let shelves = [Stock::new(PLACES, PLACES), Stock::new(PLACES, PLACES)];
        let backends = [
            Arc::new(backend(config("b1", "backend", &url), &shelves[0]).await),
            Arc::new(backend(config("b2", "backend", &url), &shelves[1]).await),
        ];
        let proxies =
            [Arc::new(proxy(config("p1", "proxy", &url)).await), Arc::new(proxy(config("p2", "proxy", &url)).await)];
        for proxy in &proxies {
            sees(proxy, &[&backends[0], &backends[1]]).await;
        }
        Self { store, shelves, backends, proxies }
    }

    fn controls(&self) -> Vec<Control> {
        let agents = self.backends.iter().map(|b| b.agent()).chain(self.proxies.iter().map(|p| p.agent()));
        agents.map(|agent| agent.control().clone()).collect()
    }

    fn epochs(&self) -> Vec<maitred::ids::Epoch> {
        let agents = self.backends.iter().map(|b| b.agent()).chain(self.proxies.iter().map(|p| p.agent()));
        agents
            .map(|agent| match &*agent.status().borrow() {
                AgentStatus::Member { epoch } => *epoch,
                other => panic!("{} is no member: {other:?}", agent.lease().id()),
            })
            .collect()
    }
}

/// What the workers met so far.
#[derive(Default)]
struct Met {
    stop: AtomicBool,
    landed: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
    wrong: Mutex<Vec<String>>,
}

impl Met {
    fn refusals(&self, reason: &str) -> u64 {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get(reason).copied().unwrap_or(0)
    }

    fn fail(&self, what: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

/// Players that come all the time: dispatched, on their way for a moment, landed.
fn load(fleet: &Fleet, met: &Arc<Met>) -> Vec<JoinHandle<()>> {
    (0..WORKERS)
        .map(|worker| {
            let (backends, proxies, met) = (fleet.backends.clone(), fleet.proxies.clone(), Arc::clone(met));
            tokio::spawn(async move {
                for n in 0_u64.. {
                    if met.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("w{worker}-{n}");
                    let proxy = &proxies[usize::try_from((worker + n) % 2).expect("small")];
                    match proxy.dispatch(Request::new(player(&name))).await {
                        Outcome::Transfer(transfer) => {
                            tokio::time::sleep(Duration::from_millis(3 * (n % 4))).await;
                            let there = backends.iter().find(|b| *b.agent().lease().id() == transfer.server);
                            match there.expect("a backend of the fleet").redeem(&player(&name)).await {
                                Ok(Redeemed::Landed { place, .. }) => {
                                    there.expect("the same").inventory().hand_over(place);
                                    met.landed.fetch_add(1, Ordering::Relaxed);
                                }
                                other => met.fail(format!("{name} was under way and did not land: {other:?}")),
                            }
                        }
                        other @ (Outcome::Balanced(_) | Outcome::Waiting(_)) => met.fail(format!("{name}: {other:?}")),
                        Outcome::Refused(refusal) => {
                            *met.refused
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .entry(refusal.reason.as_str())
                                .or_default() += 1;
                            if refusal.reason != Reason::KillSwitch {
                                met.fail(format!("{name}: {refusal:?}"));
                            }
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    }
                }
            })
        })
        .collect()
}

/// The ids of all tokens, and the operations of all claims, in one look; with `entry` the switch is written in the same
/// moment, and nobody is told.
async fn tokens(conn: &mut MultiplexedConnection, entry: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    const LOOK: &str = "
        if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'kill', ARGV[2]) end
        local ids, claims = {}, {}
        for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
          local row = redis.call('HMGET', key, 'id', 'claim_op')
          if row[1] then ids[#ids + 1] = row[1] end
          if row[2] then claims[#claims + 1] = row[2] end
        end
        return { ids, claims }";
    redis::cmd("EVAL")
        .arg(LOOK)
        .arg(1)
        .arg(key("control"))
        .arg(key("token:*").replace('{', "[{]").replace('}', "[}]"))
        .arg(entry)
        .query_async(conn)
        .await
        .expect("a look")
}

/// A genuine entry, as `Control::put` writes it.
fn entry(value: &str, version: u64) -> String {
    let version_text = version.to_string();
    let sig =
        keyring().sign(Kind::Control, &[KILL, value, &version_text, "ops", &version_text, "1"]).as_str().to_owned();
    let entry = ControlEntry { value: value.to_owned(), version, by: "ops".to_owned(), at: version, v: 1, sig };
    serde_json::to_string(&entry).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_4_nothing_is_issued_or_claimed_after_the_switch_is_written_and_all_goes_on_when_it_is_off() {
    let fleet = Fleet::new().await;
    let mut conn = fleet.store.conn().await;
    let (operator_store, verifier) = operator(&fleet.store).await;
    let (epochs, met) = (fleet.epochs(), Arc::new(Met::default()));
    let workers = load(&fleet, &met);
    eventually("players land", LIMIT, async || met.landed.load(Ordering::Relaxed) > 200).await;
    // They have their place and arrive only after the switch.
    let mut under_way = Vec::new();
    for n in 0..10 {
        under_way.push(transfer(&fleet.proxies[n % 2], &format!("late-{n}")).await);
    }
    assert_eq!(met.refusals("kill_switch"), 0);

    let version = operator_store.clock().now_ms();
    let (issued, claimed) = tokens(&mut conn, &entry("on", version)).await;
    assert!(issued.len() > 200 && claimed.len() > 200, "{} tokens, {} claims", issued.len(), claimed.len());
    eventually("requests are refused", LIMIT, async || met.refusals("kill_switch") > 100).await;
    for proxy in &fleet.proxies {
        let refusal = refused(proxy, Request::new(player("nobody"))).await;
        assert_eq!(refusal.reason, Reason::KillSwitch, "{refusal:?}");
    }
    let (later, later_claims) = tokens(&mut conn, "").await;
    let new: Vec<_> = later.difference(&issued).collect();
    assert!(new.is_empty(), "issued after the switch: {new:?}");
    let new: Vec<_> = later_claims.difference(&claimed).collect();
    assert!(new.is_empty(), "claimed after the switch: {new:?}");
    // With the next heartbeat everybody knows, although nobody was told.
    eventually("everybody obeys", LIMIT, async || fleet.controls().iter().all(|control| control.is_on(KILL))).await;
    for transfer in &under_way {
        let there = fleet.backends.iter().find(|b| *b.agent().lease().id() == transfer.server).expect("a backend");
        match there.redeem(&transfer.player).await {
            Ok(Redeemed::Landed { place, .. }) => there.inventory().hand_over(place),
            other => panic!("{} was under way and did not land: {other:?}", transfer.player),
        }
    }
    assert_eq!(fleet.epochs(), epochs, "everybody stays up");

    let landed = met.landed.load(Ordering::Relaxed);
    Control::default().put(&operator_store, &verifier, KILL, "off", "ops").await.expect("the switch is off");
    eventually("players land again", LIMIT, async || met.landed.load(Ordering::Relaxed) > landed + 100).await;
    for proxy in &fleet.proxies {
        transfer(proxy, &format!("again-{}", proxy.agent().lease().id())).await;
    }
    met.stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("a worker");
    }
    assert_eq!(fleet.epochs(), epochs, "everybody stayed up");
    let wrong = met.wrong.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(wrong.is_empty(), "{} of them: {:?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    fleet.shelves.iter().for_each(Stock::check);
    assert_eq!(
        fleet.shelves.iter().map(Stock::used).sum::<u64>(),
        met.landed.load(Ordering::Relaxed) + 10,
        "each lander has one place"
    );
    for agent in fleet.backends.iter().map(|b| b.agent()).chain(fleet.proxies.iter().map(|p| p.agent())) {
        assert_eq!(
            agent.verifier().audit().total(),
            0,
            "{}: {:?}",
            agent.lease().id(),
            agent.verifier().audit().counts()
        );
    }
}

// What a node's row says of the switch is as old as its last beat. If this fails, players are told that no server has room
// while the fleet is stopped, and for a heartbeat after it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_4_the_entries_decide_and_not_what_a_node_said_with_its_last_beat() {
    let store = TestStore::start();
    let stock = Stock::new(9, 9);
    let b1 = backend(quiet(config("b1", "backend", &store.url())), &stock).await;
    let p1 = proxy(quiet(config("p1", "proxy", &store.url()))).await;
    sees(&p1, &[&b1]).await;
    let mut conn = store.conn().await;
    let version = b1.agent().store().clock().now_ms();
    // Written by hand, so that nobody is told; no beat comes by itself.
    tokens(&mut conn, &entry("on", version)).await;
    b1.agent().control().refresh(b1.agent().store(), b1.agent().verifier()).await.expect("read");
    b1.agent().beat_now();
    eventually("the row says so", LIMIT, async || {
        p1.agent().directory().view_of(&id("b1")).is_some_and(|view| view.record.kill)
    })
    .await;
    assert!(!p1.agent().control().is_on(KILL), "the proxy has not heard of it");
    let refusal = refused(&p1, Request::new(player("alice"))).await;
    assert_eq!(refusal.reason, Reason::KillSwitch, "{refusal:?}");

    tokens(&mut conn, &entry("off", version + 1)).await;
    p1.agent().control().refresh(p1.agent().store(), p1.agent().verifier()).await.expect("read");
    assert!(b1.agent().control().is_on(KILL), "the backend has not heard of the end");
    assert!(p1.agent().directory().view_of(&id("b1")).is_some_and(|view| view.record.kill), "nor does its row say so");
    assert_eq!(transfer(&p1, "alice").await.server, id("b1"));
}

// A switch of one node concerns that node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_4_a_switch_of_one_node_stops_that_node_only() {
    let fleet = Fleet::new().await;
    let (store, verifier) = operator(&fleet.store).await;
    let control = Control::default();
    let put = async |name: &str, value: &str| {
        control.put(&store, &verifier, name, value, "ops").await.expect("written");
        eventually("everybody heard it", LIMIT, async || {
            fleet.controls().iter().all(|control| control.is_on(name) == (value == "on"))
        })
        .await;
    };
    let b1 = kill_name(&id("b1"));
    put(&b1, "on").await;
    let asked = fleet.shelves[0].asked().len();
    for n in 0..20 {
        assert_eq!(transfer(&fleet.proxies[n % 2], &format!("one-{n}")).await.server, id("b2"));
    }
    assert_eq!(fleet.shelves[0].asked().len(), asked, "b1 is not even asked");
    put(&b1, "off").await;
    let mut n = 0;
    eventually("b1 is picked again", LIMIT, async || {
        n += 1;
        transfer(&fleet.proxies[0], &format!("two-{n}")).await.server == id("b1")
    })
    .await;

    put(&kill_name(&id("p1")), "on").await;
    let refusal = refused(&fleet.proxies[0], Request::new(player("three"))).await;
    assert_eq!(refusal.reason, Reason::KillSwitch, "{refusal:?}");
    transfer(&fleet.proxies[1], "three").await;
    put(&kill_name(&id("p1")), "off").await;
    transfer(&fleet.proxies[0], "four").await;
}
