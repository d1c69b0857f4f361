//! A message to an object, from its arrival at this node to its handler, or to the node that it is passed on to.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, RouteRefusal};
use crate::ids::{NodeEpoch, NodeId, ObjectKey};
use crate::message::{CallError, INTERNAL};

use super::super::forward::{Asked, Decider, Known, Step, decide};
use super::super::hub::Kept;
use super::super::kind::{ObjectCall, ObjectType, Removal};
use super::super::record::RouteVersion;
use super::cell::Turn;
use super::{Guard, Inner, Keeper};

/// A message that was forwarded so often is refused by a node on its way out, and not passed on.
const TURNED_AWAY_MAX: u32 = 2;

/// A message to an object.
#[derive(Debug, Clone)]
pub(in crate::route) struct Job {
    pub key: ObjectKey,
    pub method: String,
    pub body: Box<RawValue>,
    pub origin: NodeId,
    pub asked: Asked,
    pub deadline: Instant,
    /// An owner who does not listen: for this message it is as good as gone.
    pub deaf: Option<NodeEpoch>,
}

/// What became of it here.
#[derive(Debug)]
pub(in crate::route) enum Served {
    /// The handler's answer.
    Answered(Box<RawValue>),
    /// The handler's own error.
    Refused(CallError),
    /// Not handled, or not to its end.
    Failed(RouteRefusal, String),
    /// The node is on its way out.
    ShuttingDown,
    /// No handler ran, and the sender waits no longer.
    Late,
    /// For another node, which owns the object in this version.
    Elsewhere(NodeEpoch, RouteVersion),
}

impl<K: ObjectType> Kept for Keeper<K> {
    fn serve(&self, job: Job) -> BoxFuture<'static, Served> {
        let inner = Arc::clone(&self.inner);
        let turn = inner.turn(&job.key);
        let serving = self.spawn(job.key.clone(), async move { inner.serve(job, turn).await });
        // The task goes on where nobody waits for it.
        async move { serving.await.unwrap_or_else(|_| broken_off()) }.boxed()
    }

    fn has_place(&self, key: &ObjectKey) -> bool {
        self.inner.has_cell(key)
    }

    fn take_over(&self, key: ObjectKey, version: RouteVersion) -> BoxFuture<'static, Result<RouteVersion, Error>> {
        let keeper = self.clone();
        let turn = self.inner.turn(&key);
        async move {
            keeper
                .run(key.clone(), move |inner| async move {
                    let mut guard = turn.await;
                    inner.hub.table.read_again(&key, version).await?;
                    let promoted = inner.promote(&key, &mut guard).await;
                    if matches!(promoted, Err(Error::ShuttingDown)) {
                        inner.give_up_unheld(&key, &mut guard).await;
                    }
                    promoted
                })
                .await
        }
        .boxed()
    }

    fn tend(&self) -> BoxFuture<'_, ()> {
        self.tend_all().boxed()
    }

    fn on_demand(&self) -> bool {
        self.inner.options.on_demand
    }

    fn takes_more(&self) -> bool {
        !self.inner.is_closing()
    }
}

/// The work ended before it told how: the handler may have run, so the message is not to be sent again.
fn broken_off() -> Served {
    Served::Failed(RouteRefusal::NotSaved, "the work on it broke off".to_owned())
}

impl<K: ObjectType> Inner<K> {
    async fn serve(&self, job: Job, turn: Turn<K::Object>) -> Served {
        let served = match timeout_at(job.deadline, turn).await {
            Ok(mut guard) => match AssertUnwindSafe(self.serve_locked(&job, &mut guard)).catch_unwind().await {
                Ok(served) => served,
                Err(_) => {
                    tracing::error!(object = %job.key, "a callback of an object panicked");
                    self.drop_local(&job.key, &mut guard, &Removal::Panicked).await;
                    broken_off()
                }
            },
            Err(_) => Served::Late,
        };
        self.tidy_one(&job.key);
        served
    }

    /// RTE-8, with the I/O that its steps ask for.
    async fn serve_locked(&self, job: &Job, guard: &mut Guard<K::Object>) -> Served {
        let hub = &self.hub;
        let (mut repairs, mut fresh) = (0, false);
        loop {
            let me = match hub.book.acting() {
                Ok(me) => me,
                Err(error) => return Served::Failed(RouteRefusal::Again, error.to_string()),
            };
            if self.is_closing() && guard.is_none() {
                return self.turn_away(job, guard).await;
            }
            let route = hub.table.cached(&job.key);
            let owner = route.as_ref().and_then(|route| route.owner.as_ref());
            let owner_available = match owner {
                Some(owner) if owner.id != me.id && guard.is_none() => {
                    job.deaf.as_ref() != Some(owner) && hub.is_available(owner).await
                }
                _ => false,
            };
            let known = Known { route: route.as_deref(), fresh, owner_available };
            let who = Decider { me: &me, on_demand: self.options.on_demand, repairs };
            let step = decide(job.asked, self.local(guard), known, who);
            let done = match step {
                Step::Handle => return self.handle(job, guard).await,
                Step::Forward(owner) => {
                    let version = route.map_or(RouteVersion::NONE, |route| route.version);
                    return Served::Elsewhere(owner, version.max(job.asked.version));
                }
                Step::TooManyHops => {
                    return Served::Failed(RouteRefusal::TooManyHops, format!("forwarded {} times", job.asked.hops));
                }
                Step::NoOwner => return Served::Failed(RouteRefusal::NoOwner, "nobody owns it".to_owned()),
                Step::Again => {
                    return Served::Failed(RouteRefusal::Again, "its route changed at every look".to_owned());
                }
                Step::Confirm => self.confirm(&job.key, guard).await,
                Step::ReadAgain => {
                    fresh = true;
                    hub.table.read_again(&job.key, job.asked.version).await.map(|_| ())
                }
                Step::Load | Step::TakeOver => match self.take(&job.key, guard).await {
                    // Another was quicker: its record was read.
                    Err(Error::NotOwner { .. }) => {
                        fresh = true;
                        Ok(())
                    }
                    taken => taken.map(|_| ()),
                },
            };
            repairs += 1;
            match done {
                Ok(()) => {}
                Err(Error::Routed { refusal, detail, .. }) => return Served::Failed(refusal, detail),
                Err(error) => return Served::Failed(RouteRefusal::Again, error.to_string()),
            }
            if Instant::now() >= job.deadline {
                return Served::Late;
            }
        }
    }

    /// A message to an object that is not here, while this node is on its way out: for whoever owns it now or would take it.
    async fn turn_away(&self, job: &Job, guard: &mut Guard<K::Object>) -> Served {
        let hub = &self.hub;
        // It may have been handed over to this node a moment ago.
        self.give_up_unheld(&job.key, guard).await;
        let Ok(route) = hub.table.read(&job.key).await else { return Served::ShuttingDown };
        let version = route.as_ref().map_or(RouteVersion::NONE, |route| route.version).max(job.asked.version);
        let mut next = route.and_then(|route| route.owner.clone()).filter(|owner| owner.id != *hub.lease.id());
        if let Some(owner) = &next
            && !hub.is_available(owner).await
        {
            next = None;
        }
        if next.is_none() && self.options.on_demand {
            next = hub.default_place(&job.key, job.deaf.as_ref());
        }
        match next {
            // Nodes that leave together do not send it around among themselves.
            Some(owner) if job.asked.hops < TURNED_AWAY_MAX && job.deaf.as_ref() != Some(&owner) => {
                Served::Elsewhere(owner, version)
            }
            _ => Served::ShuttingDown,
        }
    }

    async fn handle(&self, job: &Job, guard: &mut Guard<K::Object>) -> Served {
        let Some(live) = guard.as_mut() else { return Served::Late };
        if Instant::now() >= job.deadline {
            return Served::Late;
        }
        let call = ObjectCall {
            method: job.method.clone(),
            body: job.body.clone(),
            origin: job.origin.clone(),
            hops: job.asked.hops,
            deadline: job.deadline,
        };
        let handling = AssertUnwindSafe(self.kind.handle(&job.key, &mut live.object, call)).catch_unwind();
        match handling.await {
            Ok(Ok(handled)) => match self.after_change(&job.key, guard, handled.changed).await {
                Ok(()) => Served::Answered(handled.body),
                Err(error) => Served::Failed(RouteRefusal::NotSaved, error.to_string()),
            },
            Ok(Err(error)) => {
                live.used_boot_ms = crate::store::boot_ms();
                Served::Refused(error)
            }
            Err(_) => {
                tracing::error!(object = %job.key, method = job.method, "the handler of an object panicked");
                metrics::counter!("maitred_handler_panics_total").increment(1);
                self.drop_local(&job.key, guard, &Removal::Panicked).await;
                Served::Refused(CallError::new(INTERNAL, "the handler panicked"))
            }
        }
    }
}
