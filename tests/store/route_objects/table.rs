//! The cache of routes. If this fails every message costs a read of the store, or goes to a node that lost the object long
//! ago.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use maitred::ids::{Epoch, NodeEpoch};
use maitred::route::{CacheTimes, KindOptions, Route, RouteBook, RouteState, RouteTable, RouteTimes, RouteVersion};

use crate::fixtures::member::{Member, Options, PATIENCE, id};
use crate::fixtures::routes::{Client, Host, object};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::{TestStore, command_stats};
use maitred_testkit::wait::eventually;

fn route(node: &str, version: u64) -> Route {
    Route {
        key: object("counter:one"),
        owner: Some(NodeEpoch { id: id(node), epoch: Epoch(7) }),
        version: RouteVersion(version),
        saved_at_ms: 0,
        state: RouteState::Owned,
    }
}

async fn reads(server: &TestStore) -> u64 {
    command_stats(&mut server.conn().await).await.get("hgetall").map_or(0, |stat| stat.calls)
}

// RTE-5. After a move every client of a busy island asks at the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_5_a_thousand_who_wait_for_one_entry_cost_one_read() {
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    let quiet = Options { refreshing: false, ..Options::default() };
    let other = Member::join_with(&server.url(), "b", quiet).await;
    let (store, verifier, lease) = (other.store.clone(), other.verifier.clone(), other.lease.clone());
    let book = RouteBook::new(store, verifier, lease, RouteTimes::default());
    let table = RouteTable::new(book, CacheTimes { update_ms: 4_000, free_ms: 600_000 });
    table.read(&key).await.unwrap().expect("a record");
    // Other members would read as well.
    drop(a);
    eventually("the entry is stale", PATIENCE, async || table.cached(&key).is_none()).await;
    let before = reads(&server).await;
    let found = Arc::new(AtomicUsize::new(0));
    let waiting = (0..1_000).map(|_| async {
        let route = table.lookup(&key).await.unwrap().expect("a record");
        found.fetch_add(usize::from(route.owner.is_some()), Ordering::SeqCst);
    });
    futures_util::future::join_all(waiting).await;
    assert_eq!(found.load(Ordering::SeqCst), 1_000);
    assert_eq!(reads(&server).await - before, 1);
}

// RTE-5. A valid entry costs no round trip.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_5_a_valid_entry_is_used_without_the_store_and_an_idle_one_dropped() {
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    let table = RouteTable::new(a.router.book().clone(), CacheTimes { update_ms: 600_000, free_ms: 0 });
    assert!(table.lookup(&key).await.unwrap().is_some());
    server.sigstop();
    for _ in 0..1_000 {
        assert!(table.lookup(&key).await.unwrap().is_some(), "from memory");
    }
    server.sigcont();
    eventually("nobody asks for it", PATIENCE, async || table.drop_idle() == 1).await;
    assert!(table.is_empty());
    assert!(a.router.table().cached(&key).is_some(), "an object in memory here is always known");
}

// RTE-9. An old update that was late must not send messages back to a former owner.
#[tokio::test]
async fn rte_9_updates_move_forward_only_and_touch_only_what_is_held() {
    let server = TestStore::start();
    let client = Client::join(&server.url(), "c").await;
    let table = client.router.table();
    let key = object("counter:one");
    assert!(!table.update(route("a", 5)), "not held");
    assert!(table.is_empty());

    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    a.keeper.acquire(&key).await.unwrap();
    let read = table.lookup(&key).await.unwrap().unwrap();
    let version = read.version.0;
    assert!(!table.update(route("x", version)) && !table.update(route("x", version - 1)));
    assert_eq!(table.cached(&key).unwrap().owner, read.owner);
    assert!(table.update(route("x", version + 2)));
    assert!(!table.update(route("y", version + 1)), "an old update after a new one");
    assert_eq!(table.cached(&key).unwrap().owner.as_ref().unwrap().id, id("x"));
    table.forget(&key, RouteVersion(version));
    assert_eq!(table.version(&key).0, version + 2, "what was cleared is not what is known by now");
    table.forget(&key, RouteVersion(version + 2));
    assert!(table.cached(&key).is_none());
}

// RTE-5: a read whose first asker went away ends all the same: whoever asks next must not get an answer of long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_5_a_read_that_nobody_waits_for_any_more_ends() {
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    let table = RouteTable::new(a.router.book().clone(), CacheTimes::default());
    let mut asked = Box::pin(table.read(&key));
    // Asked once, and given up.
    assert!(futures_util::poll!(&mut asked).is_pending());
    drop(asked);
    eventually("the read ends", PATIENCE, async || table.cached(&key).is_some()).await;
}

// RTE-5, RTE-9: an update that came while a record was read is newer than what the read brings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_9_an_update_during_a_read_is_not_taken_back_by_it() {
    let server = TestStore::start();
    let wire = FaultProxy::start(&server);
    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    let quiet = Options { refreshing: false, ..Options::default() };
    let other = Member::join_with(&wire.url(), "b", quiet).await;
    let (store, verifier, lease) = (other.store.clone(), other.verifier.clone(), other.lease.clone());
    let table = RouteTable::new(RouteBook::new(store, verifier, lease, RouteTimes::default()), CacheTimes::default());
    let version = table.read(&key).await.unwrap().unwrap().version.0;
    let before = wire.count("HGETALL");
    // Long enough for the update to come first; if it does not, nothing is shown and nothing fails.
    wire.delay(Duration::from_millis(500));
    let mut reading = Box::pin(table.read(&key));
    assert!(futures_util::poll!(&mut reading).is_pending());
    eventually("the read is on its way", PATIENCE, async || wire.count("HGETALL") > before).await;
    assert!(table.update(route("x", version + 1)));
    reading.await.unwrap();
    wire.delay(Duration::ZERO);
    assert_eq!(table.version(&key).0, version + 1);
    assert!(table.read(&key).await.unwrap().is_some_and(|route| route.version.0 == version), "a read after it counts");
}
