//! Shutdown: everything is saved and given up, in batches, until a deadline.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::ids::ObjectKey;

use super::super::hub::{millis, service_of};
use super::super::kind::ObjectType;
use super::super::record::Held;
use super::{Guard, Inner, Keeper};

/// Objects of one batch.
const BATCH: usize = 256;
/// Objects that are saved at the same time.
const SIDE_BY_SIDE: usize = 128;
/// How long one object may keep its place among those.
const PATIENCE_MAX: Duration = Duration::from_secs(5);

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
    /// Saves and gives up every object, in batches, until `limit` has passed, and takes no more: heartbeats from now on do not
    /// name the kind. `progress` is called after each batch. What could not be saved is listed. Each object has half of
    /// `limit` for itself; those that are under way after that, or at the deadline, are listed too, and end in the
    /// background. In the end what this node owns and never loaded is given up. Safe to call again.
    pub async fn flush(&self, limit: Duration, mut progress: impl FnMut(FlushProgress)) -> FlushReport {
        let inner = &self.inner;
        inner.closing.store(true, std::sync::atomic::Ordering::Release);
        inner.hub.post.services().withdraw(&service_of(inner.name.as_str()));
        let all: Vec<_> = {
            let cells = inner.cells();
            cells.iter().filter(|(_, cell)| cell.is_used()).map(|(key, _)| key.clone()).collect()
        };
        let total = all.len();
        let clock = Clock { limit, deadline: Instant::now() + limit, places: Semaphore::new(SIDE_BY_SIDE) };
        let mut report = FlushReport::default();
        let mut flushing: FuturesUnordered<_> = all.into_iter().map(|key| self.flush_one(key, &clock)).collect();
        while let Some((object, outcome)) = flushing.next().await {
            match outcome {
                Ok(()) => report.done += 1,
                Err(error) => report.unsaved.push(inner.unsaved(object, error)),
            }
            let now = FlushProgress { done: report.done, failed: report.unsaved.len(), total };
            if !(now.done + now.failed).is_multiple_of(BATCH) && now.done + now.failed < total {
                continue;
            }
            tracing::info!(kind = %inner.name, done = now.done, failed = now.failed, total, "saving objects");
            metrics::gauge!("maitred_objects_flush_left", "kind" => inner.name.to_string())
                .set((total - report.done) as f64);
            progress(now);
        }
        drop(flushing);
        if let Ok(Err(error)) = timeout_at(clock.deadline, self.give_up_unloaded(&report)).await {
            tracing::debug!(kind = %inner.name, %error, "could not look for what was never loaded");
        }
        inner.tidy();
        report
    }

    async fn flush_one(&self, key: ObjectKey, clock: &Clock) -> (ObjectKey, Result<()>) {
        let late = |limit| Error::Timeout { target: format!("the save of {key}"), timeout_ms: millis(limit) };
        let Ok(Ok(place)) = timeout_at(clock.deadline, clock.places.acquire()).await else {
            return (key.clone(), Err(late(clock.limit)));
        };
        if Instant::now() >= clock.deadline {
            return (key.clone(), Err(late(clock.limit)));
        }
        let (began, object) = (Instant::now(), key.clone());
        let turn = self.inner.turn(&key);
        let mut flushing = pin!(self.run(key.clone(), move |inner| async move {
            let mut guard = turn.await;
            inner.release(&object, &mut guard, false).await
        }));
        let patience = PATIENCE_MAX.min(clock.limit / 8);
        let outcome = match timeout_at(clock.deadline.min(began + patience), &mut flushing).await {
            Ok(outcome) => outcome,
            Err(_) => {
                // One that hangs makes room for the others, and does not use up what is left when all others are done.
                drop(place);
                let most = clock.limit / 2;
                let ended = timeout_at(clock.deadline.min(began + most), flushing).await;
                ended.unwrap_or_else(|_| Err(late(most)))
            }
        };
        (key, outcome)
    }

    /// What the store says is this node's and is not in memory: it was handed over and not loaded yet, or dropped after a
    /// panic. There is nothing to save, but where writes are not fenced nobody else could take it for the lock timeout.
    async fn give_up_unloaded(&self, report: &FlushReport) -> Result<()> {
        let (inner, book) = (&self.inner, &self.inner.hub.book);
        let me = book.acting()?;
        let members = book.store().members(book.store().keys().owned(&me.id)).await?;
        let left = members.iter().filter_map(|member| self.own(&ObjectKey::read(member).ok()?).ok());
        let unsaved: HashSet<&ObjectKey> = report.unsaved.iter().map(|unsaved| &unsaved.object).collect();
        let left = left.filter(|key| !unsaved.contains(key));
        stream::iter(left)
            .for_each_concurrent(SIDE_BY_SIDE, |key| {
                let (turn, object) = (inner.turn(&key), key.clone());
                let giving = self.run(key, move |inner| async move {
                    let mut guard = turn.await;
                    inner.give_up_unheld(&object, &mut guard).await;
                    Ok(())
                });
                async move { giving.await.unwrap_or_default() }
            })
            .await;
        Ok(())
    }
}

/// What the objects of one flush share.
struct Clock {
    limit: Duration,
    deadline: Instant,
    places: Semaphore,
}

impl<K: ObjectType> Inner<K> {
    /// Gives an object up that the store says is this node's, and that is not in memory. Nobody else could take it while this
    /// node is there.
    pub(super) async fn give_up_unheld(&self, key: &ObjectKey, guard: &mut Guard<K::Object>) {
        if guard.is_some() {
            return;
        }
        let book = &self.hub.book;
        let giving = async {
            let me = book.acting()?;
            match book.read(key).await? {
                Some(route) if route.is_of(&me.id, me.epoch) => {
                    let held = Held::new(book.verifier(), key, me, route.version);
                    self.give_up(&held, false).await.map(|_| ())
                }
                _ => Ok(()),
            }
        };
        if let Err(error) = giving.await {
            tracing::debug!(object = %key, %error, "could not give an object up that was never loaded");
        }
    }

    fn unsaved(&self, object: ObjectKey, error: Error) -> Unsaved {
        let free_in_ms =
            if self.is_fenced() { self.hub.lease.length_ms() } else { self.hub.book.times().lock_timeout_ms };
        Unsaved { object, error, free_in_ms }
    }
}
