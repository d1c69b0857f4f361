//! Places that lines and tokens promise on one backend: each is counted once, and none is sold twice.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use maitred::queue::PassRefusal;
use maitred::store::scripts;

use super::world::{Server, World, gets_in, sees_accepting};
use crate::fixtures::agents::{LIMIT, player};
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
