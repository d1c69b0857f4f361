//! The line of one server.

use maitred::agent::{Outcome, Reason, Request};

use super::{queueing, served, tickets, turned_away, waits};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{backend, config, id, player, proxy, refused, sees};
use maitred_testkit::store::TestStore;

// QUE-9
#[tokio::test]
async fn que_9_a_request_for_one_server_waits_for_it_and_is_told_when_it_is_removed() {
    let store = TestStore::start();
    let (full, roomy) = (Stock::new(0, 0), Stock::new(9, 9));
    let b1 = backend(config("b1", "backend", &store.url()), &full).await;
    let b2 = backend(config("b2", "backend", &store.url()), &roomy).await;
    let mut config = queueing("p1", &store.url());
    config.directory.removed_ms = 3_000;
    let p1 = proxy(config).await;
    sees(&p1, &[&b1, &b2]).await;
    let ask = |name: &str| Request::new(player(name)).on_server(id("b1"));
    let (mut alice, mut bob) = (waits(&p1, ask("alice")).await, waits(&p1, ask("bob")).await);
    assert_eq!((alice.line().as_str(), bob.position()), ("wait.b1", Some(2)));
    // Those who want no server in particular do not wait for this one.
    assert!(matches!(p1.dispatch(Request::new(player("carol"))).await, Outcome::Transfer(_)));
    full.restock(1);
    b1.restocked();
    assert_eq!(served(&mut alice).await.server, id("b1"), "never another one");
    assert_eq!(refused(&p1, Request::new(player("dave")).on_server(id("b9"))).await.reason, Reason::NoCandidate);

    // Once it has been away for as long as one that was killed would stay on the roster.
    b1.leave().await;
    let told = turned_away(&mut bob).await;
    assert_eq!(told.reason, Reason::WaitEnded, "{told:?}");
    assert!(tickets(&mut store.conn().await, "wait.b1").await.is_empty());
}
