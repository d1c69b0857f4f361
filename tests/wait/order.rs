//! Who is served, when, and by whom.

use maitred::agent::config::OnNoCandidate;
use maitred::agent::{Outcome, Reason, Request, WaitUpdate};
use maitred::ids::{LineName, Player};
use maitred::queue::DRAINED_ATTEMPT;
use tokio::time::timeout;

use crate::agents_common::shelf::Shelf;
use crate::agents_common::{LIMIT, backend, config, lands, player, proxy, refused, region, sees};
use crate::support::store::TestStore;
use crate::support::wait::eventually;
use crate::{QUIET, line, queueing, served, tickets, turned_away, wait_proxy, waits, waits_for_any};

// QUE-9 (what it must show): the inventory is empty, 200 wait at two proxies, places come in by seven.
#[tokio::test]
async fn que_9_those_who_wait_are_served_in_order_and_never_by_more_tokens_than_places() {
    const PLAYERS: usize = 200;
    const BATCH: usize = 7;
    let store = TestStore::start();
    let shelf = Shelf::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &shelf).await;
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
        shelf.restock(BATCH as u64);
        b1.restocked();
        given += BATCH;
        for handle in batch.iter_mut() {
            let transfer = served(handle).await;
            assert_eq!((transfer.server.as_str(), transfer.addr.as_str()), ("b1", "b1.example:25565"));
            assert_eq!((&transfer.request, &transfer.player), (handle.request(), handle.player()));
            lands(&b1, handle.player().as_str()).await;
            assert!(b1.promised() + shelf.used() as usize <= given, "more tokens than places");
        }
    }
    let order: Vec<Player> =
        shelf.asked().into_iter().filter(|ask| ask.attempt == DRAINED_ATTEMPT).map(|ask| ask.player).collect();
    let mut first: Vec<Player> = Vec::new();
    order.into_iter().for_each(|player| {
        if !first.contains(&player) {
            first.push(player)
        }
    });
    let wanted: Vec<Player> = (0..PLAYERS).map(|n| player(&format!("p{n:03}"))).collect();
    assert_eq!(first, wanted, "first in, first out, over both proxies");
    assert_eq!(shelf.used(), PLAYERS as u64);
    shelf.all_home().await;
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

    let shelf = Shelf::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &shelf).await;
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let bob = || Request::new(player("bob"));
    assert_eq!(refused(&p1, bob()).await.reason, Reason::Refused);
    let mut waiting = waits(&p2, bob()).await;
    assert_eq!(waiting.position(), Some(2));
    assert_eq!(refused(&p2, bob().bypassing()).await.reason, Reason::Refused);

    shelf.restock(1);
    b1.restocked();
    served(&mut alice).await;
    let told = timeout(LIMIT, waiting.next()).await.expect("a position is told");
    assert!(matches!(told, Some(WaitUpdate::Position { position: Some(1), .. })), "QUE-8: {told:?}");
    shelf.restock(1);
    b1.restocked();
    served(&mut waiting).await;
    assert!(waiting.next().await.is_none(), "it is over");
}

// SEL-7: a world that is asked for is in no ticket, so such a request is refused as before.
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
    worldly.ask.world = Some("overworld".to_owned());
    assert_eq!(refused(&p1, worldly).await.reason, Reason::NoCandidate);
    assert_eq!(turned_away(&mut alice).await.reason, Reason::WaitedTooLong);
    assert!(tickets(&mut store.conn().await, "wait").await.is_empty());
    waits_for_any(&p1, "dave").await;
}

// QUE-9: each region's places go to those who want them, also where the first of the line want others.
#[tokio::test]
async fn que_9_a_region_without_places_does_not_hold_up_the_others() {
    let store = TestStore::start();
    let shelf = Shelf::in_regions(0, 0, &["south"]);
    let b1 = backend(config("b1", "backend", &store.url()), &shelf).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1]).await;
    let mut north = Vec::new();
    for n in 0..70 {
        north.push(waits(&p1, Request::new(player(&format!("n{n}"))).in_region(region("north"))).await);
    }
    let mut south = waits(&p1, Request::new(player("alice")).in_region(region("south"))).await;
    shelf.restock(2);
    b1.restocked();
    assert_eq!(served(&mut south).await.player, player("alice"));
    let wanted: Vec<_> = shelf.asked().iter().filter_map(|ask| ask.region.clone()).collect();
    assert!(wanted.iter().all(|wanted| *wanted == region("south")), "nobody else could use it: {wanted:?}");
    // Nobody waits for the other place, so whoever comes has it.
    assert!(matches!(p1.dispatch(Request::new(player("bob")).in_region(region("south"))).await, Outcome::Transfer(_)));
    assert_eq!(tickets(&mut store.conn().await, "wait").await.len(), 70);
}

// QUE-12: an operator pauses, resumes and empties the line.
#[tokio::test]
async fn que_12_a_wait_line_is_paused_resumed_and_emptied_by_an_operator() {
    let store = TestStore::start();
    let shelf = Shelf::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &shelf).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1]).await;
    let at = line(&store.url(), LineName::wait()).await;
    let (mut alice, mut bob) = (waits_for_any(&p1, "alice").await, waits_for_any(&p1, "bob").await);
    at.pause().await.expect("paused");
    shelf.restock(1);
    b1.restocked();
    assert!(timeout(QUIET, alice.end()).await.is_err(), "nobody is served");
    at.resume().await.expect("resumed");
    served(&mut alice).await;
    assert_eq!(at.clear().await.expect("emptied").out, 1);
    let over = turned_away(&mut bob).await;
    assert_eq!((over.reason, over.reason.message_key()), (Reason::WaitEnded, "waitEnded"));
}

// POL-6: whoever waits is charged once, and not at all where nothing comes of it.
#[tokio::test]
async fn pol_6_a_charge_stands_for_who_is_served_and_is_taken_back_from_who_is_not() {
    let store = TestStore::start();
    let mut limited = queueing("p1", &store.url());
    let name = maitred::ids::LimitName::new("command").expect("a name");
    limited.limits.insert(name, maitred::limit::Limit::cooldown(600_000).expect("a limit"));
    let p1 = proxy(limited).await;
    let waiting = waits_for_any(&p1, "alice").await;
    assert_eq!(refused(&p1, Request::new(player("alice"))).await.reason, Reason::Limited);
    drop(waiting);
    eventually("the charge is taken back", LIMIT, async || {
        let outcome = p1.dispatch(Request::new(player("alice"))).await;
        matches!(outcome, Outcome::Waiting(_))
    })
    .await;
}
