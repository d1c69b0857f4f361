use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::ids::OperationId;
use crate::node::Lease;
use crate::store::boot_ms;

use super::super::forward::Local;
use super::super::record::{Cas, Held};

/// One object in this node's memory, or the room for it. Whoever does anything with the object holds its lock, which is given in
/// the order of asking: so all I/O of the object is in order, and messages that come while it moves wait here.
#[derive(Debug)]
pub(in crate::route) struct ObjectCell<T> {
    state: Arc<Mutex<Option<Live<T>>>>,
    waiting: Arc<AtomicUsize>,
    moving: AtomicBool,
}

/// An object that this node owns.
#[derive(Debug)]
pub(in crate::route) struct Live<T> {
    pub object: T,
    pub held: Held,
    pub cas: Cas,
    /// It is not what was saved last.
    pub dirty: bool,
    /// A save whose outcome is not known.
    pub unsettled: Option<Unsettled>,
    /// When it was last used, on the machine's clock.
    pub used_boot_ms: u64,
    /// When the record was last known to be this node's: the sending of that write.
    pub renewed_boot_ms: u64,
    /// When nothing was left to save for the last time: the sending of that write.
    pub saved_boot_ms: u64,
    /// The generation of the lease before that write was sent.
    pub lease_generation: u64,
    /// A write that gives the object away was sent, and nobody knows whether it had its effect.
    pub doubtful: bool,
    /// Tries of the timer that failed since one did not.
    pub failures: u32,
    /// The timer leaves it alone until then, on the machine's clock.
    pub put_off_boot_ms: u64,
    /// Its point in the last quarter of the time between two saves, 0 to 63: what was loaded together is not saved together.
    pub spread: u64,
}

/// A save that was sent: it is repeated to the byte until its outcome is definite.
#[derive(Debug, Clone)]
pub(in crate::route) struct Unsettled {
    pub op: OperationId,
    pub data: String,
    /// It was sent, and nobody knows whether it had its effect.
    pub unknown: bool,
    /// When it was sent first, on the machine's clock: its repeat may be answered without a write.
    pub sent_boot_ms: u64,
    /// The generation of the lease before that.
    pub lease_generation: u64,
}

/// The lock of a cell, until it is dropped.
pub(in crate::route) type Guard<T> = OwnedMutexGuard<Option<Live<T>>>;

/// A turn at a cell's lock, in the order in which turns were made.
pub(in crate::route) type Turn<T> = BoxFuture<'static, Guard<T>>;

impl<T: Send + 'static> ObjectCell<T> {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Arc::new(Mutex::new(None)), waiting: Arc::default(), moving: AtomicBool::new(false) })
    }

    /// Asks for the lock now, whenever the turn is awaited: first come, first served.
    pub fn turn(&self) -> Turn<T> {
        let waiting = Waiting::enter(&self.waiting);
        let locking = Arc::clone(&self.state).lock_owned();
        let mut turn = async move {
            let guard = locking.await;
            drop(waiting);
            guard
        }
        .boxed();
        // The lock is asked for at the first poll.
        match (&mut turn).now_or_never() {
            Some(guard) => std::future::ready(guard).boxed(),
            None => turn,
        }
    }

    /// Looks at the object; `None` while somebody is at it, or without one.
    pub fn peek<R>(&self, at: impl FnOnce(&Live<T>) -> R) -> Option<R> {
        self.state.try_lock().ok()?.as_ref().map(at)
    }

    /// Marks it as moving, until the mark is dropped.
    pub fn mark(&self) -> Mark<'_> {
        self.moving.store(true, Ordering::Release);
        Mark(&self.moving)
    }

    /// Messages that are held back because the object moves.
    pub fn held_back(&self) -> usize {
        if self.moving.load(Ordering::Acquire) { self.waiting.load(Ordering::Acquire) } else { 0 }
    }

    /// True while an object may be in it, or somebody is at it.
    pub fn is_used(&self) -> bool {
        self.state.try_lock().map_or(true, |state| state.is_some())
    }
}

struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn enter(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An object moves as long as this lives.
pub(in crate::route) struct Mark<'a>(&'a AtomicBool);

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Live<T> {
    pub fn new(object: T, held: Held, cas: Cas, sent_boot_ms: u64, lease_generation: u64) -> Self {
        Self {
            object,
            held,
            cas,
            dirty: false,
            unsettled: None,
            used_boot_ms: boot_ms(),
            renewed_boot_ms: sent_boot_ms,
            saved_boot_ms: sent_boot_ms,
            lease_generation,
            doubtful: false,
            failures: 0,
            put_off_boot_ms: 0,
            spread: rand::random::<u64>() % 64,
        }
    }

    /// A write that was sent then was answered: the record was this node's.
    pub fn renewed(&mut self, sent_boot_ms: u64, lease_generation: u64) {
        self.renewed_boot_ms = sent_boot_ms;
        self.lease_generation = lease_generation;
        self.doubtful = false;
    }

    /// A save was answered. A repeat says that the first try arrived, and nothing of what came after it.
    pub fn saved(&mut self, tried: &Unsettled) {
        if !tried.unknown || (!self.doubtful && tried.sent_boot_ms > self.renewed_boot_ms) {
            self.renewed(tried.sent_boot_ms, tried.lease_generation);
        }
    }

    /// What of it this node may rely on without asking the store: the lock timeout less a tenth, counted from the
    /// sending of the last write that was answered, and the lease without a gap since.
    pub fn local(&self, lease: &Lease, lock_timeout_ms: u64) -> Local {
        let usable = lock_timeout_ms - lock_timeout_ms / 10;
        let young = boot_ms().saturating_sub(self.renewed_boot_ms) < usable;
        if young
            && !self.doubtful
            && lease.is_valid()
            && lease.epoch() == self.held.owner.epoch
            && lease.generation() == self.lease_generation
        {
            Local::Writable(self.held.version)
        } else {
            Local::Doubtful
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ids::{Epoch, NodeEpoch, NodeId, ObjectKey};
    use crate::route::RouteVersion;

    /// An object that was taken at the boot time `at`.
    pub fn live(at: u64) -> Live<()> {
        let owner = NodeEpoch { id: NodeId::new("b1").expect("an id"), epoch: Epoch(7) };
        let key = ObjectKey::read("island:a").expect("a key");
        Live::new((), Held { key, owner, version: RouteVersion(5), sig: String::new() }, Cas::NONE, at, 0)
    }

    fn tried(sent_boot_ms: u64, unknown: bool) -> Unsettled {
        Unsettled { op: OperationId::fresh(), data: String::new(), unknown, sent_boot_ms, lease_generation: 3 }
    }

    // the store counts the lock timeout from the try that had its effect, so the owner must not count from a later one.
    #[test]
    fn r_18_a_repeated_save_counts_from_its_first_sending() {
        let mut object = live(1_000);
        object.saved(&tried(2_000, false));
        assert_eq!((object.renewed_boot_ms, object.lease_generation), (2_000, 3));
        object.saved(&tried(3_000, true));
        assert_eq!(object.renewed_boot_ms, 3_000);
        // The store was asked whose it is after the first try.
        object.renewed(5_000, 4);
        object.saved(&tried(4_000, true));
        assert_eq!((object.renewed_boot_ms, object.lease_generation), (5_000, 4));
        // It may have been given away since.
        object.doubtful = true;
        object.saved(&tried(6_000, true));
        assert!(object.doubtful && object.renewed_boot_ms == 5_000);
        object.saved(&tried(7_000, false));
        assert!(!object.doubtful && object.renewed_boot_ms == 7_000);
    }
}
