//! Into the line: at once, again, through another proxy; positions and what they say.

use maitred::Error;
use maitred::agent::{Entering, Entry, OutReason, Update};
use maitred::ids::LineName;
use maitred::queue::Left;

use super::world::{World, admitted, end, enters, entry, gets_in, line, login, sees_accepting, stands_at, waits};
use crate::fixtures::agents::{LIMIT, id, player};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn que_2_who_finds_nobody_waiting_is_let_in_by_the_same_call_with_the_address() {
    let world = World::new();
    let server = world.server("b1", 10).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    world.gate_is_open().await;
    let Entering::Admitted(alice) = enters(&proxy, "alice").await else { panic!("she waits") };
    assert_eq!((alice.server.clone(), alice.addr.as_deref()), (Some(id("b1")), Some("b1.example:25565")));
    assert_eq!((alice.link.clone(), alice.line.clone(), alice.player.clone()), (None, login(), player("alice")));
    // asked again she has the same pass.
    let Entering::Admitted(again) = enters(&proxy, "alice").await else { panic!("she waits") };
    assert_eq!(again.admission.pass, alice.admission.pass);
    assert!(proxy.arrived(&login(), &player("alice")).await.expect("the store"));
    assert!(!proxy.arrived(&login(), &player("alice")).await.expect("the store"), "once");
}

#[tokio::test]
async fn que_1_entering_again_keeps_the_place_also_through_another_proxy_which_holds_it_then() {
    let world = World::new();
    let (p1, p2) = (world.proxy("p1").await, world.proxy("p2").await);
    let mut alice = waits(&p1, "alice").await;
    let mut bob = waits(&p1, "bob").await;
    assert_eq!((alice.position(), bob.position()), (Some(1), Some(2)));
    let mut elsewhere = waits(&p2, "alice").await;
    assert_eq!(elsewhere.position(), Some(1));
    assert_eq!(end(&mut alice).await, Some(Update::Out { why: OutReason::Elsewhere }));
    assert_eq!(alice.next().await, None, "that was the last");
    // the late leave of the old connection takes nothing away.
    assert_eq!(
        p1.left(&login(), &player("alice"), maitred::agent::Departure::Quit).await.expect("the store"),
        Left::None
    );
    // Here again: the earlier visit here ends at once.
    let here = waits(&p1, "bob").await;
    assert_eq!((here.position(), end(&mut bob).await), (Some(2), Some(Update::Out { why: OutReason::Elsewhere })));
    let server = world.server("b1", 10).await;
    let (first, second) = (admitted(&mut elsewhere).await, admitted(&mut { here }).await);
    assert!(first.admission.pass.serial < second.admission.pass.serial);
    drop(server);
}

#[tokio::test]
async fn que_1_a_full_line_and_a_line_or_lane_that_nobody_configured_are_said_as_such() {
    let world = World::with(maitred::agent::config::LineConfig { max_waiting: 1, ..line() });
    let proxy = world.proxy("p1").await;
    let _alice = waits(&proxy, "alice").await;
    assert!(matches!(enters(&proxy, "bob").await, Entering::Full));
    let nobody = Entry::new(LineName::new("vip").expect("a name"), player("bob"));
    assert!(matches!(proxy.enter(nobody).await, Err(Error::OutOfBounds { what: "line", .. })));
    assert!(matches!(
        proxy.enter(Entry { lane: 1, ..entry("bob") }).await,
        Err(Error::OutOfBounds { what: "lane", .. })
    ));
    assert_eq!(world.seen().await.view().await.expect("the store").waiting, 1);
}

#[tokio::test]
async fn que_8_waiting_players_hear_where_they_stand_and_for_how_long_still() {
    let world = World::new();
    let (p1, p2) = (world.proxy("p1").await, world.proxy("p2").await);
    let alice = waits(&p1, "alice").await;
    let mut bob = waits(&p2, "bob").await;
    let carol = waits(&p1, "carol").await;
    assert_eq!(carol.position(), Some(3));
    assert!(bob.estimate_ms().is_some(), "the gate is open, as far as anybody knows");
    p1.left(&login(), &player("alice"), maitred::agent::Departure::Quit).await.expect("the store");
    // Each proxy tells its own.
    stands_at(&bob, 1).await;
    stands_at(&carol, 2).await;
    let update = super::world::next(&mut bob).await;
    assert!(matches!(update, Some(Update::Position { position: Some(1), .. })), "{update:?}");
    drop(alice);
}

// QUE-3: an application that gives up on an enter forgets the player, so nobody would ever use the place.
#[tokio::test]
async fn que_3_an_enter_that_is_dropped_leaves_the_line_in_the_background() {
    let world = World::new();
    let wire = FaultProxy::start(&world.store);
    let proxy = world.proxy_at("p1", &wire.url()).await;
    let _first = waits(&proxy, "first").await;
    let enter = maitred::store::scripts::QUEUE_ENTER.pinned();
    let label = format!("EVALSHA {enter}");
    let before = wire.count(&label);
    // The reply of the enter never comes, and the application goes away.
    wire.drop_next_reply_of(&label, maitred_testkit::fault::Action::Silent);
    let entering = proxy.enter(entry("alice"));
    tokio::select! {
        entered = entering => panic!("{entered:?}"),
        () = async { eventually("it was sent", LIMIT, async || wire.dropped() > 0).await } => {}
    }
    assert!(wire.count(&label) > before);
    let line = world.seen().await;
    eventually("she is out", LIMIT, async || {
        line.ticket_of(&player("alice")).await.is_ok_and(|ticket| ticket.is_none())
    })
    .await;
    // Entering again begins anew.
    let alice = waits(&proxy, "alice").await;
    assert_eq!(alice.position(), Some(2));
}

#[tokio::test]
async fn que_10_lanes_of_the_config_are_entered_by_number() {
    let world = World::with(maitred::agent::config::LineConfig { lanes: vec![3, 1], ..line() });
    let proxy = world.proxy("p1").await;
    let slow = proxy.enter(Entry { lane: 1, ..entry("slow") }).await.expect("the store");
    let Entering::Waiting(slow) = slow else { panic!("{slow:?}") };
    let _fast = waits(&proxy, "fast").await;
    stands_at(&slow, 2).await;
    let server = world.server("b1", 10).await;
    assert_eq!(gets_in(&proxy, "fast").await.server, Some(id("b1")));
    drop(server);
}
