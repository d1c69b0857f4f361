//! What those who wait are told of how long it takes.

use maitred::agent::Visit;
use maitred::agent::config::LineConfig;

use super::world::{World, line, sees_accepting, waits};
use crate::fixtures::agents::LIMIT;
use maitred_testkit::wait::eventually;

async fn hears_no_time(visit: &Visit) {
    eventually("the player hears that nobody is admitted", LIMIT, async || {
        visit.position().is_some() && visit.estimate_ms().is_none()
    })
    .await;
}

// QUE-8: a player who is told "one second" before a fleet without a free place waits for nothing, and believes nothing more.
#[tokio::test]
async fn que_8_nobody_is_promised_a_time_while_no_place_is_free() {
    let world = World::new();
    let server = world.server("b1", 1).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    super::world::gets_in(&proxy, "first").await;
    let visits = [waits(&proxy, "alice").await, waits(&proxy, "bob").await];
    for visit in &visits {
        hears_no_time(visit).await;
    }
    // Nor one who comes now.
    assert_eq!(waits(&proxy, "carol").await.estimate_ms(), None);
    assert_eq!(world.seen().await.view().await.expect("the store").estimate_ms, None);
}

// QUE-8, QUE-12: the minutes of a pause are no pace: told on as one they send everybody away after the resume.
#[tokio::test]
async fn que_8_a_pause_is_no_time_and_counts_for_none() {
    let world = World::with(LineConfig { fixed_per_second: Some(1), burst: Some(1), ..line() });
    let server = world.server("b1", 1_000).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    let mut visits = Vec::new();
    for number in 0..60 {
        visits.push(waits(&proxy, &format!("player-{number}")).await);
    }
    let (operator, last) = (world.seen().await, &visits[59]);
    eventually("somebody is admitted", LIMIT, async || operator.view().await.is_ok_and(|view| view.serial > 0)).await;
    operator.pause().await.expect("the store");
    hears_no_time(last).await;
    assert_eq!(operator.view().await.expect("the store").rate, 1, "what the gate would allow");
    // As if it had been paused for a quarter of an hour.
    let gate = crate::fixtures::agents::key("gate:login");
    let mut conn = world.conn().await;
    let busy: u64 = redis::AsyncCommands::hget(&mut conn, &gate, "busy").await.expect("HGET");
    let _: () = redis::AsyncCommands::hset(&mut conn, &gate, "busy", busy - 900_000).await.expect("HSET");
    let _: () = redis::AsyncCommands::hset(&mut conn, &gate, "recent", format!("{}:1", busy / 2_000 - 400))
        .await
        .expect("HSET");
    operator.resume().await.expect("the store");
    let told = eventually("the player hears a time", LIMIT, async || last.estimate_ms()).await;
    assert!(told <= 90_000, "60 players at one a second: {told} ms");
}
