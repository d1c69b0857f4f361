//! What becomes of players under way when a process loses its lease. If one of these fails, the crash of one process
//! loses the players of the others.

use maitred::agent::{Outcome, Request};
use maitred::envelope::AuditReason;
use maitred::token::ReleaseOutcome;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, keys, lands, player, proxy, row, sees, state, transfer, word};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn r_13_a_player_whose_claim_was_reopened_lands_all_the_same() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let moved = transfer(&p1, "alice").await;
    // Dead: its loops end, and it does not leave.
    drop(p1);
    let mut conn = fleet.store.conn().await;
    eventually("the claim of the dead proxy is reopened", LIMIT, async || state(&mut conn, "alice").await == "PENDING")
        .await;
    let reopened = row(&mut conn, "alice").await;
    assert_eq!(reopened["last_claimant"], "p1");
    assert_eq!(reopened["id"], moved.token.id.as_str());
    assert_eq!((stock.out(), b1.promised()), (1, 1), "the place waits for the player");
    lands(&b1, "alice").await;
    stock.all_home().await;
}

#[tokio::test]
async fn dsp_5_another_proxy_finishes_what_a_dead_one_began() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    let p2 = proxy(config("p2", "proxy", &store.url())).await;
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let before = transfer(&p1, "alice").await;
    drop(p1);
    let after = eventually("the other proxy takes the player over", LIMIT, async || {
        match p2.dispatch(Request::new(player("alice"))).await {
            Outcome::Transfer(transfer) => Some(transfer),
            _ => None,
        }
    })
    .await;
    assert_eq!(after.token.id, before.token.id, "the same place, never a second one");
    lands(&b1, "alice").await;
    // TOK-5
    let released = p2.failed(&after, "not_moved").await.expect("an answer");
    assert_eq!(released, ReleaseOutcome::Landed);
    stock.all_home().await;
    assert_eq!(stock.used(), 1);
}

// NOD-4: nobody took the id and the store still has the epoch, so nothing is void.
#[tokio::test]
async fn nod_4_a_backend_that_was_paused_past_its_lease_keeps_its_places_and_its_players_land() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").wired("b1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (stock, wire) = (b1.inventory().clone(), fleet.wire());
    let epoch = b1.agent().lease().epoch();
    let (alice, _bob) = (transfer(&p1, "alice").await, transfer(&p1, "bob").await);
    wire.hold();
    eventually("the lease ends", LIMIT, async || !b1.agent().lease().is_valid()).await;
    let mut conn = fleet.store.conn().await;
    eventually("the row is gone", LIMIT, async || !keys(&mut conn).await.contains(&"node:b1".to_owned())).await;
    p1.failed(&alice, "not_moved").await.expect("released");
    wire.resume();
    eventually("the lease is back", LIMIT, async || b1.agent().lease().is_valid()).await;
    assert_eq!(b1.agent().lease().epoch(), epoch);
    lands(&b1, "bob").await;
    stock.all_home().await;
    assert_eq!(stock.used(), 1);
}

// NOD-15: the store lost everything. What was promised under the old epoch cannot be used any more.
#[tokio::test]
async fn nod_15_after_a_wiped_store_every_place_comes_home_and_the_fleet_goes_on() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    let epoch = b1.agent().lease().epoch();
    transfer(&p1, "alice").await;
    assert_eq!(stock.out(), 1);
    store.flushall().await;
    eventually("the backend has a new epoch", LIMIT, async || b1.agent().lease().epoch() > epoch).await;
    stock.all_home().await;
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "none");
    eventually("the proxy is a member again", LIMIT, async || p1.agent().lease().is_valid()).await;
    sees(&p1, &[&b1]).await;
    let moved =
        eventually("players are moved again", LIMIT, async || match p1.dispatch(Request::new(player("alice"))).await {
            Outcome::Transfer(transfer) => Some(transfer),
            _ => None,
        })
        .await;
    assert!(moved.token.server_epoch > epoch);
    lands(&b1, "alice").await;
    stock.all_home().await;
}

// TOK-8 within one process: the id was taken in between, so the process has a new epoch, and its old tokens are still
// live in the store. Nobody replayed anything.
#[tokio::test]
async fn tok_8_tokens_of_the_processs_own_former_epoch_are_refused_as_such() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").wired("b1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock, wire) = (&fleet.store, b1.inventory().clone(), fleet.wire());
    let epoch = b1.agent().lease().epoch();
    transfer(&p1, "alice").await;
    wire.hold();
    let usurper = backend(config("b1", "backend", &store.url()), &Stock::new(0, 0)).await;
    usurper.leave().await;
    wire.resume();
    eventually("the backend has a new epoch", LIMIT, async || {
        b1.agent().lease().is_valid() && b1.agent().lease().epoch() > epoch
    })
    .await;
    stock.all_home().await;
    let mut conn = store.conn().await;
    assert_eq!(state(&mut conn, "alice").await, "CLAIMED", "the token itself lives until its expiry");
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "old_epoch");
    assert_eq!(b1.agent().verifier().audit().count(AuditReason::TokenReplay), 0);
}
