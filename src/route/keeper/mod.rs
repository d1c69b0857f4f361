//! The objects of one kind that this node owns: in memory, writable, saved and given up in order.

mod cell;
mod flush;
mod io;
mod serve;
mod tend;

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;

use crate::error::{Error, Result, RouteRefusal};
use crate::ids::{ObjectKey, ObjectKind};
use crate::store::boot_ms;

use super::hub::Hub;
use super::kind::{KeepTimes, KindOptions, ObjectType, Removal};
use super::record::RouteVersion;

pub(super) use cell::{Guard, Live, ObjectCell, Turn};
pub use flush::{FlushProgress, FlushReport, Unsaved};
pub(super) use serve::{Job, Served};

tokio::task_local! {
    /// The object that the callbacks of this task have.
    static HELD: ObjectKey;
}

/// Errors where a callback asks for its own object: it would wait for itself.
pub(super) fn not_from_within(key: &ObjectKey) -> Result<()> {
    let is_within = HELD.try_with(|held| held == key).unwrap_or(false);
    if !is_within {
        return Ok(());
    }
    let problem = format!("{key} is held by the callback that asks for it; ask from a task of its own");
    Err(Error::OutOfBounds { what: "object", problem })
}

/// Keeps the objects of one kind that this node owns. Cheap to clone; clones are one keeper.
pub struct Keeper<K: ObjectType> {
    pub(super) inner: Arc<Inner<K>>,
}

pub(super) struct Inner<K: ObjectType> {
    pub hub: Arc<Hub>,
    pub kind: K,
    pub name: ObjectKind,
    pub options: KindOptions,
    pub keep: KeepTimes,
    cells: Mutex<HashMap<ObjectKey, Arc<ObjectCell<K::Object>>>>,
    closing: AtomicBool,
}

impl<K: ObjectType> Clone for Keeper<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: ObjectType> fmt::Debug for Keeper<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keeper({} of {})", self.inner.name, self.inner.hub.lease.id())
    }
}

impl<K: ObjectType> Keeper<K> {
    pub(super) fn new(hub: Arc<Hub>, name: ObjectKind, kind: K) -> Self {
        let options = kind.options();
        let keep = KeepTimes {
            save_ms: options.save_ms.unwrap_or(hub.keep.save_ms),
            idle_ms: options.idle_ms.unwrap_or(hub.keep.idle_ms),
        };
        let (cells, closing) = (Mutex::default(), AtomicBool::new(false));
        let inner = Inner { hub, kind, name, options, keep, cells, closing };
        Self { inner: Arc::new(inner) }
    }

    /// The kind.
    pub fn kind(&self) -> &ObjectKind {
        &self.inner.name
    }

    /// What the application says about the kind.
    pub fn object_type(&self) -> &K {
        &self.inner.kind
    }

    /// Objects in memory now, and those that somebody is at.
    pub fn len(&self) -> usize {
        self.inner.cells().values().filter(|cell| cell.is_used()).count()
    }

    /// True without any object in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Messages held back because their object moves: from other nodes at most three quarters of the handlers that the node
    /// runs at once ([`MessageOptions::max_concurrent`](crate::message::MessageOptions); the rest is refused as busy), and
    /// this node's own calls.
    pub fn held_back(&self) -> usize {
        self.inner.cells().values().map(|cell| cell.held_back()).sum()
    }

    /// Takes the object if it is free or this node's already, loads it, and answers the version that this node owns it
    /// in. Also where the kind is not taken over on demand.
    ///
    /// Errors with [`Error::NotOwner`] where another node owns it, [`Error::Routed`] with
    /// [`NotFound`](crate::error::RouteRefusal::NotFound) where there is nothing to load and nothing is created, and as the
    /// store's calls do.
    pub async fn acquire(&self, key: &ObjectKey) -> Result<RouteVersion> {
        let key = self.own(key)?;
        let turn = self.inner.turn(&key);
        self.run(key.clone(), move |inner| async move {
            let mut guard = turn.await;
            let version = inner.promote(&key, &mut guard).await?;
            if let Some(live) = guard.as_mut() {
                live.used_boot_ms = boot_ms();
            }
            Ok(version)
        })
        .await
    }

    /// Runs `work` with an object that is in memory here and writable, or is taken as [`acquire`](Self::acquire) takes
    /// it. `work` answers a value and whether it changed the object; the change is saved on the timer, or at once where
    /// the kind answers after its save. Where `work` panics the object is dropped, to be loaded anew, and the error is
    /// [`Error::Routed`] with [`NotSaved`](crate::error::RouteRefusal::NotSaved).
    pub async fn with<R: Send + 'static>(
        &self,
        key: &ObjectKey,
        work: impl FnOnce(&mut K::Object) -> (R, bool) + Send + 'static,
    ) -> Result<R> {
        let key = self.own(key)?;
        let turn = self.inner.turn(&key);
        self.run(key.clone(), move |inner| async move {
            let mut guard = turn.await;
            inner.promote(&key, &mut guard).await?;
            let Some(live) = guard.as_mut() else { return Err(lost(&key)) };
            let Ok((value, changed)) = catch_unwind(AssertUnwindSafe(|| work(&mut live.object))) else {
                tracing::error!(object = %key, "work on an object panicked");
                inner.drop_local(&key, &mut guard, &Removal::Panicked).await;
                return Err(broken_off(&key));
            };
            inner.after_change(&key, &mut guard, changed).await?;
            Ok(value)
        })
        .await
    }

    /// Saves an object that is in memory now. Nothing to do where it is not, or did not change.
    pub async fn save(&self, key: &ObjectKey) -> Result<()> {
        let key = self.own(key)?;
        let turn = self.inner.turn(&key);
        self.run(key.clone(), move |inner| async move {
            let mut guard = turn.await;
            inner.save(&key, &mut guard).await
        })
        .await
    }

    /// Saves an object and gives it up; nothing to do where it is not in memory.
    pub async fn release(&self, key: &ObjectKey) -> Result<()> {
        let key = self.own(key)?;
        let turn = self.inner.turn(&key);
        self.run(key.clone(), move |inner| async move {
            let mut guard = turn.await;
            inner.release(&key, &mut guard, false).await
        })
        .await
    }

    /// Gives an object up together with its bytes in the built-in store. It is taken first where it is free.
    /// Errors with [`Error::NotOwner`], with nothing deleted, where it turns out to be another's.
    pub async fn delete(&self, key: &ObjectKey) -> Result<()> {
        let key = self.own(key)?;
        let turn = self.inner.turn(&key);
        self.run(key.clone(), move |inner| async move {
            let mut guard = turn.await;
            inner.promote(&key, &mut guard).await?;
            inner.release(&key, &mut guard, true).await
        })
        .await
    }

    /// The key, if it is of this kind, and not asked for by a callback of the object itself.
    pub(super) fn own(&self, key: &ObjectKey) -> Result<ObjectKey> {
        if key.kind() != self.inner.name.as_str() {
            let problem = format!("{key} is not of kind {}", self.inner.name);
            return Err(Error::OutOfBounds { what: "object", problem });
        }
        not_from_within(key)?;
        Ok(key.clone())
    }

    /// Runs `work` to its end whatever becomes of the caller's future: nothing of an object is left half-done.
    pub(super) async fn run<R, F, Fut>(&self, key: ObjectKey, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(Arc<Inner<K>>) -> Fut,
        Fut: Future<Output = Result<R>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.inner));
        self.spawn(key.clone(), work).await.unwrap_or_else(|_| Err(broken_off(&key)))
    }

    /// Starts work on an object, which waits for its lock and holds it to the end.
    fn spawn<R: Send + 'static>(
        &self,
        key: ObjectKey,
        work: impl Future<Output = R> + Send + 'static,
    ) -> JoinHandle<R> {
        self.inner.hub.tasks.spawn_on(HELD.scope(key, work), &self.inner.hub.runtime)
    }
}

impl<K: ObjectType> Inner<K> {
    fn cells(&self) -> MutexGuard<'_, HashMap<ObjectKey, Arc<ObjectCell<K::Object>>>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object's place, made where there is none, and the next place in its line. The line is joined under the map's
    /// lock: a place that somebody is on the way to is never taken away, so there is one for an object at most.
    pub fn place(&self, key: &ObjectKey) -> (Arc<ObjectCell<K::Object>>, Turn<K::Object>) {
        let mut cells = self.cells();
        let cell = cells.entry(key.clone()).or_insert_with(ObjectCell::new);
        (Arc::clone(cell), cell.turn())
    }

    /// The next place in the object's line.
    pub fn turn(&self, key: &ObjectKey) -> Turn<K::Object> {
        self.place(key).1
    }

    /// True where the object has a place here.
    pub fn has_cell(&self, key: &ObjectKey) -> bool {
        self.cells().contains_key(key)
    }

    /// Takes places away that nobody uses.
    fn tidy(&self) {
        self.cells().retain(|_, cell| cell.is_used());
    }

    /// Takes the object's place away, if nobody uses it.
    fn tidy_one(&self, key: &ObjectKey) {
        let mut cells = self.cells();
        if cells.get(key).is_some_and(|cell| !cell.is_used()) {
            cells.remove(key);
        }
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

/// Work on an object ended before it told how: a callback panicked, or the runtime ends.
fn broken_off(key: &ObjectKey) -> Error {
    Error::Routed {
        object: key.to_string(),
        refusal: RouteRefusal::NotSaved,
        detail: "the work on it broke off".to_owned(),
    }
}

fn lost(key: &ObjectKey) -> Error {
    Error::NotOwner { object: key.clone(), owner: None }
}
