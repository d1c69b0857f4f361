//! SEL-3 and SEL-9: many requests between two beats. If one of these fails, a crowd goes to one backend, or proxies that
//! know nothing of each other send theirs to the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use maitred::agent::config::Config;
use maitred::agent::{BackendAgent, Outcome, ProxyAgent, Request};

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, id, key, player, proxy, quiet, sees, transfer};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// Backends that are alike, and no beat of theirs in the time of a test.
async fn backends(store: &TestStore, shelves: &[Stock]) -> Vec<BackendAgent<Stock>> {
    let start = |(n, stock): (usize, &Stock)| {
        let setting = quiet(config(&format!("b{n}"), "backend", &store.url()));
        let stock = stock.clone();
        async move { backend(setting, &stock).await }
    };
    join_all(shelves.iter().enumerate().map(start)).await
}

async fn chooser(store: &TestStore, name: &str, shared: bool, backends: &[BackendAgent<Stock>]) -> ProxyAgent {
    let mut setting: Config = quiet(config(name, "proxy", &store.url()));
    setting.routing.lobby_mode = false;
    setting.selector.recent_picks.shared = shared;
    // No pick of the test loses weight while it runs.
    setting.selector.recent_picks.halflife_ms = 600_000;
    // On a busy machine round trips differ by more than anything else: those backends would not be equal.
    setting.selector.metrics.get_mut("proxyLatency").expect("a default").weight = 0.0;
    let proxy = proxy(setting).await;
    sees(&proxy, &backends.iter().collect::<Vec<_>>()).await;
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sel_9_a_thousand_requests_of_four_proxies_inside_one_beat_are_spread_evenly() {
    const PROXIES: usize = 4;
    const REQUESTS: usize = 1_000;
    let store = TestStore::start();
    let shelves: Vec<Stock> = (0..5).map(|_| Stock::new(1_000, 9)).collect();
    let backends = backends(&store, &shelves).await;
    let mut proxies = Vec::new();
    for n in 0..PROXIES {
        proxies.push(Arc::new(chooser(&store, &format!("p{n}"), true, &backends).await));
    }
    // In portions, as players come: what the proxies tell each other meanwhile must not upset the balance either.
    for portion in 0..10 {
        let run = |n: usize| {
            let proxy = Arc::clone(&proxies[n % PROXIES]);
            tokio::spawn(async move { proxy.dispatch(Request::new(player(&format!("q{portion}-{n}")))).await })
        };
        for outcome in join_all((0..REQUESTS / 10).map(run)).await {
            assert!(matches!(outcome, Ok(Outcome::Transfer(_))), "{outcome:?}");
        }
    }
    let asked: Vec<usize> = shelves.iter().map(|stock| stock.asked().len()).collect();
    let even = REQUESTS / shelves.len();
    assert_eq!(asked.iter().sum::<usize>(), REQUESTS);
    assert!(asked.iter().all(|count| count.abs_diff(even) <= even / 10), "{asked:?}, even is {even}");

    // SEL-9, STO-16: one hash, of the picks and the four who tell of them, with an end.
    let mut conn = store.conn().await;
    let held = eventually("the last picks are told", LIMIT, async || {
        let all: BTreeMap<String, String> =
            redis::cmd("HGETALL").arg(key("picks")).query_async(&mut conn).await.unwrap();
        let value = |text: &String| text.split(' ').next().and_then(|value| value.parse::<usize>().ok());
        let told: usize =
            all.iter().filter(|(name, _)| !name.starts_with('@')).filter_map(|(_, text)| value(text)).sum();
        (told >= REQUESTS * 1_000 * 95 / 100).then_some(all)
    })
    .await;
    assert_eq!(held.len(), shelves.len() + PROXIES, "{held:?}");
    let life: i64 = redis::cmd("PTTL").arg(key("picks")).query_async(&mut conn).await.unwrap();
    assert!(life > 0, "it stays for ever");
}

/// How many more players this proxy has sent to each of the others than to the first.
async fn lead(proxy: &ProxyAgent, name: &str, counts: &mut [usize; 3]) -> usize {
    let server = transfer(proxy, name).await.server;
    counts[(0..3).find(|n| server == id(&format!("b{n}"))).expect("one of the three")] += 1;
    counts[1].min(counts[2]).saturating_sub(counts[0])
}

#[tokio::test]
async fn sel_9_a_proxy_leaves_alone_whom_another_one_picked_only_where_picks_are_shared() {
    for shared in [true, false] {
        let store = TestStore::start();
        let shelves = [Stock::new(99, 9), Stock::new(99, 9), Stock::new(99, 9)];
        let backends = backends(&store, &shelves).await;
        let p1 = chooser(&store, "p1", shared, &backends).await;
        let p2 = chooser(&store, "p2", shared, &backends).await;
        for n in 0..30 {
            let request = Request::new(player(&format!("ann{n}"))).on_server(id("b0"));
            assert!(matches!(p1.dispatch(request).await, Outcome::Transfer(_)));
        }
        let (mut conn, mut counts, mut n) = (store.conn().await, [0; 3], 0);
        if shared {
            // By itself it would send one to each of them in turn.
            eventually("the other proxy's picks count", LIMIT, async || {
                n += 1;
                lead(&p2, &format!("bea{n}"), &mut counts).await >= 3
            })
            .await;
            continue;
        }
        // Longer than the pause between two exchanges.
        let until = p2.agent().store().clock().now_ms() + 600;
        eventually("some time passes", LIMIT, async || {
            n += 1;
            assert!(n > 60 || lead(&p2, &format!("bea{n}"), &mut counts).await <= 1, "{counts:?}");
            p2.agent().store().clock().now_ms() > until
        })
        .await;
        let there: bool = redis::cmd("EXISTS").arg(key("picks")).query_async(&mut conn).await.unwrap();
        assert!(!there, "nothing is told where nobody asked for it");
    }
}
