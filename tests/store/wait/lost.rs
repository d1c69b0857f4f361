//! Events, replies, memberships and data that get lost.

use futures_util::{FutureExt, StreamExt, stream};
use maitred::agent::{Reason, WaitUpdate};
use maitred::store::scripts;
use redis::aio::MultiplexedConnection;

use super::{queueing, served, tickets, turned_away, wait_proxy, waits_for_any};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, key, lands, player, proxy, sees, state};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// Who waits, each with the place, as the store has it.
async fn order(conn: &mut MultiplexedConnection) -> Vec<String> {
    let range = ["0", "-1", "WITHSCORES"];
    redis::cmd("ZRANGE").arg(key("line:wait")).arg(&range).query_async(conn).await.expect("ZRANGE")
}

async fn exists(conn: &mut MultiplexedConnection, name: &str) -> bool {
    redis::cmd("EXISTS").arg(key(name)).query_async(conn).await.expect("EXISTS")
}

// QUE-9: nobody is forgotten because an event did not arrive.
#[tokio::test]
async fn que_9_a_proxy_that_hears_nothing_finds_that_its_player_was_served() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").wired("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (stock, wire) = (b1.inventory().clone(), fleet.wire());
    let mut alice = waits_for_any(&p1, "alice").await;
    // The subscription ends and does not come back; all else goes on.
    wire.refuse(true);
    let mut conn = fleet.store.conn().await;
    let _: u64 =
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query_async(&mut conn).await.expect("killed");
    let heard = key("events:line");
    eventually("only the backend listens", LIMIT, async || {
        let (_, count): (String, u64) =
            redis::cmd("PUBSUB").arg("NUMSUB").arg(&heard).query_async(&mut conn).await.expect("NUMSUB");
        count == 1
    })
    .await;
    stock.restock(1);
    b1.restocked();
    served(&mut alice).await;
    lands(&b1, "alice").await;
}

// the backend does not know that its token stands; the player comes all the same, and has the place.
#[tokio::test]
async fn r_11_a_drain_whose_replies_are_lost_is_settled_when_the_player_joins() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(0, 0);
    let mut forgetful = config("b1", "backend", &wire.url());
    (forgetful.store.command_timeout_ms, forgetful.store.operation_timeout_ms) = (300, 500);
    forgetful.tokens.reap_interval_ms = 60_000;
    let b1 = backend(forgetful, &stock).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1]).await;
    let mut alice = waits_for_any(&p1, "alice").await;
    wire.drop_replies_of(&format!("EVALSHA {}", scripts::QUEUE_DRAIN.pinned()), 1_000, Action::Cut);
    stock.restock(1);
    b1.restocked();
    let transfer = served(&mut alice).await;
    wire.pass();
    assert_eq!((stock.out(), b1.promised()), (1, 1), "the place is kept while nothing is certain");
    lands(&b1, "alice").await;
    assert_eq!((transfer.server.as_str(), stock.used(), b1.promised()), ("b1", 1, 0));
}

// a drain that never reached the store gives its place back only when that is certain.
#[tokio::test]
async fn r_2_a_place_whose_ticket_went_meanwhile_comes_home_once() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(0, 0);
    let mut slow = config("b1", "backend", &wire.url());
    (slow.store.command_timeout_ms, slow.store.operation_timeout_ms) = (300, 500);
    let b1 = backend(slow, &stock).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1]).await;
    let mut alice = waits_for_any(&p1, "alice").await;
    // The place is reserved, and then nothing reaches the store any more.
    stock.shut();
    stock.restock(1);
    b1.restocked();
    eventually("the backend reserves", LIMIT, async || stock.out() == 1).await;
    wire.hold();
    stock.open();
    eventually("the drain is under way", LIMIT, async || b1.promised() == 1).await;
    p1.cancel(&player("alice"), alice.request()).await.expect("an answer");
    assert_eq!(turned_away(&mut alice).await.reason, Reason::Cancelled);
    assert_eq!(stock.out(), 1, "nothing is certain yet");
    wire.cut_all();
    wire.resume();
    stock.all_home().await;
    assert_eq!((b1.promised(), stock.used()), (0, 0));
}

// the store loses everything. Whoever waits stands where they stood.
#[tokio::test]
async fn r_23_a_proxy_enters_its_players_again_after_the_store_lost_them() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let mut conn = fleet.store.conn().await;
    let mut waiting = Vec::new();
    for n in 0..6 {
        waiting.push(waits_for_any(&p1, &format!("p{n}")).await);
    }
    let before = order(&mut conn).await;
    let _: () = redis::cmd("FLUSHALL").query_async(&mut conn).await.expect("flushed");
    eventually("all are back", LIMIT, async || tickets(&mut conn, "wait").await.len() == 6).await;
    assert_eq!(order(&mut conn).await, before);
    eventually("the backend is back", LIMIT, async || b1.agent().lease().is_valid()).await;
    for handle in &mut waiting {
        stock.restock(1);
        b1.restocked();
        served(handle).await;
    }
}

// a proxy that is cut off for longer than its lease loses nobody's place.
#[tokio::test]
async fn r_23_a_proxy_that_was_gone_for_a_while_takes_its_players_places_up_again() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let p1 = proxy(queueing("p1", &wire.url())).await;
    let p2 = wait_proxy("p2", &store.url()).await;
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let (mut alice, mut bob) = (waits_for_any(&p1, "alice").await, waits_for_any(&p2, "bob").await);
    wire.hold();
    eventually("its row is gone", LIMIT, async || !exists(&mut conn, "node:p1").await).await;
    // Nobody is held up by it.
    stock.restock(1);
    b1.restocked();
    served(&mut bob).await;
    assert_eq!(tickets(&mut conn, "wait").await, ["alice"]);
    wire.resume();
    eventually("she waits again", LIMIT, async || exists(&mut conn, "line:wait").await).await;
    stock.restock(1);
    b1.restocked();
    served(&mut alice).await;
}

// nor is one of many forgotten whom the proxy is just looking at when it joins again.
#[tokio::test]
async fn r_23_of_a_crowd_nobody_is_sent_away_because_the_store_lost_them() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (_b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let mut conn = fleet.store.conn().await;
    let names: Vec<String> = (0..400).map(|n| format!("u{n}")).collect();
    let mut crowd: Vec<_> = stream::iter(&names).map(|name| waits_for_any(&p1, name)).buffered(32).collect().await;
    for _ in 0..3 {
        let before = order(&mut conn).await;
        let _: () = redis::cmd("FLUSHALL").query_async(&mut conn).await.expect("flushed");
        eventually("all are back", LIMIT * 3, async || {
            for waiting in &mut crowd {
                if let Some(Some(WaitUpdate::Refused(refusal))) = waiting.next().now_or_never() {
                    panic!("sent away: {refusal:?}");
                }
            }
            order(&mut conn).await == before
        })
        .await;
    }
}

// the answer to the enter is lost, the turn comes, and the repeat of the enter finds no ticket.
#[tokio::test]
async fn r_1_an_enter_repeated_after_the_turn_leaves_no_second_ticket() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let p1 = proxy(queueing("p1", &wire.url())).await;
    sees(&p1, &[&b1]).await;
    wire.refuse(true);
    wire.drop_next_reply_of(&format!("EVALSHA {}", scripts::QUEUE_ENTER.pinned()), Action::Cut);
    let (mut alice, ()) = tokio::join!(waits_for_any(&p1, "alice"), async {
        eventually("she waits", LIMIT, async || tickets(&mut conn, "wait").await.len() == 1).await;
        stock.restock(1);
        b1.restocked();
        eventually("her turn comes", LIMIT, async || state(&mut conn, "alice").await == "PENDING").await;
        wire.refuse(false);
    });
    served(&mut alice).await;
    eventually("no ticket is left", LIMIT, async || tickets(&mut conn, "wait").await.is_empty()).await;
    lands(&b1, "alice").await;
    assert_eq!((b1.promised(), stock.used()), (0, 1));
}
