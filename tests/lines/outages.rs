//! Cuts, lost replies, a wiped store: nobody is forgotten.

use maitred::agent::Update;

use crate::agents_common::{LIMIT, player};
use crate::support::fault::{Action, FaultProxy};
use crate::support::wait::eventually;
use crate::world::{World, admitted, end, login, sees_accepting, waits};

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

// what a store lost it gets back from the proxies, in the order that each of them knows.
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

// a report of failure whose reply was lost has happened; asked again it must not count twice, nor be late.
#[tokio::test]
async fn r_21_a_failure_whose_reply_was_lost_is_reported_once() {
    let world = World::new();
    let server = world.server("b1", 1).await;
    let wire = FaultProxy::start(&world.store);
    let proxy = world.proxy_at("p1", &wire.url()).await;
    sees_accepting(&proxy, &server, true).await;
    crate::world::gets_in(&proxy, "alice").await;
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
    let mut config = crate::world::lined("p1", "proxy", &wire.url(), &world.line);
    config.store.command_timeout_ms = 100;
    config.store.operation_timeout_ms = 200;
    let proxy = crate::agents_common::proxy(config).await;
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
