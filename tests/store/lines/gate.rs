//! How fast players come in: the rate of the gate, the new players of one server, and who died at the head of the line.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use maitred::agent::config::LineConfig;
use maitred::ids::NodeId;

use super::world::{Server, World, admitted, end, line, login, sees_accepting, waits};
use crate::fixtures::agents::LIMIT;
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::wait::eventually;

/// How much longer than its deadline a round may come and the gate loses nothing, in s.
const LATE_S: f64 = 0.05;

// R-51, QUE-4: a deadline of the gate that is woken for early, or a bucket without room for a late one, halves the rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_51_a_gate_with_any_burst_runs_at_its_rate() {
    for (rate, burst, count) in [(5_u32, Some(1), 20), (5, None, 20), (100, Some(1), 250), (300, Some(2), 600)] {
        let world = World::with(LineConfig { fixed_per_second: Some(rate), burst, tick_ms: 1_000, ..line() });
        let server = world.server("b1", 5_000).await;
        server.accepts(false);
        let proxy = world.proxy("p1").await;
        sees_accepting(&proxy, &server, false).await;
        let mut visits = Vec::new();
        for n in 0..count {
            visits.push(waits(&proxy, &format!("player-{n}")).await);
        }
        server.accepts(true);
        let mut serials = Vec::new();
        for visit in &mut visits {
            serials.push(admitted(visit).await.admission.pass.serial);
        }
        // Serials are the store's time in microseconds. What a quiet time had filled the bucket with is left out.
        let begin = burst.map_or((rate / 4).max(1), |burst| burst) as usize;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let span = (serials[serials.len() - 1] - serials[begin]) as f64 / 1_000_000.0;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let measured = (serials.len() - 1 - begin) as f64 / span;
        let rate_f = f64::from(rate);
        assert!(measured > 0.95 * rate_f, "burst {burst:?}: {measured:.1} of {rate} a second");
        for (at, time) in serials.iter().enumerate() {
            for (first_at, first) in serials[..at].iter().enumerate() {
                #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
                let (window, let_in) = ((time - first) as f64 / 1_000_000.0, (at - first_at + 1) as f64);
                let burst_f = f64::from(burst.unwrap_or((rate / 4).max(1)));
                let at_most = rate_f * window + burst_f.max(1.0 + (rate_f * LATE_S).max(1.0)) + 1.0;
                assert!(let_in <= at_most, "burst {burst:?}: {let_in} in {window:.3} s, allowed are {at_most:.1}");
            }
        }
    }
}

/// What the proxy was told of the server's new players a second.
fn new_players(proxy: &maitred::agent::ProxyAgent, server: &Server) -> Option<f64> {
    let view = proxy.agent().directory().view_of(server.agent.agent().lease().id())?;
    view.record.load.new_players_per_second
}

// maxOnlineNew is the most new players that one server takes in a second, whoever counts them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn que_5_a_server_takes_no_more_new_players_than_it_may_although_others_take_none() {
    let line =
        LineConfig { max_online_new: 5, fixed_per_second: None, burst: None, tick_ms: 200, ..LineConfig::default() };
    let world = World::with(line);
    let takes = world.server("b1", 1_000).await;
    let others = [world.server("b2", 1_000).await, world.server("b3", 1_000).await];
    let proxy = world.proxy("p1").await;
    takes.accepts(false);
    for other in &others {
        other.accepts(false);
        sees_accepting(&proxy, other, false).await;
    }
    sees_accepting(&proxy, &takes, false).await;
    let mut visits = Vec::new();
    for n in 0..200 {
        visits.push(waits(&proxy, &format!("player-{n}")).await);
    }
    takes.accepts(true);
    // Everybody comes at once.
    let begin = Instant::now();
    let mut came = Vec::new();
    for visit in &mut visits {
        if begin.elapsed() > Duration::from_secs(10) {
            break;
        }
        let admitted = admitted(visit).await;
        let redeemed = takes.agent.agent().redeem_pass(&admitted.admission.pass).await;
        redeemed.expect("the store").expect("it is in time");
        came.push(begin.elapsed());
    }
    assert!(new_players(&proxy, &takes).is_some(), "the agent counts who came");
    let whole = came.last().expect("some came").as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let rate = came.len() as f64 / whole;
    assert!(rate <= 7.5, "{rate:.1} a second of at most 5, in {whole:.1} s");
    assert!(rate >= 4.0, "{rate:.1} a second of 5, in {whole:.1} s");
}

// the gate's rate and the most new players of a server are one number here. A server that takes all that the gate lets
// through, and says so, is not passed over for it: players would come at two thirds of the rate, or not at all for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_51_a_server_that_takes_all_of_the_gate_is_not_shut_out_by_what_it_reports() {
    const LIMIT_A_SECOND: u32 = 50;
    for (name, by_backends) in [("a fixed rate", false), ("a rate by backends", true)] {
        let world = World::with(LineConfig {
            max_online_new: LIMIT_A_SECOND,
            fixed_per_second: (!by_backends).then_some(LIMIT_A_SECOND),
            burst: None,
            tick_ms: 200,
            ..LineConfig::default()
        });
        let server = world.server("b1", 5_000).await;
        server.accepts(false);
        let proxy = world.proxy("p1").await;
        sees_accepting(&proxy, &server, false).await;
        let mut visits = Vec::new();
        for n in 0..400 {
            visits.push(waits(&proxy, &format!("player-{n}")).await);
        }
        server.accepts(true);
        let mut serials = Vec::new();
        let mut reported = 0.0_f64;
        for visit in &mut visits {
            let admitted = admitted(visit).await;
            serials.push(admitted.admission.pass.serial);
            let redeemed = server.agent.agent().redeem_pass(&admitted.admission.pass).await;
            redeemed.expect("the store").expect("it is in time");
            reported = reported.max(new_players(&proxy, &server).unwrap_or_default());
        }
        assert!(reported > 0.0, "{name}: the server reports who came");
        // Serials are the store's time in microseconds. What the bucket held at the beginning is left out.
        let begin = (LIMIT_A_SECOND / 2) as usize;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let (span, let_in) = ((serials[399] - serials[begin]) as f64 / 1_000_000.0, (399 - begin) as f64);
        let measured = let_in / span;
        let wanted = 0.9 * f64::from(LIMIT_A_SECOND);
        assert!(measured >= wanted, "{name}: {measured:.1} of {LIMIT_A_SECOND} a second, up to {reported:.1} reported");
    }
}

// thousands of tickets of a dead proxy are put away one round after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_51_the_tickets_of_a_dead_proxy_hold_nobody_up_for_longer_than_its_lease() {
    let world = World::with(LineConfig { tick_ms: 400, ..line() });
    let server = world.server("b1", 10).await;
    server.accepts(false);
    let p1 = world.proxy("p1").await;
    sees_accepting(&p1, &server, false).await;
    let names: Vec<String> = (0..3_000).map(|n| format!("player-{n}")).collect();
    for part in names.chunks(100) {
        join_all(part.iter().map(|name| waits(&p1, name))).await;
    }
    // New, so that its first sweep comes when all should be over.
    let p2 = world.proxy("p2").await;
    let mut behind = waits(&p2, "behind").await;
    let lease = Duration::from_millis(p1.agent().lease().length_ms());
    // Gone without a word. While no place is free nobody is admitted, and the dead are put away.
    drop(p1);
    let begin = Instant::now();
    world.has_waiting(1).await;
    let took = begin.elapsed();
    server.accepts(true);
    admitted(&mut behind).await;
    assert!(took < lease + Duration::from_millis(1_000), "{took:?}, and the lease is {lease:?}");
}

// when the store comes back after a stall every lease is over. Whoever is back first must not put the others' players
// away, nor let anybody overtake them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_43_the_first_proxy_back_after_a_stall_judges_nobody_dead() {
    let world = World::with(LineConfig { tick_ms: 100, ..line() });
    let server = world.server("b1", 1_000).await;
    server.accepts(false);
    let wire = FaultProxy::start(&world.store);
    let (p1, p2) = (world.proxy("p1").await, world.proxy_at("p2", &wire.url()).await);
    for proxy in [&p1, &p2] {
        sees_accepting(proxy, &server, false).await;
    }
    // Those of p2 stand in front.
    let mut visits = Vec::new();
    for n in 0..100 {
        visits.push(waits(&p2, &format!("a-{n:03}")).await);
    }
    for n in 0..100 {
        visits.push(waits(&p1, &format!("b-{n:03}")).await);
    }
    let lease = Duration::from_millis(p1.agent().lease().length_ms());
    world.store.sigstop();
    wire.hold();
    eventually("both leases are over", LIMIT, async || {
        !p1.agent().lease().is_valid() && !p2.agent().lease().is_valid()
    })
    .await;
    tokio::time::sleep(lease / 4).await;
    world.store.sigcont();
    let p1_id: &NodeId = p1.agent().lease().id();
    eventually("p1 is back", LIMIT, async || p1.agent().lease().is_valid()).await;
    server.accepts(true);
    eventually("the server is back", LIMIT, async || {
        p1.agent().directory().view_of(server.agent.agent().lease().id()).is_some_and(|view| view.record.accepting)
    })
    .await;
    let seen = world.seen().await;
    let until = Instant::now() + lease / 3;
    while Instant::now() < until {
        let view = seen.view().await.expect("the store");
        assert_eq!(view.away, 0, "{p1_id} was back first, and judged");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    wire.resume();
    wire.pass();
    let mut serials = Vec::new();
    for visit in &mut visits {
        match end(visit).await {
            Some(maitred::agent::Update::Admitted(admitted)) => serials.push(admitted.admission.pass.serial),
            other => panic!("{}: {other:?}", visit.player()),
        }
    }
    assert!(serials.is_sorted(), "nobody was overtaken");
    assert_eq!(seen.name(), &login());
}
