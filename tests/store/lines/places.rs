//! Places that lines and tokens promise on one backend: each is counted once, and none is sold twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use maitred::agent::config::{LineConfig, OnNoCandidate};
use maitred::agent::{BackendAgent, Departure, Outcome, Request, WaitUpdate};
use maitred::node::LoadSample;
use maitred::queue::{Choice, PassRefusal};
use maitred::store::scripts;
use tokio::time::timeout;

use super::world::{Server, World, admitted, gets_in, line, lined, login, sees_accepting, waits};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, key, lands, player, proxy, refused, sees, setup, transfer};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::wait::eventually;

// R-39, QUE-7: the first to be told is in, and somebody else with the same pass must not be.
#[tokio::test]
async fn r_39_a_pass_that_is_brought_twice_at_once_lets_one_in() {
    let world = World::new();
    let server = world.server("b1", 100).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    let agent = server.agent.agent();
    for number in 0..20 {
        let name = format!("player-{number}");
        let alice = gets_in(&proxy, &name).await;
        let pass = agent.verify_pass(&alice.pass, &player(&name)).expect("hers");
        let told = join_all((0..3).map(|_| agent.redeem_pass(&pass))).await;
        let told: Vec<_> = told.into_iter().map(|told| told.expect("the store")).collect();
        assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 1, "{name}: {told:?}");
        assert!(told.iter().all(|told| matches!(told, Ok(()) | Err(PassRefusal::Redeemed))), "{told:?}");
    }
}

// whoever gave up never hears the answer, so the one who waited behind may come in.
#[tokio::test]
async fn r_39_the_next_takes_over_a_redemption_that_nobody_waits_for() {
    let world = World::new();
    let wire = FaultProxy::start(&world.store);
    let server = Server::start("b1", &wire.url(), &world.line, 10).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    let agent = server.agent.agent();
    let alice = gets_in(&proxy, "alice").await;
    let pass = agent.verify_pass(&alice.pass, &player("alice")).expect("hers");
    let redeem = format!("EVALSHA {}", scripts::QUEUE_REDEEM.pinned());
    wire.delay_replies_of(&redeem, Duration::from_secs(2));
    let mut first = Box::pin(agent.redeem_pass(&pass));
    eventually("the redemption is at the store", LIMIT, async || {
        assert!((&mut first).now_or_never().is_none());
        wire.count(&redeem) > 0
    })
    .await;
    let mut second = Box::pin(agent.redeem_pass(&pass));
    assert!((&mut second).now_or_never().is_none(), "it waits for the first");
    wire.pass();
    drop(first);
    assert_eq!(second.await.expect("the store"), Ok(()));
    assert_eq!(agent.redeem_pass(&pass).await.expect("the store"), Err(PassRefusal::Redeemed));
}

// a place on each half, and only one of the halves hears of the arrival.
#[tokio::test]
async fn r_40_the_half_that_did_not_redeem_counts_each_player_once() {
    let world = World::with(LineConfig { pick: Choice::BackendAndLink, ..line() });
    let server = world.server("b1", 100).await;
    let proxy = world.proxy("p1").await;
    let there = Arc::new(AtomicU64::new(0));
    let load = {
        let there = Arc::clone(&there);
        move || LoadSample { players: there.load(Ordering::Relaxed), soft_cap: 12, ..LoadSample::default() }
    };
    let link = setup(lined("l1", "link", &world.store.url(), &world.line)).node(load).expect("a link");
    link.set_accepting(true);
    sees_accepting(&proxy, &server, true).await;
    let arrive = Duration::from_millis(world.line.arrive_ms);
    for number in 0..12 {
        let name = format!("player-{number}");
        let came = timeout(arrive / 4, gets_in(&proxy, &name)).await;
        let came = came.unwrap_or_else(|_| panic!("{name} waits although there are places"));
        let pass = server.agent.agent().verify_pass(&came.pass, &player(&name)).expect("theirs");
        assert_eq!(server.agent.agent().redeem_pass(&pass).await.expect("the store"), Ok(()));
        server.players.fetch_add(1, Ordering::Relaxed);
        let now_there = there.fetch_add(1, Ordering::Relaxed) + 1;
        let id = link.lease().id().clone();
        let counts =
            async || proxy.agent().directory().view_of(&id).is_some_and(|view| view.record.players == now_there);
        eventually("the link counts who is there", LIMIT, counts).await;
    }
}

/// A backend with ten places, whose inventory alone has more to give.
async fn stocked(world: &World) -> BackendAgent<Stock> {
    let load = || LoadSample { soft_cap: 10, ..LoadSample::default() };
    let config = lined("b1", "backend", &world.store.url(), &world.line);
    let backend = setup(config).backend(Stock::new(30, 30), load).expect("a backend");
    eventually("the backend is a member", LIMIT, async || backend.agent().joined().await.ok()).await;
    backend
}

// QUE-15: lines and tokens sell the same places.
#[tokio::test]
async fn que_15_a_token_takes_no_place_that_a_line_has_promised() {
    let world = World::new();
    let backend = stocked(&world).await;
    let mut config = lined("p1", "proxy", &world.store.url(), &world.line);
    // Each request asks the backend.
    config.dispatch.cooldown_ms = 0;
    let proxy = proxy(config).await;
    sees(&proxy, &[&backend]).await;
    let mut last = None;
    for number in 0..10 {
        last = Some(gets_in(&proxy, &format!("player-{number}")).await);
    }
    let passes = last.expect("ten").pass;
    for number in 0..6 {
        refused(&proxy, Request::new(player(&format!("guest-{number}")))).await;
    }
    backend.inventory().all_home().await;
    // One of the ten quits, and one place is free.
    assert!(backend.agent().verify_pass(&passes, &player("player-9")).is_ok());
    proxy.left(&login(), &player("player-9"), Departure::Quit).await.expect("the store");
    transfer(&proxy, "guest-0").await;
    refused(&proxy, Request::new(player("guest-1"))).await;
    // Who came by a token is one of the ten as well, before and after the join.
    lands(&backend, "guest-0").await;
    refused(&proxy, Request::new(player("guest-1"))).await;
}

// QUE-15, QUE-9: the same where a place is given to one who waits for it.
#[tokio::test]
async fn que_15_a_wait_line_gives_no_place_that_a_login_line_has_promised() {
    let world = World::new();
    let backend = stocked(&world).await;
    let mut config = lined("p1", "proxy", &world.store.url(), &world.line);
    config.selector.on_no_candidate = OnNoCandidate::Queue;
    let proxy = proxy(config).await;
    sees(&proxy, &[&backend]).await;
    for number in 0..10 {
        gets_in(&proxy, &format!("player-{number}")).await;
    }
    let Outcome::Waiting(mut guest) = proxy.dispatch(Request::new(player("guest"))).await else {
        panic!("there is no place")
    };
    let early = timeout(Duration::from_secs(3), guest.end()).await;
    assert!(early.is_err(), "an eleventh on ten places: {early:?}");
    proxy.left(&login(), &player("player-9"), Departure::Quit).await.expect("the store");
    let served = timeout(LIMIT, guest.end()).await.expect("a place is free");
    assert!(matches!(served, Some(WaitUpdate::Transfer(_))), "{served:?}");
}

// a key of one backend that somebody wrote over is that backend's trouble.
#[tokio::test]
async fn r_42_a_backend_with_a_key_of_another_type_keeps_nobody_from_the_others() {
    for broken in ["due:b1", "held:b1", "via"] {
        let world = World::new();
        let (b1, b2) = (world.server("b1", 50).await, world.server("b2", 50).await);
        let proxy = world.proxy("p1").await;
        for server in [&b1, &b2] {
            server.accepts(false);
            sees_accepting(&proxy, server, false).await;
        }
        let mut visits = Vec::new();
        for n in 0..10 {
            visits.push(waits(&proxy, &format!("player-{n}")).await);
        }
        let via = format!("via:login:p1:{}", proxy.agent().lease().epoch());
        let broken_key = key(if broken == "via" { &via } else { broken });
        let mut conn = world.conn().await;
        redis::pipe().del(&broken_key).set(&broken_key, "x").exec_async(&mut conn).await.expect("SET");
        for server in [&b1, &b2] {
            server.accepts(true);
        }
        for visit in &mut visits {
            let admitted = admitted(visit).await;
            assert!(broken == "via" || admitted.server.as_ref().is_some_and(|id| id.as_str() == "b2"), "{broken}");
        }
    }
}
