//! The keeper: load on first use, the timer, idle objects, shutdown. If this fails players lose what they built, or a
//! node that goes down keeps their islands locked.

use std::time::Duration;

use maitred::Error;
use maitred::error::RouteRefusal;
use maitred::route::{Ack, FlushProgress, KindOptions, RouteState, RouteTimes};
use tokio::time::Instant;

use crate::fixtures::member::{Member, Options, PATIENCE};
use crate::fixtures::routes::{CALL, Counter, Host, counter, object};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

// RTE-6: saved on a timer, given up when idle, with the callbacks in their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_a_changed_object_is_saved_on_the_timer_and_an_idle_one_given_up() {
    let server = TestStore::start();
    let options = KindOptions { save_ms: Some(100), idle_ms: Some(1_500), ..KindOptions::default() };
    let host = Host::join(&server.url(), "a", options).await;
    let key = object("counter:one");
    assert_eq!(host.inc(&key, 0).await.unwrap(), 1);
    assert_eq!(host.inc(&key, 1).await.unwrap(), 2);
    eventually("the timer saves", PATIENCE, async || host.stored(&key).await.is_some_and(|count| count.value == 2))
        .await;
    eventually("nobody uses it", PATIENCE, async || host.keeper.is_empty()).await;
    let route = host.router.book().read(&key).await.unwrap().unwrap();
    assert_eq!((route.owner, route.state), (None, RouteState::Free));
    let told = host.counter.told();
    let expected = ["promoted counter:one 0", "removing counter:one 2", "removed counter:one 2 Released"];
    assert_eq!(told, expected);
    assert_eq!(host.inc(&key, 2).await.unwrap(), 3, "loaded again on the next use");
    assert_eq!(host.counter.told()[3], "promoted counter:one 2");
}

// RTE-6: whoever takes an object uses it, and must not see it given up a moment later because nobody did before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_an_object_that_is_taken_again_is_not_idle() {
    let server = TestStore::start();
    let idle = Duration::from_secs(2);
    let options = KindOptions { idle_ms: Some(2_000), ..KindOptions::default() };
    let a = Host::join(&server.url(), "a", options).await;
    let key = object("counter:one");
    let removals = || a.counter.told().iter().filter(|what| what.starts_with("removing")).count();
    a.keeper.acquire(&key).await.unwrap();
    let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    while begin.elapsed() < idle * 2 {
        a.keeper.acquire(&key).await.unwrap();
        longest = longest.max(last.elapsed());
        last = Instant::now();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A machine that stood still for that long proves nothing.
    assert!(removals() == 0 || longest > idle / 2, "{:?} after {longest:?}", a.counter.told());
}

// RTE-6: with `ack: saved` an answer says that the change outlives a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_a_kind_that_answers_after_its_save_has_saved_and_the_other_has_not() {
    let server = TestStore::start();
    let saved = KindOptions { ack: Ack::Saved, ..KindOptions::default() };
    let (a, b) =
        (Host::join(&server.url(), "a", saved).await, Host::join(&server.url(), "b", KindOptions::default()).await);
    let (one, two) = (object("counter:one"), object("counter:two"));
    a.keeper.acquire(&one).await.unwrap();
    b.keeper.acquire(&two).await.unwrap();
    a.inc(&one, 0).await.unwrap();
    assert_eq!(a.stored(&one).await.unwrap().value, 1);
    b.inc(&two, 0).await.unwrap();
    assert_eq!(b.stored(&two).await, None);
    b.keeper.save(&two).await.unwrap();
    assert_eq!(b.stored(&two).await.unwrap().value, 1);
    assert_eq!(b.keeper.with(&two, |count| (count.value, false)).await.unwrap(), 1);
    b.keeper.delete(&two).await.unwrap();
    assert_eq!(b.stored(&two).await, None);
    let panicked = a.router.call(&one, "panic", &(), CALL).await;
    assert!(matches!(panicked, Err(Error::Callee { code, .. }) if code == maitred::message::INTERNAL));
    assert_eq!(a.inc(&one, 1).await.unwrap(), 2, "loaded anew after a panic");
}

// R-18, RTE-3: the owner could not beat, another took over and saved: what the first holds is dropped, not written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_3_an_owner_that_lost_its_object_drops_it_and_its_save_is_refused() {
    let server = TestStore::start();
    let short = Options { lease_ms: 1_500, ..Options::default() };
    let member = Member::join_with(&server.url(), "a", short).await;
    let mut a = Host::join_as(member, Counter::new(KindOptions::default()), RouteTimes::default()).await;
    let b = Host::join(&server.url(), "b", KindOptions::default()).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    a.inc(&key, 0).await.unwrap();
    a.member.stop_beating().await;
    eventually("the lease lapses", PATIENCE, async || !a.member.lease.is_valid()).await;
    let refused = a.inc(&key, 1).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Routed { refusal: RouteRefusal::Again | RouteRefusal::NoOwner, .. })
            || matches!(&refused, Error::LeaseLost { .. }),
        "R-18: {refused:?}"
    );
    eventually("another may take over", PATIENCE, async || b.keeper.acquire(&key).await.is_ok()).await;
    b.inc(&key, 7).await.unwrap();
    b.keeper.save(&key).await.unwrap();

    // It has a lease again, in the same epoch, and tries to save what it has.
    a.member.join_again().await;
    let refused = a.keeper.save(&key).await.unwrap_err();
    assert!(matches!(&refused, Error::NotOwner { owner: Some(node), .. } if *node == b.member.id), "{refused:?}");
    let stored = b.stored(&key).await.unwrap();
    assert!(stored.has("b", 7) && !stored.has("a", 0), "bytes of the first owner are in the store: {stored:?}");
    assert!(a.counter.told().iter().any(|what| what.starts_with("removed counter:one 1 Lost(Some(")));
    assert!(a.keeper.is_empty());
    assert_eq!(a.inc(&key, 2).await.unwrap(), 2, "goes to the new owner");
}

// what was held over a gap of the lease is asked for before it is used, and kept where nobody took it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_18_after_a_gap_of_the_lease_an_object_that_nobody_took_goes_on() {
    let server = TestStore::start();
    let short = Options { lease_ms: 1_500, ..Options::default() };
    let member = Member::join_with(&server.url(), "a", short).await;
    let mut a = Host::join_as(member, Counter::new(KindOptions::default()), RouteTimes::default()).await;
    let key = object("counter:one");
    a.inc(&key, 0).await.unwrap();
    a.member.stop_beating().await;
    eventually("the lease lapses", PATIENCE, async || !a.member.lease.is_valid()).await;
    a.member.join_again().await;
    assert_eq!(a.inc(&key, 1).await.unwrap(), 2);
    let told = a.counter.told();
    assert_eq!(told, ["promoted counter:one 0"], "nothing was loaded again: {told:?}");
}

// RTE-6. A node that goes down must not keep 20,000 islands locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_a_shutdown_saves_and_gives_up_20_000_objects_in_batches() {
    const OBJECTS: usize = 20_000;
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let begin = std::time::Instant::now();
    let keys: Vec<_> = (0..OBJECTS).map(|n| object(&format!("counter:{n}"))).collect();
    for batch in keys.chunks(500) {
        let taking = batch.iter().map(|key| a.keeper.with(key, |count| (count.value += 1, true)));
        for taken in futures_util::future::join_all(taking).await {
            taken.unwrap();
        }
    }
    eprintln!("{OBJECTS} objects taken after {:?}", begin.elapsed());
    assert_eq!(a.keeper.len(), OBJECTS);
    let broken = object("counter:17");
    let mut conn = server.conn().await;
    let name = a.member.store.keys().object(&broken).to_string();
    let _: () = redis::cmd("SET").arg(name).arg("of another type").query_async(&mut conn).await.unwrap();

    let mut steps: Vec<FlushProgress> = Vec::new();
    let report = a.keeper.flush(Duration::from_secs(120), |step| steps.push(step)).await;
    eprintln!("saved and given up after {:?}", begin.elapsed());
    assert_eq!(report.done, OBJECTS - 1, "{:?}", report.unsaved);
    assert_eq!(report.unsaved.len(), 1);
    assert_eq!(report.unsaved[0].object, broken);
    assert_eq!(report.unsaved[0].free_in_ms, a.member.lease.length_ms(), "RTE-2: when its lease is gone");
    assert!(steps.len() > 50 && steps.windows(2).all(|pair| pair[0].done < pair[1].done), "{} steps", steps.len());
    assert_eq!(steps.last().map(|step| (step.done, step.failed, step.total)), Some((OBJECTS - 1, 1, OBJECTS)));
    for key in [&keys[0], &keys[OBJECTS - 1]] {
        assert_eq!((a.owner(key).await, a.stored(key).await.unwrap().value), (None, 1));
    }
    let owned: Vec<String> = {
        let name = a.member.store.keys().owned(&a.member.id).to_string();
        redis::cmd("SMEMBERS").arg(name).query_async(&mut conn).await.unwrap()
    };
    assert_eq!(owned, ["counter:17"]);
    let late = a.inc(&keys[0], 5).await;
    assert!(matches!(late, Err(Error::Routed { .. } | Error::ShuttingDown)), "{late:?}");

    // What is over the deadline is listed, not waited for.
    let again = a.keeper.flush(Duration::ZERO, |_| ()).await;
    assert_eq!((again.done, again.unsaved.len()), (0, 1));
}

// RTE-6: one object's I/O is in order and one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_everything_about_one_object_comes_one_after_the_other() {
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", KindOptions { ack: Ack::Saved, ..KindOptions::default() }).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    let all = (0..200).map(|n| a.inc(&key, n));
    let answers: Vec<u64> =
        futures_util::future::join_all(all).await.into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(answers, (1..=200).collect::<Vec<u64>>(), "first come, first served");
    let stored = a.router.book().load(&key).await.unwrap().unwrap();
    assert_eq!(stored.cas.0, 200);
    let foreign = a.router.host(counter(), Counter::new(KindOptions::default()));
    assert!(matches!(foreign, Err(Error::OutOfBounds { .. })), "hosted already");
}
