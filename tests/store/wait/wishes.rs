//! What a wish costs while it waits, and what is said of one that nobody serves or that a newer one replaces.

use maitred::agent::{Outcome, ProxyAgent, Reason, Request};
use maitred::ids::{LimitName, LineName, OperationId};
use maitred::limit::{Limit, Verdict};

use super::{queueing, served, tickets, turned_away, wait_proxy, waits, waits_for_any};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, id, key, lands, player, proxy, refused, region, sees};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

fn command() -> LimitName {
    LimitName::new("command").expect("a name")
}

/// Whether the limit of commands lets the player through now. What that costs is given back.
async fn is_let_through(proxy: &ProxyAgent, name: &str) -> bool {
    let (agent, op) = (proxy.agent(), OperationId::fresh());
    let verdict = agent.take_limit(&command(), &player(name), &op).await.expect("the store").expect("the limit");
    let is_through = matches!(verdict, Verdict::Allowed { .. });
    if is_through {
        assert!(agent.refund_limit(&command(), &player(name), &op).await.expect("the store"));
    }
    is_through
}

// QUE-9: a proxy and a link give no places, so whoever waited for one would wait for ever.
#[tokio::test]
async fn que_9_nobody_waits_for_a_node_that_gives_no_places() {
    let store = TestStore::start();
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let (p1, p2) = (wait_proxy("p1", &store.url()).await, wait_proxy("p2", &store.url()).await);
    sees(&p1, &[&b1]).await;
    eventually("the other proxy is in view", LIMIT, async || p1.agent().directory().view_of(&id("p2")).is_some()).await;
    for node in ["p1", "p2"] {
        let refusal = refused(&p1, Request::new(player("alice")).on_server(id(node))).await;
        assert_eq!(refusal.reason, Reason::NoCandidate, "{refusal:?}");
        assert!(refusal.detail.contains(node) && refusal.detail.contains("proxy"), "{refusal:?}");
        assert!(tickets(&mut store.conn().await, &format!("wait.{node}")).await.is_empty());
    }
    assert_eq!(
        waits(&p1, Request::new(player("alice")).on_server(id("b1"))).await.line(),
        &LineName::wait_for(&id("b1"))
    );
    drop(p2);
}

// POL-6: the store knows a charge for 75 s only. One that is kept for longer can never be taken back, and a player who got
// no place is shut out by it.
#[tokio::test]
async fn pol_6_whoever_waits_is_charged_at_the_hand_over() {
    let store = TestStore::start();
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let mut limited = queueing("p1", &store.url());
    limited.limits.insert(command(), Limit::cooldown(600_000).expect("a limit"));
    let p1 = proxy(limited).await;
    sees(&p1, &[&b1]).await;
    let mut waiting = waits_for_any(&p1, "alice").await;
    assert!(is_let_through(&p1, "alice").await, "nothing is charged while she waits");
    stock.restock(1);
    b1.restocked();
    served(&mut waiting).await;
    assert!(!is_let_through(&p1, "alice").await, "she has her place");
    lands(&b1, "alice").await;
}

// POL-6: however long a request waits, no more of them end in a place than the limit lets through.
#[tokio::test]
async fn pol_6_a_turn_that_the_limit_does_not_let_through_gives_the_place_back() {
    let store = TestStore::start();
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let mut limited = queueing("p1", &store.url());
    limited.limits.insert(command(), Limit::cooldown(600_000).expect("a limit"));
    let p1 = proxy(limited).await;
    sees(&p1, &[&b1]).await;
    let mut waiting = waits_for_any(&p1, "alice").await;
    let used = p1.agent().take_limit(&command(), &player("alice"), &OperationId::fresh()).await.expect("the store");
    assert!(matches!(used, Some(Verdict::Allowed { .. })));
    stock.restock(1);
    b1.restocked();
    let refusal = turned_away(&mut waiting).await;
    assert_eq!(refusal.reason, Reason::Limited, "{refusal:?}");
    assert!(refusal.retry_after_ms.is_some_and(|wait| wait > 500_000), "{refusal:?}");
    stock.all_home().await;
    assert!(matches!(p1.dispatch(Request::new(player("bob"))).await, Outcome::Transfer(_)), "the place is free again");
}

// what stands in the way of one player's turn ends that wait, and the place that was kept for it goes back.
#[tokio::test]
async fn r_37_a_turn_that_cannot_be_taken_gives_the_place_back() {
    let store = TestStore::start();
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let mut limited = queueing("p1", &store.url());
    limited.limits.insert(command(), Limit::cooldown(600_000).expect("a limit"));
    let p1 = proxy(limited).await;
    sees(&p1, &[&b1]).await;
    let mut waiting = waits_for_any(&p1, "alice").await;
    let mut conn = store.conn().await;
    redis::cmd("RPUSH").arg(key("limit:command:alice")).arg("x").exec_async(&mut conn).await.expect("RPUSH");
    stock.restock(1);
    b1.restocked();
    let refusal = turned_away(&mut waiting).await;
    assert_ne!(refusal.reason, Reason::Limited, "{refusal:?}");
    let state =
        async || redis::cmd("HGET").arg(key("token:alice")).arg("state").query_async(&mut store.conn().await).await;
    eventually("the token has ended", LIMIT / 2, async || {
        state().await.is_ok_and(|state: Option<String>| state.as_deref() == Some("RELEASED"))
    })
    .await;
    stock.all_home().await;
}

// QUE-9: told that the place is lost, a player who has it still goes away or asks once more.
#[tokio::test]
async fn que_9_whoever_asks_again_while_waiting_hears_that_the_newer_request_waits() {
    let store = TestStore::start();
    let (p1, p2) = (wait_proxy("p1", &store.url()).await, wait_proxy("p2", &store.url()).await);
    let mut first = waits_for_any(&p1, "alice").await;
    let _bob = waits_for_any(&p1, "bob").await;
    let mut second = waits_for_any(&p1, "alice").await;
    let told = turned_away(&mut first).await;
    assert_eq!(told.reason, Reason::Replaced, "{told:?}");
    assert!(!told.message.contains("no longer"), "the place is kept: {told:?}");
    assert_eq!(second.position(), Some(1), "the place is kept");
    // Through another proxy it is the same player with the same place.
    let third = waits_for_any(&p2, "alice").await;
    assert_eq!((turned_away(&mut second).await.reason, third.position()), (Reason::Replaced, Some(1)));
}

// QUE-8: the line moves past a wish that nobody serves, and its pace says nothing of that one.
#[tokio::test]
async fn que_8_a_wish_that_no_node_serves_has_no_estimate() {
    let store = TestStore::start();
    let stock = Stock::in_regions(0, 0, &["south"]);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1]).await;
    let mistyped = waits(&p1, Request::new(player("alice")).in_region(region("suoth"))).await;
    let mut nowhere = Request::new(player("nora"));
    nowhere.ask.world = Some("nowhere".to_owned());
    let nowhere = waits(&p1, nowhere).await;
    let mut others = Vec::new();
    for n in 0..4 {
        others.push(waits(&p1, Request::new(player(&format!("n{n}"))).in_region(region("south"))).await);
    }
    let last = waits_for_any(&p1, "zoe").await;
    for other in &mut others {
        stock.restock(1);
        b1.restocked();
        served(other).await;
    }
    eventually("the last one hears of the pace", LIMIT, async || last.estimate_ms().is_some()).await;
    // Everybody of the line is told in the same round as the last one, or in the next.
    let told = last.estimate_ms();
    eventually("another round", LIMIT, async || last.estimate_ms() != told).await;
    assert_eq!((mistyped.position(), mistyped.estimate_ms()), (Some(1), None));
    assert_eq!((nowhere.position(), nowhere.estimate_ms()), (Some(2), None));
}
