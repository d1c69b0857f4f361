//! What the parts of one node's routing share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, ObjectKey, ObjectKind};
use crate::message::Post;
use crate::node::{DRAINING_LABEL, Directory, Lease, Liveness, NodeRecord, NodeState};

use super::book::RouteBook;
use super::keeper::{Job, Served};
use super::kind::KeepTimes;
use super::record::RouteVersion;
use super::rendezvous::{Candidate, place};
use super::table::RouteTable;

/// The label by which nodes are near each other.
const LOCALITY: &str = "locality";
/// Longest time of one round of a kind's timer, and between two.
const ROUND_MAX: Duration = Duration::from_secs(5);
/// What the service of a kind starts with.
const SERVICE_PREFIX: &str = "object.";

/// A keeper of some kind.
pub(super) trait Kept: Send + Sync {
    /// Takes a message, in a task of its own that goes on where nobody waits.
    fn serve(&self, job: Job) -> BoxFuture<'static, Served>;
    /// True while the object is in memory, or somebody is at it.
    fn has_place(&self, key: &ObjectKey) -> bool;
    /// Loads an object that was handed over in `version`.
    fn take_over(&self, key: ObjectKey, version: RouteVersion) -> BoxFuture<'static, Result<RouteVersion>>;
    /// One round of the timer.
    fn tend(&self) -> BoxFuture<'_, ()>;
    /// Whether the kind is taken over on demand.
    fn on_demand(&self) -> bool;
    /// Whether this node takes more of it: not on its way out.
    fn takes_more(&self) -> bool;
}

/// What the parts share.
pub(super) struct Hub {
    pub book: RouteBook,
    pub table: RouteTable,
    pub keep: KeepTimes,
    pub lease: Lease,
    pub directory: Directory,
    pub post: Post,
    /// This node's `locality` label.
    pub locality: Option<String>,
    pub keepers: RwLock<HashMap<String, Arc<dyn Kept>>>,
    /// Kinds that this node sends to, and whether they are taken over on demand.
    pub known: RwLock<HashMap<String, bool>>,
    /// Messages of other nodes to objects that may be here at once.
    pub crowd: Semaphore,
    /// Updates on their way to origins.
    pub updates: Arc<Semaphore>,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
    pub runtime: Handle,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({})", self.lease.id())
    }
}

/// The service that takes messages to the objects of a kind.
pub(super) fn service_of(kind: &str) -> String {
    format!("{SERVICE_PREFIX}{kind}")
}

/// How many messages to objects a node takes at once that runs so many handlers: a quarter is left to everything else, so
/// that objects whose storage hangs do not make the whole node busy.
pub(super) fn crowd(handlers: usize) -> usize {
    (handlers - handlers / 4).clamp(1, Semaphore::MAX_PERMITS)
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Hub {
    /// Longest time of one round of a kind's timer, and between two: so that records which are renewed after a third of the
    /// lock timeout are renewed before it ends, whatever hangs.
    pub fn round_max(&self) -> Duration {
        ROUND_MAX.min(Duration::from_millis(self.book.times().lock_timeout_ms / 8))
    }

    /// The keeper of a kind.
    pub fn keeper(&self, kind: &str) -> Option<Arc<dyn Kept>> {
        self.keepers.read().unwrap_or_else(PoisonError::into_inner).get(kind).cloned()
    }

    /// Enters a keeper; false where the kind has one already.
    pub fn enter(&self, kind: &ObjectKind, keeper: Arc<dyn Kept>) -> bool {
        let mut keepers = self.keepers.write().unwrap_or_else(PoisonError::into_inner);
        let free = !keepers.contains_key(kind.as_str());
        if free {
            keepers.insert(kind.as_str().to_owned(), keeper);
        }
        free
    }

    /// Whether a kind is taken over on demand, as far as this node knows.
    pub fn is_on_demand(&self, kind: &str) -> bool {
        match self.keeper(kind) {
            Some(keeper) => keeper.on_demand(),
            None => self.known.read().unwrap_or_else(PoisonError::into_inner).get(kind).copied().unwrap_or(false),
        }
    }

    /// True where that incarnation of a node can be sent to (RTE-11). A node whose last beat is merely late is not known to
    /// be gone.
    pub async fn is_available(&self, owner: &NodeEpoch) -> bool {
        if owner.id == *self.lease.id() {
            return owner.epoch == self.lease.epoch() && self.lease.is_valid();
        }
        match self.directory.resolve(&owner.id).await {
            Ok(record) => record.epoch == owner.epoch && record.state != NodeState::ShuttingDown,
            Err(Error::NodeSuspect(_)) => self.directory.epoch_of(&owner.id) == Some(owner.epoch),
            Err(Error::NodeNotFound(_) | Error::NodeOffline(_) | Error::NodeRemoved(_)) => false,
            // Nobody knows, so nothing is forgotten for it.
            Err(_) => true,
        }
    }

    /// The node that takes an object which nobody owns: by rendezvous over the nodes that are ready and host the kind, those
    /// of this node's locality first. Not `deaf`, who turned out not to listen.
    pub fn default_place(&self, key: &ObjectKey, deaf: Option<&NodeEpoch>) -> Option<NodeEpoch> {
        let takes = self.keeper(key.kind()).is_some_and(|keeper| keeper.on_demand() && keeper.takes_more());
        self.ready_place(key.as_str(), &service_of(key.kind()), takes, deaf)
    }

    /// The node that `what` falls to, among those that are ready and offer `service`; this node among them only where it
    /// `takes` it.
    pub fn ready_place(&self, what: &str, service: &str, takes: bool, deaf: Option<&NodeEpoch>) -> Option<NodeEpoch> {
        let snapshot = self.directory.snapshot();
        let mut ready: HashMap<&str, (NodeEpoch, bool)> = HashMap::new();
        for view in &snapshot.nodes {
            let record = &view.record;
            if view.liveness != Liveness::Online || leaves(record) || !record.offers(service) {
                continue;
            }
            let near = self.locality.is_some() && record.labels.get(LOCALITY) == self.locality.as_ref();
            let owner = NodeEpoch { id: record.id.clone(), epoch: record.epoch };
            ready.insert(record.id.as_str(), (owner, near));
        }
        let own = self.lease.id();
        // Whoever does not see itself yet has just joined.
        let epoch = self.lease.epoch();
        let own_record = snapshot.get(own).map(|view| &view.record).filter(|record| record.epoch == epoch);
        if takes && !own_record.is_some_and(|record| leaves(record)) && self.lease.is_valid() {
            let me = NodeEpoch { id: own.clone(), epoch: self.lease.epoch() };
            ready.insert(own.as_str(), (me, self.locality.is_some()));
        } else {
            ready.remove(own.as_str());
        }
        // Not where it has come back since.
        if let Some(deaf) = deaf
            && ready.get(deaf.id.as_str()).is_some_and(|(owner, _)| owner == deaf)
        {
            ready.remove(deaf.id.as_str());
        }
        let candidates = ready.iter().map(|(node, (_, near))| Candidate { node, near: *near });
        let chosen = place(what, candidates)?;
        ready.get(chosen).map(|(owner, _)| owner.clone())
    }
}

/// True where a node takes nothing more: it is not ready, or is being drained.
fn leaves(record: &NodeRecord) -> bool {
    record.state != NodeState::Ready || record.labels.contains_key(DRAINING_LABEL)
}

/// A label's name, for whoever sets up a node.
pub(super) fn locality_of(labels: &std::collections::BTreeMap<String, String>) -> Option<String> {
    labels.get(LOCALITY).cloned()
}
