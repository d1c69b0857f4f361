//! Owners on their way out, while others still send to them and hand objects to them. If this fails an island is nobody's
//! until a server has gone down for good, or a shutdown takes as long as its slowest database.

use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred::Error;
use maitred::route::{Keeper, KindOptions};
use tokio::task::JoinHandle;

use crate::fixtures::member::PATIENCE;
use crate::fixtures::routes::{CALL, Client, Counter, Host, Increment, acquainted, object};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// A flush that stands still at the removal of an object, until the door is opened.
async fn flushing(host: &Host) -> JoinHandle<maitred::route::FlushReport> {
    host.counter.door.forget_permits(host.counter.door.available_permits());
    let keeper: Keeper<Counter> = host.keeper.clone();
    let flush = tokio::spawn(async move { keeper.flush(Duration::from_secs(40), |_| ()).await });
    eventually("the flush is under way", PATIENCE, async || host.counter.at_door.load(Ordering::Acquire)).await;
    flush
}

async fn fleet(server: &TestStore) -> (Host, Host, Client) {
    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let b = Host::join(&server.url(), "b", KindOptions::default()).await;
    let client = Client::join(&server.url(), "c").await;
    acquainted(&[&a.member, &b.member, &client.member]).await;
    (a, b, client)
}

// RTE-10, RTE-6: the target has begun to shut down, and nobody knows yet. What it is given it must not keep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_an_object_that_is_handed_to_a_node_on_its_way_out_is_not_stuck_there() {
    for notify in [true, false] {
        let server = TestStore::start();
        let (a, mut b, client) = fleet(&server).await;
        let (moves, stays) = (object("counter:moves"), object("counter:stays"));
        a.keeper.acquire(&moves).await.unwrap();
        assert_eq!(client.inc(&moves, 0).await.unwrap(), 1);
        b.keeper.acquire(&stays).await.unwrap();
        // Nobody is told that b offers nothing any more.
        b.member.stop_beating().await;
        let flush = flushing(&b).await;
        let moved = a.keeper.transfer(&moves, &b.member.id, notify).await.expect("b is there");
        assert_eq!(moved.unconfirmed.is_some(), notify, "{moved:?}");
        assert_eq!(client.inc(&moves, 1).await.expect("it is served while b shuts down"), 2);
        assert_eq!(a.owner(&moves).await.as_deref(), Some("a"));
        b.counter.door.add_permits(1_000);
        assert!(flush.await.unwrap().unsaved.is_empty());
    }
}

// RTE-7, RTE-12: a node that shuts down says so, and nothing more is brought to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_7_a_node_that_shuts_down_is_offered_no_object_and_answers_for_those_it_still_has() {
    let server = TestStore::start();
    let (a, b, client) = fleet(&server).await;
    let (stays, mine) = (object("counter:stays"), object("counter:mine"));
    b.keeper.acquire(&stays).await.unwrap();
    a.keeper.acquire(&mine).await.unwrap();
    let flush = flushing(&b).await;
    for other in [&a.member, &client.member] {
        eventually("it is seen", PATIENCE, async || {
            other.directory.view_of(&b.member.id).is_some_and(|view| !view.record.offers("object.counter"))
        })
        .await;
    }
    let refused = a.keeper.transfer(&mine, &b.member.id, true).await;
    assert!(matches!(refused, Err(Error::ServiceNotFound { .. })), "{refused:?}");
    assert_eq!(a.owner(&mine).await.as_deref(), Some("a"));
    for n in 0..20 {
        let key = object(&format!("counter:{n}"));
        assert_eq!(client.inc(&key, 0).await.unwrap(), 1);
        assert_eq!(a.owner(&key).await.as_deref(), Some("a"));
    }
    // What b itself asks of others goes to them, also where it had the object a moment ago.
    assert_eq!(b.inc(&object("counter:new"), 0).await.expect("a takes it"), 1);
    let one_way = Increment { sender: "c".to_owned(), number: 2 };
    client.router.send(&stays, "inc", &one_way).await.expect("b listens");
    let gone = async {
        b.counter.door.add_permits(1_000);
        flush.await.unwrap()
    };
    let (own, report) = tokio::join!(b.inc(&stays, 1), gone);
    assert!(own.is_ok() && report.unsaved.is_empty(), "{own:?} {report:?}");
    eventually("what nobody waits for is not lost", PATIENCE, async || {
        client.router.call_json::<u64, _>(&stays, "get", &(), CALL).await.expect("a has it") == 2
    })
    .await;
}
