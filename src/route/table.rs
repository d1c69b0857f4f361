use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use rand::RngExt;
use tokio::time::sleep;

use crate::error::{Error, Result};
use crate::ids::ObjectKey;
use crate::store::boot_ms;

use super::book::RouteBook;
use super::record::{Route, RouteVersion};

/// Tries of one refresh, the first among them.
const TRIES: usize = 3;
/// Longest wait between two tries, in ms.
const RETRY_WAIT_MAX_MS: u64 = 256;

/// How long a node relies on what it read of routes, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTimes {
    /// How long an entry is valid. Default 1,800,000.
    pub update_ms: u64,
    /// How long an entry that nobody asks for stays. Default 600,000.
    pub free_ms: u64,
}

impl Default for CacheTimes {
    fn default() -> Self {
        Self { update_ms: 1_800_000, free_ms: 600_000 }
    }
}

#[derive(Debug)]
struct Entry {
    route: Arc<Route>,
    /// Its place in the order of what was taken in.
    order: u64,
    read_boot_ms: u64,
    used_boot_ms: AtomicU64,
    /// The object is in memory here and writable: valid without a read.
    local: bool,
}

type Reading = Shared<BoxFuture<'static, Result<Option<Arc<Route>>>>>;

/// The routes that this node knows: who owns which object. Cheap to clone; clones are one table.
///
/// An entry is refreshed where it is used, not for everybody when it grows old. All who wait for one object share one
/// read of the store.
#[derive(Debug, Clone)]
pub struct RouteTable {
    inner: Arc<Inner>,
}

struct Inner {
    book: RouteBook,
    times: CacheTimes,
    entries: RwLock<HashMap<ObjectKey, Entry>>,
    /// Grows with every entry and every read: which of two was first, also within a millisecond.
    order: AtomicU64,
    /// The reads under way.
    reading: Mutex<HashMap<ObjectKey, Reading>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RouteTable({:?})", self.times)
    }
}

impl RouteTable {
    /// An empty table in front of `book`.
    pub fn new(book: RouteBook, times: CacheTimes) -> Self {
        let (entries, reading) = (RwLock::default(), Mutex::default());
        let inner = Inner { book, times, entries, order: AtomicU64::new(0), reading };
        Self { inner: Arc::new(inner) }
    }

    fn entries(&self) -> RwLockReadGuard<'_, HashMap<ObjectKey, Entry>> {
        self.inner.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries_mut(&self) -> RwLockWriteGuard<'_, HashMap<ObjectKey, Entry>> {
        self.inner.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self) -> MutexGuard<'_, HashMap<ObjectKey, Reading>> {
        self.inner.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> u64 {
        self.inner.order.fetch_add(1, Ordering::AcqRel)
    }

    /// Entries now.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// True without any entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The route of an object, if it is known and valid. Never does I/O.
    pub fn cached(&self, key: &ObjectKey) -> Option<Arc<Route>> {
        let entries = self.entries();
        let entry = entries.get(key)?;
        let now = boot_ms();
        if !entry.local && now.saturating_sub(entry.read_boot_ms) > self.inner.times.update_ms {
            return None;
        }
        entry.used_boot_ms.store(now, Ordering::Relaxed);
        Some(Arc::clone(&entry.route))
    }

    /// The version that is known, valid or not.
    pub fn version(&self, key: &ObjectKey) -> RouteVersion {
        self.entries().get(key).map_or(RouteVersion::NONE, |entry| entry.route.version)
    }

    /// The route of an object: [`cached`](Self::cached), else [`read`](Self::read). `None` where there is no record.
    pub async fn lookup(&self, key: &ObjectKey) -> Result<Option<Arc<Route>>> {
        if let Some(route) = self.cached(key) {
            return Ok(Some(route));
        }
        let reading = {
            let mut all = self.reading();
            // A refresh that ended since the check above is as good as one that begins now.
            if let Some(route) = self.cached(key) {
                return Ok(Some(route));
            }
            self.join(&mut all, key)
        };
        reading.await
    }

    /// Reads the record, together with all who wait for the same: one read of the store for all of them. A store that
    /// asks for patience is asked at most three times; other errors are answered at once. Cancel safe: a read that was
    /// begun is ended in the background. Needs a tokio runtime.
    pub async fn read(&self, key: &ObjectKey) -> Result<Option<Arc<Route>>> {
        let reading = self.join(&mut self.reading(), key);
        reading.await
    }

    /// The read that is under way, else a new one.
    fn join(&self, all: &mut HashMap<ObjectKey, Reading>, key: &ObjectKey) -> Reading {
        if let Some(reading) = all.get(key) {
            return reading.clone();
        }
        let reading = self.clone().read_apart(key.clone());
        all.insert(key.clone(), reading.clone());
        reading
    }

    /// [`read`](Self::read), and once more where that shared a read that may have begun before `version` was known.
    pub async fn read_again(&self, key: &ObjectKey, version: RouteVersion) -> Result<Option<Arc<Route>>> {
        let shared = self.reading().contains_key(key);
        let route = self.read(key).await?;
        if shared && route.as_ref().is_none_or(|route| route.version < version) {
            return self.read(key).await;
        }
        Ok(route)
    }

    /// A read in a task of its own: it ends although nobody waits for it any more.
    fn read_apart(self, key: ObjectKey) -> Reading {
        let task = tokio::spawn(self.clone().read_alone(key.clone()));
        let ended = async move {
            task.await.unwrap_or_else(|_| {
                // A task that never ran took nothing away.
                self.reading().remove(&key);
                Err(Error::Unreachable {
                    during: "reading a route",
                    store: None,
                    reason: "the read broke off".to_owned(),
                })
            })
        };
        ended.boxed().shared()
    }

    async fn read_alone(self, key: ObjectKey) -> Result<Option<Arc<Route>>> {
        let under_way = UnderWay { table: &self, key: &key };
        let (began, order) = (boot_ms(), self.next());
        let mut outcome = self.inner.book.read(&key).await;
        for _ in 1..TRIES {
            match &outcome {
                Err(Error::Refused { refusal, .. }) if refusal.is_retryable() => {}
                _ => break,
            }
            let wait_ms = rand::rng().random_range(0..=RETRY_WAIT_MAX_MS);
            sleep(Duration::from_millis(wait_ms)).await;
            outcome = self.inner.book.read(&key).await;
        }
        metrics::counter!("maitred_route_reads_total").increment(1);
        let outcome = outcome.map(|route| self.take_read(&key, route, began, order));
        drop(under_way);
        outcome
    }

    /// Takes in what the store said. An update that came while it was read counts for more, if it is newer.
    fn take_read(&self, key: &ObjectKey, route: Option<Route>, began: u64, order: u64) -> Option<Arc<Route>> {
        let mut entries = self.entries_mut();
        let later = entries.get(key).filter(|entry| entry.local || entry.order > order);
        let known = later.map(|entry| Arc::clone(&entry.route));
        match (route, known) {
            (route, Some(known)) if route.as_ref().is_none_or(|route| route.version < known.version) => Some(known),
            (Some(route), _) => {
                let route = Arc::new(route);
                let local = entries.get(key).is_some_and(|entry| entry.local && entry.route.version == route.version);
                // It is as old as the question, not as the answer.
                let entry = Entry { read_boot_ms: began, ..Entry::new(Arc::clone(&route), order, local) };
                entries.insert(key.clone(), entry);
                Some(route)
            }
            (None, _) => {
                entries.remove(key);
                None
            }
        }
    }

    /// Takes in a route that somebody told of: only where an older one is known. True where it was taken.
    pub fn update(&self, route: Route) -> bool {
        let mut entries = self.entries_mut();
        let Some(entry) = entries.get_mut(&route.key) else { return false };
        let newer = route.version > entry.route.version;
        if newer {
            *entry = Entry::new(Arc::new(route), self.next(), false);
        }
        newer
    }

    /// Takes in a route that is known otherwise, whatever is known so far: for measurements.
    #[doc(hidden)]
    pub fn seed(&self, route: Route) {
        self.wrote(route, false);
    }

    /// Takes in what this node wrote itself.
    pub(super) fn wrote(&self, route: Route, local: bool) {
        let mut entries = self.entries_mut();
        if entries.get(&route.key).is_none_or(|entry| entry.route.version <= route.version) {
            entries.insert(route.key.clone(), Entry::new(Arc::new(route), self.next(), local));
        }
    }

    /// The object is not in memory here any more.
    pub(super) fn not_local(&self, key: &ObjectKey) {
        if let Some(entry) = self.entries_mut().get_mut(key) {
            entry.local = false;
        }
    }

    /// Forgets a route whose owner turned out to be gone, unless another one is known by now.
    pub fn forget(&self, key: &ObjectKey, version: RouteVersion) {
        let mut entries = self.entries_mut();
        if entries.get(key).is_some_and(|entry| !entry.local && entry.route.version == version) {
            entries.remove(key);
        }
    }

    /// Drops entries that nobody asked for in a while. Answers how many.
    pub fn drop_idle(&self) -> usize {
        let now = boot_ms();
        let mut entries = self.entries_mut();
        let before = entries.len();
        entries.retain(|_, entry| {
            let used = entry.used_boot_ms.load(Ordering::Relaxed);
            entry.local || now.saturating_sub(used) <= self.inner.times.free_ms
        });
        before - entries.len()
    }
}

/// A read under way, until this is dropped: whoever asks after that reads anew.
struct UnderWay<'a> {
    table: &'a RouteTable,
    key: &'a ObjectKey,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.table.reading().remove(self.key);
    }
}

impl Entry {
    fn new(route: Arc<Route>, order: u64, local: bool) -> Self {
        let now = boot_ms();
        Self { route, order, read_boot_ms: now, used_boot_ms: AtomicU64::new(now), local }
    }
}
