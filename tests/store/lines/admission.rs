//! Who admits, and when: switches, ticks, the gate of the config.

use std::time::Duration;

use maitred::agent::config::LineConfig;
use maitred::node::{CONFIG, Control, KILL};
use maitred::queue::Line;

use super::world::{World, admitted, line, login, sees_accepting, stands_at, waits};
use crate::fixtures::agents::{LIMIT, operator, player};
use maitred_testkit::wait::eventually;

/// Long enough for several ticks.
const TICKS: Duration = Duration::from_millis(700);

async fn nobody_gets_in(line: &Line, waiting: u64) {
    tokio::time::sleep(TICKS).await;
    assert_eq!(line.view().await.expect("the store").waiting, waiting);
}

#[tokio::test]
async fn que_6_only_those_admit_who_are_told_to_and_any_of_them_admits_for_all() {
    let world = World::new();
    let server = world.server("b1", 10).await;
    let (p1, p2) = (world.proxy("p1").await, world.proxy("p2").await);
    p1.admits(false);
    p2.admits(false);
    server.accepts(false);
    sees_accepting(&p1, &server, false).await;
    let mut alice = waits(&p1, "alice").await;
    server.accepts(true);
    sees_accepting(&p2, &server, true).await;
    nobody_gets_in(&world.seen().await, 1).await;
    p2.admits(true);
    admitted(&mut alice).await;
}

#[tokio::test]
async fn que_14_a_server_that_takes_players_again_is_used_within_a_tick() {
    let world = World::new();
    let server = world.server("b1", 1).await;
    let proxy = world.proxy("p1").await;
    server.accepts(false);
    sees_accepting(&proxy, &server, false).await;
    let mut alice = waits(&proxy, "alice").await;
    nobody_gets_in(&world.seen().await, 1).await;
    server.accepts(true);
    admitted(&mut alice).await;
    // Nobody is sent where no place is; a place that comes in with a beat is used.
    let mut bob = waits(&proxy, "bob").await;
    nobody_gets_in(&world.seen().await, 1).await;
    proxy.left(&login(), &player("alice"), maitred::agent::Departure::Quit).await.expect("the store");
    admitted(&mut bob).await;
}

#[tokio::test]
async fn pol_4_the_kill_switch_stops_the_admission_and_its_end_starts_it_again() {
    let world = World::new();
    let server = world.server("b1", 10).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    let (store, verifier) = operator(&world.store).await;
    let control = Control::default();
    control.put(&store, &verifier, KILL, "on", "ops").await.expect("the store");
    let mut alice = waits(&proxy, "alice").await;
    nobody_gets_in(&world.seen().await, 1).await;
    control.put(&store, &verifier, KILL, "off", "ops").await.expect("the store");
    admitted(&mut alice).await;
}

#[tokio::test]
async fn que_12_a_paused_line_waits_and_a_resumed_one_goes_on() {
    let world = World::with(LineConfig { tick_ms: 60_000, ..line() });
    let server = world.server("b1", 10).await;
    let proxy = world.proxy("p1").await;
    sees_accepting(&proxy, &server, true).await;
    let line = world.seen().await;
    line.pause().await.expect("the store");
    let mut alice = waits(&proxy, "alice").await;
    nobody_gets_in(&line, 1).await;
    // With a tick of a minute only the event can be the reason.
    line.resume().await.expect("the store");
    admitted(&mut alice).await;
}

// POL-5, QUE-4: a gate that is too fast must be slowed down, or opened, while the fleet runs.
#[tokio::test]
async fn que_4_a_pushed_rate_is_in_force_without_a_restart() {
    let world = World::with(LineConfig { fixed_per_second: Some(1), burst: Some(1), tick_ms: 100, ..line() });
    let server = world.server("b1", 1_000).await;
    let proxy = world.proxy("p1").await;
    server.accepts(false);
    sees_accepting(&proxy, &server, false).await;
    let mut visits = Vec::new();
    for n in 0..200 {
        visits.push(waits(&proxy, &format!("player-{n}")).await);
    }
    let (store, verifier) = operator(&world.store).await;
    let push = r#"{"lines":{"login":{"fixedPerSecond":1000,"burst":100},"vip":{"maxWaiting":1}}}"#;
    Control::default().put(&store, &verifier, CONFIG, push, "ops").await.expect("the store");
    eventually("the push is in force", LIMIT, async || proxy.agent().config_version().borrow().is_some()).await;
    server.accepts(true);
    // At one a second this took more than three minutes.
    let mut serials = Vec::new();
    for visit in &mut visits {
        serials.push(admitted(visit).await.admission.pass.serial);
    }
    assert!(serials.is_sorted(), "QUE-1: in the order of coming");
    // A line of the push can be entered at once.
    let vip = maitred::ids::LineName::new("vip").expect("a name");
    proxy.enter(maitred::agent::Entry::new(vip, player("alice"))).await.expect("it is configured");
}

// QUE-6, R-24: rounds of several admitters meet in the store and nowhere else.
#[tokio::test]
async fn que_6_three_admitters_let_a_crowd_in_once_each_and_in_order() {
    let world = World::with(LineConfig { fixed_per_second: Some(400), burst: Some(50), tick_ms: 100, ..line() });
    let server = world.server("b1", 1_000).await;
    server.accepts(false);
    let mut proxies = Vec::new();
    for name in ["p1", "p2", "p3"] {
        let proxy = world.proxy(name).await;
        sees_accepting(&proxy, &server, false).await;
        proxies.push(proxy);
    }
    let mut visits = Vec::new();
    for n in 0..300 {
        visits.push(waits(&proxies[n % 3], &format!("player-{n}")).await);
    }
    stands_at(&visits[299], 300).await;
    server.accepts(true);
    let mut serials = Vec::new();
    for visit in &mut visits {
        serials.push(admitted(visit).await.admission.pass.serial);
    }
    assert!(serials.is_sorted_by(|a, b| a < b), "in order, and nobody twice");
}
