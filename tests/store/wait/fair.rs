//! Nobody who asks at the right moment goes before those who wait.

use std::time::Duration;

use maitred::Error;
use maitred::agent::{NoPlaceCode, Outcome, PLACES, PlaceAnswer, PlaceRequest, ProxyAgent, RESERVE, Request};
use maitred::ids::{LineName, RequestId};

use super::{line, served, waits_for_any};
use crate::fixtures::agents::{LIMIT, lands, player};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::wait::eventually;

async fn reserve(proxy: &ProxyAgent, name: &str, bypass: bool) -> Result<PlaceAnswer, NoPlaceCode> {
    let request = PlaceRequest {
        player: player(name),
        request: RequestId::fresh(),
        attempt: 1,
        region: None,
        deadline_ms: proxy.agent().store().clock().now_ms() + 2_000,
        earlier: Vec::new(),
        bypass,
    };
    let target = format!("b1:{PLACES}");
    match proxy.agent().post().call_json(&target, RESERVE, &request, Duration::from_secs(2)).await {
        Ok(answer) => Ok(answer),
        Err(Error::Callee { code, .. }) => Err(NoPlaceCode::read(&code)),
        Err(error) => panic!("{error}"),
    }
}

// QUE-9
#[tokio::test]
async fn que_9_a_fresh_request_gets_no_place_that_somebody_waits_for_and_one_with_the_right_does() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    assert_eq!(reserve(&p1, "early", false).await.err(), Some(NoPlaceCode::NoPlace));
    let at = line(&store.url(), LineName::wait()).await;
    at.pause().await.expect("paused");
    let mut alice = waits_for_any(&p1, "alice").await;
    eventually("the backend knows that somebody waits", LIMIT, async || {
        reserve(&p1, "bob", false).await.err() == Some(NoPlaceCode::Line)
    })
    .await;
    // Two places come in. Nobody overtakes alice but who may.
    stock.restock(2);
    assert_eq!(reserve(&p1, "bob", false).await.err(), Some(NoPlaceCode::Line));
    let bob = waits_for_any(&p1, "bob").await;
    assert_eq!(bob.position(), Some(2));
    let carol = p1.dispatch(Request::new(player("carol")).bypassing()).await;
    assert!(matches!(carol, Outcome::Transfer(_)), "{carol:?}");
    at.resume().await.expect("resumed");
    served(&mut alice).await;

    // Once nobody waits everybody is welcome again.
    drop(bob);
    stock.restock(1);
    eventually("the line is empty", LIMIT, async || reserve(&p1, "dave", false).await.is_ok()).await;
}

// QUE-9: a player has one place. What another request left unclaimed is theirs, and no second place is given.
#[tokio::test]
async fn que_9_whoever_waits_is_moved_to_the_place_that_another_request_of_theirs_left() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    let at = line(&store.url(), LineName::wait()).await;
    at.pause().await.expect("paused");
    let mut alice = waits_for_any(&p1, "alice").await;
    stock.restock(2);
    let left = reserve(&p1, "alice", true).await.expect("a token that nobody claims");
    at.resume().await.expect("resumed");
    let transfer = served(&mut alice).await;
    assert_eq!((&transfer.token.id, &transfer.request), (&left.token.id, alice.request()));
    lands(&b1, "alice").await;
    stock.all_home().await;
    assert_eq!(stock.used(), 1);
}
