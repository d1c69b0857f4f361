//! The keeper where something goes wrong half-way: a callback that panics, a save that fails, an owner that comes back too
//! late. If this fails a message counts twice, or what was answered as saved is gone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred::Error;
use maitred::error::RouteRefusal;
use maitred::ids::{NodeEpoch, ObjectKey, ObjectKind};
use maitred::route::{Ack, AcquireOutcome, KindOptions, RouteTimes, Storage, TransferOutcome};
use maitred::store::scripts;

use crate::fixtures::member::{Member, Options, PATIENCE};
use crate::fixtures::routes::{CALL, Counter, Host, acquainted, object};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

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
    let short = Options { lease_ms: 1_200, ..Options::default() };
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
        a.counter.panics.store(true, Ordering::SeqCst);
        let before = handled();
        let outcome = sender.inc(&key, 0).await;
        assert!(is_not_saved(&outcome), "{outcome:?}");
        a.counter.panics.store(false, Ordering::SeqCst);
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

/// Makes `to` the owner behind the back of `from`'s keeper.
async fn moved_away(from: &Host, to: &Host, key: &ObjectKey) {
    let book = from.router.book();
    let AcquireOutcome::Acquired(held) = book.acquire(key, None, true).await.unwrap() else { panic!("not its own") };
    let target = NodeEpoch { id: to.member.id.clone(), epoch: to.member.epoch() };
    assert!(matches!(book.transfer(&held, &target).await.unwrap(), TransferOutcome::Moved(_)));
}

// RTE-3, RTE-4: whoever is told that an object is deleted must not find it at another node later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_4_what_another_owns_by_now_is_neither_deleted_nor_handed_over() {
    let server = TestStore::start();
    let options = KindOptions::default;
    let (a, b, c) = (
        Host::join(&server.url(), "a", options()).await,
        Host::join(&server.url(), "b", options()).await,
        Host::join(&server.url(), "c", options()).await,
    );
    acquainted(&[&a.member, &b.member, &c.member]).await;
    let (one, two) = (object("counter:one"), object("counter:two"));
    for key in [&one, &two] {
        a.keeper.acquire(key).await.unwrap();
        a.inc(key, 0).await.unwrap();
        a.keeper.save(key).await.unwrap();
        moved_away(&a, &b, key).await;
    }
    let refused = |error: Error| matches!(error, Error::NotOwner { owner: Some(node), .. } if node == b.member.id);
    assert!(refused(a.keeper.delete(&one).await.unwrap_err()));
    assert!(refused(a.keeper.transfer(&two, &c.member.id, true).await.unwrap_err()));
    assert!(a.keeper.is_empty(), "it is used here although another owns it");
    for key in [&one, &two] {
        assert_eq!(b.inc(key, 1).await.unwrap(), 2, "its bytes are there");
        assert_eq!(a.owner(key).await.as_deref(), Some("b"));
    }
}

// the reply to a release or a transfer is lost, and the store stays away. It had its effect, so what is in memory is
// asked for before it is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_18_an_object_is_doubted_after_it_was_given_away_with_an_unknown_outcome() {
    let server = TestStore::start();
    let wire = FaultProxy::start(&server);
    let hasty = Options { operation_timeout: Duration::from_millis(300), ..Options::default() };
    let member = Member::join_with(&wire.url(), "a", hasty).await;
    let a = Host::join_as(member, Counter::new(KindOptions::default()), RouteTimes::default()).await;
    let b = Host::join(&server.url(), "b", KindOptions::default()).await;
    acquainted(&[&a.member, &b.member]).await;
    for (key, script) in
        [(object("counter:freed"), &scripts::ROUTE_RELEASE), (object("counter:moved"), &scripts::ROUTE_TRANSFER)]
    {
        a.keeper.acquire(&key).await.unwrap();
        a.inc(&key, 0).await.unwrap();
        a.keeper.save(&key).await.unwrap();
        wire.refuse(true);
        wire.drop_next_reply_of(&format!("EVALSHA {}", script.pinned()), Action::Cut);
        let given = if key == object("counter:freed") {
            a.keeper.release(&key).await
        } else {
            a.keeper.transfer(&key, &b.member.id, false).await.map(|_| ())
        };
        assert!(matches!(&given, Err(Error::Unreachable { .. })), "{given:?}");
        assert_eq!(a.keeper.len(), 1, "it is kept, for it may be this node's still");
        // As far as the store says it is b's, or anybody's.
        b.keeper.with(&key, |count| (count.value = 70, true)).await.unwrap();
        wire.pass();
        wire.refuse(false);
        let key_now = key.clone();
        eventually("the store is back", PATIENCE, async || a.router.book().read(&key_now).await.is_ok()).await;
        let value: u64 = a.router.call_json(&key, "get", &(), CALL).await.unwrap();
        assert_eq!(value, 70, "a second writer: {key}");
        eventually("it is dropped", PATIENCE, async || a.keeper.is_empty()).await;
        assert!(a.counter.told().contains(&format!("removed {key} 1 Lost(Some(\"b\"))")), "{:?}", a.counter.told());
    }
}

// RTE-6: one callback that hangs must not cost the node all its other objects, whose records are renewed by the same timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_a_callback_that_hangs_holds_up_no_other_object() {
    let server = TestStore::start();
    let options = KindOptions { save_ms: Some(100), idle_ms: Some(1_000), ..KindOptions::default() };
    let a = Host::join(&server.url(), "a", options).await;
    let others = KindOptions { idle_ms: None, ..options };
    let keeper = a.router.host(ObjectKind::new("other").unwrap(), Counter::new(others)).unwrap();
    let (hangs, same_kind, other_kind) = (object("counter:one"), object("counter:two"), object("other:one"));
    a.counter.door.forget_permits(a.counter.door.available_permits());
    a.keeper.acquire(&hangs).await.unwrap();
    eventually("it is idle, and its callback hangs", PATIENCE, async || a.counter.at_door.load(Ordering::Acquire))
        .await;
    keeper.with(&other_kind, |count| (count.value = 7, true)).await.unwrap();
    eventually("another kind is saved", PATIENCE, async || a.stored(&other_kind).await.is_some()).await;
    // It would be idle, and hang as well, after a second without use.
    eventually("another object of the kind is saved", PATIENCE, async || {
        a.keeper.with(&same_kind, |count| (count.value += 1, true)).await.unwrap();
        a.stored(&same_kind).await.is_some()
    })
    .await;
    a.counter.door.add_permits(1_000_000);
    eventually("nothing is left", PATIENCE, async || a.keeper.is_empty()).await;
}

// RTE-6: two copies of one object in one process are two writers with one right to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_an_object_that_comes_and_goes_is_in_memory_once() {
    const ROUNDS: u64 = 150;
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let key = object("counter:one");
    let busy = (0..8).map(|task| {
        let (keeper, key) = (a.keeper.clone(), key.clone());
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                if (round + task) % 2 == 0 {
                    keeper.with(&key, |count| (count.value += 1, true)).await.unwrap();
                } else {
                    keeper.release(&key).await.unwrap();
                }
            }
        })
    });
    for ended in futures_util::future::join_all(busy).await {
        ended.unwrap();
    }
    a.keeper.release(&key).await.unwrap();
    let told = a.counter.told();
    for (what, begin) in told.iter().zip(["promoted", "removing", "removed"].into_iter().cycle()) {
        assert!(what.starts_with(begin), "{what} where {begin} is next");
    }
    assert_eq!(a.stored(&key).await.unwrap().value, 8 * ROUNDS / 2, "a change was lost");
}
