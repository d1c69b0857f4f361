//! Out of the line: dropped, for good, with the proxy, and places that nobody uses.

use maitred::agent::config::LineConfig;
use maitred::agent::{Departure, Entering, OutReason, Update};
use maitred::ids::{NodeEpoch, SessionId};
use maitred::queue::{Attributes, Left};
use redis::AsyncCommands;

use super::world::{World, admitted, end, enters, line, login, sees_accepting, waits};
use crate::fixtures::agents::{LIMIT, id, key, player};
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn que_3_who_dropped_at_the_head_holds_up_nobody_and_has_the_place_through_another_proxy() {
    let world = World::new();
    let (p1, p2) = (world.proxy("p1").await, world.proxy("p2").await);
    let mut alice = waits(&p1, "alice").await;
    let mut bob = waits(&p1, "bob").await;
    let mut carol = waits(&p2, "carol").await;
    assert_eq!(p1.left(&login(), &player("alice"), Departure::Dropped).await.expect("the store"), Left::Away);
    assert_eq!(alice.next().await, None, "the visit is over without a further word");
    let _server = world.server("b1", 1).await;
    let bob = admitted(&mut bob).await;
    // She is back before carol, who came later.
    let mut alice = waits(&p2, "alice").await;
    assert_eq!(alice.position(), Some(1));
    assert_eq!(p1.left(&login(), &player("bob"), Departure::Quit).await.expect("the store"), Left::Left);
    let alice = admitted(&mut alice).await;
    assert_eq!(p2.left(&login(), &player("alice"), Departure::Quit).await.expect("the store"), Left::Left);
    let carol = admitted(&mut carol).await;
    let serials = [bob, alice, carol].map(|one| one.admission.pass.serial);
    assert!(serials.is_sorted(), "{serials:?}");
}

#[tokio::test]
async fn que_3_after_the_grace_the_place_is_gone_and_its_keys_too() {
    let world = World::with(LineConfig { reconnect_grace_ms: 200, ..line() });
    let proxy = world.proxy("p1").await;
    let _alice = waits(&proxy, "alice").await;
    let _bob = waits(&proxy, "bob").await;
    proxy.left(&login(), &player("alice"), Departure::Dropped).await.expect("the store");
    let line = world.seen().await;
    eventually("the sweep takes the place", LIMIT, async || {
        line.ticket_of(&player("alice")).await.is_ok_and(|ticket| ticket.is_none())
    })
    .await;
    assert_eq!(waits(&proxy, "alice").await.position(), Some(2));
    for name in ["alice", "bob"] {
        assert_eq!(proxy.left(&login(), &player(name), Departure::Quit).await.expect("the store"), Left::Left);
        assert_eq!(proxy.left(&login(), &player(name), Departure::Quit).await.expect("the store"), Left::None);
    }
    for rest in ["line:login", "tickets:login", "away:login", "vias:login", "lines"] {
        assert!(!world.exists(rest).await, "{rest} is left");
    }
}

// QUE-3: a proxy that dies takes nobody's place with it.
#[tokio::test]
async fn que_3_players_of_a_dead_proxy_come_back_to_their_places() {
    let world = World::new();
    let (p1, p2) = (world.proxy("p1").await, world.proxy("p2").await);
    let _alice = waits(&p1, "alice").await;
    let mut bob = waits(&p2, "bob").await;
    let _carol = waits(&p1, "carol").await;
    drop(p1);
    // Its lease ends; then bob is the first, whoever was before him.
    super::world::stands_at(&bob, 1).await;
    let mut carol = waits(&p2, "carol").await;
    let mut alice = waits(&p2, "alice").await;
    assert_eq!(alice.position(), Some(1));
    let server = world.server("b1", 10).await;
    let mut serials = Vec::new();
    for visit in [&mut alice, &mut bob, &mut carol] {
        serials.push(admitted(visit).await.admission.pass.serial);
    }
    assert!(serials.is_sorted(), "{serials:?}");
    drop(server);
}

#[tokio::test]
async fn que_3_an_agent_that_leaves_ends_its_visits_and_does_not_wait_for_them() {
    let world = World::new();
    let (p1, p2) = (world.proxy("p1").await, world.proxy("p2").await);
    let mut alice = waits(&p1, "alice").await;
    p1.leave().await;
    drop(p1);
    assert_eq!(end(&mut alice).await, None);
    assert_eq!(waits(&p2, "alice").await.position(), Some(1));
}

// whoever drops on the way to the server has the place when they come back.
#[tokio::test]
async fn r_23_an_admitted_player_who_drops_goes_back_to_the_place() {
    let world = World::new();
    let server = world.server("b1", 1).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    world.gate_is_open().await;
    assert!(matches!(enters(&proxy, "alice").await, Entering::Admitted(_)));
    server.accepts(false);
    sees_accepting(&proxy, &server, false).await;
    let mut bob = waits(&proxy, "bob").await;
    assert_eq!(proxy.left(&login(), &player("alice"), Departure::Dropped).await.expect("the store"), Left::Away);
    let mut alice = waits(&proxy, "alice").await;
    assert_eq!(alice.position(), Some(1));
    server.accepts(true);
    let first = admitted(&mut alice).await;
    assert_eq!(proxy.left(&login(), &player("alice"), Departure::Quit).await.expect("the store"), Left::Left);
    // The promised place is free at once.
    assert!(first.admission.pass.serial < admitted(&mut bob).await.admission.pass.serial);
}

// QUE-12: emptied by an operator, or by hand without an event, players must not wait for what never comes.
#[tokio::test]
async fn que_12_who_is_put_out_hears_of_it_also_without_an_event() {
    let world = World::new();
    let proxy = world.proxy("p1").await;
    let mut alice = waits(&proxy, "alice").await;
    let epoch = proxy.agent().lease().epoch();
    let mut conn = world.conn().await;
    let _: u64 = conn.zrem(key("line:login"), "alice").await.expect("ZREM");
    let _: u64 = conn.hdel(key("tickets:login"), "alice").await.expect("HDEL");
    let _: u64 = conn.srem(key(&format!("via:login:p1:{epoch}")), "alice").await.expect("SREM");
    assert_eq!(end(&mut alice).await, Some(Update::Out { why: OutReason::Gone }));
    let mut bob = waits(&proxy, "bob").await;
    world.seen().await.clear().await.expect("the store");
    assert_eq!(end(&mut bob).await, Some(Update::Out { why: OutReason::Gone }));
}

// a place in which a member's index has no player any more is given anew, where it was.
#[tokio::test]
async fn r_23_who_is_lost_to_the_index_enters_again_and_keeps_the_place() {
    let world = World::new();
    let proxy = world.proxy("p1").await;
    let alice = waits(&proxy, "alice").await;
    let _bob = waits(&proxy, "bob").await;
    let line = world.seen().await;
    let holder = maitred::ids::NodeEpoch { id: id("p1"), epoch: proxy.agent().lease().epoch() };
    // Somebody says that she dropped, but she is here.
    line.away(&holder, &player("alice"), alice.session()).await.expect("the store");
    eventually("she waits again", LIMIT, async || {
        matches!(line.position(&player("alice")).await, Ok(maitred::queue::Position::Waiting { position: 1, .. }))
    })
    .await;
}

// QUE-3: without it a call whose outcome nobody learnt holds a place for as long as its proxy lives.
#[tokio::test]
async fn que_3_a_place_that_no_player_of_the_proxy_uses_is_given_up() {
    let world = World::new();
    let proxy = world.proxy("p1").await;
    let lease = proxy.agent().lease();
    let me = NodeEpoch { id: lease.id().clone(), epoch: lease.epoch() };
    let line = world.seen().await;
    let entered = line.enter(&me, &player("ghost"), 0, &SessionId::fresh(), &Attributes::default(), None).await;
    entered.expect("the store");
    let bob = waits(&proxy, "bob").await;
    assert_eq!(bob.position(), Some(2));
    super::world::stands_at(&bob, 1).await;
}

// QUE-12, R-21: whoever was in before and waits again has a pass of that time. It is no newer visit: told so, the player
// would not enter again.
#[tokio::test]
async fn que_12_who_is_put_out_after_an_earlier_admission_hears_that_the_place_is_gone() {
    let world = World::new();
    let server = world.server("b1", 10).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    let first = super::world::gets_in(&proxy, "alice").await;
    let pass = server.agent.agent().verify_pass(&first.pass, &player("alice")).expect("hers");
    server.agent.agent().redeem_pass(&pass).await.expect("the store").expect("spent");
    assert!(proxy.arrived(&login(), &player("alice")).await.expect("the store"));
    server.accepts(false);
    sees_accepting(&proxy, &server, false).await;
    let mut again = waits(&proxy, "alice").await;
    world.seen().await.clear().await.expect("the store");
    assert_eq!(end(&mut again).await, Some(Update::Out { why: OutReason::Gone }));
}
