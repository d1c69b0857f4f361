//! NOD-12: nodes that the config expects.

use std::time::{Duration, Instant};

use maitred::Error;
use maitred::agent::config::{Config, PeerConfig};
use maitred::agent::{Reason, Request};
use maitred::ids::{Epoch, NodeId, Role, ServiceName};
use maitred::node::{DirectoryEvent, Liveness};
use serde_json::json;
use tokio::sync::broadcast::Receiver;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, id, player, proxy, refused, sees, transfer};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

fn expecting(mut config: Config, peers: &[&str]) -> Config {
    let peer = |name: &&str| (id(name), PeerConfig { role: Role::backend(), addr: format!("{name}.example:25565") });
    config.peers = peers.iter().map(peer).collect();
    config
}

/// What was told of a node so far.
fn told(events: &mut Receiver<DirectoryEvent>, node: &NodeId) -> Vec<DirectoryEvent> {
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        let of = serde_json::to_value(&event).expect("JSON")["node"] == json!(node);
        if of && !matches!(event, DirectoryEvent::Updated { .. }) {
            told.push(event);
        }
    }
    told
}

#[tokio::test]
async fn nod_12_a_peer_is_connecting_until_seen_offline_when_late_and_never_sent_to() {
    let store = TestStore::start();
    let b1 = backend(expecting(config("b1", "backend", &store.url()), &["b1", "b2"]), &Stock::new(10, 10)).await;
    let peers = ["b1", "b2", "b3"];
    let mut patient = expecting(config("p1", "proxy", &store.url()), &peers);
    // One waits for ever, the other as long as a silent node is given.
    (patient.directory.offline_ms, patient.directory.removed_ms) = (3_600_000, 7_200_000);
    let p1 = proxy(patient).await;
    let p2 = proxy(expecting(config("p2", "proxy", &store.url()), &peers)).await;
    let mut events = p2.agent().directory().events();
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;

    let view = p1.agent().directory().view_of(&id("b2")).expect("expected");
    assert_eq!((view.liveness, view.record.epoch), (Liveness::Connecting, Epoch::NONE));
    assert_eq!(view.record.addr, "b2.example:25565");
    let snapshot = p1.agent().directory().snapshot();
    let shown: Vec<_> = snapshot.nodes.iter().map(|view| (view.record.id.as_str(), view.liveness)).collect();
    for wanted in [("b1", Liveness::Online), ("b2", Liveness::Connecting), ("b3", Liveness::Connecting)] {
        assert_eq!(shown.iter().filter(|node| node.0 == wanted.0).collect::<Vec<_>>(), [&wanted], "{shown:?}");
    }
    eventually("p2 has waited long enough", LIMIT, async || {
        p2.agent().directory().snapshot().get(&id("b2")).is_some_and(|view| view.liveness == Liveness::Offline)
    })
    .await;
    let offline = DirectoryEvent::Offline { node: id("b2") };
    assert_eq!(told(&mut events, &id("b2")), [offline], "nothing while it connects, and once that it is offline");

    for proxy in [&p1, &p2] {
        assert_eq!(transfer(proxy, &format!("at-{}", proxy.agent().lease().id())).await.server, id("b1"));
        let refusal = refused(proxy, Request::new(player("alice")).on_server(id("b2"))).await;
        assert_eq!(refusal.reason, Reason::NoCandidate, "{refusal:?}");
        // MSG-2: known and not there, so a later try may help.
        let post = proxy.agent().post();
        let error = post.call_json::<(), _>("b2:places", "reserve", &json!({}), Duration::from_secs(2)).await;
        assert!(matches!(&error, Err(Error::NodeOffline(node)) if *node == id("b2")), "{error:?}");
        assert!(error.is_err_and(|error| error.is_retryable()));
        let service = ServiceName::new("places").expect("a service");
        let query = proxy.agent().directory().query(&id("b2"), &service).await;
        assert!(matches!(query, Err(Error::NodeOffline(_))), "{query:?}");
        let unknown = post.call_json::<(), _>("b7:places", "reserve", &json!({}), Duration::from_secs(2)).await;
        assert!(matches!(unknown, Err(Error::NodeNotFound(_))), "nobody expects it: {unknown:?}");
        assert_eq!(proxy.agent().directory().snapshot().services().len(), 1, "an expected node offers nothing");
    }

    // It comes, and the row wins.
    let mut elsewhere = config("b2", "backend", &store.url());
    elsewhere.node.addr = "elsewhere.example:1".to_owned();
    let b2 = backend(elsewhere, &Stock::new(10, 99)).await;
    sees(&p1, &[&b1, &b2]).await;
    sees(&p2, &[&b1, &b2]).await;
    let joined = DirectoryEvent::Joined { node: id("b2"), epoch: b2.agent().lease().epoch() };
    assert_eq!(told(&mut events, &id("b2")), [joined]);
    let moved = transfer(&p1, "bob").await;
    assert_eq!((moved.server.as_str(), moved.addr.as_str()), ("b2", "elsewhere.example:1"));

    // It leaves: still expected, so it is shown, and where it was expected to be.
    b2.leave().await;
    for proxy in [&p1, &p2] {
        eventually("b2 is offline", LIMIT, async || {
            let snapshot = proxy.agent().directory().snapshot();
            snapshot.get(&id("b2")).is_some_and(|view| view.liveness == Liveness::Offline)
        })
        .await;
    }
    let told = told(&mut events, &id("b2"));
    assert_eq!(told.iter().filter(|event| matches!(event, DirectoryEvent::Offline { .. })).count(), 1, "{told:?}");
    let error = p1.agent().directory().resolve(&id("b2")).await;
    assert!(matches!(error, Err(Error::NodeOffline(_))), "{error:?}");
}

#[tokio::test]
async fn nod_8_a_store_that_is_away_turns_no_expected_node_offline() {
    let store = TestStore::start();
    let mut patient = expecting(config("p1", "proxy", &store.url()), &["b1"]);
    patient.directory.refresh_ms = 300;
    let p1 = proxy(patient).await;
    let liveness = || p1.agent().directory().view_of(&id("b1")).expect("expected").liveness;
    assert_eq!(liveness(), Liveness::Connecting);
    store.sigstop();
    eventually("the view is stale", LIMIT, async || p1.agent().directory().is_stale()).await;
    let since = Instant::now();
    eventually("as long again passes as a node is given", LIMIT, async || {
        assert_eq!(liveness(), Liveness::Connecting, "nobody could be seen meanwhile");
        since.elapsed() > Duration::from_millis(1_750)
    })
    .await;
    store.sigcont();
    eventually("it is late", LIMIT, async || liveness() == Liveness::Offline).await;
}
