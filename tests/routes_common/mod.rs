//! Members that host a counter, and what happened to it.
#![allow(dead_code, reason = "every test binary compiles all of this and uses a part of it")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maitred::Error;
use maitred::ids::{ObjectKey, ObjectKind};
use maitred::message::CallError;
use maitred::route::{
    CacheTimes, Handled, KeepTimes, Keeper, KindOptions, ObjectCall, ObjectRouter, ObjectType, Removal, RouteBook,
    RouteTimes, RouteVersion,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::member::{Member, Options, PATIENCE};
use crate::support::wait::eventually;

/// Timeout of calls that must be answered.
pub const CALL: Duration = Duration::from_secs(15);

pub fn object(text: &str) -> ObjectKey {
    ObjectKey::read(text).unwrap()
}

pub fn counter() -> ObjectKind {
    ObjectKind::new("counter").unwrap()
}

/// A number, and which increments it is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub value: u64,
    /// Increments that came a second time.
    pub twice: u64,
    /// The numbers of the increments by sender, as ranges without their ends: short as long as they come nearly in order,
    /// for all of it is signed and written with each save.
    pub seen: BTreeMap<String, Vec<(usize, usize)>>,
}

/// One increment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Increment {
    pub sender: String,
    pub number: usize,
}

impl Count {
    pub fn add(&mut self, increment: &Increment) {
        self.value += 1;
        let number = increment.number;
        let ranges = self.seen.entry(increment.sender.clone()).or_default();
        // The first one that ends at the number or after it.
        let at = ranges.partition_point(|(_, end)| *end < number);
        let next = ranges.get(at + 1).map(|(start, _)| *start);
        match ranges.get_mut(at) {
            Some((start, end)) if (*start..*end).contains(&number) => self.twice += 1,
            Some((_, end)) if *end == number => {
                *end += 1;
                if next == Some(number + 1) {
                    ranges[at].1 = ranges.remove(at + 1).1;
                }
            }
            Some((start, _)) if *start == number + 1 => *start = number,
            _ => ranges.insert(at, (number, number + 1)),
        }
    }

    pub fn has(&self, sender: &str, number: usize) -> bool {
        self.seen.get(sender).is_some_and(|ranges| ranges.iter().any(|(start, end)| (*start..*end).contains(&number)))
    }

    /// How many different increments are in it.
    pub fn different(&self) -> usize {
        self.seen.values().flatten().map(|(start, end)| end - start).sum()
    }
}

/// The counter as an application has it, under the test's control.
#[derive(Clone)]
pub struct Counter {
    pub options: KindOptions,
    pub creates: bool,
    /// Nothing of the store can be read while this is set.
    pub broken: Arc<AtomicBool>,
    /// To turn a counter into a text panics while this is set.
    pub panics: Arc<AtomicBool>,
    /// The application's own storage.
    pub storage: Arc<Mutex<BTreeMap<String, Count>>>,
    /// Removals wait for a permit of it.
    pub door: Arc<Semaphore>,
    /// A removal has come to the door.
    pub at_door: Arc<AtomicBool>,
    pub events: Arc<Mutex<Vec<String>>>,
    pub most_hops: Arc<AtomicU32>,
}

impl Counter {
    pub fn new(options: KindOptions) -> Self {
        Self {
            options,
            creates: true,
            broken: Arc::default(),
            panics: Arc::default(),
            storage: Arc::default(),
            door: Arc::new(Semaphore::new(1_000_000)),
            at_door: Arc::default(),
            events: Arc::default(),
            most_hops: Arc::default(),
        }
    }

    pub fn told(&self) -> Vec<String> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, what: String) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

impl ObjectType for Counter {
    type Object = Count;

    fn options(&self) -> KindOptions {
        self.options
    }

    async fn handle(&self, _key: &ObjectKey, count: &mut Count, call: ObjectCall) -> Result<Handled, CallError> {
        self.most_hops.fetch_max(call.hops, Ordering::SeqCst);
        match call.method.as_str() {
            "inc" => {
                count.add(&call.json()?);
                Handled::changed(&count.value)
            }
            "get" => Handled::unchanged(&count.value),
            "panic" => panic!("as the test wants it"),
            _ => Err(call.unknown_method()),
        }
    }

    fn create(&self, _key: &ObjectKey) -> Option<Count> {
        self.creates.then(Count::default)
    }

    fn encode(&self, count: &Count) -> maitred::Result<String> {
        assert!(!self.panics.load(Ordering::SeqCst), "as the test wants it");
        Ok(serde_json::to_string(count).unwrap())
    }

    async fn load(&self, key: &ObjectKey) -> maitred::Result<Option<Count>> {
        Ok(self.storage.lock().unwrap_or_else(PoisonError::into_inner).get(key.as_str()).cloned())
    }

    async fn save(&self, key: &ObjectKey, count: &Count, _version: RouteVersion) -> maitred::Result<()> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner).insert(key.as_str().to_owned(), count.clone());
        Ok(())
    }

    fn decode(&self, key: &ObjectKey, text: &str) -> maitred::Result<Count> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Error::OutOfBounds { what: "counter", problem: format!("{key} cannot be read") });
        }
        serde_json::from_str(text)
            .map_err(|error| Error::Protocol { during: "reading a counter", detail: error.to_string() })
    }

    async fn promoted(&self, key: &ObjectKey, count: &mut Count) {
        self.tell(format!("promoted {key} {}", count.value));
    }

    async fn removing(&self, key: &ObjectKey, count: &mut Count) -> bool {
        self.at_door.store(true, Ordering::Release);
        self.door.acquire().await.unwrap().forget();
        self.tell(format!("removing {key} {}", count.value));
        false
    }

    async fn removed(&self, key: &ObjectKey, count: Count, why: &Removal) {
        self.tell(format!("removed {key} {} {why:?}", count.value));
    }
}

/// A member that hosts counters.
pub struct Host {
    pub member: Member,
    pub router: ObjectRouter,
    pub keeper: Keeper<Counter>,
    pub counter: Counter,
}

impl Host {
    pub async fn join(url: &str, name: &str, options: KindOptions) -> Self {
        Self::join_as(Member::join(url, name).await, Counter::new(options), RouteTimes::default()).await
    }

    pub async fn join_as(member: Member, counter: Counter, times: RouteTimes) -> Self {
        let router = router(&member, times);
        let keeper = router.host(self::counter(), counter.clone()).unwrap();
        member.beat_now().await;
        Self { member, router, keeper, counter }
    }

    pub async fn inc(&self, key: &ObjectKey, number: usize) -> maitred::Result<u64> {
        inc(&self.router, key, self.member.id.as_str(), number).await
    }

    /// What the store has of a counter.
    pub async fn stored(&self, key: &ObjectKey) -> Option<Count> {
        let stored = self.router.book().load(key).await.unwrap()?;
        Some(serde_json::from_str(&stored.data).unwrap())
    }

    pub async fn owner(&self, key: &ObjectKey) -> Option<String> {
        let route = self.router.book().read(key).await.unwrap()?;
        route.owner.map(|owner| owner.id.to_string())
    }
}

pub fn router(member: &Member, times: RouteTimes) -> ObjectRouter {
    let book = RouteBook::new(member.store.clone(), member.verifier.clone(), member.lease.clone(), times);
    let (post, directory) = (member.post.clone(), member.directory.clone());
    ObjectRouter::start(book, CacheTimes::default(), KeepTimes::default(), post, directory, &BTreeMap::new()).unwrap()
}

pub async fn inc(router: &ObjectRouter, key: &ObjectKey, sender: &str, number: usize) -> maitred::Result<u64> {
    let increment = Increment { sender: sender.to_owned(), number };
    router.call_json(key, "inc", &increment, CALL).await
}

/// A member that only sends.
pub struct Client {
    pub member: Member,
    pub router: ObjectRouter,
}

impl Client {
    pub async fn join(url: &str, name: &str) -> Self {
        Self::join_with(url, name, Options::default()).await
    }

    pub async fn join_with(url: &str, name: &str, options: Options) -> Self {
        let member = Member::join_with(url, name, options).await;
        let router = router(&member, RouteTimes::default());
        router.sends_to(&counter(), true);
        member.beat_now().await;
        Self { member, router }
    }

    pub async fn inc(&self, key: &ObjectKey, number: usize) -> maitred::Result<u64> {
        inc(&self.router, key, self.member.id.as_str(), number).await
    }
}

/// Waits until everybody sees everybody.
pub async fn acquainted(members: &[&Member]) {
    for one in members {
        for other in members.iter().filter(|other| other.id != one.id) {
            one.sees(other).await;
        }
    }
}

/// Waits until so many messages are held back for moving objects of `host`.
pub async fn holds_back(host: &Host, count: usize) {
    eventually("messages are held back", PATIENCE, async || host.keeper.held_back() == count).await;
}
