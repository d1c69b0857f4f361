//! Agents of four proxies, each with its own faulty wire to one store.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use maitred::agent::config::Config;
use maitred::agent::{Outcome, ProxyAgent, Reason, Request, Source};
use maitred::ids::{LimitName, OperationId};
use maitred::limit::{Limit, Verdict};
use maitred::store::{Script, scripts};
use redis::aio::MultiplexedConnection;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, bill, config, key, keys, lands, player, proxy, refused, sees, transfer};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const PROXIES: usize = 4;
const TRIES: usize = 1_000;
/// Longer than any test runs, so that nothing is let through by the time alone.
const HOUR_MS: u64 = 3_600_000;

fn name(text: &str) -> LimitName {
    LimitName::new(text).expect("a name")
}

fn limited(mut config: Config, limits: &[(&str, Limit)]) -> Config {
    config.limits = limits.iter().map(|(text, limit)| (name(text), *limit)).collect();
    // A busy machine is no reason to lose a request, or a lease.
    config.heartbeat.interval_ms = 5_000;
    (config.directory.suspect_ms, config.directory.offline_ms) = (12_000, 17_500);
    config.dispatch.stale_after_ms = 15_000;
    config.dispatch.attempt_timeout_ms = 15_000;
    (config.store.command_timeout_ms, config.store.operation_timeout_ms) = (5_000, 15_000);
    config
}

fn label(script: &Script) -> String {
    format!("EVALSHA {}", script.pinned())
}

/// Loses so many replies, each with its connection and whatever else is under way on it.
fn lose(wire: &FaultProxy, script: &Script, replies: usize) {
    for _ in 0..replies {
        wire.drop_next_reply_of(&label(script), Action::Cut);
    }
}

/// Four proxies with these limits, each behind a wire of its own.
async fn proxies(store: &TestStore, limits: &[(&str, Limit)]) -> (Vec<Arc<ProxyAgent>>, Vec<FaultProxy>) {
    let wires: Vec<FaultProxy> = (0..PROXIES).map(|_| FaultProxy::start(store)).collect();
    let mut proxies = Vec::new();
    for (n, wire) in wires.iter().enumerate() {
        let config = config(&format!("p{n}"), "proxy", &wire.url());
        proxies.push(Arc::new(proxy(limited(config, limits)).await));
    }
    (proxies, wires)
}

/// The operations that stand charged in a player's row.
async fn charged(conn: &mut MultiplexedConnection, limit: &str, player: &str) -> usize {
    let row = key(&format!("limit:{limit}:{player}"));
    let text: Option<String> = redis::cmd("HGET").arg(row).arg("charged").query_async(conn).await.expect("HGET");
    text.map_or(0, |text| text.split(' ').filter(|entry| !entry.is_empty()).count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_6_four_proxies_and_a_thousand_tries_let_exactly_the_allowed_number_through() {
    const ALLOWED: u64 = 37;
    let store = TestStore::start();
    let limit = Limit::new(ALLOWED, HOUR_MS, ALLOWED).expect("valid");
    let (proxies, wires) = proxies(&store, &[("duel", limit)]).await;
    for wire in &wires {
        lose(wire, &scripts::LIMIT_TAKE, 8);
    }
    let tries = (0..TRIES).map(|n| {
        let proxy = Arc::clone(&proxies[n % PROXIES]);
        tokio::spawn(async move {
            let op = OperationId::fresh();
            let verdict = proxy.agent().take_limit(&name("duel"), &player("alice"), &op).await;
            (op, verdict.expect("the store answers").expect("there is such a limit"))
        })
    });
    let mut passed = Vec::new();
    for tried in join_all(tries).await {
        if let (op, Verdict::Allowed { remaining }) = tried.expect("no panic") {
            passed.push((op, remaining));
        }
    }
    assert!(wires.iter().all(|wire| wire.dropped() > 0), "no reply was lost");
    let mut left: Vec<u64> = passed.iter().map(|(_, remaining)| *remaining).collect();
    left.sort_unstable();
    assert_eq!(left, (0..ALLOWED).collect::<Vec<_>>(), "each place once");
    let mut conn = store.conn().await;
    assert_eq!(charged(&mut conn, "duel", "alice").await, passed.len(), "none is charged twice");

    // The same operations at another proxy are charged to nobody, and have the answers they had.
    for (op, remaining) in &passed {
        let again = proxies[0].agent().take_limit(&name("duel"), &player("alice"), op).await.expect("an answer");
        assert_eq!(again, Some(Verdict::Allowed { remaining: *remaining }));
    }
    assert_eq!(charged(&mut conn, "duel", "alice").await, passed.len());
    let (op, _) = &passed[0];
    assert!(proxies[1].agent().refund_limit(&name("duel"), &player("alice"), op).await.expect("an answer"));
    assert!(!proxies[2].agent().refund_limit(&name("duel"), &player("alice"), op).await.expect("an answer"));
    let next = proxies[3].agent().take_limit(&name("duel"), &player("alice"), &OperationId::fresh()).await;
    assert_eq!(next.expect("an answer"), Some(Verdict::Allowed { remaining: 0 }));
    let unknown = proxies[3].agent().take_limit(&name("nothing"), &player("alice"), &OperationId::fresh()).await;
    assert_eq!(unknown.expect("no error"), None, "there is no such limit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_6_a_thousand_requests_of_fifty_players_at_four_proxies_get_one_place_each() {
    const PLAYERS: usize = 50;
    let store = TestStore::start();
    let stock = Stock::new(1_000, 1_000);
    let cooldown = Limit::cooldown(HOUR_MS).expect("valid");
    let b1 = backend(limited(config("b1", "backend", &store.url()), &[]), &stock).await;
    let (proxies, wires) = proxies(&store, &[("command", cooldown)]).await;
    for proxy in &proxies {
        sees(proxy, &[&b1]).await;
    }
    for wire in &wires {
        lose(wire, &scripts::LIMIT_TAKE, 4);
    }
    let tries = (0..TRIES).map(|n| {
        let proxy = Arc::clone(&proxies[n / PLAYERS % PROXIES]);
        let request = Request::new(player(&format!("player-{}", n % PLAYERS)));
        tokio::spawn(async move { proxy.dispatch(request).await })
    });
    let mut moved: BTreeMap<String, u64> = BTreeMap::new();
    for outcome in join_all(tries).await {
        match outcome.expect("no panic") {
            Outcome::Transfer(transfer) => *moved.entry(transfer.player.to_string()).or_default() += 1,
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.reason, Reason::Limited, "{refusal:?}");
                let wait = refusal.retry_after_ms.expect("when to come again");
                assert!(wait <= HOUR_MS && wait > HOUR_MS / 2, "{wait}");
                assert_eq!(
                    refusal.message,
                    format!("Please wait {} seconds before you try again.", wait.div_ceil(1_000))
                );
            }
            Outcome::Balanced(_) | Outcome::Waiting(_) => panic!("a command asks for a place"),
        }
    }
    assert!(wires.iter().all(|wire| wire.dropped() > 0), "no reply was lost");
    assert_eq!(moved.len(), PLAYERS, "nobody is left without");
    assert!(moved.values().all(|count| *count == 1), "{moved:?}");
    let mut conn = store.conn().await;
    for name in moved.keys() {
        assert_eq!(charged(&mut conn, "command", name).await, 1, "{name}");
    }
    assert_eq!(stock.out(), 50, "and no place is promised beside those");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_6_a_request_that_was_never_served_costs_nothing() {
    let store = TestStore::start();
    let (proxies, _wires) = proxies(&store, &[("command", Limit::cooldown(HOUR_MS).expect("valid"))]).await;
    let mut conn = store.conn().await;
    // Nobody is there: at four proxies at once, so that charges and refunds cross.
    let tries = (0..100).map(|n| {
        let proxy = Arc::clone(&proxies[n % PROXIES]);
        tokio::spawn(async move { proxy.dispatch(Request::new(player("alice"))).await })
    });
    for outcome in join_all(tries).await {
        match outcome.expect("no panic") {
            Outcome::Refused(refusal) => {
                assert!(matches!(refusal.reason, Reason::NoCandidate | Reason::Limited), "{refusal:?}");
            }
            _ => panic!("a place from nowhere"),
        }
    }
    let left = keys(&mut conn).await;
    assert!(!left.iter().any(|key| key.starts_with("limit:")), "STO-16: {left:?}");

    // A request that its application gave up is refunded in the background.
    let stock = Stock::new(10, 10);
    let b1 = backend(limited(config("b1", "backend", &store.url()), &[]), &stock).await;
    for proxy in &proxies {
        sees(proxy, &[&b1]).await;
    }
    stock.shut();
    let dropped = tokio::spawn({
        let proxy = Arc::clone(&proxies[0]);
        async move { proxy.dispatch(Request::new(player("alice"))).await }
    });
    eventually("the backend is asked", LIMIT, async || !stock.asked().is_empty()).await;
    assert_eq!(charged(&mut conn, "command", "alice").await, 1, "charged before it is served");
    let meanwhile = refused(&proxies[1], Request::new(player("alice"))).await;
    assert_eq!(meanwhile.reason, Reason::Limited, "one at a time");
    dropped.abort();
    stock.open();
    eventually("it is refunded", LIMIT, async || charged(&mut conn, "command", "alice").await == 0).await;
    transfer(&proxies[2], "alice").await;
    lands(&b1, "alice").await;
    assert_eq!(refused(&proxies[3], Request::new(player("alice"))).await.reason, Reason::Limited);
    // The limit is of one source and of one player.
    let other = Request::new(player("alice")).from_source(Source::Other);
    assert!(matches!(proxies[3].dispatch(other).await, Outcome::Transfer(_)));
    transfer(&proxies[3], "bob").await;
}

#[tokio::test]
async fn pol_6_a_limit_adds_one_call_to_the_bill_and_a_store_that_is_away_costs_the_player_nothing() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(10, 10);
    let b1 = backend(limited(config("b1", "backend", &store.url()), &[]), &stock).await;
    let mut patient =
        limited(config("p1", "proxy", &wire.url()), &[("command", Limit::cooldown(HOUR_MS).expect("valid"))]);
    (patient.store.command_timeout_ms, patient.store.operation_timeout_ms) = (500, 600);
    let p1 = proxy(patient).await;
    sees(&p1, &[&b1]).await;
    transfer(&p1, "alice").await;
    wire.reset_counts();
    transfer(&p1, "bob").await;
    let paid = bill(&wire);
    assert_eq!(paid.get(&label(&scripts::LIMIT_TAKE)), Some(&1), "{paid:?}");
    assert_eq!(paid.get(&label(&scripts::LIMIT_REFUND)), None, "{paid:?}");
    assert_eq!(paid.get("EVALSHA"), Some(&2), "with the claim: {paid:?}");

    // The charge has its effect, and its reply is lost until the request is given up.
    lose(&wire, &scripts::LIMIT_TAKE, 200);
    let down = refused(&p1, Request::new(player("carol"))).await;
    assert!(matches!(down.reason, Reason::StoreDown), "{down:?}");
    wire.pass();
    let mut conn = store.conn().await;
    eventually("it is refunded", LIMIT, async || charged(&mut conn, "command", "carol").await == 0).await;
    // Its wire has to come back first; a try that finds it away is refunded in the background as well.
    eventually("carol is served", LIMIT, async || {
        matches!(p1.dispatch(Request::new(player("carol"))).await, Outcome::Transfer(_))
    })
    .await;
}

// STO-7, STO-16, R-33: one row that somebody wrote by hand would keep a player out for good. Only a real server reads `nan`.
#[tokio::test]
async fn sto_7_a_row_that_is_no_number_keeps_nobody_out_and_goes() {
    let store = TestStore::start();
    let limit = Limit::new(1, HOUR_MS, 1).expect("valid");
    let (proxies, _wires) = proxies(&store, &[("duel", limit)]).await;
    let agent = proxies[0].agent();
    let mut conn = store.conn().await;
    for text in ["nan", "-nan", "inf", "-inf", "1e400", "x", ""] {
        let row = key("limit:duel:alice");
        let _: () = redis::pipe().del(&row).hset(&row, "tat", text).query_async(&mut conn).await.expect("written");
        let op = OperationId::fresh();
        let first = agent.take_limit(&name("duel"), &player("alice"), &op).await.expect("an answer");
        assert!(matches!(first, Some(Verdict::Allowed { .. })), "R-33: {text}: {first:?}");
        let ttl: i64 = redis::cmd("PTTL").arg(&row).query_async(&mut conn).await.expect("PTTL");
        assert!(ttl > 0, "{text}: the row never goes");
        let _: () = redis::cmd("HSET").arg(&row).arg("tat").arg(text).query_async(&mut conn).await.expect("HSET");
        assert!(agent.refund_limit(&name("duel"), &player("alice"), &op).await.expect("an answer"), "{text}");
        let there: bool = redis::cmd("EXISTS").arg(&row).query_async(&mut conn).await.expect("EXISTS");
        assert!(!there, "{text}: nothing is owed");
    }

    // A debt without an end of its own.
    let row = key("limit:duel:bob");
    let tat = (agent.store().clock().now_ms() + HOUR_MS / 2) * 1_000;
    let _: () = redis::cmd("HSET").arg(&row).arg("tat").arg(tat).query_async(&mut conn).await.expect("HSET");
    let denied = agent.take_limit(&name("duel"), &player("bob"), &OperationId::fresh()).await.expect("an answer");
    assert!(!matches!(denied, Some(Verdict::Allowed { .. })), "{denied:?}");
    let ttl: i64 = redis::cmd("PTTL").arg(&row).query_async(&mut conn).await.expect("PTTL");
    assert!(ttl > 0, "the row never goes");
}
