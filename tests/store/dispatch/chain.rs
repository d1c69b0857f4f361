//! SEL-5 and SEL-6: which backend is asked, and who is asked next.

use std::time::{Duration, Instant};

use maitred::agent::{Reason, Request};
use maitred::store::scripts;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, id, lands, pending, player, proxy, refused, region, row, sees, state, transfer,
    transfer_of, word,
};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn sel_5_a_backend_that_refuses_is_passed_over_and_rests_for_its_cooldown() {
    let store = TestStore::start();
    let (full, roomy) = (Stock::new(0, 100), Stock::new(20_000, 50));
    let b1 = backend(config("b1", "backend", &store.url()), &full).await;
    let b2 = backend(config("b2", "backend", &store.url()), &roomy).await;
    let mut setting = config("p1", "proxy", &store.url());
    setting.dispatch.cooldown_ms = 3_000;
    let p1 = proxy(setting).await;
    sees(&p1, &[&b1, &b2]).await;

    let began = Instant::now();
    let first = transfer(&p1, "alice").await;
    assert_eq!((first.server.as_str(), first.token.attempt), ("b2", 2));
    assert_eq!(first.addr, "b2.example:25565");
    let (asked_full, asked_roomy) = (full.asked(), roomy.asked());
    assert_eq!((asked_full.len(), asked_full[0].attempt), (1, 1), "the one with the most kept places comes first");
    assert_eq!((asked_roomy[0].attempt, asked_roomy[0].earlier.as_slice()), (2, &[id("b1")][..]));
    assert_eq!(asked_full[0].request, asked_roomy[0].request);

    let second = transfer(&p1, "bob").await;
    if began.elapsed() < Duration::from_millis(2_900) {
        assert_eq!((second.server.as_str(), second.token.attempt), ("b2", 1), "who refused is out");
        assert_eq!(full.asked().len(), 1);
    }
    let mut n = 0;
    eventually("the backend is asked again after its cooldown", LIMIT, async || {
        n += 1;
        transfer(&p1, &format!("p{n}")).await;
        full.asked().len() == 2
    })
    .await;
    assert!(began.elapsed() >= Duration::from_millis(2_900), "asked again after {:?}", began.elapsed());
    roomy.check();
}

#[tokio::test]
async fn sel_5_a_backend_that_hangs_is_given_up_after_the_attempts_time_and_its_late_place_goes_home() {
    let store = TestStore::start();
    let (slow, quick) = (Stock::new(5, 100), Stock::new(5, 50));
    let b1 = backend(config("b1", "backend", &store.url()), &slow).await;
    let b2 = backend(config("b2", "backend", &store.url()), &quick).await;
    let mut setting = config("p1", "proxy", &store.url());
    setting.dispatch.attempt_timeout_ms = 700;
    let p1 = proxy(setting).await;
    sees(&p1, &[&b1, &b2]).await;

    slow.shut();
    let began = Instant::now();
    let moved = transfer(&p1, "alice").await;
    assert_eq!((moved.server.as_str(), moved.token.attempt), ("b2", 2));
    assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_millis(700 + 3_000), "{:?}", began.elapsed());
    assert_eq!(slow.out(), 1, "the slow one holds a place and knows nothing yet");
    slow.open();
    slow.all_home().await;
    assert_eq!(b1.promised(), 0);
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "none");
    lands(&b2, "alice").await;
    assert_eq!((quick.used(), slow.used()), (1, 0));
}

// the slow backend's token stands in the store, and nobody heard of it. The next attempt supersedes it.
#[tokio::test]
async fn sel_5_an_answer_that_comes_after_its_attempt_was_given_up_leaves_no_second_place_promised() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let (slow, quick) = (Stock::new(5, 100), Stock::new(5, 50));
    let mut setting = config("b1", "backend", &wire.url());
    setting.store.command_timeout_ms = 1_200;
    let b1 = backend(setting, &slow).await;
    let b2 = backend(config("b2", "backend", &store.url()), &quick).await;
    let mut setting = config("p1", "proxy", &store.url());
    setting.dispatch.attempt_timeout_ms = 700;
    let p1 = proxy(setting).await;
    sees(&p1, &[&b1, &b2]).await;

    // The connection stays open and dumb, so that the backend waits for its own timeout, which is longer.
    wire.drop_next_reply_of(&format!("EVALSHA {}", scripts::TOKEN_ISSUE.pinned()), Action::Silent);
    let moved = transfer(&p1, "alice").await;
    assert_eq!(wire.dropped(), 1, "the first backend issued");
    assert_eq!((moved.server.as_str(), moved.token.attempt), ("b2", 2));
    wire.cut_all();
    slow.all_home().await;
    assert_eq!(b1.promised(), 0);
    let mut conn = store.conn().await;
    let standing = row(&mut conn, "alice").await;
    assert_eq!((standing["server"].as_str(), standing["state"].as_str()), ("b2", "CLAIMED"));
    assert!(standing["previous"].contains("SUPERSEDED"), "{standing:?}");
    lands(&b2, "alice").await;
    quick.check();
}

#[tokio::test]
async fn sel_5_no_more_than_the_configured_retries_are_made_in_the_order_of_one_snapshot() {
    let store = TestStore::start();
    let shelves: Vec<Stock> = [60, 50, 40, 30, 20].map(|kept| Stock::new(0, kept)).into();
    let mut backends = Vec::new();
    for (n, stock) in shelves.iter().enumerate() {
        backends.push(backend(config(&format!("b{n}"), "backend", &store.url()), stock).await);
    }
    let mut setting = config("p1", "proxy", &store.url());
    setting.dispatch.max_retries = 2;
    setting.dispatch.cooldown_ms = 0;
    let p1 = proxy(setting).await;
    sees(&p1, &backends.iter().collect::<Vec<_>>()).await;

    let refusal = refused(&p1, Request::new(player("alice"))).await;
    assert_eq!(refusal.reason, Reason::Refused);
    let asked: Vec<usize> = shelves.iter().map(|stock| stock.asked().len()).collect();
    assert_eq!(asked, [1, 1, 1, 0, 0], "the first attempt and two more");
    for name in ["b0", "b1", "b2"] {
        assert!(refusal.detail.contains(&format!("{name}: no_place")), "{}", refusal.detail);
    }
    let attempts: Vec<u32> = shelves[..3].iter().map(|stock| stock.asked()[0].attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
}

#[tokio::test]
async fn sel_5_backends_that_hang_rest_for_their_cooldown_and_the_chain_ends_inside_the_sum_of_its_timeouts() {
    const ATTEMPT_MS: u64 = 400;
    let store = TestStore::start();
    let shelves: Vec<Stock> = [60, 50, 40, 30, 20].map(|kept| Stock::new(5, kept)).into();
    let mut backends = Vec::new();
    for (n, stock) in shelves.iter().enumerate() {
        backends.push(backend(config(&format!("b{n}"), "backend", &store.url()), stock).await);
        stock.shut();
    }
    let mut setting = config("p1", "proxy", &store.url());
    setting.dispatch.attempt_timeout_ms = ATTEMPT_MS;
    setting.dispatch.max_retries = 2;
    setting.dispatch.cooldown_ms = 60_000;
    let p1 = proxy(setting).await;
    sees(&p1, &backends.iter().collect::<Vec<_>>()).await;

    let began = Instant::now();
    let refusal = refused(&p1, Request::new(player("alice"))).await;
    assert_eq!((refusal.reason, refusal.reason.message_key()), (Reason::Refused, "refused"));
    // Three attempts, the cancel behind them, and the scheduling of a busy machine.
    assert!(began.elapsed() < Duration::from_millis(3 * ATTEMPT_MS + 3_000), "{:?}", began.elapsed());
    let asked = || shelves.iter().map(|stock| stock.asked().len()).collect::<Vec<_>>();
    assert_eq!(asked(), [1, 1, 1, 0, 0]);

    // Who hung is left alone, and nobody else is left.
    assert_eq!(refused(&p1, Request::new(player("bob"))).await.reason, Reason::Refused);
    assert_eq!(asked(), [1, 1, 1, 1, 1]);
    let nobody = refused(&p1, Request::new(player("carol"))).await;
    assert_eq!(nobody.reason, Reason::NoCandidate);
    assert!((0..5).all(|n| nobody.detail.contains(&format!("b{n}: Cooling"))), "{}", nobody.detail);
    shelves.iter().for_each(Stock::open);
    for stock in &shelves {
        stock.all_home().await;
    }
}

#[tokio::test]
async fn sel_6_a_named_server_and_region_is_never_answered_by_another_server() {
    let store = TestStore::start();
    let (empty, roomy) = (Stock::in_regions(0, 5, &["arena", "main"]), Stock::in_regions(9, 9, &["arena", "main"]));
    let b1 = backend(config("b1", "backend", &store.url()), &empty).await;
    let b2 = backend(config("b2", "backend", &store.url()), &roomy).await;
    let mut setting = config("p1", "proxy", &store.url());
    setting.dispatch.cooldown_ms = 0;
    let p1 = proxy(setting).await;
    sees(&p1, &[&b1, &b2]).await;

    let named = |server: &str, name: &str| Request::new(player(name)).on_server(id(server));
    assert_eq!(refused(&p1, named("b1", "alice").in_region(region("arena"))).await.reason, Reason::Refused);
    assert_eq!(refused(&p1, named("b1", "alice")).await.reason, Reason::Refused);
    assert_eq!(refused(&p1, named("b7", "alice")).await.reason, Reason::NoCandidate);
    assert_eq!(refused(&p1, named("b2", "alice").in_region(region("sky"))).await.reason, Reason::NoCandidate);
    assert_eq!((empty.asked().len(), roomy.asked().len()), (2, 0), "the other server was never asked");
    assert_eq!(empty.asked()[0].region, Some(region("arena")));

    let moved = transfer_of(&p1, named("b2", "alice").in_region(region("arena"))).await;
    assert_eq!(moved.server.as_str(), "b2");
    assert!(moved.payload().get().contains("arena"));
}

// TOK-2 hands the player's live token to whoever asks; a request for one server must not become a move to another.
#[tokio::test]
async fn sel_6_a_place_that_another_request_holds_elsewhere_does_not_answer_for_a_named_server() {
    let store = TestStore::start();
    let (first, second) = (Stock::new(9, 50), Stock::new(9, 9));
    let b1 = backend(config("b1", "backend", &store.url()), &first).await;
    let b2 = backend(config("b2", "backend", &store.url()), &second).await;
    let p1 = proxy(config("p1", "proxy", &store.url())).await;
    sees(&p1, &[&b1, &b2]).await;
    let held = pending(&p1, "b2", "alice").await;
    assert!(!held.taken);

    let refusal = refused(&p1, Request::new(player("alice")).on_server(id("b1"))).await;
    assert_eq!(refusal.reason, Reason::Lost, "{refusal:?}");
    first.all_home().await;
    let mut conn = store.conn().await;
    assert_eq!(state(&mut conn, "alice").await, "PENDING", "the other request's token stands");

    let moved = transfer(&p1, "alice").await;
    assert_eq!(
        (moved.server.as_str(), moved.addr.as_str()),
        ("b2", "b2.example:25565"),
        "a bare request takes it over"
    );
    assert_eq!(moved.token.id, held.token.id);
    first.all_home().await;
    lands(&b2, "alice").await;
    assert_eq!(first.asked().len(), 2);
}
