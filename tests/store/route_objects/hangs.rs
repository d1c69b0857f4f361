//! Callbacks that hang, panic or come back too late. If this fails one object whose database hangs costs the others their
//! place, their last save, or a second writer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use maitred::Error;
use maitred::ids::{ObjectKey, ObjectKind};
use maitred::message::CallError;
use maitred::route::{Handled, Keeper, KindOptions, ObjectCall, ObjectType, RouteTimes, RouteVersion, Storage};
use tokio::sync::Semaphore;

use crate::fixtures::member::{Member, Options, PATIENCE};
use crate::fixtures::routes::{CALL, Client, Counter, Host, acquainted, object};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// A number in the application's own storage, which answers when the test lets it.
#[derive(Clone)]
struct Slow {
    options: KindOptions,
    storage: Arc<Mutex<BTreeMap<String, u64>>>,
    /// Loads wait for a permit of it.
    loads: Arc<Semaphore>,
    /// A load has come that far.
    loading: Arc<AtomicBool>,
    /// The object whose removal never ends.
    stuck: Arc<Mutex<Option<String>>>,
    /// Promotions panic while this is set.
    panics: Arc<AtomicBool>,
}

impl Slow {
    fn new(storage: Storage) -> Self {
        Self {
            options: KindOptions { storage, ..KindOptions::default() },
            storage: Arc::default(),
            loads: Arc::new(Semaphore::new(1_000_000)),
            loading: Arc::default(),
            stuck: Arc::default(),
            panics: Arc::default(),
        }
    }
}

impl ObjectType for Slow {
    type Object = u64;

    fn options(&self) -> KindOptions {
        self.options
    }

    async fn handle(&self, _key: &ObjectKey, number: &mut u64, call: ObjectCall) -> Result<Handled, CallError> {
        match call.method.as_str() {
            "get" => Handled::unchanged(number),
            _ => Err(call.unknown_method()),
        }
    }

    fn create(&self, _key: &ObjectKey) -> Option<u64> {
        Some(0)
    }

    fn encode(&self, number: &u64) -> maitred::Result<String> {
        Ok(number.to_string())
    }

    fn decode(&self, _key: &ObjectKey, text: &str) -> maitred::Result<u64> {
        text.parse().map_err(|_| Error::OutOfBounds { what: "number", problem: text.to_owned() })
    }

    async fn load(&self, key: &ObjectKey) -> maitred::Result<Option<u64>> {
        let found = self.storage.lock().unwrap().get(key.as_str()).copied();
        self.loading.store(true, Ordering::Release);
        self.loads.acquire().await.unwrap().forget();
        Ok(found)
    }

    async fn save(&self, key: &ObjectKey, number: &u64, _version: RouteVersion) -> maitred::Result<()> {
        self.storage.lock().unwrap().insert(key.as_str().to_owned(), *number);
        Ok(())
    }

    async fn promoted(&self, _key: &ObjectKey, _number: &mut u64) {
        assert!(!self.panics.load(Ordering::SeqCst), "as the test wants it");
    }

    async fn removing(&self, key: &ObjectKey, _number: &mut u64) -> bool {
        let stuck = self.stuck.lock().unwrap().as_deref() == Some(key.as_str());
        if stuck {
            std::future::pending::<()>().await;
        }
        false
    }
}

fn slow() -> ObjectKind {
    ObjectKind::new("slow").unwrap()
}

/// Hosts `kind` at a member of that name beside its counters.
async fn hosts(url: &str, name: &str, kind: Slow, times: RouteTimes) -> (Host, Keeper<Slow>) {
    let member = Member::join_with(url, name, Options::default()).await;
    let host = Host::join_as(member, Counter::new(KindOptions::default()), times).await;
    let keeper = host.router.host(slow(), kind).unwrap();
    host.member.beat_now().await;
    (host, keeper)
}

// RTE-6: at shutdown one object whose removal hangs must not cost all others their save.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_a_removal_that_hangs_costs_no_other_object_its_save_at_shutdown() {
    const OBJECTS: usize = 700;
    let server = TestStore::start();
    let kind = Slow::new(Storage::BuiltIn);
    let (a, keeper) = hosts(&server.url(), "a", kind.clone(), RouteTimes::default()).await;
    for n in 0..OBJECTS {
        keeper.with(&object(&format!("slow:{n}")), |number| (*number = 7, true)).await.unwrap();
    }
    *kind.stuck.lock().unwrap() = Some("slow:13".to_owned());
    let mut told = Vec::new();
    let report = keeper.flush(Duration::from_secs(6), |now| told.push((now.total, now.done))).await;
    let unsaved: Vec<_> = report.unsaved.iter().map(|unsaved| unsaved.object.to_string()).collect();
    assert_eq!((report.done, unsaved), (OBJECTS - 1, vec!["slow:13".to_owned()]));
    // Half of the limit is for the one that hangs, the rest for whatever the shutdown has to do after this.
    let late = matches!(report.unsaved[0].error, Error::Timeout { timeout_ms: 3_000, .. });
    assert!(late, "{:?}", report.unsaved);
    assert!(told.len() > 1 && told.is_sorted() && told[0].0 == OBJECTS, "{told:?}");
    let last = a.router.book().load(&object("slow:699")).await.unwrap().unwrap();
    assert_eq!(last.data, "7");
}

// R-18, RTE-2: what was loaded for so long that another took the object over meanwhile is not used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_18_an_object_whose_load_took_too_long_is_asked_for_before_it_is_used() {
    let server = TestStore::start();
    let times = RouteTimes { lock_timeout_ms: 1_500, ..RouteTimes::default() };
    let kind = Slow::new(Storage::Own { fenced: false });
    let (a, at_a) = hosts(&server.url(), "a", kind.clone(), times).await;
    let (b, at_b) =
        hosts(&server.url(), "b", Slow { loads: Slow::new(Storage::BuiltIn).loads, ..kind.clone() }, times).await;
    acquainted(&[&a.member, &b.member]).await;
    let key = object("slow:one");
    kind.loads.forget_permits(kind.loads.available_permits());
    let late = {
        let (keeper, key) = (at_a.clone(), key.clone());
        tokio::spawn(async move { keeper.with(&key, |number| (std::mem::replace(number, 1), true)).await })
    };
    eventually("the load hangs", PATIENCE, async || kind.loading.load(Ordering::Acquire)).await;
    eventually("the lock timeout passes", PATIENCE, async || at_b.acquire(&key).await.is_ok()).await;
    at_b.with(&key, |number| (*number = 70, true)).await.unwrap();
    at_b.save(&key).await.unwrap();
    kind.loads.add_permits(1_000_000);
    let outcome = late.await.unwrap();
    assert!(matches!(outcome, Err(Error::NotOwner { .. })), "it worked on what is another's: {outcome:?}");
    assert_eq!(kind.storage.lock().unwrap().get(key.as_str()), Some(&70));
}

// RTE-5: an object that could not be promoted is not in memory, so its route has to get old like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_5_a_promotion_that_panics_leaves_no_route_that_never_gets_old() {
    let server = TestStore::start();
    let kind = Slow::new(Storage::BuiltIn);
    let (a, keeper) = hosts(&server.url(), "a", kind.clone(), RouteTimes::default()).await;
    let (b, at_b) = hosts(&server.url(), "b", Slow::new(Storage::BuiltIn), RouteTimes::default()).await;
    acquainted(&[&a.member, &b.member]).await;
    let key = object("slow:one");
    kind.panics.store(true, Ordering::SeqCst);
    keeper.acquire(&key).await.unwrap_err();
    kind.panics.store(false, Ordering::SeqCst);
    // What is read of an object in memory is not taken for older; of any other it is.
    let before = a.router.table().version(&key);
    let mut conn = server.conn().await;
    let name = a.member.store.keys().route(&key).to_string();
    let _: () = redis::cmd("DEL").arg(&name).query_async(&mut conn).await.unwrap();
    assert_eq!(a.router.table().read(&key).await.unwrap(), None, "{before} is kept although nothing is in memory");
    at_b.acquire(&key).await.unwrap();
    let number: u64 = a.router.call_json(&key, "get", &(), CALL).await.unwrap();
    assert_eq!((number, a.owner(&key).await.as_deref()), (0, Some(b.member.id.as_str())));
}

// RTE-6, RTE-2: while callbacks of one kind hang, the records of all other objects are renewed in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_callbacks_that_hang_cost_no_other_object_its_record() {
    let server = TestStore::start();
    let times = RouteTimes { lock_timeout_ms: 4_000, ..RouteTimes::default() };
    let kind =
        Slow { options: KindOptions { idle_ms: Some(1_000), ..KindOptions::default() }, ..Slow::new(Storage::BuiltIn) };
    let (a, hanging) = hosts(&server.url(), "a", kind.clone(), times).await;
    let b = Host::join_as(Member::join(&server.url(), "b").await, Counter::new(KindOptions::default()), times).await;
    let (stuck, idle) = (object("slow:one"), object("counter:one"));
    *kind.stuck.lock().unwrap() = Some(stuck.to_string());
    a.keeper.acquire(&idle).await.unwrap();
    hanging.acquire(&stuck).await.unwrap();
    let begin = tokio::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(7) {
        let taken = b.router.book().acquire(&idle, None, false).await.unwrap();
        assert!(
            matches!(&taken, maitred::route::AcquireOutcome::Owned { .. }),
            "after {} ms the record was nobody's: {taken:?}",
            begin.elapsed().as_millis()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// RTE-6: what a node was given and never loaded is given up at shutdown as well. Where writes are not fenced it would be
// locked for the whole lock timeout else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_a_shutdown_gives_up_what_was_never_loaded() {
    let server = TestStore::start();
    let kind = Slow::new(Storage::Own { fenced: false });
    let (a, at_a) = hosts(&server.url(), "a", kind.clone(), RouteTimes::default()).await;
    let (b, at_b) = hosts(&server.url(), "b", kind.clone(), RouteTimes::default()).await;
    acquainted(&[&a.member, &b.member]).await;
    let key = object("slow:one");
    at_a.acquire(&key).await.unwrap();
    at_a.transfer(&key, &b.member.id, false).await.unwrap();
    assert_eq!(a.owner(&key).await.as_deref(), Some("b"));
    let report = at_b.flush(Duration::from_secs(5), |_| ()).await;
    assert!(report.unsaved.is_empty(), "{:?}", report.unsaved);
    b.router.stop(Duration::from_secs(2)).await;
    b.member.leave().await;
    at_a.acquire(&key).await.expect("b gave it up");
}

/// A number whose handler asks for itself.
#[derive(Clone, Default)]
struct Selfish {
    keeper: Arc<std::sync::OnceLock<Keeper<Selfish>>>,
    router: Arc<std::sync::OnceLock<maitred::route::ObjectRouter>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl ObjectType for Selfish {
    type Object = u64;

    async fn handle(&self, key: &ObjectKey, number: &mut u64, _call: ObjectCall) -> Result<Handled, CallError> {
        let keeper = self.keeper.get().expect("set").clone();
        let router = self.router.get().expect("set");
        let mut outcomes = vec![
            keeper.save(key).await.map(|()| 0),
            keeper.with(key, |number| (*number, false)).await,
            router.call_json(key, "set", &(), CALL).await,
            router.send(key, "set", &()).await.map(|()| 0),
        ];
        *number += 1;
        // Another object may be asked, and a task of its own waits for its turn.
        outcomes.push(keeper.with(&object("selfish:other"), |number| (*number, false)).await);
        let own = key.clone();
        tokio::spawn(async move { keeper.save(&own).await });
        self.told.lock().unwrap().extend(outcomes.iter().map(|outcome| match outcome {
            Ok(_) => "ok".to_owned(),
            Err(Error::OutOfBounds { .. }) => "refused".to_owned(),
            Err(error) => error.to_string(),
        }));
        Handled::changed(number)
    }

    fn create(&self, _key: &ObjectKey) -> Option<u64> {
        Some(0)
    }

    fn encode(&self, number: &u64) -> maitred::Result<String> {
        Ok(number.to_string())
    }
}

// RTE-6: a handler that waits for its own object would keep it, and all who wait for it, until the process ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_6_a_handler_that_asks_for_its_own_object_is_refused_and_does_not_wait_for_itself() {
    let server = TestStore::start();
    let (a, _) = hosts(&server.url(), "a", Slow::new(Storage::BuiltIn), RouteTimes::default()).await;
    let (kind, key) = (Selfish::default(), object("selfish:one"));
    let keeper = a.router.host(ObjectKind::new("selfish").unwrap(), kind.clone()).unwrap();
    a.member.beat_now().await;
    let (book, client) = (a.router.book().clone(), Client::join(&server.url(), "c").await);
    assert!(kind.keeper.set(keeper).is_ok() && kind.router.set(a.router).is_ok());
    client.router.sends_to(&ObjectKind::new("selfish").unwrap(), true);
    client.member.sees(&a.member).await;
    let number: u64 = client.router.call_json(&key, "set", &(), CALL).await.expect("an answer");
    assert_eq!(number, 1);
    assert_eq!(*kind.told.lock().unwrap(), ["refused", "refused", "refused", "refused", "ok"]);
    eventually("the task of its own saves it", PATIENCE, async || book.load(&key).await.unwrap().is_some()).await;
}
