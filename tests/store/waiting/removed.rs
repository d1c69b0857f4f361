//! Lines that go: out of the config, or with the server that they led to.

use std::time::Duration;

use maitred::agent::{Failure, Outcome, Request};
use maitred::node::{CONFIG, Control};
use tokio::time::Instant;

use super::kinds::{End, Fleet, Kind, Waits, login};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, id, operator, player, proxy, sees};
use maitred_testkit::wait::eventually;

// QUE-10: whoever waits in a line that is taken out of the config waits for ever, with a position and an estimate.
#[tokio::test]
async fn que_10_a_line_that_is_taken_out_of_the_config_is_admitted_until_it_is_empty() {
    let fleet = Fleet::new(Kind::Pass);
    let (store, verifier) = operator(&fleet.store).await;
    let unlined = |name: &str| {
        let mut config = fleet.config(name, &fleet.store.url());
        config.lines.remove(&login());
        config
    };
    let put = async |text: &str| {
        Control::default().put(&store, &verifier, CONFIG, text, "ops").await.expect("the store");
    };
    put(r#"{"lines":{"login":{"fixedPerSecond":1000,"burst":1000,"tickMs":150}}}"#).await;
    let (p1, p2) = (proxy(unlined("p1")).await, proxy(unlined("p2")).await);
    for agent in [&p1, &p2] {
        eventually("the line is there", LIMIT, async || agent.agent().config().lines.contains_key(&login())).await;
    }
    let (mut alice, mut bob) = (fleet.waits(&p1, "alice").await, fleet.waits(&p2, "bob").await);
    put("").await;
    for agent in [&p1, &p2] {
        eventually("the line is gone", LIMIT, async || !agent.agent().config().lines.contains_key(&login())).await;
    }
    // A proxy that never knew the line is no help, and no harm.
    let _p3 = proxy(unlined("p3")).await;
    let _b1 = fleet.backend("b1", 10).await;
    assert_eq!([alice.end().await, bob.end().await], [End::Served, End::Served]);
    assert!(p1.enter(maitred::agent::Entry::new(login(), player("carol"))).await.is_err(), "nobody enters it any more");
}

// QUE-10: the line was empty for a moment, and whoever fails to arrive is back in front of it.
#[tokio::test]
async fn que_10_who_fails_to_arrive_after_the_line_was_taken_out_is_admitted_again() {
    let fleet = Fleet::new(Kind::Pass);
    let (store, verifier) = operator(&fleet.store).await;
    let mut unlined = fleet.config("p1", &fleet.store.url());
    unlined.lines.remove(&login());
    let put = async |text: &str| {
        Control::default().put(&store, &verifier, CONFIG, text, "ops").await.expect("the store");
    };
    put(r#"{"lines":{"login":{"fixedPerSecond":1000,"burst":1000,"tickMs":150}}}"#).await;
    let p1 = proxy(unlined).await;
    eventually("the line is there", LIMIT, async || p1.agent().config().lines.contains_key(&login())).await;
    let mut alice = fleet.waits(&p1, "alice").await;
    let _b1 = fleet.backend("b1", 10).await;
    assert_eq!(alice.end().await, End::Served);
    put("").await;
    eventually("the line is gone", LIMIT, async || !p1.agent().config().lines.contains_key(&login())).await;
    // The admitters have looked at the empty line more than once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let failure = p1.failed_admission(&login(), &player("alice"), false).await.expect("the store");
    let Failure::Back(visit) = failure else { panic!("{failure:?}") };
    assert_eq!(Waits::Pass(visit).end().await, End::Served);
}

// R-50, NOD-7: a restart by the book throws out everybody who waited for the server, and a crash nobody.
#[tokio::test]
async fn r_50_a_backend_that_leaves_and_is_back_after_a_while_serves_those_who_waited_for_it() {
    let fleet = Fleet::new(Kind::Token);
    let b1 = backend(config("b1", "backend", &fleet.store.url()), &Stock::new(0, 0)).await;
    let p1 = fleet.proxy("p1").await;
    sees(&p1, &[&b1]).await;
    let mut waiting = Vec::new();
    for n in 0..5 {
        match p1.dispatch(Request::new(player(&format!("u{n}"))).on_server(id("b1"))).await {
            Outcome::Waiting(one) => waiting.push(Waits::Token(one)),
            other => panic!("does not wait: {other:?}"),
        }
    }
    b1.leave().await;
    drop(b1);
    // Every loop looks more than once.
    let back_at = Instant::now() + Duration::from_secs(4);
    tokio::time::sleep_until(back_at).await;
    let _b1 = backend(config("b1", "backend", &fleet.store.url()), &Stock::new(5, 0)).await;
    for one in &mut waiting {
        assert_eq!(one.end().await, End::Served);
    }
}
