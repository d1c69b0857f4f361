//! Cuts, lost replies, a wiped store: nobody is forgotten.

use std::time::Duration;

use futures_util::FutureExt;
use maitred::agent::config::LineConfig;
use maitred::agent::{Entering, Entry, OutReason, Update};
use maitred::node::{CONFIG, Control};
use redis::AsyncCommands;

use super::world::{World, admitted, end, entry, line, lined, login, sees_accepting, waits};
use crate::fixtures::agents::{LIMIT, key, operator, player, proxy as agents_proxy};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::wait::eventually;

// QUE-14: the event of the admission was published while its proxy was cut off.
#[tokio::test]
async fn que_14_an_admission_whose_event_was_lost_is_found_after_the_gap() {
    let world = World::new();
    let server = world.server("b1", 10).await;
    server.accepts(false);
    let wire = FaultProxy::start(&world.store);
    let (p1, p2) = (world.proxy_at("p1", &wire.url()).await, world.proxy("p2").await);
    p1.admits(false);
    sees_accepting(&p1, &server, false).await;
    sees_accepting(&p2, &server, false).await;
    let mut alice = waits(&p1, "alice").await;
    wire.refuse(true);
    wire.cut_all();
    server.accepts(true);
    world.has_waiting(0).await;
    wire.refuse(false);
    wire.pass();
    // Admitted meanwhile, or away because her proxy's lease was over, and in again through it.
    admitted(&mut alice).await;
}

// R-23: what a store lost it gets back from the proxies, in the order that each of them knows.
#[tokio::test]
async fn r_23_after_a_wiped_store_everybody_has_a_place_again_the_foremost_first() {
    let world = World::new();
    let proxy = world.proxy("p1").await;
    let mut visits = Vec::new();
    for name in ["alice", "bob", "carol", "dave"] {
        visits.push(waits(&proxy, name).await);
    }
    let epoch = proxy.agent().lease().epoch();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut world.conn().await).await.expect("FLUSHALL");
    eventually("the proxy is a member anew", LIMIT, async || {
        proxy.agent().lease().is_valid() && proxy.agent().lease().epoch() != epoch
    })
    .await;
    world.has_waiting(4).await;
    let order: Vec<String> =
        world.seen().await.positions(10).await.expect("the store").iter().map(ToString::to_string).collect();
    assert_eq!(order, ["alice", "bob", "carol", "dave"]);
    let server = world.server("b1", 10).await;
    let mut serials = Vec::new();
    for visit in &mut visits {
        serials.push(admitted(visit).await.admission.pass.serial);
    }
    assert!(serials.is_sorted(), "{serials:?}");
    drop(server);
}

// R-23: many enter again at the same time, and none before somebody who stood further in front.
#[tokio::test]
async fn r_23_the_order_of_hundreds_outlives_the_stores_data() {
    let world = World::new();
    let proxy = world.proxy("p1").await;
    let names: Vec<String> = (0..400).map(|number| format!("player-{number}")).collect();
    let mut visits = Vec::new();
    for name in &names {
        visits.push(waits(&proxy, name).await);
    }
    let mut conn = world.conn().await;
    // The scripts too: whoever meets that first is asked twice.
    let _: () =
        redis::pipe().cmd("FLUSHALL").cmd("SCRIPT").arg("FLUSH").query_async(&mut conn).await.expect("FLUSHALL");
    world.has_waiting(400).await;
    let order = world.seen().await.positions(400).await.expect("the store");
    let order: Vec<String> = order.iter().map(ToString::to_string).collect();
    let first = order.iter().zip(&names).position(|(a, b)| a != b);
    assert_eq!(first, None, "{:?}", first.map(|at| (&order[at..], order.len())));
}

// R-23: a store that starts again without its last second, or a replica that lacked it, does not know who entered then.
// They must not hear that their place is gone.
#[tokio::test]
async fn r_23_who_entered_in_the_last_second_that_a_store_lost_has_a_place_again() {
    let world = World::new();
    let wire = FaultProxy::start(&world.store);
    let proxy = world.proxy_at("p1", &wire.url()).await;
    let mut bob = waits(&proxy, "bob").await;
    let mut alice = waits(&proxy, "alice").await;
    let epoch = proxy.agent().lease().epoch();
    let place = Place::of(&world, "alice").await;
    wire.refuse(true);
    wire.cut_all();
    place.take_away(&world, "alice").await;
    wire.refuse(false);
    wire.pass();
    world.has_waiting(2).await;
    assert_eq!(proxy.agent().lease().epoch(), epoch, "the same membership");
    let _server = world.server("b1", 10).await;
    let serials = [admitted(&mut bob).await, admitted(&mut alice).await].map(|one| one.admission.pass.serial);
    assert!(serials.is_sorted(), "she enters again, behind those who did not lose the place");
}

// R-6: a key of another type under the name of one player's pass is that player's matter at most.
#[tokio::test]
async fn r_6_a_pass_key_of_another_type_holds_up_nobody() {
    let world = World::new();
    let server = world.server("b1", 10).await;
    server.accepts(false);
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, false).await;
    let mut alice = waits(&proxy, "alice").await;
    let mut conn = world.conn().await;
    let mut carol = waits(&proxy, "carol").await;
    for name in ["pass:login:alice", "pass:login:bob", "pass:login:carol"] {
        let _: () = conn.rpush(key(name), "x").await.expect("RPUSH");
    }
    let mut bob = waits(&proxy, "bob").await;
    // Whoever is put out hears so.
    Place::of(&world, "carol").await.take_away(&world, "carol").await;
    assert_eq!(end(&mut carol).await, Some(Update::Out { why: OutReason::Gone }));
    server.accepts(true);
    let serials = [admitted(&mut alice).await, admitted(&mut bob).await].map(|one| one.admission.pass.serial);
    assert!(serials.is_sorted(), "{serials:?}");
}

// R-2, R-21: a report of failure whose reply was lost has happened; asked again it must not count twice, nor be late.
#[tokio::test]
async fn r_21_a_failure_whose_reply_was_lost_is_reported_once() {
    let world = World::new();
    let server = world.server("b1", 1).await;
    let wire = FaultProxy::start(&world.store);
    let proxy = world.proxy_at("p1", &wire.url()).await;
    sees_accepting(&proxy, &server, true).await;
    super::world::gets_in(&proxy, "alice").await;
    server.accepts(false);
    sees_accepting(&proxy, &server, false).await;
    let label = format!("EVALSHA {}", maitred::store::scripts::QUEUE_FAILED.pinned());
    wire.drop_next_reply_of(&label, Action::Cut);
    let failure = proxy.failed_admission(&login(), &player("alice"), false).await.expect("the store");
    let maitred::agent::Failure::Back(alice) = failure else { panic!("{failure:?}") };
    assert_eq!(alice.position(), Some(1));
}

// QUE-3: a leave that the store did not answer must reach it in the end.
#[tokio::test]
async fn que_3_a_leave_during_an_outage_is_said_when_the_store_is_back() {
    let world = World::new();
    let wire = FaultProxy::start(&world.store);
    let mut config = super::world::lined("p1", "proxy", &wire.url(), &world.line);
    config.store.command_timeout_ms = 100;
    config.store.operation_timeout_ms = 200;
    let proxy = crate::fixtures::agents::proxy(config).await;
    let mut alice = waits(&proxy, "alice").await;
    wire.refuse(true);
    wire.cut_all();
    let left = proxy.left(&login(), &player("alice"), maitred::agent::Departure::Quit).await;
    assert!(left.is_err_and(|error| error.is_retryable()));
    assert_eq!(end(&mut alice).await, None::<Update>);
    wire.refuse(false);
    wire.pass();
    let line = world.seen().await;
    eventually("she is out", LIMIT, async || {
        line.ticket_of(&player("alice")).await.is_ok_and(|ticket| ticket.is_none())
    })
    .await;
}

// R-22: a ticket that cannot be read is put out at the head. Nobody can read there whose it was, and the event may be lost.
#[tokio::test]
async fn r_22_who_was_put_out_for_an_unreadable_ticket_hears_it_and_nothing_stays() {
    let world = World::new();
    let server = world.server("b1", 10).await;
    server.accepts(false);
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, false).await;
    let (mut alice, mut bob, mut carol) =
        (waits(&proxy, "alice").await, waits(&proxy, "bob").await, waits(&proxy, "carol").await);
    let mut conn = world.conn().await;
    let _: () = conn.hset(key("tickets:login"), "alice", "not a ticket").await.expect("HSET");
    // As if the event of it had been lost.
    let _: () = conn.hdel(key("tickets:login"), "bob").await.expect("HDEL");
    let _: () = conn.zrem(key("line:login"), "bob").await.expect("ZREM");
    server.accepts(true);
    admitted(&mut carol).await;
    for visit in [&mut alice, &mut bob] {
        assert_eq!(end(visit).await, Some(Update::Out { why: OutReason::Gone }), "{}", visit.player());
    }
    eventually("nobody is listed any more", LIMIT, async || !world.exists("vias:login").await).await;
}

// R-23: a look at the line that is under way while the store loses its data and the proxy joins anew finds no ticket, and
// that says nothing: the places are about to be given anew.
#[tokio::test]
async fn r_23_nobody_is_sent_away_by_a_look_that_crosses_with_a_new_epoch() {
    let world = World::new();
    let wire = FaultProxy::start(&world.store);
    let mut config = lined("p1", "proxy", &wire.url(), &world.line);
    config.store.command_timeout_ms = 5_000;
    let proxy = agents_proxy(config).await;
    let mut alice = waits(&proxy, "alice").await;
    let mut conn = world.conn().await;
    // The look hears late who waits through this proxy, and reads the tickets after the join.
    wire.delay_replies_of("SSCAN", Duration::from_millis(400));
    for _ in 0..3 {
        let _: () = redis::cmd("FLUSHALL").query_async(&mut conn).await.expect("FLUSHALL");
        let looks = wire.count("SSCAN");
        eventually("a look began", LIMIT, async || wire.count("SSCAN") > looks).await;
        proxy.agent().beat_now();
        eventually("she has a place again", LIMIT, async || {
            let told = alice.next().now_or_never().flatten();
            assert!(!matches!(told, Some(Update::Out { .. })), "she was sent away: {told:?}");
            conn.zcard::<_, u64>(key("line:login")).await.expect("ZCARD") == 1
        })
        .await;
    }
}

// QUE-10: whoever stands in a lane that was taken away is served with the last one; also where the place has to be
// given anew.
#[tokio::test]
async fn que_10_r_23_players_of_a_lane_that_was_taken_away_have_a_place_again_after_a_wipe() {
    let world = World::with(LineConfig { lanes: vec![1, 1], ..line() });
    let proxy = world.proxy("p1").await;
    let entry = Entry { lane: 1, ..entry("alice") };
    let Entering::Waiting(mut alice) = proxy.enter(entry).await.expect("the store") else { panic!("she is in") };
    let (store, verifier) = operator(&world.store).await;
    let push = r#"{"lines":{"login":{"lanes":[1]}}}"#;
    Control::default().put(&store, &verifier, CONFIG, push, "ops").await.expect("the store");
    eventually("the push is in force", LIMIT, async || proxy.agent().config_version().borrow().is_some()).await;
    let _: () = redis::cmd("FLUSHALL").query_async(&mut world.conn().await).await.expect("FLUSHALL");
    world.has_waiting(1).await;
    let _server = world.server("b1", 10).await;
    admitted(&mut alice).await;
}

/// A player's place in the store, by hand.
struct Place {
    ticket: String,
    score: f64,
    via: String,
}

impl Place {
    async fn of(world: &World, name: &str) -> Self {
        let mut conn = world.conn().await;
        let ticket: String = conn.hget(key("tickets:login"), name).await.expect("HGET");
        let holder: Vec<&str> = ticket.split(' ').skip(2).take(2).collect();
        let via = key(&format!("via:login:{}", holder.join(":")));
        Self { score: conn.zscore(key("line:login"), name).await.expect("ZSCORE"), via, ticket }
    }

    async fn take_away(&self, world: &World, name: &str) {
        let mut conn = world.conn().await;
        let _: () = conn.hdel(key("tickets:login"), name).await.expect("HDEL");
        let _: () = conn.zrem(key("line:login"), name).await.expect("ZREM");
        let _: () = conn.srem(&self.via, name).await.expect("SREM");
    }

    async fn put_back(&self, world: &World, name: &str) {
        let mut conn = world.conn().await;
        let _: () = conn.hset(key("tickets:login"), name, &self.ticket).await.expect("HSET");
        let _: () = conn.zadd(key("line:login"), name, self.score).await.expect("ZADD");
        let _: () = conn.sadd(&self.via, name).await.expect("SADD");
    }
}

// R-21, R-23: a store that lost its last second may know a player by the visit before. The one who came last has the place.
#[tokio::test]
async fn r_23_a_visit_that_a_store_goes_back_behind_keeps_the_place() {
    let world = World::new();
    let wire = FaultProxy::start(&world.store);
    let (p1, p2) = (world.proxy("p1").await, world.proxy_at("p2", &wire.url()).await);
    let mut old = waits(&p1, "alice").await;
    let before = Place::of(&world, "alice").await;
    let new = waits(&p2, "alice").await;
    let after = Place::of(&world, "alice").await;
    assert_eq!(end(&mut old).await, Some(Update::Out { why: OutReason::Elsewhere }));
    wire.refuse(true);
    wire.cut_all();
    after.take_away(&world, "alice").await;
    before.put_back(&world, "alice").await;
    wire.refuse(false);
    wire.pass();
    let line = world.seen().await;
    eventually("the newer visit has the place", LIMIT, async || {
        line.ticket_of(&player("alice"))
            .await
            .is_ok_and(|ticket| ticket.is_some_and(|one| one.session == *new.session()))
    })
    .await;
    let mut new = new;
    let _server = world.server("b1", 10).await;
    admitted(&mut new).await;
}
