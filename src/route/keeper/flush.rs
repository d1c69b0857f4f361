//! Shutdown: everything is saved and given up, in batches, until a deadline.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::ids::ObjectKey;

use super::super::kind::ObjectType;
use super::{Inner, Keeper};

/// Objects of one batch.
const BATCH: usize = 256;
/// Objects of a batch that are saved at the same time.
const SIDE_BY_SIDE: usize = 128;

/// How far a flush is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FlushProgress {
    /// Objects saved and given up, or found to be another's.
    pub done: usize,
    /// Objects that could not be.
    pub failed: usize,
    /// All of them.
    pub total: usize,
}

/// An object that could not be saved and given up.
#[derive(Debug, Clone)]
pub struct Unsaved {
    /// Which.
    pub object: ObjectKey,
    /// Why.
    pub error: Error,
    /// When another node may take it at the latest, in ms from now: when this node's lease is gone where writes are fenced,
    /// else when the lock timeout has passed.
    pub free_in_ms: u64,
}

/// What a flush came to.
#[derive(Debug, Clone, Default)]
pub struct FlushReport {
    /// Objects that were saved and given up, or found to be another's.
    pub done: usize,
    /// Those that were not.
    pub unsaved: Vec<Unsaved>,
}

impl<K: ObjectType> Keeper<K> {
    /// Saves and gives up every object, in batches, until `limit` has passed, and takes no more. `progress` is called after
    /// each batch. What could not be saved is listed. The objects that are under way at the deadline are listed too, and
    /// end in the background. Safe to call again.
    pub async fn flush(&self, limit: Duration, mut progress: impl FnMut(FlushProgress)) -> FlushReport {
        let deadline = Instant::now() + limit;
        let inner = &self.inner;
        inner.closing.store(true, std::sync::atomic::Ordering::Release);
        let all: Vec<_> = {
            let slots = inner.slots();
            slots.iter().filter(|(_, slot)| slot.is_used()).map(|(key, _)| key.clone()).collect()
        };
        let total = all.len();
        let mut report = FlushReport::default();
        for batch in all.chunks(BATCH) {
            let flushing = stream::iter(batch.iter().cloned()).map(|key| self.flush_one(key, deadline));
            let mut flushing = flushing.buffer_unordered(SIDE_BY_SIDE);
            while let Some((object, outcome)) = flushing.next().await {
                match outcome {
                    Ok(()) => report.done += 1,
                    Err(error) => report.unsaved.push(inner.unsaved(object, error)),
                }
            }
            let now = FlushProgress { done: report.done, failed: report.unsaved.len(), total };
            tracing::info!(kind = %inner.name, done = now.done, failed = now.failed, total, "saving objects");
            metrics::gauge!("maitred_objects_flush_left", "kind" => inner.name.to_string())
                .set((total - report.done) as f64);
            progress(now);
        }
        inner.tidy();
        report
    }

    async fn flush_one(&self, key: ObjectKey, deadline: Instant) -> (ObjectKey, Result<()>) {
        let late = || Error::Timeout { target: "the store".to_owned(), timeout_ms: 0 };
        if Instant::now() >= deadline {
            return (key, Err(late()));
        }
        let object = key.clone();
        let turn = self.inner.turn(&key);
        let flushing = self.run(object.clone(), move |inner| async move {
            let mut guard = turn.await;
            inner.release(&key, &mut guard, false).await
        });
        let outcome = timeout_at(deadline, flushing).await.unwrap_or_else(|_| Err(late()));
        (object, outcome)
    }
}

impl<K: ObjectType> Inner<K> {
    fn unsaved(&self, object: ObjectKey, error: Error) -> Unsaved {
        let free_in_ms =
            if self.is_fenced() { self.hub.lease.length_ms() } else { self.hub.book.times().lock_timeout_ms };
        Unsaved { object, error, free_in_ms }
    }
}
