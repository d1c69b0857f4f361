//! Placement on a proxy's agent: nodes of the directory, drain and kill switch, a store that is away.

use std::time::Duration;

use maitred::agent::config::Config;
use maitred::agent::{BackendAgent, Outcome, ProxyAgent};
use maitred::ids::BackendName;
use maitred::node::{Control, KILL, NodeState, drain_name, kill_name};
use maitred::place::{Absence, AttemptEnd, Decision, Origin, Placed, ServerView, Unplaced, Why};
use tokio_util::sync::CancellationToken;

use super::{PATIENT, Plugin, ends, name};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{self as fleet, config, id, pending, player, proxy, sees, setup};
use crate::fixtures::listener::{Backend, Closed};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

fn routed(store: &TestStore, own: &str, servers: &[&str]) -> Config {
    let mut config = config(own, "proxy", &store.url());
    config.initial_routing.servers = servers.iter().map(|text| name(text)).collect();
    config
}

async fn try_place(proxy: &ProxyAgent) -> Result<Placed, Unplaced> {
    proxy.place(&player("alice"), &CancellationToken::new()).await
}

async fn placed(proxy: &ProxyAgent) -> Placed {
    try_place(proxy).await.unwrap_or_else(|unplaced| panic!("{unplaced}"))
}

/// A node whose players go to `at`.
async fn node(store: &TestStore, own: &str, at: &Backend) -> BackendAgent<Stock> {
    let mut config = config(own, "backend", &store.url());
    config.node.addr = at.text();
    fleet::backend(config, &Stock::new(5, 5)).await
}

/// Waits until the proxy resolves the name so.
async fn resolves(proxy: &ProxyAgent, text: &str, want: Result<Origin, Absence>) {
    let looked = || proxy.registry().resolve(&name(text)).map(|registration| registration.origin);
    eventually(&format!("{text} is {want:?}"), PATIENT, async || looked() == want).await;
}

// PLC-4: drained, killed and leaving nodes are passed over; load and acceptance play no part. PLC-8: the epoch.
#[tokio::test]
async fn plc_4_nodes_of_the_directory_are_candidates_until_they_are_drained_killed_or_leaving() {
    let store = TestStore::start();
    let (first, second) = (Backend::start().await, Backend::start().await);
    let proxy = proxy(routed(&store, "p1", &["b1", "b2"])).await;
    let (b1, b2) = (node(&store, "b1", &first).await, node(&store, "b2", &second).await);
    sees(&proxy, &[&b1, &b2]).await;
    let (operator, verifier) = fleet::operator(&store).await;
    let control = Control::default();

    let reached = placed(&proxy).await;
    assert_eq!(reached.stream.peer_addr().expect("connected"), first.addr);
    let epoch = b1.agent().lease().epoch();
    assert_eq!((reached.registration.origin, reached.registration.generation), (Origin::Discovered, epoch.0));

    // Full and not accepting says something of load; a registration does not.
    b1.agent().set_accepting(false);
    eventually("b1 is not accepting", PATIENT, async || {
        proxy.agent().directory().view_of(&id("b1")).is_some_and(|view| !view.record.accepting)
    })
    .await;
    assert_eq!(placed(&proxy).await.registration.name.as_str(), "b1");

    for (entry, absence) in [(drain_name(&id("b1")), Absence::Draining), (kill_name(&id("b1")), Absence::Killed)] {
        control.put(&operator, &verifier, &entry, "on", "ops").await.expect("written");
        resolves(&proxy, "b1", Err(absence)).await;
        let other = placed(&proxy).await;
        assert_eq!(other.registration.name.as_str(), "b2");
        assert_eq!(ends(&other.passed), [("b1", &AttemptEnd::Absent(absence))]);
        // By name: whoever registers it.
        let handle = proxy.registry().register(name("b1"), first.text());
        assert_eq!(proxy.registry().resolve(&name("b1")), Err(absence));
        assert!(handle.unregister());
        control.put(&operator, &verifier, &entry, "off", "ops").await.expect("written");
        resolves(&proxy, "b1", Ok(Origin::Discovered)).await;
    }

    b1.agent().set_state(NodeState::ShuttingDown);
    resolves(&proxy, "b1", Err(Absence::ShuttingDown)).await;
    assert_eq!(placed(&proxy).await.registration.name.as_str(), "b2");
    b1.leave().await;
    resolves(&proxy, "b1", Err(Absence::Missing)).await;

    // The same name again is another generation.
    let b1 = node(&store, "b1", &first).await;
    resolves(&proxy, "b1", Ok(Origin::Discovered)).await;
    let again = placed(&proxy).await.registration;
    assert!(again.generation > epoch.0 && again.generation == b1.agent().lease().epoch().0);

    // POL-3: with the fleet's switch on nobody is placed, and the text says so.
    control.put(&operator, &verifier, KILL, "on", "ops").await.expect("written");
    eventually("the switch is on", PATIENT, async || proxy.agent().control().is_on(KILL)).await;
    let refused = try_place(&proxy).await.expect_err("the switch is on");
    assert_eq!(refused.why, Why::KillSwitch);
    assert_eq!(proxy.refusal_text(&refused), proxy.agent().config().texts.kill_switch);
    assert_eq!(first.bytes(), b"");
}

// PLC-4, PLC-8: the handler is called before the node exists; it is placed by the node's own registration.
#[tokio::test]
async fn plc_4_a_handler_waits_until_an_instance_joins_the_fleet() {
    let store = TestStore::start();
    let (listed, instance) = (Backend::start().await, Backend::start().await);
    let proxy = proxy(routed(&store, "p1", &["listed"])).await;
    proxy.registry().set_static([(name("listed"), listed.text())]);
    let called = CancellationToken::new();
    let (registry, flag) = (proxy.registry().clone(), called.clone());
    proxy
        .set_placement_handler(Plugin(move |view: ServerView| {
            assert!(view.get("isle-7").is_none() && view.nodes.get(&id("isle-7")).is_none());
            flag.cancel();
            let registry = registry.clone();
            async move { Ok(Decision::select(registry.appears(&name("isle-7")).await.name.as_str())) }
        }))
        .expect("the first handler");
    let second = proxy.set_placement_handler(Plugin(async |_| Ok(Decision::reject("no"))));
    assert!(second.is_err(), "one handler a proxy");

    let starting = async {
        called.cancelled().await;
        node(&store, "isle-7", &instance).await
    };
    let (reached, joined) = tokio::join!(placed(&proxy), starting);
    assert_eq!(reached.stream.peer_addr().expect("connected"), instance.addr);
    assert_eq!(reached.registration.generation, joined.agent().lease().epoch().0);
    assert_eq!(listed.connections(), 0, "the list counts for nothing where there is a handler");
}

// PLC-4: an outage of the store must not stop logins.
#[tokio::test]
async fn plc_4_a_view_that_went_stale_keeps_its_last_registrations() {
    let mut store = TestStore::start();
    let (found, fixed) = (Backend::start().await, Backend::start().await);
    let proxy = proxy(routed(&store, "p1", &["b1", "fixed"])).await;
    proxy.registry().set_static([(name("fixed"), fixed.text())]);
    let b1 = node(&store, "b1", &found).await;
    sees(&proxy, &[&b1]).await;
    let before = placed(&proxy).await.registration;

    store.kill();
    eventually("the view is stale and the lease is over", PATIENT, async || {
        proxy.agent().directory().is_stale() && !proxy.agent().lease().is_valid()
    })
    .await;
    // Longer than it takes a silent node to go offline.
    let offline = Duration::from_millis(proxy.agent().config().directory.offline_ms);
    let since = std::time::Instant::now();
    eventually("longer than a lease", PATIENT, async || since.elapsed() > offline).await;
    assert_eq!(placed(&proxy).await.registration, before, "the same registration as before the outage");
    drop(found);
    let next = placed(&proxy).await;
    assert_eq!(next.registration.origin, Origin::Static);
    assert!(matches!(ends(&next.passed)[..], [("b1", AttemptEnd::Tcp { .. })]), "{:?}", next.passed);
}

// PLC-1: a proxy that never reached its store places by its static entries; without any it says so.
#[tokio::test]
async fn plc_1_a_proxy_without_its_store_places_by_static_entries() {
    let nobody = Closed::new();
    let fixed = Backend::start().await;
    let mut config = config("p1", "proxy", &format!("redis://{}", nobody.addr));
    config.texts.no_entry = "Ask the staff.".to_owned();
    let empty = setup(config.clone()).proxy(maitred::node::LoadSample::default).expect("a proxy");
    let refused = try_place(&empty).await.expect_err("no list");
    assert_eq!((&refused.why, empty.refusal_text(&refused).as_str()), (&Why::NoServers, "Ask the staff."));

    config.initial_routing.servers = vec![name("fixed"), name("other")];
    config.texts.not_placed = "Come back later.".to_owned();
    let proxy = setup(config).proxy(maitred::node::LoadSample::default).expect("a proxy");
    proxy.registry().set_static([(name("fixed"), fixed.text())]);
    assert_eq!(placed(&proxy).await.stream.peer_addr().expect("connected"), fixed.addr);
    proxy.registry().set_static([]);
    let refused = try_place(&proxy).await.expect_err("nobody");
    assert_eq!((&refused.why, proxy.refusal_text(&refused).as_str()), (&Why::AllFailed, "Come back later."));

    // A proxy that stops places nobody any more.
    proxy.leave().await;
    assert_eq!(try_place(&proxy).await.expect_err("stopped").why, Why::ShuttingDown);
}

// DSP-1, PLC-6: a player who has a place already is connected to its backend, drained or not, and to no other.
#[tokio::test]
async fn plc_6_a_transfer_is_connected_to_its_own_backend() {
    let store = TestStore::start();
    let (first, second) = (Backend::start().await, Backend::start().await);
    let proxy = proxy(routed(&store, "p1", &["b2"])).await;
    let (b1, b2) = (node(&store, "b1", &first).await, node(&store, "b2", &second).await);
    sees(&proxy, &[&b1, &b2]).await;
    pending(&proxy, "b1", "alice").await;
    let Outcome::Transfer(transfer) = proxy.take(&player("alice")).await else { panic!("no token") };
    let (operator, verifier) = fleet::operator(&store).await;
    Control::default().put(&operator, &verifier, &drain_name(&id("b1")), "on", "ops").await.expect("written");
    resolves(&proxy, "b1", Err(Absence::Draining)).await;
    let gone = CancellationToken::new();
    let reached = proxy.connect(&transfer, &gone).await.expect("connected");
    assert_eq!(reached.registration.name, BackendName::from(&id("b1")));
    assert_eq!(reached.stream.peer_addr().expect("connected"), first.addr);

    drop(first);
    let refused = proxy.connect(&transfer, &gone).await.expect_err("nobody listens");
    assert!(matches!(ends(&refused.attempts)[..], [("b1", AttemptEnd::Tcp { .. })]), "{refused}");
    assert_eq!(second.connections(), 0, "a place at one backend is no place at another");
}
