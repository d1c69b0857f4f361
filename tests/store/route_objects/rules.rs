//! RTE-8 end to end. Each test sends a message by a route that is right, old or wrong, and looks at
//! who handles it.

use std::time::Duration;

use futures_util::StreamExt;
use maitred::Error;
use maitred::envelope::AuditReason;
use maitred::error::RouteRefusal;
use maitred::ids::{Epoch, NodeEpoch, ObjectKind};
use maitred::message::Message;
use maitred::route::{KindOptions, Route, RouteState, RouteTimes, RouteVersion};

use crate::fixtures::member::{Member, PATIENCE, id, json, keyring};
use crate::fixtures::routes::{CALL, Client, Count, Counter, Host, acquainted, inc, object};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// Two hosts and a client that all see each other.
async fn fleet(server: &TestStore, options: KindOptions) -> (Host, Host, Client) {
    let a = Host::join(&server.url(), "a", options).await;
    let b = Host::join(&server.url(), "b", options).await;
    let client = Client::join(&server.url(), "c").await;
    acquainted(&[&a.member, &b.member, &client.member]).await;
    (a, b, client)
}

fn refusal(outcome: Result<u64, Error>) -> RouteRefusal {
    match outcome {
        Err(Error::Routed { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

// RTE-7, RTE-8: nobody owns it, and the kind may be taken over: by the node that rendezvous says, and all agree on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_8_an_object_that_nobody_owns_is_taken_by_its_default_node() {
    let server = TestStore::start();
    let (a, b, client) = fleet(&server, KindOptions::default()).await;
    for n in 0..20 {
        let key = object(&format!("counter:{n}"));
        assert_eq!(client.inc(&key, 0).await.unwrap(), 1);
        let owner = a.owner(&key).await.expect("taken");
        let weights = ["a", "b"].map(|node| (maitred::route::rendezvous::weight(key.as_str(), node), node));
        assert_eq!(owner, weights.into_iter().max().unwrap().1, "RTE-12");
    }
    assert_eq!(a.keeper.len() + b.keeper.len(), 20);
    assert!(!a.keeper.is_empty() && !b.keeper.is_empty());
}

// RTE-8, RTE-9: an owner that handed the object on passes messages on, and the origin learns of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_8_a_message_to_a_former_owner_is_passed_on_and_the_origin_is_told() {
    let server = TestStore::start();
    let (a, b, client) = fleet(&server, KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    client.inc(&key, 0).await.unwrap();
    let old = client.router.table().cached(&key).unwrap();
    let moved = a.keeper.transfer(&key, &b.member.id, true).await.unwrap();
    assert!(moved.unconfirmed.is_none(), "{:?}", moved.unconfirmed);
    assert_eq!(client.router.table().cached(&key).unwrap().version, old.version, "nobody told the client yet");

    assert_eq!(client.inc(&key, 1).await.unwrap(), 2);
    assert_eq!(b.counter.most_hops.load(std::sync::atomic::Ordering::SeqCst), 1, "over the former owner");
    eventually("the origin is told", PATIENCE, async || client.router.table().version(&key) == moved.route.version)
        .await;
    b.counter.most_hops.store(0, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(client.inc(&key, 2).await.unwrap(), 3);
    assert_eq!(b.counter.most_hops.load(std::sync::atomic::Ordering::SeqCst), 0, "straight to the new owner");
    assert_eq!(b.keeper.with(&key, |count| (count.clone(), false)).await.unwrap().twice, 0);
}

// RTE-8: the record says this node, and nothing is in memory: after a transfer that it was not told of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_8_an_owner_without_the_object_loads_it() {
    let server = TestStore::start();
    let (a, b, client) = fleet(&server, KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    client.inc(&key, 0).await.unwrap();
    let told = a.keeper.transfer(&key, &b.member.id, false).await.unwrap();
    assert!(b.keeper.is_empty() && told.unconfirmed.is_none());
    assert_eq!(b.router.book().read(&key).await.unwrap().unwrap().state, RouteState::Moved);
    assert_eq!(client.inc(&key, 1).await.unwrap(), 2, "the header is newer than what b knows");
    assert_eq!(b.counter.told(), ["promoted counter:one 1"]);
    assert_eq!(b.router.book().read(&key).await.unwrap().unwrap().state, RouteState::Owned);
}

// RTE-8, RTE-2: an owner that is gone is as good as none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_8_an_object_of_an_owner_that_left_is_taken_over() {
    let server = TestStore::start();
    let (mut a, b, client) = fleet(&server, KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    client.inc(&key, 0).await.unwrap();
    a.keeper.save(&key).await.unwrap();
    a.member.stop_beating().await;
    a.member.leave().await;
    a.member.stop_listening().await;
    eventually("the others see that it left", PATIENCE, async || client.inc(&key, 1).await.is_ok()).await;
    assert_eq!(b.owner(&key).await.as_deref(), Some("b"));
    let count: Count = b.keeper.with(&key, |count| (count.clone(), false)).await.unwrap();
    assert!(count.has("c", 0) && count.has("c", 1));
}

// RTE-8: where a kind is not taken over on demand, somebody has to take it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_8_a_kind_that_is_not_taken_on_demand_has_no_owner_until_somebody_takes_it() {
    let server = TestStore::start();
    let options = KindOptions { on_demand: false, ..KindOptions::default() };
    let (a, b, client) = fleet(&server, options).await;
    client.router.sends_to(&ObjectKind::new("counter").unwrap(), true);
    let key = object("counter:one");
    assert_eq!(refusal(client.inc(&key, 0).await), RouteRefusal::NoOwner, "refused by the default node");
    assert_eq!(refusal(a.inc(&key, 0).await), RouteRefusal::NoOwner);
    client.router.sends_to(&ObjectKind::new("counter").unwrap(), false);
    assert_eq!(refusal(client.inc(&key, 0).await), RouteRefusal::NoOwner, "refused at the sender");
    b.keeper.acquire(&key).await.unwrap();
    assert_eq!(client.inc(&key, 0).await.unwrap(), 1);
    assert_eq!(a.inc(&key, 0).await.unwrap(), 2);
    let taken = a.keeper.acquire(&key).await.unwrap_err();
    assert!(matches!(taken, Error::NotOwner { owner: Some(node), .. } if node == b.member.id));
    let moved = a.keeper.transfer(&key, &b.member.id, true).await.unwrap_err();
    assert!(matches!(moved, Error::NotOwner { .. }), "RTE-4: only by the owner: {moved:?}");
}

// RTE-8: nothing to load and nothing created: nobody keeps the object afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_8_an_object_that_is_not_in_storage_is_refused_and_left_free() {
    let server = TestStore::start();
    let mut counter = Counter::new(KindOptions::default());
    counter.creates = false;
    let member = Member::join(&server.url(), "a").await;
    let a = Host::join_as(member, counter, RouteTimes::default()).await;
    let key = object("counter:none");
    assert_eq!(refusal(a.inc(&key, 0).await), RouteRefusal::NotFound);
    assert_eq!(a.owner(&key).await, None);
    assert!(a.keeper.is_empty());
}

// RTE-8, R-20: a message that was passed on 16 times goes no further.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_8_a_message_is_passed_on_at_most_16_times() {
    let server = TestStore::start();
    let (a, b, client) = fleet(&server, KindOptions::default()).await;
    let key = object("counter:one");
    b.keeper.acquire(&key).await.unwrap();
    b.inc(&key, 0).await.unwrap();
    let version = b.router.table().version(&key);
    for (hops, nonce, arrives) in [(15, "n15", true), (16, "n16", false), (17, "n17", false)] {
        let now = client.member.store.clock().now_ms();
        let body = json(r#"{"sender":"forged","number":9}"#);
        let message = Message {
            origin: id("a"),
            origin_epoch: a.member.epoch(),
            from: client.member.id.clone(),
            from_epoch: client.member.epoch(),
            to: a.member.id.clone(),
            to_epoch: a.member.epoch(),
            service: "object.counter",
            method: "inc",
            call: "",
            hops,
            route: &format!("{version}:{key}"),
            sent_at_ms: now,
            nonce,
            deadline_ms: now + 20_000,
            body: &body,
        };
        let before = b.keeper.with(&key, |count| (count.value, false)).await.unwrap();
        let bytes = message.to_wire(client.member.verifier.keyring());
        let channel = client.member.store.keys().inbox(&a.member.id);
        let received = a.member.post.counts().received;
        client.member.store.publish(channel, &bytes).await.unwrap();
        eventually("it is taken", PATIENCE, async || a.member.post.counts().received > received).await;
        if arrives {
            eventually("it is handled", PATIENCE, async || {
                b.keeper.with(&key, |count| (count.value, false)).await.unwrap() == before + 1
            })
            .await;
        } else {
            let sent = a.member.post.counts().sent;
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(a.member.post.counts().sent, sent, "it was passed on");
            assert_eq!(b.keeper.with(&key, |count| (count.value, false)).await.unwrap(), before);
        }
    }
    assert_eq!(b.counter.most_hops.load(std::sync::atomic::Ordering::SeqCst), 16);
}

// RTE-7, RTE-11, R-19: a send that surely failed is made a second time; a route is cleared only where its owner is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_7_a_failed_send_clears_the_route_only_of_an_owner_that_is_gone() {
    let server = TestStore::start();
    let (mut a, b, client) = fleet(&server, KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    client.inc(&key, 0).await.unwrap();
    a.member.stop_listening().await;
    let failed = client.inc(&key, 1).await.unwrap_err();
    assert!(
        matches!(&failed, Error::Routed { refusal: RouteRefusal::Again, .. } | Error::NodeOffline(_)),
        "it lives and does not listen: {failed:?}"
    );
    assert_eq!(a.owner(&key).await.as_deref(), Some("a"), "nobody may take over while its lease stands");

    // An update that is wrong costs a detour and no message.
    let version = RouteVersion(client.router.table().version(&key).0.max(1) + 5);
    a.keeper.release(&key).await.unwrap();
    b.keeper.acquire(&key).await.unwrap();
    client.router.table().read(&key).await.unwrap();
    let gone = Some(NodeEpoch { id: id("gone"), epoch: Epoch(1) });
    let wrong = Route { key: key.clone(), owner: gone, version, saved_at_ms: 0, state: RouteState::Owned };
    let known = client.router.table().version(&key);
    let wrong = Route { version: RouteVersion(known.0 + 1), ..wrong };
    assert!(client.router.table().update(wrong));
    assert_eq!(inc(&client.router, &key, "c", 2).await.unwrap(), 2);
    assert_eq!(client.router.table().version(&key), known);
    let unknown = client.router.call(&key, "nonsense", &(), CALL).await.unwrap_err();
    assert!(matches!(unknown, Error::Callee { code, .. } if code == "unknown_method"));
}

// R-20: whoever handles a message that was passed on answers its origin, within the origin's deadline, and takes it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_20_a_forwarder_signs_as_itself_and_keeps_what_the_origin_said() {
    let server = TestStore::start();
    let (a, b, client) = fleet(&server, KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    client.inc(&key, 0).await.unwrap();
    a.keeper.transfer(&key, &b.member.id, true).await.unwrap();
    let redis = redis::Client::open(server.url()).unwrap();
    let mut wire = redis.get_async_pubsub().await.unwrap();
    for host in [&a, &b] {
        wire.subscribe(client.member.store.keys().inbox(&host.member.id).to_string()).await.unwrap();
    }
    assert_eq!(client.inc(&key, 1).await.unwrap(), 2);
    let mut frames = wire.on_message();
    let (first, second) = (frames.next().await.unwrap(), frames.next().await.unwrap());
    let keyring = keyring();
    let (first, second) = (first.get_payload_bytes(), second.get_payload_bytes());
    let (first, second) = (keyring.from_wire(first, 100_000).unwrap(), keyring.from_wire(second, 100_000).unwrap());
    let sent = Message::from_fields(&first.fields).unwrap();
    let passed_on = Message::from_fields(&second.fields).unwrap();
    let (origin, forwarder) = (&client.member, &a.member);
    for message in [&sent, &passed_on] {
        assert_eq!((&message.origin, message.origin_epoch), (&origin.id, origin.epoch()));
    }
    assert_eq!((&sent.from, &sent.to, sent.hops), (&origin.id, &forwarder.id, 0));
    assert_eq!((&passed_on.from, passed_on.from_epoch), (&forwarder.id, forwarder.epoch()));
    assert_eq!((&passed_on.to, passed_on.hops), (&b.member.id, 1));
    let kept = |message: &Message<'_>| {
        let texts = [message.service, message.method, message.call, message.nonce, message.body.get()];
        (texts.map(ToOwned::to_owned), message.sent_at_ms, message.deadline_ms)
    };
    assert_eq!(kept(&sent), kept(&passed_on));
    let version = b.router.table().version(&key);
    assert_eq!(passed_on.route, format!("{version}:{key}"), "by what the forwarder knows");
    assert_ne!(sent.route, passed_on.route);
    assert_eq!(a.counter.told().len(), 3, "promoted, removing, removed: it ran no handler");

    // The same frame once more: it was taken.
    client
        .member
        .store
        .publish(client.member.store.keys().inbox(&b.member.id), &passed_on.to_wire(&keyring))
        .await
        .unwrap();
    eventually("it is dropped", PATIENCE, async || b.member.audited(AuditReason::Replay) == 1).await;
    assert_eq!(b.keeper.with(&key, |count| (count.value, false)).await.unwrap(), 2);
}

// RTE-8: an object that is in doubt whenever it is looked at costs a bounded number of questions, and an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_8_a_message_is_repaired_at_most_three_times() {
    let server = TestStore::start();
    // Nothing that was asked is ever young enough.
    let times = RouteTimes { lock_timeout_ms: 0, ..RouteTimes::default() };
    let member = Member::join(&server.url(), "a").await;
    let a = Host::join_as(member, Counter::new(KindOptions::default()), times).await;
    let key = object("counter:one");
    let client = Client::join(&server.url(), "c").await;
    acquainted(&[&a.member, &client.member]).await;
    for sender in [&a.router, &client.router] {
        assert_eq!(refusal(inc(sender, &key, "s", 0).await), RouteRefusal::Again);
    }
    a.keeper.release(&key).await.unwrap();
    assert_eq!(a.router.book().load(&key).await.unwrap(), None, "no handler ran");
}
