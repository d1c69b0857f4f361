//! QUE-9: nobody waits for ever behind somebody who cannot be served while places are free.

use futures_util::{StreamExt, TryStreamExt, stream};
use maitred::agent::Request;
use maitred::ids::{LineName, NodeEpoch, RequestId, SessionId};
use maitred::queue::Attributes;
use redis::aio::MultiplexedConnection;

use super::{line, served, tickets, wait_proxy, waits, waits_for_any};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{backend, config, key, player, region, sees};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::store::TestStore;

async fn by_hand(conn: &mut MultiplexedConnection, command: &[&str]) {
    let (name, args) = command.split_first().expect("a command");
    let _: redis::Value = redis::cmd(name).arg(args).query_async(conn).await.expect("done");
}

// A row that no script can read stops its player, not the fleet.
#[tokio::test]
async fn que_9_a_player_whose_token_row_is_broken_holds_nobody_up() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let mut conn = fleet.store.conn().await;
    let alice = waits_for_any(&p1, "alice").await;
    let mut bob = waits_for_any(&p1, "bob").await;
    by_hand(&mut conn, &["SET", &key("token:alice"), "junk"]).await;
    stock.restock(2);
    b1.restocked();
    served(&mut bob).await;
    // Whoever goes away leaves no ticket for the backends to stumble over.
    p1.cancel(&player("alice"), alice.request()).await.expect_err("the row is broken");
    assert!(tickets(&mut conn, "wait").await.is_empty());
    assert_eq!(stock.out(), 1, "hers is home");
}

#[tokio::test]
async fn que_9_names_that_are_no_players_hold_nobody_up() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let mut conn = fleet.store.conn().await;
    let mut alice = waits_for_any(&p1, "alice").await;
    for n in 1..=70 {
        by_hand(&mut conn, &["ZADD", &key("line:wait"), &n.to_string(), &format!("junk {n}")]).await;
    }
    stock.restock(1);
    b1.restocked();
    served(&mut alice).await;
}

// The servers of a region are gone, and many wait for it.
#[tokio::test]
async fn que_9_whoever_stands_behind_any_number_of_wishes_for_elsewhere_is_served_in_order() {
    let store = TestStore::start();
    let stock = Stock::in_regions(0, 0, &["south"]);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1]).await;
    let at = line(&store.url(), LineName::wait()).await;
    // Through another proxy, which knows of nobody who waits and so looks at no line.
    let crowded = wait_proxy("p2", &store.url()).await;
    let holder = NodeEpoch { id: crowded.agent().lease().id().clone(), epoch: crowded.agent().lease().epoch() };
    let north = region("north");
    let enter = async |n: usize| {
        let attributes = Attributes::of_wish(&RequestId::short(), Some(&north), None)?;
        at.enter(&holder, &player(&format!("n{n}")), 0, &SessionId::fresh(), &attributes, None).await
    };
    let mut behind = Vec::new();
    for (name, range) in [("alice", 0..1_200), ("bob", 1_200..2_400)] {
        let entered: Vec<_> = stream::iter(range).map(enter).buffered(32).try_collect().await.expect("they wait");
        assert_eq!(entered.len(), 1_200);
        behind.push(waits(&p1, Request::new(player(name)).in_region(region("south"))).await);
    }
    for waiting in &mut behind {
        stock.restock(1);
        b1.restocked();
        served(waiting).await;
    }
}
