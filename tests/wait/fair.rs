//! Nobody who asks at the right moment goes before those who wait.

use std::time::Duration;

use maitred::Error;
use maitred::agent::{NoPlaceCode, Outcome, PLACES, PlaceAnswer, PlaceRequest, ProxyAgent, RESERVE, Request};
use maitred::ids::{LineName, RequestId};

use crate::agents_common::shelf::Shelf;
use crate::agents_common::{LIMIT, backend, config, player, sees};
use crate::support::store::TestStore;
use crate::support::wait::eventually;
use crate::{line, served, wait_proxy, waits_for_any};

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
    let store = TestStore::start();
    let shelf = Shelf::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &shelf).await;
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &[&b1]).await;
    assert_eq!(reserve(&p1, "early", false).await.err(), Some(NoPlaceCode::NoPlace));
    let at = line(&store.url(), LineName::wait()).await;
    at.pause().await.expect("paused");
    let mut alice = waits_for_any(&p1, "alice").await;
    eventually("the backend knows that somebody waits", LIMIT, async || {
        reserve(&p1, "bob", false).await.err() == Some(NoPlaceCode::Line)
    })
    .await;
    // Two places come in. Nobody overtakes alice but who may.
    shelf.restock(2);
    assert_eq!(reserve(&p1, "bob", false).await.err(), Some(NoPlaceCode::Line));
    let bob = waits_for_any(&p1, "bob").await;
    assert_eq!(bob.position(), Some(2));
    let carol = p1.dispatch(Request::new(player("carol")).bypassing()).await;
    assert!(matches!(carol, Outcome::Transfer(_)), "{carol:?}");
    at.resume().await.expect("resumed");
    served(&mut alice).await;

    // Once nobody waits everybody is welcome again.
    drop(bob);
    shelf.restock(1);
    eventually("the line is empty", LIMIT, async || reserve(&p1, "dave", false).await.is_ok()).await;
}
