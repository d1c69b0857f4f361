use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};
use crate::ids::{ObjectKey, ObjectKind, ServiceName};
use crate::message::{Bound, CALL_MAX_MS, Post, ServiceRegistration};
use crate::node::Directory;

use super::book::RouteBook;
use super::hub::{Hub, Kept, crowd, locality_of, service_of};
use super::keeper::Keeper;
use super::kind::{KeepTimes, ObjectType};
use super::receive::{AboutRoutes, ROUTES, ToObjects};
use super::rotation;
use super::send::Order;
use super::sweep::{SweepOptions, sweep};
use super::table::{CacheTimes, RouteTable};

/// Updates of routes that may be under way to their origins at once.
const UPDATES_MAX: usize = 64;
/// Least time between two rounds of a kind's timer.
const TEND_EVERY: Duration = Duration::from_millis(250);
/// How many times longer than a round takes the next one is waited for, so that a crowd of objects does not fill a core.
const TEND_SHARE: u32 = 20;
/// Time between two rounds of upkeep.
const UPKEEP_EVERY: Duration = Duration::from_secs(10);
/// Time between two sweeps after routes of owners long gone, in rounds of upkeep.
const SWEEP_ROUNDS: u64 = 12;

/// This node's part in the routes of its zone: sends messages to objects, keeps those that it owns, passes on what is for
/// others, and looks after the records. Dropping it stops the timer; [`stop`](Self::stop) also waits for what runs.
pub struct ObjectRouter {
    hub: Arc<Hub>,
    registrations: Mutex<Vec<ServiceRegistration>>,
}

impl ObjectRouter {
    /// Starts the timer of a node: one that is a member, or about to be. `labels` are the node's own. Needs a tokio
    /// runtime.
    ///
    /// Errors with [`Error::OutOfBounds`] outside of a runtime, and where the node takes part by another router already.
    pub fn start(
        book: RouteBook,
        cache: CacheTimes,
        keep: KeepTimes,
        post: Post,
        directory: Directory,
        labels: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|_| Error::OutOfBounds {
            what: "runtime",
            problem: "there is none here; start routes inside a tokio runtime".to_owned(),
        })?;
        if post.services().has(ROUTES) {
            return Err(Error::OutOfBounds {
                what: "routes",
                problem: "this node has a router already; stop that one first".to_owned(),
            });
        }
        let hub = Arc::new(Hub {
            table: RouteTable::new(book.clone(), cache),
            keep,
            lease: book.lease().clone(),
            book,
            directory,
            locality: locality_of(labels),
            keepers: Default::default(),
            known: Default::default(),
            crowd: Semaphore::new(crowd(post.max_concurrent())),
            post,
            updates: Arc::new(Semaphore::new(UPDATES_MAX)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            runtime,
        });
        let about = hub.post.services().register_routed(ROUTES, AboutRoutes(Arc::downgrade(&hub)))?;
        hub.tasks.spawn_on(upkeep(Arc::clone(&hub)), &hub.runtime);
        hub.tasks.spawn_on(rotation::run(Arc::clone(&hub)), &hub.runtime);
        Ok(Self { hub, registrations: Mutex::new(vec![about]) })
    }

    /// Hosts the objects of a kind: this node may own them. The next heartbeat says so.
    ///
    /// Errors with [`Error::OutOfBounds`] where the kind is hosted already, its name is longer than 57 bytes, or the times
    /// of its options are 0.
    pub fn host<K: ObjectType>(&self, name: ObjectKind, kind: K) -> Result<Keeper<K>> {
        let refused = |problem: &str| Error::OutOfBounds { what: "object kind", problem: format!("{name}: {problem}") };
        let service = service_of(name.as_str());
        if ServiceName::new(&service).is_err() {
            return Err(refused("its name has more than 57 bytes"));
        }
        let keeper = Keeper::new(Arc::clone(&self.hub), name.clone(), kind);
        let keep = keeper.inner.keep;
        if keep.save_ms == 0 || keep.idle_ms == 0 {
            return Err(refused("its times have to be above 0"));
        }
        if !self.hub.enter(&name, Arc::new(keeper.clone())) {
            return Err(refused("it is hosted here already"));
        }
        let registration = self.hub.post.services().register_routed(service, ToObjects(Arc::downgrade(&self.hub)))?;
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner).push(registration);
        self.hub.tasks.spawn_on(tend(Arc::clone(&self.hub), Arc::new(keeper.clone())), &self.hub.runtime);
        Ok(keeper)
    }

    /// Says that this node sends to objects of a kind that it does not host, and whether they are taken over on demand.
    /// Without it a message to an object that nobody owns is refused here.
    pub fn sends_to(&self, kind: &ObjectKind, on_demand: bool) {
        self.hub.known.write().unwrap_or_else(PoisonError::into_inner).insert(kind.as_str().to_owned(), on_demand);
    }

    /// Sends `body` to an object and waits for its answer, at most `timeout` (1 ms to 29 s; `None`:
    /// [`MessageOptions::call_timeout`](crate::message::MessageOptions)).
    ///
    /// Errors: [`Error::Routed`] says why no handler ran, or that the change is not known to be saved; [`Error::NodeOffline`]
    /// and [`Error::ServiceNotFound`] that the owner does not listen, also after a second look; [`Error::Callee`] is the
    /// handler's own; [`Error::Busy`]; [`Error::OutOfBounds`] also where a callback of the object itself calls; after [`Error::Timeout`] it is not known whether it ran. Dropping the future forgets the
    /// call, and its handler may still run.
    pub async fn call<B: Serialize + ?Sized>(
        &self,
        key: &ObjectKey,
        method: &str,
        body: &B,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Box<RawValue>> {
        let Bound { deadline, timeout_ms } = self.hub.post.bound(timeout.into())?;
        let order = Order { key, method, body: &raw(body)?, deadline, timeout_ms, is_call: true };
        let late = || Error::Timeout { target: key.to_string(), timeout_ms };
        tokio::time::timeout_at(deadline, self.hub.dispatch(order)).await.unwrap_or_else(|_| Err(late()))
    }

    /// [`call`](Self::call), with the answer as a `T`. Errors also with [`Error::Protocol`] where it is none.
    pub async fn call_json<T: DeserializeOwned, B: Serialize + ?Sized>(
        &self,
        key: &ObjectKey,
        method: &str,
        body: &B,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<T> {
        let answer = self.call(key, method, body, timeout).await?;
        serde_json::from_str(answer.get())
            .map_err(|error| Error::Protocol { during: "a call of an object", detail: error.to_string() })
    }

    /// Sends `body` to an object one way. `Ok` says that somebody listened, not that a handler ran; where the object is in
    /// memory here it ran.
    pub async fn send<B: Serialize + ?Sized>(&self, key: &ObjectKey, method: &str, body: &B) -> Result<()> {
        let Bound { deadline, timeout_ms } = self.hub.post.bound(Some(Duration::from_millis(CALL_MAX_MS)))?;
        let order = Order { key, method, body: &raw(body)?, deadline, timeout_ms, is_call: false };
        self.hub.dispatch(order).await.map(|_| ())
    }

    /// The routes that this node knows.
    pub fn table(&self) -> &RouteTable {
        &self.hub.table
    }

    /// The routes of the zone.
    pub fn book(&self) -> &RouteBook {
        &self.hub.book
    }

    /// Ends the timer, takes the services away and waits until no task is left, at most `grace`. Objects that are still in
    /// memory stay this node's in the store: [`Keeper::flush`] comes before this.
    pub async fn stop(&self, grace: Duration) {
        self.hub.stop.cancel();
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.hub.tasks.close();
        if timeout(grace, self.hub.tasks.wait()).await.is_err() {
            tracing::warn!(left = self.hub.tasks.len(), "work on objects did not end within its grace");
        }
        // Keepers hold the hub, and the hub its keepers.
        self.hub.keepers.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for ObjectRouter {
    fn drop(&mut self) {
        self.hub.stop.cancel();
        // Keepers hold the hub, and the hub its keepers.
        self.hub.keepers.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl fmt::Debug for ObjectRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectRouter({})", self.hub.lease.id())
    }
}

fn raw<B: Serialize + ?Sized>(body: &B) -> Result<Box<RawValue>> {
    to_raw_value(body).map_err(|error| Error::OutOfBounds { what: "body", problem: error.to_string() })
}

/// It takes as long as there are routes.
async fn sweep_once(hub: &Hub) {
    tokio::select! {
        () = hub.stop.cancelled() => {}
        swept = hub.lease.judge(hub.book.store(), sweep(&hub.book, SweepOptions::default())) => {
            if let Err(error) = swept {
                tracing::debug!(%error, "could not sweep routes");
            }
        }
    }
}

/// The timer of one kind. Each has its own: one whose callbacks hang holds up no other.
async fn tend(hub: Arc<Hub>, keeper: Arc<dyn Kept>) {
    let mut wait = TEND_EVERY;
    loop {
        tokio::select! {
            () = hub.stop.cancelled() => return,
            () = sleep(wait) => {}
        }
        let began = Instant::now();
        tokio::select! {
            () = hub.stop.cancelled() => return,
            () = keeper.tend() => wait = TEND_EVERY.max((began.elapsed() * TEND_SHARE).min(hub.round_max())),
        }
    }
}

/// The upkeep of cache and records.
async fn upkeep(hub: Arc<Hub>) {
    // Nodes that start together do not sweep together.
    let mut round: u64 = rand::random::<u64>() % SWEEP_ROUNDS;
    loop {
        tokio::select! {
            () = hub.stop.cancelled() => return,
            () = sleep(UPKEEP_EVERY) => {}
        }
        round = round.wrapping_add(1);
        hub.table.drop_idle();
        // An owner may only be as late as this node was.
        if round.is_multiple_of(SWEEP_ROUNDS) && hub.lease.may_judge(hub.book.store()) {
            sweep_once(&hub).await;
        }
    }
}
