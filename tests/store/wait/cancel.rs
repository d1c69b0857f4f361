//! DSP-8, QUE-3: players who go while they wait.

use maitred::agent::{Outcome, ProxyAgent, Reason, Request, WaitUpdate, Waiting};
use maitred::ids::LineName;
use maitred::queue::Position;
use maitred::token::CancelOutcome;

use super::{end, line, queueing, served, tickets, turned_away, wait_proxy, waits, waits_for_any};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, lands, player, proxy, sees, state};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn dsp_8_whoever_cancels_or_drops_the_handle_leaves_neither_ticket_nor_token() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let mut conn = fleet.store.conn().await;
    let mut alice = waits_for_any(&p1, "alice").await;
    let outcome = p1.cancel(&player("alice"), alice.request()).await.expect("an answer");
    assert_eq!(outcome, CancelOutcome::Marked);
    assert_eq!(turned_away(&mut alice).await.reason, Reason::Cancelled);
    assert!(tickets(&mut conn, "wait").await.is_empty());
    drop(waits_for_any(&p1, "bob").await);
    eventually("whoever hangs up leaves", LIMIT, async || tickets(&mut conn, "wait").await.is_empty()).await;

    // On the way into the line, at any step.
    for n in 0..30 {
        let request = Request::new(player("carol"));
        let id = request.id.clone();
        let (outcome, cancelled) = tokio::join!(p1.dispatch(request), async {
            tokio::time::sleep(std::time::Duration::from_micros(n * 150)).await;
            p1.cancel(&player("carol"), &id).await
        });
        cancelled.expect("an answer");
        // A handle that was given out all the same says so too.
        match outcome {
            Outcome::Refused(refusal) => assert_eq!(refusal.reason, Reason::Cancelled),
            Outcome::Waiting(mut waiting) => assert_eq!(turned_away(&mut waiting).await.reason, Reason::Cancelled),
            other => panic!("{other:?}"),
        }
        eventually("no ticket is left", LIMIT, async || tickets(&mut conn, "wait").await.is_empty()).await;
    }

    // At the very moment of the turn, by either way.
    for n in 0..20 {
        let name = format!("p{n}");
        let waiting = waits_for_any(&p1, &name).await;
        stock.restock(1);
        let request = waiting.request().clone();
        b1.restocked();
        if n % 2 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(n / 2)).await;
            p1.cancel(&player(&name), &request).await.expect("an answer");
        }
        drop(waiting);
        eventually("no live token is left", LIMIT, async || {
            tickets(&mut conn, "wait").await.is_empty()
                && !matches!(state(&mut conn, &name).await.as_str(), "PENDING" | "CLAIMED")
        })
        .await;
        stock.all_home().await;
        stock.withdraw();
    }
    assert_eq!((b1.promised(), stock.used()), (0, 0));
}

// DSP-8: after the end of the wait the request is cancelled like any other.
#[tokio::test]
async fn dsp_8_a_cancel_after_the_turn_releases_the_place() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let mut alice = waits_for_any(&p1, "alice").await;
    stock.restock(1);
    b1.restocked();
    let transfer = served(&mut alice).await;
    let outcome = p1.cancel(&player("alice"), &transfer.request).await.expect("an answer");
    assert_eq!(outcome, CancelOutcome::Released);
    stock.all_home().await;
}

// QUE-3, QUE-9: the place is kept for who comes back, through whichever proxy.
#[tokio::test]
async fn que_3_a_player_who_dropped_takes_the_place_up_again_through_another_proxy() {
    let store = TestStore::start();
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let (p1, p2) = (wait_proxy("p1", &store.url()).await, wait_proxy("p2", &store.url()).await);
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let mut alice = waits_for_any(&p1, "alice").await;
    let mut bob = waits_for_any(&p1, "bob").await;
    assert!(p1.away(&player("alice"), alice.request()).await.expect("an answer"));
    assert_eq!(turned_away(&mut alice).await.reason, Reason::Cancelled);
    drop(alice);
    let at = line(&store.url(), LineName::wait()).await;
    assert!(matches!(at.position(&player("alice")).await.expect("a place"), Position::Away { .. }));
    let mut back = waits_for_any(&p2, "alice").await;
    assert_eq!(back.position(), Some(1), "where she stood");

    // And without a word from the first proxy: the player is here now.
    let mut there = waits_for_any(&p2, "bob").await;
    assert_eq!(there.position(), Some(2));
    let lost = turned_away(&mut bob).await;
    assert_eq!(lost.reason, Reason::Replaced, "{lost:?}");
    drop(bob);
    // Twice through one proxy: the newer request has the place.
    let mut again = waits(&p2, Request::new(player("bob"))).await;
    assert_eq!((again.position(), turned_away(&mut there).await.reason), (Some(2), Reason::Replaced));
    stock.restock(2);
    b1.restocked();
    served(&mut back).await;
    served(&mut again).await;
}

// DSP-8, R-2: the place of somebody who has gone is free as soon as the store answers again, not when the token expires.
#[tokio::test]
async fn dsp_8_a_cancel_after_the_turn_goes_on_while_the_store_does_not_answer() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(0, 0);
    let mut patient = config("b1", "backend", &store.url());
    patient.tokens.ttl_ms = 600_000;
    let b1 = backend(patient, &stock).await;
    let mut cut_off = queueing("p1", &wire.url());
    (cut_off.store.command_timeout_ms, cut_off.store.operation_timeout_ms) = (300, 500);
    let p1 = proxy(cut_off).await;
    sees(&p1, &[&b1]).await;
    let mut alice = waits_for_any(&p1, "alice").await;
    stock.restock(1);
    b1.restocked();
    let transfer = served(&mut alice).await;
    wire.hold();
    p1.cancel(&player("alice"), &transfer.request).await.expect_err("the store does not answer");
    wire.cut_all();
    wire.resume();
    stock.all_home().await;
}

// QUE-1, DSP-1: however the requests of one player cross, the newest one waits, and its ticket is the only one.
#[tokio::test]
async fn que_1_of_many_requests_of_a_player_one_waits() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let (p1, p2) = (wait_proxy("p1", &store.url()).await, wait_proxy("p2", &store.url()).await);
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    for n in 0..30 {
        let name = format!("u{n}");
        let ask = |proxy| waits_or_lost(proxy, &name);
        let (one, two, three, four) = tokio::join!(ask(&p1), ask(&p2), ask(&p1), ask(&p1));
        let mut open: Vec<_> = [one, two, three, four].into_iter().flatten().collect();
        assert_eq!(tickets(&mut conn, "wait").await, [name.as_str()], "the player waits");
        stock.restock(1);
        b1.restocked();
        let mut transfers = 0;
        for waiting in &mut open {
            match end(waiting).await {
                WaitUpdate::Transfer(_) => transfers += 1,
                WaitUpdate::Refused(refusal) => {
                    assert!(matches!(refusal.reason, Reason::Replaced | Reason::Lost), "{refusal:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(transfers, 1, "{name}");
        lands(&b1, &name).await;
        eventually("no ticket is left", LIMIT, async || tickets(&mut conn, "wait").await.is_empty()).await;
    }
    assert_eq!((b1.promised(), stock.out()), (0, 0));
}

/// A request that waits, or lost its place to another one of the player at once.
async fn waits_or_lost(proxy: &ProxyAgent, name: &str) -> Option<Waiting> {
    match proxy.dispatch(Request::new(player(name))).await {
        Outcome::Waiting(waiting) => Some(waiting),
        Outcome::Refused(refusal) if matches!(refusal.reason, Reason::Replaced | Reason::Lost) => None,
        other => panic!("{other:?}"),
    }
}
