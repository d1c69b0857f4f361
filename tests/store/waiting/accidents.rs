//! What a store loses, and who has the place afterwards.

use futures_util::{StreamExt, stream};

use super::kinds::{End, Fleet, Kind, Place, Waits};
use crate::fixtures::agents::{LIMIT, proxy};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::wait::eventually;

/// A store that is killed a moment after a player entered, and comes back within the lease with what it had saved before.
async fn lost_last_second(kind: Kind) {
    let mut fleet = Fleet::new(kind);
    let mut config = fleet.config("p1", &fleet.store.url());
    // A membership that outlives the restart: nobody is entered again because of a new epoch.
    config.heartbeat.interval_ms = 2_000;
    (config.directory.suspect_ms, config.directory.offline_ms) = (5_000, 7_000);
    let p1 = proxy(config).await;
    let mut alice = fleet.waits(&p1, "alice").await;
    let _: () = redis::cmd("SAVE").query_async(&mut fleet.conn().await).await.expect("saved");
    let mut bob = fleet.waits(&p1, "bob").await;
    let (before, epoch) = (fleet.order().await, p1.agent().lease().epoch());
    fleet.store.kill();
    fleet.store.restart_with_data();
    eventually("both wait where they stood", LIMIT, async || fleet.order().await == before).await;
    assert_eq!(p1.agent().lease().epoch(), epoch, "the same membership");
    let _b1 = fleet.backend("b1", 10).await;
    assert_eq!([alice.end().await, bob.end().await], [End::Served, End::Served]);
}

// a player whose enter was acknowledged hears that the place is gone, because the store lost its last second.
#[tokio::test]
async fn r_44_a_store_that_lost_its_last_second_costs_nobody_a_pass() {
    lost_last_second(Kind::Pass).await;
}

#[tokio::test]
async fn r_44_a_store_that_lost_its_last_second_costs_nobody_a_token() {
    lost_last_second(Kind::Token).await;
}

/// Players of two proxies who waited in turn, and a store that forgets them all.
async fn wiped(kind: Kind) {
    const EACH: usize = 100;
    let fleet = Fleet::new(kind);
    let (p1, p2) = (fleet.proxy("p1").await, fleet.proxy("p2").await);
    let proxies = [&p1, &p2];
    let _crowd: Vec<Waits> = stream::iter(0..2 * EACH)
        .then(|n| {
            let (fleet, proxy) = (&fleet, proxies[n % 2]);
            async move { fleet.waits(proxy, &format!("u{n:03}")).await }
        })
        .collect()
        .await;
    let before = fleet.order().await;
    fleet.store.flushall().await;
    fleet.has_waiting(2 * EACH).await;
    assert_eq!(fleet.order().await, before, "everybody stands where they stood");
}

// whoever waited through the slower of two proxies is overtaken by everybody of the other.
#[tokio::test]
async fn r_43_after_a_wipe_the_players_of_two_proxies_wait_for_passes_in_the_old_order() {
    wiped(Kind::Pass).await;
}

#[tokio::test]
async fn r_43_after_a_wipe_the_players_of_two_proxies_wait_for_tokens_in_the_old_order() {
    wiped(Kind::Token).await;
}

/// A store that knows a player by an earlier visit, through this proxy or another one, than the last that it acknowledged.
async fn went_back(kind: Kind, through_one: bool) {
    let fleet = Fleet::new(kind);
    let wire = FaultProxy::start(&fleet.store);
    let (p1, p2) = (fleet.proxy("p1").await, fleet.proxy_at("p2", &wire.url()).await);
    let mut old = fleet.waits(if through_one { &p2 } else { &p1 }, "alice").await;
    let before = Place::of(&fleet, "alice").await;
    let mut new = fleet.waits(&p2, "alice").await;
    let after = Place::of(&fleet, "alice").await;
    assert_eq!(old.end().await, End::Elsewhere);
    wire.refuse(true);
    wire.cut_all();
    after.take_away(&fleet).await;
    before.put_back(&fleet).await;
    wire.refuse(false);
    wire.pass();
    let session = Some(new.session());
    eventually("the newer visit has the place", LIMIT, async || fleet.session("alice").await == session).await;
    let _b1 = fleet.backend("b1", 10).await;
    assert_eq!(new.end().await, End::Served);
}

// the connection that came last is the one that the player looks at.
#[tokio::test]
async fn r_43_a_store_that_goes_back_behind_a_visit_leaves_the_pass_to_the_newest() {
    went_back(Kind::Pass, false).await;
    went_back(Kind::Pass, true).await;
}

#[tokio::test]
async fn r_43_a_store_that_goes_back_behind_a_request_leaves_the_token_to_the_newest() {
    went_back(Kind::Token, false).await;
    went_back(Kind::Token, true).await;
}
