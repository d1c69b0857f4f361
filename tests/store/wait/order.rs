//! Who is served, when, and by whom.

use std::sync::{Arc, Mutex};

use maitred::agent::config::OnNoCandidate;
use maitred::agent::{Outcome, Reason, Request, WaitUpdate};
use maitred::ids::{LineName, Player};
use maitred::node::{Control, Load, LoadSample, drain_name, kill_name};
use maitred::queue::DRAINED_ATTEMPT;
use tokio::time::timeout;

use super::{QUIET, line, queueing, served, tickets, turned_away, wait_proxy, waits, waits_for_any};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, id, lands, operator, player, proxy, refused, region, sees, setup,
};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

// QUE-9: the inventory is empty, 200 wait at two proxies, places come in by seven.
#[tokio::test]
async fn que_9_those_who_wait_are_served_in_order_and_never_by_more_tokens_than_places() {
    const PLAYERS: usize = 200;
    const BATCH: usize = 7;
    let store = TestStore::start();
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let (p1, p2) = (wait_proxy("p1", &store.url()).await, wait_proxy("p2", &store.url()).await);
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let mut waiting = Vec::new();
    for n in 0..PLAYERS {
        let proxy = if n % 2 == 0 { &p1 } else { &p2 };
        let handle = waits_for_any(proxy, &format!("p{n:03}")).await;
        assert_eq!((handle.line(), handle.position()), (&LineName::wait(), Some(n as u64 + 1)));
        waiting.push(handle);
    }
    let mut given = 0;
    for batch in waiting.chunks_mut(BATCH) {
        stock.restock(BATCH as u64);
        b1.restocked();
        given += BATCH;
        for handle in batch.iter_mut() {
            let transfer = served(handle).await;
            assert_eq!((transfer.server.as_str(), transfer.addr.as_str()), ("b1", "b1.example:25565"));
            assert_eq!((&transfer.request, &transfer.player), (handle.request(), handle.player()));
            lands(&b1, handle.player().as_str()).await;
            assert!(b1.promised() + stock.used() as usize <= given, "more tokens than places");
        }
    }
    let order: Vec<Player> =
        stock.asked().into_iter().filter(|ask| ask.attempt == DRAINED_ATTEMPT).map(|ask| ask.player).collect();
    let mut first: Vec<Player> = Vec::new();
    order.into_iter().for_each(|player| {
        if !first.contains(&player) {
            first.push(player)
        }
    });
    let wanted: Vec<Player> = (0..PLAYERS).map(|n| player(&format!("p{n:03}"))).collect();
    assert_eq!(first, wanted, "first in, first out, over both proxies");
    assert_eq!(stock.used(), PLAYERS as u64);
    stock.all_home().await;
    assert!(tickets(&mut store.conn().await, "wait").await.is_empty());
}

// SEL-7: the same request with either policy, and with the right to pass by.
#[tokio::test]
async fn sel_7_no_candidate_and_no_place_end_or_wait_as_the_config_says() {
    let store = TestStore::start();
    let mut refusing = queueing("p1", &store.url());
    refusing.selector.on_no_candidate = OnNoCandidate::Refuse;
    let (p1, p2) = (proxy(refusing).await, wait_proxy("p2", &store.url()).await);
    let ask = || Request::new(player("alice"));
    assert_eq!(refused(&p1, ask()).await.reason, Reason::NoCandidate, "there is no backend");
    let mut alice = waits(&p2, ask()).await;
    assert_eq!(refused(&p2, ask().bypassing()).await.reason, Reason::NoCandidate, "fails fast");

    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let bob = || Request::new(player("bob"));
    assert_eq!(refused(&p1, bob()).await.reason, Reason::Refused);
    let mut waiting = waits(&p2, bob()).await;
    assert_eq!(waiting.position(), Some(2));
    assert_eq!(refused(&p2, bob().bypassing()).await.reason, Reason::Refused);

    stock.restock(1);
    b1.restocked();
    served(&mut alice).await;
    let told = timeout(LIMIT, waiting.next()).await.expect("a position is told");
    assert!(matches!(told, Some(WaitUpdate::Position { position: Some(1), .. })), "QUE-8: {told:?}");
    stock.restock(1);
    b1.restocked();
    served(&mut waiting).await;
    assert!(waiting.next().await.is_none(), "it is over");
}

// SEL-7: a wish that no ticket has room for is refused as before, and the operator is told why it does not wait.
#[tokio::test]
async fn que_9_a_full_line_a_wish_that_no_ticket_holds_and_too_long_a_wait_are_typed() {
    let store = TestStore::start();
    let mut small = queueing("p1", &store.url());
    small.wait.max_waiting = 1;
    small.wait.max_wait_ms = 300;
    let p1 = proxy(small).await;
    let mut alice = waits_for_any(&p1, "alice").await;
    let full = refused(&p1, Request::new(player("bob"))).await;
    assert_eq!(
        (full.reason, full.message.as_str()),
        (Reason::QueueFull, p1.agent().config().texts.queue_full.as_str())
    );
    let mut worldly = Request::new(player("carol"));
    worldly.ask.world = Some("w".repeat(60));
    let told = refused(&p1, worldly).await;
    assert_eq!(told.reason, Reason::NoCandidate);
    assert!(told.detail.contains("cannot wait for that") && told.detail.contains("allowed are 64"), "{told:?}");
    assert_eq!(turned_away(&mut alice).await.reason, Reason::WaitedTooLong);
    assert!(tickets(&mut store.conn().await, "wait").await.is_empty());
    waits_for_any(&p1, "dave").await;
}

// QUE-9: each region's places go to those who want them, also where the first of the line want others.
#[tokio::test]
async fn que_9_a_region_without_places_does_not_hold_up_the_others() {
    let store = TestStore::start();
    let stock = Stock::in_regions(0, 0, &["south"]);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1]).await;
    let mut north = Vec::new();
    for n in 0..70 {
        north.push(waits(&p1, Request::new(player(&format!("n{n}"))).in_region(region("north"))).await);
    }
    let mut south = waits(&p1, Request::new(player("alice")).in_region(region("south"))).await;
    stock.restock(2);
    b1.restocked();
    assert_eq!(served(&mut south).await.player, player("alice"));
    let wanted: Vec<_> = stock.asked().iter().filter_map(|ask| ask.region.clone()).collect();
    assert!(wanted.iter().all(|wanted| *wanted == region("south")), "nobody else could use it: {wanted:?}");
    // Nobody waits for the other place, so whoever comes has it.
    assert!(matches!(p1.dispatch(Request::new(player("bob")).in_region(region("south"))).await, Outcome::Transfer(_)));
    assert_eq!(tickets(&mut store.conn().await, "wait").await.len(), 70);
}

// QUE-9, SEL-4: whoever asks for a world waits for it, and is not sent where it is not; also at a server asked for by name.
#[tokio::test]
async fn que_9_a_world_is_waited_for_and_served_where_it_is_loaded() {
    let store = TestStore::start();
    let (plain, nether) = (Stock::new(0, 0), Stock::new(0, 0));
    let loaded = Arc::new(Mutex::new(Vec::<String>::new()));
    let b1 = backend(config("b1", "backend", &store.url()), &plain).await;
    let load = {
        let loaded = Arc::clone(&loaded);
        move || {
            let worlds = loaded.lock().expect("no panic").clone();
            LoadSample { load: Load { worlds, ..Load::default() }, ..LoadSample::default() }
        }
    };
    let b2 = setup(config("b2", "backend", &store.url())).backend(nether.clone(), load).expect("a backend");
    eventually("the backend is a member", LIMIT, async || b2.agent().joined().await.ok()).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1, &b2]).await;
    let ask = |name: &str| {
        let mut request = Request::new(player(name));
        request.ask.world = Some("the nether".to_owned());
        request
    };
    let mut alice = waits(&p1, ask("alice")).await;
    let mut bob = waits(&p1, ask("bob").on_server(id("b2"))).await;
    let mut carol = waits_for_any(&p1, "carol").await;
    for (server, stock) in [(&b1, &plain), (&b2, &nether)] {
        stock.restock(1);
        server.restocked();
    }
    let carols = served(&mut carol).await.server.clone();
    loaded.lock().expect("no panic").push("the nether".to_owned());
    b2.agent().beat_now();
    nether.restock(2);
    b2.restocked();
    for waiting in [&mut alice, &mut bob] {
        assert_eq!(served(waiting).await.server, id("b2"));
    }
    assert_eq!((plain.out(), nether.out()), if carols == id("b1") { (1, 2) } else { (0, 3) });
}

// QUE-12: an operator pauses, resumes and empties the line.
#[tokio::test]
async fn que_12_a_wait_line_is_paused_resumed_and_emptied_by_an_operator() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    let at = line(&store.url(), LineName::wait()).await;
    let (mut alice, mut bob) = (waits_for_any(&p1, "alice").await, waits_for_any(&p1, "bob").await);
    at.pause().await.expect("paused");
    stock.restock(1);
    b1.restocked();
    assert!(timeout(QUIET, alice.end()).await.is_err(), "nobody is served");
    at.resume().await.expect("resumed");
    served(&mut alice).await;
    assert_eq!(at.clear().await.expect("emptied").out, 1);
    let over = turned_away(&mut bob).await;
    assert_eq!((over.reason, over.reason.message_key()), (Reason::WaitEnded, "waitEnded"));
}

// QUE-9, NOD-13, POL-4: a backend that is drained or switched off serves nobody, and goes on once it may.
#[tokio::test]
async fn que_9_a_drain_and_a_kill_switch_stop_the_serving_and_keep_the_line() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    let (at, verifier) = operator(store).await;
    let by_hand = Control::default();
    for (name, switch) in [("alice", drain_name(&id("b1"))), ("bob", kill_name(&id("b1")))] {
        let mut waiting = waits_for_any(&p1, name).await;
        by_hand.put(&at, &verifier, &switch, "on", "olga").await.expect("written");
        eventually("the backend hears of it", LIMIT, async || {
            let control = b1.agent().control();
            control.is_killed(&id("b1")) || control.is_draining(&id("b1"))
        })
        .await;
        stock.restock(1);
        b1.restocked();
        assert!(timeout(QUIET, waiting.end()).await.is_err(), "{switch} is on");
        assert_eq!(b1.promised(), 0);
        by_hand.put(&at, &verifier, &switch, "off", "olga").await.expect("written");
        served(&mut waiting).await;
        lands(&b1, name).await;
    }
}
