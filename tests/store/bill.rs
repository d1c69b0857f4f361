//! What one player costs the store, command by command, counted on the wire of each process. Beats, sweeps, refreshes,
//! clock reads and first contacts are left out: the agents here are told to be quiet, and one player goes first. If this
//! fails, every player of a fleet pays for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, bill, config, id, key, keyring, lands, player, proxy, quiet, reads, region, sees, transfer, zone,
};
use futures_util::future::join_all;
use maitred::agent::{BackendAgent, ProxyAgent};
use maitred::envelope::Kind;
use maitred::ids::Zone;
use maitred::store::{Keys, scripts};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

async fn through(p1: &ProxyAgent, b1: &BackendAgent<Stock>, name: &str) {
    let moved = transfer(p1, name).await;
    assert_eq!(moved.server, *b1.agent().lease().id());
    lands(b1, name).await;
}

fn want(commands: &[(&str, u64)]) -> BTreeMap<String, u64> {
    commands.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// The bill of `players` players at the proxy and at the backend.
fn bills(players: u64) -> [BTreeMap<String, u64>; 2] {
    let keys = Keys::new(Zone::new("eu").expect("a zone"));
    let publish = |node: &str| format!("PUBLISH {}", keys.inbox(&id(node)));
    let evalsha = |script: &maitred::store::Script| format!("EVALSHA {}", script.pinned());
    let at_proxy = want(&[
        ("PUBLISH", players),
        (&publish("b1"), players),
        ("EVALSHA", players),
        (&evalsha(&scripts::TOKEN_CLAIM), players),
    ]);
    let at_backend = want(&[
        ("PUBLISH", players),
        (&publish("p1"), players),
        ("EVALSHA", 2 * players),
        (&evalsha(&scripts::TOKEN_ISSUE), players),
        (&evalsha(&scripts::TOKEN_CONSUME), players),
    ]);
    [at_proxy, at_backend]
}

#[tokio::test]
async fn bill_of_one_player_is_two_publishes_an_issue_a_claim_and_a_consume() {
    let store = TestStore::start();
    let (at_proxy, at_backend) = (FaultProxy::start(&store), FaultProxy::start(&store));
    let stock = Stock::new(100, 100);
    let b1 = backend(quiet(config("b1", "backend", &at_backend.url())), &stock).await;
    let p1 = proxy(quiet(config("p1", "proxy", &at_proxy.url()))).await;
    sees(&p1, &[&b1]).await;
    through(&p1, &b1, "first").await;
    settled(&[&at_proxy, &at_backend]).await;

    through(&p1, &b1, "alice").await;
    assert_eq!([bill(&at_proxy), bill(&at_backend)], bills(1));

    // NOD-16: command completion asks the view, whose answer is no future.
    at_proxy.reset_counts();
    let snapshot = p1.agent().directory().snapshot();
    let nodes = BTreeSet::from([id("b1")]);
    assert_eq!(snapshot.regions(), BTreeMap::from([(region("main"), nodes.clone())]));
    assert_eq!(snapshot.services().values().next(), Some(&nodes));
    assert_eq!(bill(&at_proxy), BTreeMap::new());

    at_backend.reset_counts();
    let names: Vec<String> = (0..50).map(|n| format!("p{n}")).collect();
    join_all(names.iter().map(|name| through(&p1, &b1, name))).await;
    assert_eq!([bill(&at_proxy), bill(&at_backend)], bills(50));
    stock.all_home().await;
    assert_eq!(stock.used(), 52);
}

/// Waits until the join, the first read and the first contact are through, and counts from nothing.
async fn settled(wires: &[&FaultProxy]) {
    let mut last = Vec::new();
    eventually("the wires are quiet", LIMIT, async || {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let now: Vec<_> = wires.iter().map(|wire| bill(wire)).collect();
        std::mem::replace(&mut last, now) == last
    })
    .await;
    wires.iter().for_each(|wire| wire.reset_counts());
}

/// Rows of backends as their heartbeats would have written them, with fewer kept places than the real one.
async fn write_backends(store: &TestStore, count: usize) {
    let mut conn = store.conn().await;
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut conn).await.expect("TIME");
    let now = (seconds * 1_000).to_string();
    let keyring = keyring();
    assert_eq!(*keyring.zone(), zone());
    let mut pipeline = redis::pipe();
    pipeline.sadd(key("roles"), "backend").ignore();
    for n in 0..count {
        let name = format!("x{n:04}");
        let load = format!("{{\"regions\":{{\"main\":{}}}}}", n % 90);
        let fields = [
            &name,
            "backend",
            "h:1",
            &now,
            "run",
            "1",
            &now,
            "ready",
            "1",
            "0",
            "0",
            "0",
            &load,
            "[\"places\"]",
            "{}",
            "1",
        ];
        let sig = keyring.sign(Kind::Node, &fields);
        let row = key(&format!("node:{name}"));
        let mut values: Vec<(&str, &str)> = Kind::Node.fields().iter().copied().zip(fields).collect();
        values.extend([("beat_at", now.as_str()), ("lease_ms", "210000"), ("sig", sig.as_str())]);
        pipeline.hset_multiple(&row, &values).ignore().pexpire(&row, 210_000).ignore();
        pipeline.zadd(key("nodes:backend"), &name, &now).ignore();
    }
    let () = pipeline.query_async(&mut conn).await.expect("rows");
}

// STO-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sto_18_choosing_among_5000_backends_reads_no_row() {
    let store = TestStore::start();
    let (at_proxy, at_backend) = (FaultProxy::start(&store), FaultProxy::start(&store));
    write_backends(&store, 4_999).await;
    let stock = Stock::new(200, 100);
    let b1 = backend(quiet(config("b1", "backend", &at_backend.url())), &stock).await;
    let p1 = proxy(quiet(config("p1", "proxy", &at_proxy.url()))).await;
    sees(&p1, &[&b1]).await;
    eventually("the proxy has them all in view", LIMIT * 2, async || {
        p1.agent().directory().snapshot().regions().get(&region("main")).is_some_and(|nodes| nodes.len() == 5_000)
    })
    .await;
    through(&p1, &b1, "first").await;
    settled(&[&at_proxy, &at_backend]).await;

    let names: Vec<String> = (0..100).map(|n| format!("p{n}")).collect();
    join_all(names.iter().map(|name| through(&p1, &b1, name))).await;
    assert_eq!([reads(&at_proxy), reads(&at_backend)], [0, 0]);
    assert_eq!([bill(&at_proxy), bill(&at_backend)], bills(100));

    // Nobody listens behind the others: what is read before the refusal is the player's own token, which they may have
    // already, and no row of a backend.
    let named = maitred::agent::Request::new(player("nobody")).on_server(id("x0007"));
    assert!(matches!(p1.dispatch(named).await, maitred::agent::Outcome::Refused(_)));
    assert_eq!(reads(&at_proxy), 1);
}
