//! R-11 and TOK-7: where the place behind a token is. If one of these fails, a backend slowly loses its places, or
//! promises one of them twice.

use std::time::{Duration, Instant};

use maitred::agent::{Outcome, Reason, Request};
use maitred::envelope::AuditReason;
use maitred::node::{NodeRecord, NodeState};
use maitred::store::scripts;
use redis::aio::PubSub;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, key, keys, lands, operator, player, proxy, refused, row, sees, state, transfer, word,
};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

fn issue() -> String {
    format!("EVALSHA {}", scripts::TOKEN_ISSUE.pinned())
}

#[tokio::test]
async fn r_11_an_issue_whose_answer_is_lost_promises_one_place() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").wired("b1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (stock, wire) = (b1.inventory().clone(), fleet.wire());
    let before = wire.count(&issue());
    wire.drop_next_reply_of(&issue(), Action::Cut);
    let moved = transfer(&p1, "alice").await;
    assert_eq!((wire.dropped(), wire.count(&issue())), (1, before + 2), "the same order was repeated");
    assert_eq!((stock.out(), b1.promised(), moved.token.attempt), (1, 1, 1));
    lands(&b1, "alice").await;
    stock.all_home().await;
}

// The one exception to "at the latest one reap interval": nothing moves before the answer is definite.
#[tokio::test]
async fn r_11_an_issue_of_unknown_outcome_settles_by_itself_and_its_place_is_neither_lost_nor_twice() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(9, 9);
    let mut setting = config("b1", "backend", &wire.url());
    setting.store.command_timeout_ms = 200;
    setting.store.operation_timeout_ms = 500;
    let b1 = backend(setting, &stock).await;
    let mut setting = config("p1", "proxy", &store.url());
    setting.dispatch.attempt_timeout_ms = 1_500;
    let p1 = proxy(setting).await;
    sees(&p1, &[&b1]).await;

    wire.drop_replies_of(&issue(), 100, Action::Silent);
    let refusal = refused(&p1, Request::new(player("alice"))).await;
    assert_eq!(refusal.reason, Reason::Refused, "{refusal:?}");
    let mut conn = store.conn().await;
    let standing = row(&mut conn, "alice").await;
    assert_eq!((standing["state"].as_str(), standing["reason"].as_str()), ("RELEASED", "cancelled"));
    assert_eq!((stock.out(), b1.promised()), (1, 1), "the backend does not know yet, so it keeps the place");
    wire.pass();
    wire.cut_all();
    stock.all_home().await;
    assert_eq!(b1.promised(), 0);
    eventually("the lease is back", LIMIT, async || b1.agent().lease().is_valid()).await;
}

#[tokio::test]
async fn tok_7_a_released_place_is_home_at_once() {
    let mut fleet = Fleet::new().backend("b1", 20).proxy("p1").quiet().up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    for n in 0..10 {
        let moved = transfer(&p1, &format!("p{n}")).await;
        p1.failed(&moved, "not_moved").await.expect("released");
        p1.failed(&moved, "not_moved").await.expect("released before");
    }
    // No sweep comes within a minute here: only the event brings them home.
    stock.all_home_within(Duration::from_secs(5)).await;
    assert_eq!(b1.promised(), 0);
}

#[tokio::test]
async fn tok_7_a_place_whose_event_was_lost_is_home_one_sweep_after_its_deadline() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(9, 9);
    let short = |name: &str, role: &str, url: &str| {
        let mut setting = config(name, role, url);
        setting.tokens.ttl_ms = 2_500;
        setting
    };
    let b1 = backend(short("b1", "backend", &wire.url()), &stock).await;
    let p1 = proxy(short("p1", "proxy", &store.url())).await;
    sees(&p1, &[&b1]).await;
    let (alice, bob) = (transfer(&p1, "alice").await, transfer(&p1, "bob").await);
    // Ended behind everybody's back: no event says so.
    let mut conn = store.conn().await;
    let gone: redis::RedisResult<()> = redis::cmd("DEL").arg(key("token:alice")).query_async(&mut conn).await;
    gone.unwrap();
    let turn: redis::RedisResult<()> =
        redis::cmd("HSET").arg(key("token:bob")).arg("state").arg("RELEASED").query_async(&mut conn).await;
    turn.unwrap();
    let clock = b1.agent().store().clock();
    if clock.now_ms() < alice.token.expires_at_ms {
        assert_eq!(stock.out(), 2, "nobody said anything");
    }
    stock.all_home().await;
    let late = clock.now_ms().saturating_sub(bob.token.expires_at_ms);
    assert!(late < 400 + 2_000, "home {late} ms after the deadline, with a sweep every 400 ms");
}

#[tokio::test]
async fn tok_7_a_backend_whose_subscription_was_cut_looks_at_what_it_holds_when_it_is_back() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").wired("b1").quiet().up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (stock, wire) = (b1.inventory().clone(), fleet.wire());
    let (alice, _bob) = (transfer(&p1, "alice").await, transfer(&p1, "bob").await);
    wire.refuse(true);
    wire.cut_all();
    p1.failed(&alice, "not_moved").await.expect("released");
    assert_eq!(stock.out(), 2);
    wire.refuse(false);
    eventually("the released place is home", LIMIT, async || stock.out() == 1).await;
    lands(&b1, "bob").await;
    stock.all_home().await;
}

async fn next_event(listener: &mut PubSub) -> Vec<u8> {
    use futures_util::StreamExt as _;
    let message =
        tokio::time::timeout(LIMIT, listener.on_message().next()).await.expect("an event").expect("a message");
    message.get_payload_bytes().to_vec()
}

#[tokio::test]
async fn nod_5_leaving_says_so_first_gives_everything_back_and_takes_row_and_roster_entry_away() {
    let mut fleet = Fleet::new().backend("b1", 20).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    for name in ["alice", "bob", "carol"] {
        transfer(&p1, name).await;
    }
    lands(&b1, "carol").await;
    let (_, verifier) = operator(store).await;
    let mut listener = redis::Client::open(store.url()).unwrap().get_async_pubsub().await.unwrap();
    listener.subscribe(key("events:node")).await.unwrap();

    // A place that is being reserved while the backend leaves, and comes just before it is gone.
    stock.shut();
    let late = async {
        eventually("the request is there", LIMIT, async || stock.asked().len() == 4).await;
        let opening = async {
            eventually("it is on its way out", LIMIT, async || {
                let snapshot = p1.agent().directory().snapshot();
                snapshot.get(b1.agent().lease().id()).is_none_or(|view| view.record.state == NodeState::ShuttingDown)
            })
            .await;
            stock.open();
        };
        tokio::join!(b1.leave(), opening);
    };
    let (_, ()) = tokio::join!(p1.dispatch(Request::new(player("dave"))), late);

    let mut last = None;
    loop {
        let event = next_event(&mut listener).await;
        if event.starts_with(b"left b1 ") {
            break;
        }
        if let Ok(record) = NodeRecord::from_wire(&verifier, &event)
            && record.id.as_str() == "b1"
        {
            last = Some(record);
        }
    }
    let last = last.expect("it said goodbye");
    assert_eq!((last.state, last.accepting), (NodeState::ShuttingDown, false));
    stock.all_home_within(Duration::from_secs(5)).await;
    assert_eq!((stock.used(), b1.promised()), (1, 0));
    let mut conn = store.conn().await;
    for name in ["alice", "bob"] {
        let standing = row(&mut conn, name).await;
        assert_eq!((standing["state"].as_str(), standing["reason"].as_str()), ("RELEASED", "shutting_down"));
    }
    assert_eq!(state(&mut conn, "carol").await, "CONSUMED");
    assert_ne!(state(&mut conn, "dave").await, "PENDING", "nothing was promised that nobody gives back");
    let left = keys(&mut conn).await;
    for gone in ["node:b1", "nodes:backend", "due:b1"] {
        assert!(!left.contains(&gone.to_owned()), "{left:?}");
    }
    eventually("the proxy has nobody to ask", LIMIT, async || {
        refused(&p1, Request::new(player("erin"))).await.reason == Reason::NoCandidate
    })
    .await;
}

// A release that nobody answers takes seconds: the places must not queue up behind it.
#[tokio::test]
async fn nod_5_leaving_without_the_store_brings_every_place_home_inside_its_time() {
    let mut fleet = Fleet::new().backend("b1", 20).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    for n in 0..12 {
        transfer(&p1, &format!("p{n}")).await;
    }
    store.sigstop();
    let began = Instant::now();
    tokio::join!(b1.leave(), p1.leave());
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(stock.out(), 0, "an inventory that outlives its agent has all its places");
    stock.check();
}

// A shutdown gives places back at once and tells the store afterwards. Who comes between the two presents a token that is
// live in the store by right: turned away, and nobody is accused of having put an old row back.
#[tokio::test]
async fn r_11_who_comes_while_a_shutdown_gives_their_place_back_is_no_replay() {
    let mut fleet = Fleet::new().backend("b1", 20).proxy("p1").quiet().up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    for name in ["alice", "bob"] {
        transfer(&p1, name).await;
    }
    let mut conn = store.conn().await;
    let _: () = redis::cmd("ACL").arg("SETUSER").arg("default").arg("-evalsha").query_async(&mut conn).await.unwrap();
    b1.leave().await;
    assert_eq!(stock.out(), 0, "the places are home whatever the store says");
    let told = word(&b1, "alice").await.expect("an answer");
    assert_eq!((state(&mut conn, "alice").await.as_str(), told), ("CLAIMED", "old_epoch"));
    assert_eq!(b1.agent().verifier().audit().count(AuditReason::TokenReplay), 0, "nobody replayed anything");
}

// the backend does not know that its token stands, but another proxy does, and sends the player.
#[tokio::test]
async fn r_11_a_player_who_comes_before_the_issue_is_settled_has_the_place() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(1, 1);
    let mut forgetful = config("b1", "backend", &wire.url());
    (forgetful.store.command_timeout_ms, forgetful.store.operation_timeout_ms) = (300, 500);
    forgetful.tokens.reap_interval_ms = 60_000;
    let b1 = backend(forgetful, &stock).await;
    let mut patient = config("p1", "proxy", &store.url());
    patient.dispatch.attempt_timeout_ms = 15_000;
    let (p1, p2) = (proxy(patient).await, proxy(config("p2", "proxy", &store.url())).await);
    sees(&p1, &[&b1]).await;
    wire.drop_replies_of(&issue(), 1_000, Action::Cut);
    let taken = eventually("the token is taken over", LIMIT, async || match p2.take(&player("alice")).await {
        Outcome::Transfer(transfer) => Some(transfer),
        _ => None,
    });
    let (first, taken) = tokio::join!(p1.dispatch(Request::new(player("alice"))), taken);
    assert!(matches!(first, Outcome::Refused(_)), "{first:?}");
    assert_eq!((taken.server.as_str(), stock.out(), b1.promised()), ("b1", 1, 1));
    wire.pass();
    // An error is no answer: whoever asks again gets it.
    let told = eventually("the store says what became of it", LIMIT, async || word(&b1, "alice").await.ok()).await;
    assert_eq!(told, "landed", "and not the normal join, beside a place that is kept for her");
    stock.all_home().await;
}
