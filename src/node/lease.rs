use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::broadcast;
use tokio::time::sleep;

use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeId};
use crate::store::{Store, boot_ms};

/// Events that may wait for a slow listener.
const EVENTS: usize = 256;
/// So soon a judging call is broken off after the connection to the store was made anew.
const RECONNECT_SEEN_WITHIN: Duration = Duration::from_millis(100);

/// What happened to this process's membership.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LeaseEvent {
    /// The first lease.
    Joined {
        /// Its epoch.
        epoch: Epoch,
    },
    /// No beat was acknowledged for a lease's length: nothing that needs a lease works now.
    Lost {
        /// The epoch that lapsed.
        epoch: Epoch,
    },
    /// The lapsed epoch goes on: nobody else took the id meanwhile.
    Resumed {
        /// The epoch.
        epoch: Epoch,
    },
    /// A new epoch, because the store lost its data or the id was taken in between.
    Rejoined {
        /// The epoch that is over.
        old: Epoch,
        /// The new one.
        new: Epoch,
    },
    /// Another process holds the id now.
    Fenced {
        /// The epoch that is over.
        epoch: Epoch,
        /// The holder's address, as its row says.
        by: String,
    },
    /// Another live process holds the id; this one waits for its lease to end.
    Duplicate {
        /// The holder's address.
        addr: String,
        /// Rest of the holder's lease in ms.
        lease_left_ms: u64,
    },
}

/// This process's right to act under its node id, as far as it can know it. Cheap to clone and to ask; never does I/O.
///
/// A lease is valid until the moment the last acknowledged beat was *sent* plus its length less a tenth, on a clock
/// that counts suspension, so that it ends here before the store would let another process in.
#[derive(Debug, Clone)]
pub struct Lease {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: NodeId,
    length_ms: u64,
    epoch: AtomicU64,
    valid_until_boot_ms: AtomicU64,
    generation: AtomicU64,
    /// When it was got after a time without one, the time before this process began included.
    back_boot_ms: AtomicU64,
    events: broadcast::Sender<LeaseEvent>,
}

impl Lease {
    /// A lease that is not held yet. `length_ms` is 3.5 beat intervals.
    pub fn new(id: NodeId, length_ms: u64) -> Self {
        let (events, _) = broadcast::channel(EVENTS);
        let inner = Inner {
            id,
            length_ms,
            epoch: AtomicU64::new(0),
            valid_until_boot_ms: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            back_boot_ms: AtomicU64::new(0),
            events,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The node id.
    pub fn id(&self) -> &NodeId {
        &self.inner.id
    }

    /// Its length in ms, as the store judges it.
    pub fn length_ms(&self) -> u64 {
        self.inner.length_ms
    }

    /// The last epoch given, also while the lease is not valid. [`Epoch::NONE`] before the first.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.inner.epoch.load(Ordering::Acquire))
    }

    /// True while this process may act.
    pub fn is_valid(&self) -> bool {
        self.left_ms() > 0
    }

    /// How long the lease is still valid without another beat, in ms.
    pub fn left_ms(&self) -> u64 {
        self.inner.valid_until_boot_ms.load(Ordering::Acquire).saturating_sub(boot_ms())
    }

    /// The epoch to act under. Errors with [`Error::LeaseLost`] while there is none.
    pub fn require(&self) -> Result<Epoch> {
        if self.is_valid() { Ok(self.epoch()) } else { Err(Error::LeaseLost { id: self.inner.id.clone() }) }
    }

    /// How often the lease was got again after a time without one. While the number stays the same nobody else can have
    /// been let in: what was this node's at the beginning is this node's still.
    pub fn generation(&self) -> u64 {
        self.inner.generation.load(Ordering::Acquire)
    }

    /// True where this process may say that another one is dead. Whoever has just begun, was away itself, or hears the store
    /// over a new connection, which may be another one or an older state of it, cannot know for one lease: those that live
    /// have not had the time to say so.
    pub fn may_judge(&self, store: &Store) -> bool {
        let back_ms = self.inner.back_boot_ms.load(Ordering::Acquire).max(store.replaced_boot_ms());
        self.is_valid() && boot_ms().saturating_sub(back_ms) >= self.inner.length_ms
    }

    /// Runs `judging`, which says of others that they are dead, for as long as this process [may judge](Self::may_judge).
    /// Where it may not any more, `judging` is dropped and the error is [`Error::LeaseLost`]: a call that was repeated after
    /// the gap would judge by what was so before it.
    pub(crate) async fn judge<T>(&self, store: &Store, judging: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.judges_no_more(store) => Err(Error::LeaseLost { id: self.inner.id.clone() }),
            judged = judging => judged,
        }
    }

    async fn judges_no_more(&self, store: &Store) {
        while self.may_judge(store) {
            sleep(Duration::from_millis(self.left_ms()).min(RECONNECT_SEEN_WITHIN)).await;
        }
    }

    /// What happens to the lease from now on. A listener that falls 256 events behind misses the oldest.
    pub fn events(&self) -> broadcast::Receiver<LeaseEvent> {
        self.inner.events.subscribe()
    }

    /// A beat or join that was sent at `sent_boot_ms` was acknowledged.
    pub(crate) fn extend(&self, epoch: Epoch, sent_boot_ms: u64) {
        if !self.is_valid() || self.epoch() != epoch {
            self.inner.generation.fetch_add(1, Ordering::AcqRel);
            self.inner.back_boot_ms.store(boot_ms(), Ordering::Release);
        }
        self.inner.epoch.store(epoch.0, Ordering::Release);
        let usable = self.inner.length_ms.saturating_sub(self.inner.length_ms / 10);
        self.inner.valid_until_boot_ms.store(sent_boot_ms.saturating_add(usable), Ordering::Release);
    }

    /// It ends now.
    pub(crate) fn end(&self) {
        self.inner.valid_until_boot_ms.store(0, Ordering::Release);
    }

    pub(crate) fn notify(&self, event: LeaseEvent) {
        match &event {
            LeaseEvent::Joined { .. } | LeaseEvent::Resumed { .. } | LeaseEvent::Rejoined { .. } => {
                tracing::info!(node = %self.inner.id, ?event, "lease");
            }
            _ => tracing::warn!(node = %self.inner.id, ?event, "lease"),
        }
        // Nobody listening is fine: the state itself is what callers ask.
        let _ = self.inner.events.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_9_a_lease_is_counted_from_the_sending_of_the_acknowledged_beat_less_a_tenth() {
        let lease = Lease::new(NodeId::new("p1").expect("valid"), 3_500);
        assert!(lease.require().is_err());
        let now = boot_ms();
        lease.extend(Epoch(7), now);
        assert!(lease.is_valid() && lease.left_ms() <= 3_150 && lease.left_ms() > 2_500);
        assert_eq!(lease.require().expect("held"), Epoch(7));
        lease.extend(Epoch(7), now.saturating_sub(3_150));
        assert!(!lease.is_valid(), "the answer came too late to be worth anything");
        assert_eq!(lease.epoch(), Epoch(7), "the last epoch is remembered");
    }
}
