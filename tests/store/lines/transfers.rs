//! After the admission: transfers that fail, players who never come.

use std::time::Duration;

use maitred::agent::config::LineConfig;
use maitred::agent::{Departure, Entering, Failure};
use maitred::queue::{Left, PassRefusal};
use maitred::store::scripts;

use super::world::{World, admitted, enters, gets_in, line, login, sees_accepting, stands_at, waits};
use crate::fixtures::agents::{LIMIT, player};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn que_13_who_could_not_be_moved_is_first_again_and_the_third_time_out() {
    let world = World::new();
    let server = world.server("b1", 1).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    world.gate_is_open().await;
    let Entering::Admitted(first) = enters(&proxy, "alice").await else { panic!("she waits") };
    let mut bob = waits(&proxy, "bob").await;
    assert_eq!(bob.position(), Some(1), "the only place is promised");
    server.accepts(false);
    sees_accepting(&proxy, &server, false).await;

    let failure = proxy.failed_admission(&login(), &player("alice"), false).await.expect("the store");
    let Failure::Back(mut alice) = failure else { panic!("{failure:?}") };
    assert_eq!(alice.position(), Some(1));
    stands_at(&bob, 2).await;
    assert!(matches!(proxy.failed_admission(&login(), &player("alice"), false).await, Ok(Failure::Late)), "once");
    server.accepts(true);
    let second = admitted(&mut alice).await;
    assert!(first.admission.pass.serial < second.admission.pass.serial);
    assert_eq!(first.admission.seq, second.admission.seq, "the place she had from the start");

    let failure = proxy.failed_admission(&login(), &player("alice"), false).await.expect("the store");
    let Failure::Back(mut alice) = failure else { panic!("{failure:?}") };
    admitted(&mut alice).await;
    assert!(matches!(proxy.failed_admission(&login(), &player("alice"), false).await, Ok(Failure::Out)));
    // Her place is free at once.
    admitted(&mut bob).await;
}

#[tokio::test]
async fn r_23_a_failed_transfer_of_a_player_who_is_gone_keeps_the_place_for_the_grace() {
    let world = World::new();
    let server = world.server("b1", 1).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    gets_in(&proxy, "alice").await;
    server.accepts(false);
    sees_accepting(&proxy, &server, false).await;
    let bob = waits(&proxy, "bob").await;
    assert!(matches!(proxy.failed_admission(&login(), &player("alice"), true).await, Ok(Failure::Away)));
    assert_eq!(bob.position(), Some(1), "who is gone holds up nobody");
    assert_eq!(waits(&proxy, "alice").await.position(), Some(1));
}

#[tokio::test]
async fn que_15_the_place_of_who_never_comes_is_used_again_and_a_late_pass_counts_anew() {
    let world = World::with(LineConfig { arrive_ms: 1_500, ..line() });
    let server = world.server("b1", 1).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    let alice = gets_in(&proxy, "alice").await;
    let mut bob = waits(&proxy, "bob").await;
    // Nobody tells that alice did not come: her promise ends by itself.
    let bob = admitted(&mut bob).await;
    let agent = server.agent.agent();
    let late = agent.verify_pass(&alice.pass, &player("alice")).expect("her pass");
    assert_eq!(agent.redeem_pass(&late).await.expect("the store"), Err(PassRefusal::PlaceGone));
    let his = agent.verify_pass(&bob.pass, &player("bob")).expect("his pass");
    assert_eq!(agent.redeem_pass(&his).await.expect("the store"), Ok(()));
    assert!(proxy.arrived(&login(), &player("bob")).await.expect("the store"));
    // the pass is void, but not the place in the line.
    let failure = proxy.failed_admission(&login(), &player("alice"), false).await.expect("the store");
    assert!(matches!(failure, Failure::Back(ref visit) if visit.position() == Some(1)), "{failure:?}");
    // The player who came is counted by the server's own beats, so that no place is sold twice.
    server.players.store(1, std::sync::atomic::Ordering::Relaxed);
    agent.beat_now();
    let Failure::Back(mut alice) = failure else { unreachable!() };
    let held = async || !world.exists("held:b1").await;
    eventually("a beat has named the arrival", LIMIT, held).await;
    assert!(tokio::time::timeout(Duration::from_millis(400), admitted(&mut alice)).await.is_err(), "it is full");
    server.players.store(0, std::sync::atomic::Ordering::Relaxed);
    admitted(&mut alice).await;
}

// the application gives up the report of failure when the store has already put the player back in front.
#[tokio::test]
async fn r_37_a_report_of_failure_that_is_dropped_leaves_nobody_in_between() {
    let world = World::new();
    let server = world.server("b1", 5).await;
    let wire = FaultProxy::start(&world.store);
    let proxy = world.proxy_at("p1", &wire.url()).await;
    sees_accepting(&proxy, &server, true).await;
    gets_in(&proxy, "alice").await;
    server.accepts(false);
    sees_accepting(&proxy, &server, false).await;
    let position = format!("EVALSHA {}", scripts::QUEUE_POSITION.pinned());
    wire.delay_replies_of(&position, LIMIT);
    let asked = wire.count(&position);
    let (line, alice) = (login(), player("alice"));
    {
        let report = proxy.failed_admission(&line, &alice, false);
        let is_asked = eventually("the position is asked", LIMIT, async || wire.count(&position) > asked);
        tokio::select! {
            biased;
            () = is_asked => {}
            failure = report => panic!("it ended: {failure:?}"),
        }
    }
    wire.pass();
    server.accepts(true);
    // Admitted once more, as far as this proxy knows.
    let again = async || {
        let failure = proxy.failed_admission(&line, &alice, false).await.expect("the store");
        matches!(failure, Failure::Back(_))
    };
    eventually("the player goes on", LIMIT, again).await;
}

// a proxy often learns of a broken connection long after the player came back through another one.
#[tokio::test]
async fn r_21_a_late_goodbye_does_not_void_the_pass_of_a_later_visit() {
    let world = World::new();
    let server = world.server("b1", 5).await;
    let (p1, p2) = (world.proxy("p1").await, world.proxy("p2").await);
    sees_accepting(&p1, &server, true).await;
    for (name, is_drop) in [("alice", true), ("bob", false)] {
        let first = gets_in(&p1, name).await;
        let second = gets_in(&p2, name).await;
        assert_eq!(first.admission.pass, second.admission.pass, "the same pass");
        if is_drop {
            let left = p1.left(&login(), &player(name), Departure::Dropped).await.expect("the store");
            assert_eq!(left, Left::None, "{name}");
        } else {
            let failure = p1.failed_admission(&login(), &player(name), false).await.expect("the store");
            assert!(matches!(failure, Failure::Late), "{failure:?}");
        }
        let agent = server.agent.agent();
        let pass = agent.verify_pass(&second.pass, &player(name)).expect("the pass");
        assert_eq!(agent.redeem_pass(&pass).await.expect("the store"), Ok(()), "{name}");
    }
}
