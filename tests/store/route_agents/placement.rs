//! RTE-7 among backends, which look at proxies alone until they use routes. If this fails objects that nobody owns are
//! refused, or pile up on whoever was asked first.

use maitred::agent::BackendAgent;
use maitred::ids::{NodeId, ObjectKey, Role};
use maitred::node::{Control, DRAINING_LABEL, NodeRecord, NodeState, drain_name};
use maitred::route::rendezvous::weight;
use maitred::route::{Keeper, KindOptions, ObjectRouter, RouteState};

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, operator, proxy};
use crate::fixtures::routes::{Counter, counter, inc, object};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

struct Host {
    backend: BackendAgent<Stock>,
    router: ObjectRouter,
    keeper: Keeper<Counter>,
}

async fn agent(url: &str, name: &str, locality: Option<&str>) -> BackendAgent<Stock> {
    let mut config = config(name, "backend", url);
    config.directory.refresh_ms = 300;
    config.routes.free_ms = 7_000;
    config.node.labels = locality.into_iter().map(|text| ("locality".to_owned(), text.to_owned())).collect();
    backend(config, &Stock::new(1, 0)).await
}

async fn host(url: &str, name: &str, locality: &str) -> Host {
    let backend = agent(url, name, Some(locality)).await;
    let router = backend.agent().routes().unwrap();
    let keeper = router.host(counter(), Counter::new(KindOptions::default())).unwrap();
    backend.agent().beat_now();
    Host { backend, router, keeper }
}

/// A backend that sends to counters and hosts none; waits until it sees all three hosts.
async fn sender(url: &str, name: &str, locality: Option<&str>) -> (BackendAgent<Stock>, ObjectRouter) {
    let backend = agent(url, name, locality).await;
    let router = backend.agent().routes().unwrap();
    router.sends_to(&counter(), true);
    eventually("a sender sees the hosts", LIMIT, async || {
        let view = backend.agent().directory().snapshot();
        view.nodes.iter().filter(|node| node.record.offers("object.counter")).count() == 3
    })
    .await;
    (backend, router)
}

async fn owner(router: &ObjectRouter, key: &ObjectKey) -> Option<NodeId> {
    router.book().read(key).await.unwrap()?.owner.map(|owner| owner.id)
}

fn heaviest(key: &str, nodes: &[&str]) -> String {
    nodes.iter().max_by_key(|node| weight(key, node)).unwrap().to_string()
}

// RTE-7, RTE-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_7_backends_place_what_nobody_owns_among_each_other_those_of_their_locality_first() {
    let server = TestStore::start();
    let url = server.url();
    let hosts = [host(&url, "b1", "x").await, host(&url, "b2", "x").await, host(&url, "b3", "y").await];
    let from = |name, locality| sender(&url, name, locality);
    let (near_x, near_y, nowhere) = (from("s1", Some("x")).await, from("s2", Some("y")).await, from("s3", None).await);
    for n in 0..12 {
        for ((_, router), among) in [(&near_x, &["b1", "b2"][..]), (&near_y, &["b3"]), (&nowhere, &["b1", "b2", "b3"])]
        {
            let key = object(&format!("counter:{}-{n}", among.len()));
            assert_eq!(inc(router, &key, "s", 0).await.unwrap(), 1);
            assert_eq!(owner(router, &key).await.unwrap().as_str(), heaviest(key.as_str(), among), "{key}");
        }
    }
    assert_eq!(hosts.iter().map(|host| host.keeper.len()).sum::<usize>(), 36);

    // What was taken elsewhere is found where it is, and where it went.
    let key = object("counter:far");
    hosts[2].keeper.acquire(&key).await.unwrap();
    assert_eq!(inc(&near_x.1, &key, "s", 1).await.unwrap(), 1);
    let target = hosts[0].backend.agent().lease().id().clone();
    let moved = hosts[2].keeper.transfer(&key, &target, true).await.unwrap();
    assert!(moved.unconfirmed.is_none(), "{:?}", moved.unconfirmed);
    assert_eq!(inc(&near_x.1, &key, "s", 2).await.unwrap(), 2);
    assert_eq!(inc(&hosts[1].router, &key, "s", 3).await.unwrap(), 3);
    assert_eq!(owner(&near_x.1, &key).await, Some(target));

    // The times are those of the config.
    assert_eq!(near_x.1.book().times().free_ms, 7_000);
    hosts[0].keeper.release(&key).await.unwrap();
    let free = near_x.1.book().read(&key).await.unwrap().unwrap();
    assert_eq!(free.state, RouteState::Free);
    let left: i64 = redis::cmd("PTTL")
        .arg(near_x.1.book().store().keys().route(&key).to_string())
        .query_async(&mut server.conn().await)
        .await
        .unwrap();
    assert!((1..=7_000).contains(&left), "{left}");
}

// A fleet of a thousand backends must not have each of them read the rows of all others for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_7_a_backend_without_routes_keeps_no_other_backend_in_view() {
    let server = TestStore::start();
    let url = server.url();
    let (one, two) = (agent(&url, "b1", None).await, agent(&url, "b2", None).await);
    let _proxy = proxy(config("p1", "proxy", &url)).await;
    let seen = |backend: &BackendAgent<Stock>| {
        let view = backend.agent().directory().snapshot();
        view.nodes.iter().map(|node| node.record.role.clone()).collect::<Vec<_>>()
    };
    eventually("the proxy is seen", LIMIT, async || seen(&one) == [Role::proxy()]).await;
    let _router = one.agent().routes().unwrap();
    eventually("all are seen", LIMIT, async || seen(&one).len() == 3).await;
    eventually("the proxy is seen", LIMIT, async || seen(&two) == [Role::proxy()]).await;
}

// RTE-7: a second router would take every message, and the first one's objects would answer nobody.
#[tokio::test]
async fn rte_7_an_agent_has_one_router_at_a_time() {
    let server = TestStore::start();
    let one = agent(&server.url(), "b1", None).await;
    let first = one.agent().routes().unwrap();
    let refused = one.agent().routes().unwrap_err().to_string();
    assert!(refused.contains("has a router already"), "{refused}");
    first.stop(LIMIT).await;
    one.agent().routes().unwrap();
}

// RTE-7: what a node that is on its way out takes it has to hand on at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_7_a_node_that_is_not_ready_or_is_drained_takes_nothing_that_nobody_owns() {
    let server = TestStore::start();
    let url = server.url();
    let (one, two) = (host(&url, "b1", "x").await, host(&url, "b2", "x").await);
    let id = one.backend.agent().lease().id().clone();
    let sees = |host: &Host, what: fn(&NodeRecord) -> bool| {
        let view = host.backend.agent().directory().view_of(&id);
        view.is_some_and(|view| what(&view.record))
    };
    for host in [&one, &two] {
        eventually("both host the kind", LIMIT, async || {
            let view = host.backend.agent().directory().snapshot();
            view.nodes.iter().filter(|node| node.record.offers("object.counter")).count() == 2
        })
        .await;
    }
    // Those that would be b1's.
    let mut keys =
        (0..).map(|n| object(&format!("counter:{n}"))).filter(|key| heaviest(key.as_str(), &["b1", "b2"]) == "b1");
    let all_go_to_b2 = async |keys: [ObjectKey; 2]| {
        for (host, key) in [&one, &two].into_iter().zip(keys) {
            assert_eq!(inc(&host.router, &key, "s", 0).await.unwrap(), 1);
            assert_eq!(owner(&host.router, &key).await.unwrap().as_str(), "b2");
        }
    };
    one.backend.agent().set_state(NodeState::Degraded);
    for host in [&one, &two] {
        eventually("it is not ready", LIMIT, async || sees(host, |record| record.state == NodeState::Degraded)).await;
    }
    all_go_to_b2([keys.next().unwrap(), keys.next().unwrap()]).await;
    one.backend.agent().set_state(NodeState::Ready);
    let (store, verifier) = operator(&server).await;
    Control::default().put(&store, &verifier, &drain_name(&id), "on", "ops").await.unwrap();
    for host in [&one, &two] {
        eventually("it is drained", LIMIT, async || {
            sees(host, |record| record.state == NodeState::Ready && record.labels.contains_key(DRAINING_LABEL))
        })
        .await;
    }
    all_go_to_b2([keys.next().unwrap(), keys.next().unwrap()]).await;
    assert!(one.keeper.is_empty());
    Control::default().put(&store, &verifier, &drain_name(&id), "off", "ops").await.unwrap();
    for host in [&one, &two] {
        eventually("it takes part again", LIMIT, async || {
            sees(host, |record| !record.labels.contains_key(DRAINING_LABEL))
        })
        .await;
    }
    let key = keys.next().unwrap();
    inc(&two.router, &key, "s", 0).await.unwrap();
    assert_eq!(owner(&two.router, &key).await, Some(id.clone()));
}
