//! The transfer of an object to another node, in order (RTE-10).
//!
//! The object's lock is held from the first step to the last. Messages that come meanwhile wait for it in their order, and
//! whatever became of the transfer each of them then finds either the object here, or a record that names the new owner:
//! so each is handled here or passed on, once.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, NodeId, ObjectKey};
use crate::message::RoutedCall;
use crate::node::NodeState;

use super::book::TransferOutcome;
use super::hub::{Hub, service_of};
use super::keeper::{Guard, Inner, Keeper};
use super::kind::{ObjectType, Removal};
use super::receive::{MOVED, ROUTES};
use super::record::{Header, Route};

/// How long the target has for loading the object.
const NOTICE_MAX: Duration = Duration::from_secs(5);
/// How often a transfer is repeated while its outcome is not known.
const TRIES: usize = 3;

/// How a transfer went.
#[derive(Debug, Clone)]
pub struct Handover {
    /// The record that names the new owner.
    pub route: Route,
    /// Why the target did not confirm that it loaded the object: it will when it is sent a message. `None` where it did, or
    /// was not to be told.
    pub unconfirmed: Option<Error>,
}

impl<K: ObjectType> Keeper<K> {
    /// Hands an object that this node owns to `target`: saves it, makes `target` its owner, and with `notify` tells it, so
    /// that it has loaded the object before the messages that were held back are passed on.
    ///
    /// Errors, with the object still here: those of the save; [`Error::NodeOffline`] and the like where the target cannot
    /// take it; [`Error::ServiceNotFound`] where it hosts no objects of the kind. With [`Error::NotOwner`] the object was
    /// another's. After [`Error::Unreachable`] the next use of the object finds out whose it is. Cancel safe: a transfer
    /// that was begun is ended in the background.
    pub async fn transfer(&self, key: &ObjectKey, target: &NodeId, notify: bool) -> Result<Handover> {
        let (key, target) = (self.own(key)?, target.clone());
        if target == *self.inner.hub.lease.id() {
            return Err(Error::OutOfBounds { what: "target", problem: "it is this node".to_owned() });
        }
        let (cell, turn) = self.inner.place(&key);
        self.run(key.clone(), move |inner| async move {
            let mut guard = turn.await;
            let mark = cell.mark();
            let moved = inner.hand_over(&key, &mut guard, &target, notify).await;
            let outcome = if moved.is_ok() { "moved" } else { "failed" };
            metrics::counter!("maitred_objects_transfers_total", "outcome" => outcome).increment(1);
            drop(mark);
            moved
        })
        .await
    }
}

impl<K: ObjectType> Inner<K> {
    async fn hand_over(
        &self,
        key: &ObjectKey,
        guard: &mut Guard<K::Object>,
        target: &NodeId,
        notify: bool,
    ) -> Result<Handover> {
        if guard.is_none() {
            let owner = self.hub.table.lookup(key).await?.and_then(|route| route.owner.clone());
            let mine = owner.as_ref().is_some_and(|owner| owner.id == *self.hub.lease.id());
            if !mine {
                return Err(Error::NotOwner { object: key.clone(), owner: owner.map(|owner| owner.id) });
            }
        }
        self.promote(key, guard).await?;
        let target = self.hub.able(target, key).await?;
        let Some(live) = guard.as_mut() else {
            return Err(Error::NotOwner { object: key.clone(), owner: None });
        };
        if self.kind.removing(key, &mut live.object).await {
            live.dirty = true;
        }
        if (live.dirty || live.unsettled.is_some())
            && let Err(error) = self.save(key, guard).await
        {
            self.keep(key, guard).await;
            return Err(error);
        }
        let route = match self.give_to(key, guard, &target).await {
            Ok(route) => route,
            Err(error) => {
                self.keep(key, guard).await;
                return Err(error);
            }
        };
        let unconfirmed = if notify { self.hub.notify(&route, &target).await.err() } else { None };
        if let Some(error) = &unconfirmed {
            tracing::warn!(object = %key, target = %target.id, %error, "the new owner did not confirm an object");
        }
        Ok(Handover { route, unconfirmed })
    }

    /// The write that makes `target` the owner.
    async fn give_to(&self, key: &ObjectKey, guard: &mut Guard<K::Object>, target: &NodeEpoch) -> Result<Route> {
        let Some(live) = guard.as_mut() else {
            return Err(Error::NotOwner { object: key.clone(), owner: None });
        };
        let held = live.held.clone();
        let mut outcome = self.hub.book.transfer(&held, target).await;
        let mut unknown = false;
        for _ in 1..TRIES {
            match &outcome {
                Err(error) if error.may_have_changed() => unknown = true,
                _ => break,
            }
            outcome = self.hub.book.transfer(&held, target).await;
        }
        if unknown
            && let Ok(TransferOutcome::Lost(Some(owner))) = &outcome
            && *owner == target.id
            && let Ok(Some(route)) = self.hub.book.read(key).await
            && route.is_of(&target.id, target.epoch)
        {
            // The try without an answer had its effect.
            outcome = Ok(TransferOutcome::Moved(route));
        }
        match outcome {
            Ok(TransferOutcome::Moved(route)) => {
                self.drop_local(key, guard, &Removal::Moved(target.id.clone())).await;
                self.hub.table.wrote(route.clone(), false);
                Ok(route)
            }
            Ok(TransferOutcome::Lost(owner)) => {
                self.drop_local(key, guard, &Removal::Lost(owner.clone())).await;
                Err(Error::NotOwner { object: key.clone(), owner })
            }
            Ok(TransferOutcome::TargetGone) => {
                // The target may have owned it between an earlier try and its end.
                live.doubtful |= unknown;
                Err(Error::NodeOffline(target.id.clone()))
            }
            Err(error) => {
                // Whose it is now nobody knows: the next use asks the store first.
                live.doubtful = true;
                Err(error)
            }
        }
    }
}

impl Hub {
    /// A node that can take an object, in its present epoch.
    async fn able(&self, target: &NodeId, key: &ObjectKey) -> Result<NodeEpoch> {
        let service = service_of(key.kind());
        let mut record = self.directory.resolve(target).await?;
        if !record.offers(&service) || record.state == NodeState::ShuttingDown {
            self.directory.read_again(target).await?;
            record = self.directory.resolve(target).await?;
        }
        if record.state == NodeState::ShuttingDown {
            return Err(Error::NodeOffline(target.clone()));
        }
        if !record.offers(&service) {
            return Err(Error::ServiceNotFound { service, at: target.to_string() });
        }
        Ok(NodeEpoch { id: target.clone(), epoch: record.epoch })
    }

    /// Tells the new owner, and waits until it has loaded the object.
    async fn notify(&self, route: &Route, target: &NodeEpoch) -> Result<()> {
        let call = RoutedCall {
            node: &target.id,
            epoch: target.epoch,
            service: ROUTES,
            method: MOVED,
            route: &Header { key: route.key.clone(), version: route.version }.text(),
            body: RawValue::NULL,
            deadline: Instant::now() + NOTICE_MAX,
        };
        self.post.call_routed(call).await.map(|_| ())
    }
}
