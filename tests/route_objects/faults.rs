//! The keeper where something goes wrong half-way: a callback that panics, a save that fails, an owner that comes back too
//! late. If this fails a message counts twice, or what was answered as saved is gone.

use maitred::Error;
use maitred::error::RouteRefusal;
use maitred::route::{Ack, KindOptions, RouteTimes, Storage};

use crate::member::{Member, Options, PATIENCE};
use crate::routes_common::{CALL, Counter, Host, acquainted, object};
use crate::support::store::TestStore;
use crate::support::wait::eventually;

fn is_not_saved(outcome: &Result<u64, Error>) -> bool {
    matches!(outcome, Err(Error::Routed { refusal: RouteRefusal::NotSaved, .. }))
}

fn saved() -> KindOptions {
    KindOptions { ack: Ack::Saved, ..KindOptions::default() }
}

// storage that refuses nobody keeps whatever is written last, so an owner that was replaced must not write at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_18_an_owner_that_was_replaced_does_not_write_to_storage_without_a_fence() {
    let server = TestStore::start();
    let times = RouteTimes { lock_timeout_ms: 1_500, ..RouteTimes::default() };
    let options = KindOptions { storage: Storage::Own { fenced: false }, ..KindOptions::default() };
    let counter = Counter::new(options);
    let short = Options { lease_ms: 700, ..Options::default() };
    let member = Member::join_with(&server.url(), "a", short).await;
    let mut a = Host::join_as(member, counter.clone(), times).await;
    let b = Host::join_as(Member::join(&server.url(), "b").await, counter.clone(), times).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    a.inc(&key, 0).await.unwrap();
    a.member.stop_beating().await;
    eventually("the lock timeout passes", PATIENCE, async || b.keeper.acquire(&key).await.is_ok()).await;
    b.keeper.with(&key, |count| (count.value = 70, true)).await.unwrap();
    b.keeper.save(&key).await.unwrap();

    a.member.join_again().await;
    // Its timer may have been quicker, and then there is nothing to save.
    let late = a.keeper.save(&key).await;
    assert!(matches!(late, Ok(()) | Err(Error::NotOwner { .. })), "{late:?}");
    eventually("the first owner drops it", PATIENCE, async || a.keeper.is_empty()).await;
    let stored = counter.storage.lock().unwrap().get(key.as_str()).cloned();
    assert_eq!(stored.map(|count| count.value), Some(70), "the first owner wrote over what the second had saved");
}

// whoever is told that a node shuts down sends again. After a panic the handler may have run, so that is not said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_19_a_panic_after_the_handler_is_an_unknown_outcome_and_not_a_second_run() {
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", saved()).await;
    let b = Host::join(&server.url(), "b", saved()).await;
    acquainted(&[&a.member, &b.member]).await;
    let key = object("counter:one");
    assert_eq!(a.keeper.acquire(&key).await.unwrap(), a.router.table().version(&key));
    let handled = || a.counter.told().iter().filter(|what| what.starts_with("removed")).count();
    for sender in [&a, &b] {
        a.counter.panics.store(true, std::sync::atomic::Ordering::SeqCst);
        let before = handled();
        let outcome = sender.inc(&key, 0).await;
        assert!(is_not_saved(&outcome), "{outcome:?}");
        a.counter.panics.store(false, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(handled() - before, 1, "it ran more than once");
        assert!(a.keeper.is_empty(), "what a panic left behind is not used");
    }
    let panicked = a.keeper.with(&key, |_| -> ((), bool) { panic!("as the test wants it") }).await;
    assert!(matches!(panicked, Err(Error::Routed { refusal: RouteRefusal::NotSaved, .. })), "{panicked:?}");
    assert!(a.keeper.is_empty());
    assert_eq!(a.inc(&key, 1).await.unwrap(), 1, "loaded anew");
}

// RTE-6: with `ack: saved` no answer tells of what a crash would take back, also not the answer to a question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_an_answer_after_a_failed_save_waits_for_the_save() {
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", saved()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    let mut conn = server.conn().await;
    let name = a.member.store.keys().object(&key).to_string();
    let _: () = redis::cmd("SET").arg(&name).arg("of another type").query_async(&mut conn).await.unwrap();
    let outcome = a.inc(&key, 0).await;
    assert!(is_not_saved(&outcome), "{outcome:?}");
    let read = a.router.call_json::<u64, _>(&key, "get", &(), CALL).await;
    assert!(is_not_saved(&read), "a change that is not saved was told: {read:?}");
    let _: () = redis::cmd("DEL").arg(&name).query_async(&mut conn).await.unwrap();
    assert_eq!(a.router.call_json::<u64, _>(&key, "get", &(), CALL).await.unwrap(), 1);
    assert_eq!(a.stored(&key).await.unwrap().value, 1);
}
