//! NOD-13 where views differ, and after the store lost its data.

use std::time::Duration;

use maitred::Error;
use maitred::agent::{BackendEvent, Outcome, PLACES, PlaceAnswer, PlaceRequest, ProxyAgent, RESERVE, Reason, Request};
use maitred::ids::RequestId;
use maitred::node::{Control, DRAINING_LABEL, drain_name};

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, id, key, lands, operator, pending, player, proxy, refused, sees, transfer_of,
};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

async fn reserve(proxy: &ProxyAgent, backend: &str, name: &str) -> Result<PlaceAnswer, Error> {
    let request = PlaceRequest {
        player: player(name),
        request: RequestId::fresh(),
        attempt: 1,
        region: None,
        deadline_ms: proxy.agent().store().clock().now_ms() + 5_000,
        earlier: Vec::new(),
        bypass: false,
    };
    proxy.agent().post().call_json(&format!("{backend}:{PLACES}"), RESERVE, &request, Duration::from_secs(5)).await
}

#[tokio::test]
async fn nod_13_a_proxy_with_an_old_view_is_refused_and_a_place_that_was_promised_is_taken_up() {
    let mut fleet = Fleet::new().backend("b1", 10).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let store = &fleet.store;
    let moved = transfer_of(&p1, Request::new(player("alice")).on_server(id("b1"))).await;
    pending(&p1, "b1", "bob").await;
    let mut events = b1.events();

    let (operator_store, verifier) = operator(store).await;
    let drain = drain_name(&id("b1"));
    let entry = Control::default().put(&operator_store, &verifier, &drain, "on", "olga").await.expect("written");
    let mut told = Vec::new();
    while !matches!(told.last(), Some(BackendEvent::Draining { .. })) {
        told.push(tokio::time::timeout(LIMIT, events.recv()).await.expect("told in time").expect("an event"));
    }
    assert_eq!(told.last(), Some(&BackendEvent::Draining { by: "olga".to_owned(), at_ms: entry.at }));

    // Whoever asks all the same.
    match reserve(&p1, "b1", "carol").await {
        Err(Error::Callee { code, message, .. }) => {
            assert_eq!(code, "draining");
            assert!(message.contains("olga"), "{message}");
        }
        other => panic!("a drained backend answered {other:?}"),
    }
    eventually("the proxy hears of it", LIMIT, async || p1.agent().control().is_draining(&id("b1"))).await;
    let refusal = refused(&p1, Request::new(player("carol")).on_server(id("b1"))).await;
    assert_eq!(refusal.reason, Reason::Draining, "{refusal:?}");
    assert_eq!(
        refused(&p1, Request::new(player("carol"))).await.reason,
        Reason::NoCandidate,
        "where there is no other"
    );
    // Promised before: claimed already, and not claimed yet.
    assert!(moved.left_ms() > 0);
    lands(&b1, "alice").await;
    let late = transfer_of(&p1, Request::new(player("bob")).on_server(id("b1"))).await;
    assert_eq!(late.server, id("b1"));
    lands(&b1, "bob").await;
    assert_eq!(b1.promised(), 0);

    // A wiped store: who knew of the drain keeps to it, whoever starts later does not know, and sees it in the row.
    let p2 = proxy(config("p2", "proxy", &store.url())).await;
    eventually("p2 knows", LIMIT, async || p2.agent().control().is_draining(&id("b1"))).await;
    store.flushall().await;
    let p3 = proxy(config("p3", "proxy", &store.url())).await;
    eventually("b1 is back for a newcomer", LIMIT, async || {
        p3.agent().directory().snapshot().get(&id("b1")).is_some_and(|view| !view.record.accepting)
    })
    .await;
    assert!(!p3.agent().control().is_draining(&id("b1")));
    for proxy in [&p1, &p2, &p3] {
        eventually("its lease is back, and it sends nobody there", LIMIT, async || {
            refused(proxy, Request::new(player("dora"))).await.reason == Reason::NoCandidate
        })
        .await;
    }
    eventually("by its row", LIMIT, async || {
        refused(&p3, Request::new(player("dora")).on_server(id("b1"))).await.reason == Reason::Draining
    })
    .await;
    Control::default().put(&operator_store, &verifier, &drain, "off", "olga").await.expect("written");
    let undrained = async {
        loop {
            if events.recv().await == Ok(BackendEvent::Undrained) {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, undrained).await.expect("told in time");
    sees(&p3, &[&b1]).await;
    eventually("p1 knows", LIMIT, async || !p1.agent().control().is_draining(&id("b1"))).await;
    sees(&p1, &[&b1]).await;
    eventually("players come again", LIMIT, async || {
        let request = Request::new(player("dora")).on_server(id("b1"));
        matches!(p1.dispatch(request).await, Outcome::Transfer(_))
    })
    .await;
}

// NOD-13: an operator who waits for a drain would read in `nodes` that the node heard of it.
#[tokio::test]
async fn nod_13_a_label_of_the_file_does_not_say_that_a_drain_was_heard() {
    let store = TestStore::start();
    let mut labelled = config("b1", "backend", &store.url());
    labelled.node.labels.insert(DRAINING_LABEL.to_owned(), "me".to_owned());
    labelled.node.labels.insert("rack".to_owned(), "7".to_owned());
    let b1 = backend(labelled, &Stock::new(1, 1)).await;
    let mut conn = store.conn().await;
    let labels: String =
        redis::cmd("HGET").arg(key("node:b1")).arg("labels").query_async(&mut conn).await.expect("HGET");
    assert!(labels.contains("rack") && !labels.contains(DRAINING_LABEL), "{labels}");
    drop(b1);
}
