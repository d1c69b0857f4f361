//! DSP-1: every end of a request is typed, says what the player reads, and comes inside its time.

use std::time::{Duration, Instant};

use maitred::agent::{BackendAgent, Outcome, ProxyAgent, Reason, Request, Source, Transfer};
use maitred::ids::RequestId;
use maitred::node::{Control, KILL, kill_name};

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, id, key, lands, operator, player, proxy, refused, sees, transfer, word,
};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn dsp_1_nobody_to_ask_and_a_source_that_is_off_each_have_their_reason_and_text() {
    let store = TestStore::start();
    let mut setting = config("p1", "proxy", &store.url());
    setting.texts.no_candidate = "nowhere to go".to_owned();
    let p1 = proxy(setting).await;
    let nobody = refused(&p1, Request::new(player("alice"))).await;
    assert_eq!((nobody.reason, nobody.message.as_str()), (Reason::NoCandidate, "nowhere to go"));
    assert_eq!(nobody.reason.message_key(), "noCandidate");
    // DSP-4: each source has a switch, and join and event are off.
    for source in [Source::Join, Source::Event] {
        let off = refused(&p1, Request::new(player("alice")).from_source(source)).await;
        assert_eq!(off.reason, Reason::SourceOff);
    }
    let mut conn = store.conn().await;
    let there: bool = redis::cmd("EXISTS").arg(key("token:alice")).query_async(&mut conn).await.unwrap();
    assert!(!there, "a request that asked nobody leaves nothing behind");
}

#[tokio::test]
async fn pol_4_the_kill_switch_refuses_requests_and_lets_those_under_way_land() {
    let store = TestStore::start();
    let (first, second) = (Stock::new(9, 50), Stock::new(9, 9));
    let b1 = backend(config("b1", "backend", &store.url()), &first).await;
    let b2 = backend(config("b2", "backend", &store.url()), &second).await;
    let p1 = proxy(config("p1", "proxy", &store.url())).await;
    sees(&p1, &[&b1, &b2]).await;
    let under_way = transfer(&p1, "alice").await;
    assert_eq!(under_way.server.as_str(), "b1");
    let given_up = transfer(&p1, "bob").await;

    let (tool, verifier) = operator(&store).await;
    let control = Control::default();
    control.put(&tool, &verifier, KILL, "on", "test").await.expect("a switch");
    eventually("the proxy heard it", LIMIT, async || p1.agent().control().is_on(KILL)).await;
    let refusal = refused(&p1, Request::new(player("carol"))).await;
    assert_eq!((refusal.reason, refusal.reason.message_key()), (Reason::KillSwitch, "killSwitch"));
    lands(&b1, "alice").await;
    p1.failed(&given_up, "not_moved").await.expect("a release goes on");
    first.all_home().await;

    control.put(&tool, &verifier, KILL, "off", "test").await.expect("a switch");
    control.put(&tool, &verifier, &kill_name(&id("b1")), "on", "test").await.expect("a switch");
    eventually("the proxy heard it", LIMIT, async || {
        let control = p1.agent().control();
        !control.is_on(KILL) && control.is_killed(&id("b1"))
    })
    .await;
    assert_eq!(transfer(&p1, "carol").await.server.as_str(), "b2", "one backend is switched off");
    let named = refused(&p1, Request::new(player("dave")).on_server(id("b1"))).await;
    assert_eq!(named.reason, Reason::NoCandidate);
    assert!(named.detail.contains("b1: Killed"), "{}", named.detail);
}

// DSP-5: proxies know nothing of each other; the store decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dsp_1_two_proxies_asked_for_one_player_at_once_send_them_to_one_place() {
    let store = TestStore::start();
    let shelves = [Stock::new(60, 50), Stock::new(60, 50)];
    let b1 = backend(config("b1", "backend", &store.url()), &shelves[0]).await;
    let b2 = backend(config("b2", "backend", &store.url()), &shelves[1]).await;
    let p1 = proxy(config("p1", "proxy", &store.url())).await;
    let p2 = proxy(config("p2", "proxy", &store.url())).await;
    sees(&p1, &[&b1, &b2]).await;
    sees(&p2, &[&b1, &b2]).await;

    for n in 0..40 {
        let name = format!("twin{n}");
        // Different backends first, for half of them.
        let mut other = Request::new(player(&name));
        if n % 2 == 1 {
            other = other.on_server(id("b2"));
        }
        let (one, two) = tokio::join!(p1.dispatch(Request::new(player(&name))), p2.dispatch(other));
        let mut moved = Vec::new();
        for outcome in [one, two] {
            match outcome {
                Outcome::Transfer(transfer) => moved.push(transfer),
                Outcome::Refused(refusal) => assert_eq!(refusal.reason, Reason::Lost, "{refusal:?}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(moved.len(), 1, "{name}: exactly one proxy moves the player");
        let there: &BackendAgent<Stock> = if moved[0].server.as_str() == "b1" { &b1 } else { &b2 };
        lands(there, &name).await;
    }
    for stock in &shelves {
        stock.all_home().await;
    }
    assert_eq!(shelves[0].used() + shelves[1].used(), 40, "one place a player");
}

#[tokio::test]
async fn nod_4_a_proxy_without_a_lease_says_so_and_goes_on_when_it_has_one_again() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(9, 9);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    // Whoever asked the store would wait for twice as long as is allowed below.
    let mut setting = config("p1", "proxy", &wire.url());
    (setting.store.command_timeout_ms, setting.store.operation_timeout_ms) = (10_000, 20_000);
    let p1 = proxy(setting).await;
    sees(&p1, &[&b1]).await;
    let epoch = p1.agent().lease().epoch();
    wire.hold();
    eventually("the lease ends by the node's own clock", LIMIT, async || !p1.agent().lease().is_valid()).await;
    let began = Instant::now();
    let refusal = refused(&p1, Request::new(player("alice"))).await;
    assert_eq!((refusal.reason, refusal.reason.message_key()), (Reason::LeaseLost, "storeDown"));
    assert!(began.elapsed() < Duration::from_secs(5), "it asked nobody: {:?}", began.elapsed());
    assert!(stock.asked().is_empty());
    wire.resume();
    eventually("the lease is back", LIMIT, async || p1.agent().lease().is_valid()).await;
    assert_eq!(p1.agent().lease().epoch(), epoch, "nobody took the id");
    sees(&p1, &[&b1]).await;
    eventually("players are moved again", LIMIT, async || {
        matches!(p1.dispatch(Request::new(player("alice"))).await, Outcome::Transfer(_))
    })
    .await;
}

/// Four attempts, the cancel, and the scheduling of a busy machine.
const DISPATCH_MAX: Duration = Duration::from_millis(4 * 400 + 1_200 + 2_500);
/// One operation, or a read, with the same allowance.
const CALL_MAX: Duration = Duration::from_millis(1_200 + 2_500);

async fn ends_inside_its_time(p1: &ProxyAgent, b1: &BackendAgent<Stock>, transfer: &Transfer) {
    let began = Instant::now();
    let refusal = refused(p1, Request::new(player("bob"))).await;
    assert!(matches!(refusal.reason, Reason::StoreDown | Reason::LeaseLost), "{refusal:?}");
    assert_eq!(refusal.reason.message_key(), "storeDown", "the player is not told that the servers are full");
    assert!(began.elapsed() < DISPATCH_MAX, "dispatch took {:?}", began.elapsed());

    let (request, bob) = (RequestId::fresh(), player("bob"));
    let began = Instant::now();
    let (redeem, release, cancel, find) = tokio::join!(
        b1.redeem(&transfer.player),
        p1.failed(transfer, "not_moved"),
        p1.cancel(&bob, &request),
        p1.find(&bob),
    );
    assert!(began.elapsed() < CALL_MAX, "four calls at once took {:?}", began.elapsed());
    let errors = [redeem.err(), release.err(), cancel.err(), find.err()];
    for error in errors {
        let error = error.expect("the store does not answer");
        assert!(error.is_retryable(), "{error:?}");
    }
}

// STO-13: a dead store, and one that takes connections and says nothing.
#[tokio::test]
async fn sto_13_without_the_store_every_call_ends_inside_its_time_with_a_typed_error() {
    for frozen in [false, true] {
        let mut store = TestStore::start();
        let stock = Stock::new(9, 9);
        let short = |name: &str, role: &str| {
            let mut setting = config(name, role, &store.url());
            setting.store.command_timeout_ms = 300;
            setting.store.connect_timeout_ms = 300;
            setting.store.operation_timeout_ms = 1_200;
            setting.dispatch.attempt_timeout_ms = 400;
            setting
        };
        let b1 = backend(short("b1", "backend"), &stock).await;
        let p1 = proxy(short("p1", "proxy")).await;
        sees(&p1, &[&b1]).await;
        // A busy machine may take longer for a try than these times allow.
        let moved =
            eventually("alice has a place", LIMIT, async || match p1.dispatch(Request::new(player("alice"))).await {
                Outcome::Transfer(transfer) => Some(transfer),
                _ => None,
            })
            .await;
        if frozen {
            store.sigstop();
        } else {
            store.kill();
        }
        ends_inside_its_time(&p1, &b1, &moved).await;
        if frozen {
            store.sigcont();
            eventually("the backend has its lease again", LIMIT, async || b1.agent().lease().is_valid()).await;
            // Its release may have got through or not; what counts is that the place is in one place.
            let landed = eventually("a definite answer", LIMIT, async || word(&b1, "alice").await.ok()).await;
            assert!(matches!(landed, "landed" | "none"), "{landed}");
        }
        stock.check();
    }
}
