//! The I/O of one object. Every function here is called with the object's lock held.

use crate::error::{Error, Result, RouteRefusal};
use crate::ids::{NodeId, ObjectKey, OperationId};
use crate::store::boot_ms;

use super::super::book::{AcquireOutcome, RouteReleaseOutcome};
use super::super::forward::Local;
use super::super::kind::{Ack, ObjectType, Removal, Storage};
use super::super::record::{Cas, Held, Route, RouteState, RouteVersion};
use super::cell::Unsettled;
use super::{Guard, Inner, Live, lost};

impl<K: ObjectType> Inner<K> {
    pub(super) fn is_fenced(&self) -> bool {
        self.options.storage != (Storage::Own { fenced: false })
    }

    /// What this node holds.
    pub(super) fn local(&self, guard: &Guard<K::Object>) -> Local {
        guard.as_ref().map_or(Local::None, |live| live.local(&self.hub.lease, self.hub.book.times().lock_timeout_ms))
    }

    /// The object in memory and surely this node's: taken, confirmed or loaded where need be.
    pub(in crate::route) async fn promote(
        &self,
        key: &ObjectKey,
        guard: &mut Guard<K::Object>,
    ) -> Result<RouteVersion> {
        // A load that took long is asked for like anything that is doubted; what that finds lost is taken once more.
        for _ in 0..4 {
            match self.local(guard) {
                Local::Writable(version) => return Ok(version),
                Local::Doubtful => self.confirm(key, guard).await?,
                Local::None if self.is_closing() => return Err(Error::ShuttingDown),
                Local::None => self.take(key, guard).await.map(|_| ())?,
            }
        }
        Err(lost(key))
    }

    /// Takes the object and loads it.
    pub(super) async fn take(&self, key: &ObjectKey, guard: &mut Guard<K::Object>) -> Result<RouteVersion> {
        let hub = &self.hub;
        let (sent, lease_generation) = (boot_ms(), hub.lease.generation());
        let known = hub.table.cached(key);
        let held = match hub.book.acquire(key, known.as_deref(), self.is_fenced()).await? {
            AcquireOutcome::Acquired(held) => held,
            AcquireOutcome::Owned { owner, version } => {
                // The record itself is what is believed.
                hub.table.read_again(key, version).await?;
                return Err(Error::NotOwner { object: key.clone(), owner: Some(owner.id) });
            }
        };
        match self.load(key).await {
            Ok(Some((object, cas))) => {
                let (version, route) = (held.version, route_of(&held));
                let mut live = Live::new(object, held, cas, sent, lease_generation);
                self.kind.promoted(key, &mut live.object).await;
                **guard = Some(live);
                // Not before: a callback that panics leaves nothing in memory.
                hub.table.wrote(route, true);
                metrics::counter!("maitred_objects_promoted_total", "kind" => self.name.to_string()).increment(1);
                Ok(version)
            }
            missing => {
                // Nothing is in memory, so nothing holds the object here.
                hub.table.wrote(route_of(&held), false);
                if let Err(error) = self.give_up(&held, false).await {
                    tracing::debug!(object = %key, %error, "could not give an object up that could not be loaded");
                }
                Err(missing.err().unwrap_or_else(|| Error::Routed {
                    object: key.to_string(),
                    refusal: RouteRefusal::NotFound,
                    detail: "it is not in storage, and its kind does not create it".to_owned(),
                }))
            }
        }
    }

    async fn load(&self, key: &ObjectKey) -> Result<Option<(K::Object, Cas)>> {
        let loaded = match self.options.storage {
            Storage::BuiltIn => match self.hub.book.load(key).await? {
                Some(stored) => Some((self.kind.decode(key, &stored.data)?, stored.cas)),
                None => None,
            },
            Storage::Own { .. } => self.kind.load(key).await?.map(|object| (object, Cas::NONE)),
        };
        Ok(loaded.or_else(|| Some((self.kind.create(key)?, Cas::NONE))))
    }

    /// Asks the store whether the object is this node's still; if not it is dropped.
    pub(super) async fn confirm(&self, key: &ObjectKey, guard: &mut Guard<K::Object>) -> Result<()> {
        let Some(live) = guard.as_mut() else { return Ok(()) };
        let (sent, lease_generation) = (boot_ms(), self.hub.lease.generation());
        // Another epoch of this node is another owner.
        let outcome = match self.hub.lease.require()? {
            epoch if epoch == live.held.owner.epoch => self.hub.book.renew(&live.held).await,
            _ => Err(lost(key)),
        };
        match outcome {
            Ok(()) => {
                live.renewed(sent, lease_generation);
                Ok(())
            }
            Err(error) => self.settle(key, guard, error).await,
        }
    }

    /// Drops the object where `error` says that it is not this node's any more; hands on any other error.
    async fn settle(&self, key: &ObjectKey, guard: &mut Guard<K::Object>, error: Error) -> Result<()> {
        match error {
            Error::NotOwner { owner, .. } => {
                self.drop_local(key, guard, &Removal::Lost(owner)).await;
                self.hub.table.read_again(key, RouteVersion::NONE).await.map(|_| ())
            }
            Error::Fenced { .. } => {
                self.drop_local(key, guard, &Removal::Lost(None)).await;
                Ok(())
            }
            error => Err(error),
        }
    }

    /// The object leaves the memory without a write.
    pub(in crate::route) async fn drop_local(&self, key: &ObjectKey, guard: &mut Guard<K::Object>, why: &Removal) {
        let Some(live) = guard.take() else { return };
        self.hub.table.not_local(key);
        if matches!(why, Removal::Lost(_) | Removal::Conflict) {
            self.hub.table.forget(key, live.held.version);
            tracing::warn!(object = %key, ?why, "an object is not this node's any more");
        }
        let reason = match why {
            Removal::Released => "released",
            Removal::Moved(_) => "moved",
            Removal::Deleted => "deleted",
            Removal::Lost(_) => "lost",
            Removal::Conflict => "conflict",
            Removal::Panicked => "panicked",
        };
        metrics::counter!("maitred_objects_removed_total", "kind" => self.name.to_string(), "why" => reason)
            .increment(1);
        self.kind.removed(key, live.object, why).await;
    }

    /// What follows a handler: the object was used, and maybe is not what was saved.
    pub(super) async fn after_change(
        &self,
        key: &ObjectKey,
        guard: &mut Guard<K::Object>,
        changed: bool,
    ) -> Result<()> {
        let Some(live) = guard.as_mut() else { return Ok(()) };
        live.used_boot_ms = boot_ms();
        live.dirty |= changed;
        match self.options.ack {
            // Also an answer that changed nothing tells of what was not saved before.
            Ack::Saved if live.dirty || live.unsettled.is_some() => self.save(key, guard).await,
            Ack::Saved | Ack::Memory => Ok(()),
        }
    }

    /// Saves the object if it changed, else renews its record. Where the store refuses the object is dropped, and the
    /// error says why; where the outcome is not known the next save repeats this one first.
    pub(in crate::route) async fn save(&self, key: &ObjectKey, guard: &mut Guard<K::Object>) -> Result<()> {
        let changed = guard.as_ref().is_some_and(|live| live.dirty);
        // Storage that refuses nobody takes the bytes of whoever writes last, so they are not written on a guess.
        if changed && !self.is_fenced() && !matches!(self.local(guard), Local::Writable(_)) {
            self.confirm(key, guard).await?;
            if !matches!(self.local(guard), Local::Writable(_)) {
                return Err(lost(key));
            }
        }
        let Some(live) = guard.as_mut() else { return Ok(()) };
        let sent = boot_ms();
        let outcome = match self.options.storage {
            _ if !live.dirty && live.unsettled.is_none() => self.renew(live).await,
            Storage::BuiltIn => self.save_built_in(live).await,
            Storage::Own { .. } => self.save_own(key, live).await,
        };
        let Err(error) = outcome else {
            live.saved_boot_ms = sent;
            return Ok(());
        };
        match &error {
            Error::NotOwner { owner, .. } => {
                self.drop_local(key, guard, &Removal::Lost(owner.clone())).await;
            }
            Error::CasMismatch { .. } => self.drop_local(key, guard, &Removal::Conflict).await,
            Error::Fenced { .. } => self.drop_local(key, guard, &Removal::Lost(None)).await,
            _ => {}
        }
        Err(error)
    }

    async fn renew(&self, live: &mut Live<K::Object>) -> Result<()> {
        let (sent, lease_generation) = (boot_ms(), self.hub.lease.generation());
        self.hub.book.renew(&live.held).await?;
        live.renewed(sent, lease_generation);
        Ok(())
    }

    async fn save_built_in(&self, live: &mut Live<K::Object>) -> Result<()> {
        // The save whose outcome is not known comes first; what changed since comes after it.
        for _ in 0..2 {
            let tried = match &live.unsettled {
                Some(tried) => tried.clone(),
                None => {
                    let data = self.kind.encode(&live.object)?;
                    live.dirty = false;
                    let (sent_boot_ms, lease_generation) = (boot_ms(), self.hub.lease.generation());
                    let tried =
                        Unsettled { op: OperationId::fresh(), data, unknown: false, sent_boot_ms, lease_generation };
                    live.unsettled.insert(tried).clone()
                }
            };
            match self.hub.book.save(&live.held, live.cas, &tried.data, &tried.op).await {
                Ok(cas) => {
                    live.cas = cas;
                    live.unsettled = None;
                    live.saved(&tried);
                }
                Err(error) => {
                    if error.may_have_changed() {
                        live.unsettled = Some(Unsettled { unknown: true, ..tried });
                    } else if !tried.unknown {
                        // Whoever refuses a repeat says nothing of the first try.
                        live.unsettled = None;
                        live.dirty = true;
                    }
                    return Err(error);
                }
            }
            if !live.dirty {
                break;
            }
        }
        Ok(())
    }

    async fn save_own(&self, key: &ObjectKey, live: &mut Live<K::Object>) -> Result<()> {
        self.kind.save(key, &live.object, live.held.version).await?;
        live.dirty = false;
        self.renew(live).await
    }

    /// Saves the object and gives it up; with `delete` its bytes go instead.
    pub(super) async fn release(&self, key: &ObjectKey, guard: &mut Guard<K::Object>, delete: bool) -> Result<()> {
        let Some(live) = guard.as_mut() else { return Ok(()) };
        if self.kind.removing(key, &mut live.object).await {
            live.dirty = true;
        }
        if !delete
            && (live.dirty || live.unsettled.is_some())
            && let Err(error) = self.save(key, guard).await
        {
            self.keep(key, guard).await;
            return Err(error);
        }
        let Some(live) = guard.as_ref() else { return Ok(()) };
        let held = live.held.clone();
        match self.give_up(&held, delete).await {
            Ok(None) => {
                let why = if delete { Removal::Deleted } else { Removal::Released };
                self.drop_local(key, guard, &why).await;
                Ok(())
            }
            Ok(Some(owner)) => {
                self.drop_local(key, guard, &Removal::Lost(owner.clone())).await;
                // Given up is what it is; deleted it is not.
                if delete { Err(Error::NotOwner { object: key.clone(), owner }) } else { Ok(()) }
            }
            Err(error) => {
                if let Some(live) = guard.as_mut() {
                    // Whose it is now nobody knows: the next use asks the store first.
                    live.doubtful |= error.may_have_changed();
                }
                self.keep(key, guard).await;
                Err(error)
            }
        }
    }

    /// A removal did not come about: the object stays, if it is here still.
    pub(in crate::route) async fn keep(&self, key: &ObjectKey, guard: &mut Guard<K::Object>) {
        if let Some(live) = guard.as_mut() {
            self.kind.promoted(key, &mut live.object).await;
        }
    }

    /// `Some` where it was another's already.
    pub(super) async fn give_up(&self, held: &Held, delete: bool) -> Result<Option<Option<NodeId>>> {
        match self.hub.book.release(held, delete).await? {
            RouteReleaseOutcome::Released(version) => {
                let free = Route { owner: None, version, state: RouteState::Free, ..route_of(held) };
                self.hub.table.wrote(free, false);
                Ok(None)
            }
            RouteReleaseOutcome::Lost(owner) => Ok(Some(owner)),
        }
    }
}

/// The record that stands while this node holds the object.
pub(in crate::route) fn route_of(held: &Held) -> Route {
    Route {
        key: held.key.clone(),
        owner: Some(held.owner.clone()),
        version: held.version,
        saved_at_ms: 0,
        state: RouteState::Owned,
    }
}
