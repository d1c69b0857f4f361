//! The store goes away and comes back, empty or with its data, under a whole fleet of processes.

use std::time::{Duration, Instant};

use maitred::node::{Control, KILL};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Fleet, LIMIT, SECRET, ask, hash, key, lands, moved, released, status};
use maitred_testkit::fleet::Node;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// The default.
const BEAT: Duration = Duration::from_secs(1);
/// Two beats are the promise; the rest is for a busy machine.
const SLACK: Duration = Duration::from_millis(2_500);
const IDS: [&str; 4] = ["b1", "b2", "p1", "p2"];

struct Crew {
    fleet: Fleet,
    b1: Node,
    b2: Node,
    p1: Node,
    p2: Node,
    epochs: Vec<Value>,
}

impl Crew {
    async fn new(store: TestStore) -> Self {
        // No claim gets so old in these tests that it may be opened again while its proxy has no lease.
        let fleet = Fleet::on(store, "tokens: { ttlMs: 120000, claimReanimateMs: 60000 }");
        let (b1, b2) = (fleet.backend("b1").await, fleet.backend("b2").await);
        let (p1, p2) = (fleet.node("p1", "proxy").await, fleet.node("p2", "proxy").await);
        let mut crew = Self { fleet, b1, b2, p1, p2, epochs: Vec::new() };
        for proxy in [&mut crew.p1, &mut crew.p2] {
            eventually("everybody is seen", LIMIT, async || {
                let now = status(proxy).await;
                now["online"] == 4 && now["stale"] == false
            })
            .await;
        }
        let mut epochs = Vec::new();
        for node in crew.all() {
            epochs.push(status(node).await["epoch"].clone());
        }
        Self { epochs, ..crew }
    }

    fn all(&mut self) -> [&mut Node; 4] {
        [&mut self.b1, &mut self.b2, &mut self.p1, &mut self.p2]
    }

    /// NOD-8: while nobody can say who is there, everybody is taken to be as last heard of.
    async fn views_are_stale_and_whole(&mut self) {
        for proxy in [&mut self.p1, &mut self.p2] {
            eventually("the view is stale", LIMIT, async || status(proxy).await["stale"] == true).await;
            let now = status(proxy).await;
            assert_eq!(now["online"], 4, "an outage of the store empties the view: {now}");
        }
    }

    /// The store is back since `back`. Hands back how long it took until the last node was on its roster.
    async fn back_on_the_roster(&mut self, back: Instant) -> Duration {
        let mut conn = self.fleet.store.conn().await;
        eventually("everybody is on the roster", LIMIT, async || {
            let backends: u64 = conn.zcard(key("nodes:backend")).await.expect("ZCARD");
            let proxies: u64 = conn.zcard(key("nodes:proxy")).await.expect("ZCARD");
            backends == 2 && proxies == 2 && all_alive(&mut conn).await
        })
        .await;
        back.elapsed()
    }

    /// Everybody hears everything again, before anybody has sent anything.
    async fn hears_again(&mut self) {
        let mut conn = self.fleet.store.conn().await;
        eventually("everybody listens again", LIMIT, async || {
            let mut heard = true;
            for (channel, listeners) in [("events:control", 4), ("events:token", 4), ("events:node", 2)] {
                heard = heard && listening(&mut conn, channel).await == listeners;
            }
            for id in IDS {
                heard = heard && listening(&mut conn, &format!("inbox:{id}")).await == 1;
            }
            heard
        })
        .await;
    }

    async fn everything_goes_on(&mut self, outage: &str) {
        for player in ["new-1", "new-2"] {
            let transfer = moved(&mut self.p1, player, "b1").await;
            lands(&mut self.b1, &transfer).await;
            let transfer = moved(&mut self.p2, &format!("{player}-too"), "b2").await;
            lands(&mut self.b2, &transfer).await;
        }
        // An event of the token channel: the place is home at once and not at the next sweep's mercy.
        let given_up = moved(&mut self.p1, "gone", "b2").await;
        assert_eq!(released(&mut self.p1, &given_up).await, "released");
        let token = given_up["token"].clone();
        self.b2.wait_for(|line| line["event"] == "place_returned" && line["token"] == token, LIMIT).await;
        let tool = self.fleet.operator().await;
        Control::default().put(&tool.0, &tool.1, KILL, "on", "test").await.expect("the switch is written");
        for (id, node) in IDS.iter().zip(self.all()) {
            node.wait_for(|line| line["event"] == "kill" && line["on"] == true, LIMIT).await;
            assert!(node.is_running(), "{id} has ended");
            assert!(!node.stderr().contains("panicked"), "{id} after {outage}: {}", node.stderr());
        }
    }
}

impl Fleet {
    async fn operator(&self) -> (maitred::store::Store, maitred::store::Verifier) {
        use maitred::envelope::{Keyring, Secret};
        use maitred::ids::Zone;
        use maitred::store::{Store, StoreOptions, StoreUrl, Verifier};
        let zone = Zone::new("eu").expect("a zone");
        let url = StoreUrl::parse(&self.store.url()).expect("a URL");
        let secret = Secret::from_base64("TEST", SECRET).expect("a secret");
        let store = Store::open(zone.clone(), StoreOptions::new(url)).await.expect("the store");
        (store, Verifier::new(Keyring::new(zone, secret, Vec::new())))
    }
}

async fn listening(conn: &mut MultiplexedConnection, channel: &str) -> u64 {
    let (_, listeners): (String, u64) =
        redis::cmd("PUBSUB").arg("NUMSUB").arg(key(channel)).query_async(conn).await.expect("PUBSUB");
    listeners
}

/// Rows, and not only entries that a store with its data brought back.
async fn all_alive(conn: &mut MultiplexedConnection) -> bool {
    let keys: Vec<String> = IDS.iter().map(|id| key(&format!("node:{id}"))).collect();
    let there: usize = conn.exists(keys).await.expect("EXISTS");
    there == IDS.len()
}

// NOD-8, NOD-15, STO-13. If this fails, whoever loses the store's data loses the fleet too, until
// somebody restarts every server of it.
#[tokio::test]
async fn nod_15_a_store_that_is_away_for_25_seconds_and_comes_back_empty_gets_its_whole_fleet_back() {
    let mut crew = Crew::new(TestStore::start()).await;
    moved(&mut crew.p1, "alice", "b1").await;
    crew.fleet.store.stop();
    let down = Instant::now();
    crew.views_are_stale_and_whole().await;
    // What is asked meanwhile ends, and says why.
    let refused = ask(&mut crew.p2, json!({ "op": "dispatch", "player": "bob" })).await;
    assert_eq!(refused["outcome"], "refused", "{refused}");
    sleep(Duration::from_secs(25).saturating_sub(down.elapsed())).await;
    crew.views_are_stale_and_whole().await;

    crew.fleet.store.restart_empty();
    let took = crew.back_on_the_roster(Instant::now()).await;
    eprintln!("empty after 25 s: all on the roster {took:?} after the store answered");
    assert!(took < BEAT * 2 + SLACK, "two heartbeats, not {took:?}");
    crew.hears_again().await;
    let epochs = crew.epochs.clone();
    for (node, before) in crew.all().into_iter().zip(&epochs) {
        let now = status(node).await;
        assert!(now["epoch"].as_u64() > before.as_u64(), "NOD-15: a new epoch after a wipe: {now}");
    }
    // The promise went with the store, and its place came home.
    let joins = ask(&mut crew.b1, json!({ "op": "redeem", "player": "alice" })).await;
    assert_eq!(joins["outcome"], "none", "{joins}");
    eventually("the place is home", LIMIT, async || status(&mut crew.b1).await["free"] == 50).await;
    crew.everything_goes_on("a wiped store").await;
}

// NOD-8, NOD-15, R-8: a restart of the store, as every operator does it now and then.
#[tokio::test]
async fn nod_15_a_store_that_is_away_for_4_seconds_and_keeps_its_data_voids_no_token() {
    let store = TestStore::with_args(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut crew = Crew::new(store).await;
    let (alice, bob) = (moved(&mut crew.p1, "alice", "b1").await, moved(&mut crew.p2, "bob", "b2").await);
    crew.fleet.store.stop();
    let down = Instant::now();
    crew.views_are_stale_and_whole().await;
    sleep(Duration::from_secs(4).saturating_sub(down.elapsed())).await;
    crew.views_are_stale_and_whole().await;

    crew.fleet.store.restart_with_data();
    let took = crew.back_on_the_roster(Instant::now()).await;
    eprintln!("with its data after 4 s: all on the roster {took:?} after the store answered");
    assert!(took < BEAT * 2 + SLACK, "two heartbeats, not {took:?}");
    crew.hears_again().await;
    let epochs = crew.epochs.clone();
    for (node, before) in crew.all().into_iter().zip(&epochs) {
        assert_eq!(status(node).await["epoch"], *before, "NOD-15: the store still has it as the last one given");
    }
    let mut conn = crew.fleet.store.conn().await;
    for player in ["alice", "bob"] {
        assert_eq!(hash(&mut conn, &format!("token:{player}")).await["state"], "CLAIMED");
    }
    lands(&mut crew.b1, &alice).await;
    lands(&mut crew.b2, &bob).await;
    crew.everything_goes_on("a restarted store").await;
}
