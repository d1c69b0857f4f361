//! Messages to objects, and messages about their routes, as they arrive from other nodes.

use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Duration, Instant};

use crate::error::{Error, RouteRefusal};
use crate::ids::{Epoch, NodeEpoch, NodeId};
use crate::message::{CallError, Incoming, RoutedCall, RoutedHandler, Taken};

use super::forward::{Asked, origin_is_behind};
use super::hub::Hub;
use super::keeper::{Job, Served};
use super::record::{Header, Route, RouteState};

/// The service that takes messages about routes.
pub(super) const ROUTES: &str = "routes";
/// Method: the addressee owns the object of the header now.
pub(super) const MOVED: &str = "moved";
/// Method: a newer route than the one that the addressee knows.
pub(super) const UPDATE: &str = "update";
/// How long an update may be under way.
const UPDATE_MAX: Duration = Duration::from_secs(5);

/// What an update says beside its header.
#[derive(Debug, Serialize, Deserialize)]
struct Update {
    owner: NodeId,
    owner_epoch: Epoch,
}

/// Takes messages to the objects of every kind that the node hosts.
pub(super) struct ToObjects(pub Weak<Hub>);

/// Takes messages about routes.
pub(super) struct AboutRoutes(pub Weak<Hub>);

fn no_route() -> Taken {
    Taken::Refused(CallError::new("bad_request", "the message names no object; send it by its route"))
}

impl RoutedHandler for ToObjects {
    async fn take(&self, call: Incoming) -> Taken {
        let Some(hub) = self.0.upgrade() else { return Taken::ShuttingDown };
        let Some(header) = Header::read(&call.route) else { return no_route() };
        let Ok(_place) = hub.crowd.try_acquire() else {
            metrics::counter!("maitred_objects_busy_total").increment(1);
            return Taken::Busy;
        };
        hub.receive(call, header).await
    }
}

impl RoutedHandler for AboutRoutes {
    async fn take(&self, call: Incoming) -> Taken {
        let Some(hub) = self.0.upgrade() else { return Taken::ShuttingDown };
        let Some(header) = Header::read(&call.route) else { return no_route() };
        match call.method.as_str() {
            UPDATE => match call.json::<Update>() {
                Ok(update) => {
                    let owner = Some(NodeEpoch { id: update.owner, epoch: update.owner_epoch });
                    let Header { key, version } = header;
                    let route = Route { key, owner, version, saved_at_ms: 0, state: RouteState::Owned };
                    let taken = hub.table.update(route);
                    let answer = if taken { "taken" } else { "ignored" };
                    metrics::counter!("maitred_route_updates_total", "answer" => answer).increment(1);
                    Taken::Answered(RawValue::NULL.to_owned())
                }
                Err(error) => Taken::Refused(error),
            },
            MOVED => match hub.keeper(header.key.kind()) {
                Some(keeper) => match keeper.take_over(header.key, header.version).await {
                    Ok(version) => answered(&version),
                    Err(Error::ShuttingDown) => Taken::ShuttingDown,
                    Err(error) => Taken::Refused(CallError::new("not_taken", error.to_string())),
                },
                None => Taken::Refused(CallError::new("not_hosted", "this node hosts no objects of the kind")),
            },
            _ => Taken::Refused(CallError::unknown_method(&call)),
        }
    }
}

fn answered(value: &impl Serialize) -> Taken {
    match to_raw_value(value) {
        Ok(body) => Taken::Answered(body),
        Err(error) => Taken::Refused(CallError::new("bad_answer", error.to_string())),
    }
}

impl Hub {
    async fn receive(self: &Arc<Self>, call: Incoming, header: Header) -> Taken {
        let Some(keeper) = self.keeper(header.key.kind()) else { return Taken::ShuttingDown };
        let mut job = Job {
            key: header.key.clone(),
            method: call.method.clone(),
            body: call.body.clone(),
            origin: call.origin.clone(),
            asked: Asked { version: header.version, hops: call.hops },
            deadline: call.deadline(),
            deaf: None,
        };
        // A second time only where the first owner surely did not get it.
        for _ in 0..2 {
            let served = keeper.serve(job.clone()).await;
            self.answer_origin(&call, &header);
            let (owner, version) = match served {
                Served::Answered(body) => return Taken::Answered(body),
                Served::Refused(error) => return Taken::Refused(error),
                Served::Failed(refusal, detail) => return Taken::Failed(refusal, detail),
                Served::ShuttingDown => return Taken::ShuttingDown,
                Served::Late => return Taken::PassedOn,
                Served::Elsewhere(owner, version) => (owner, version),
            };
            let route = Header { key: header.key.clone(), version }.text();
            match self.post.pass_on(&call, &owner.id, owner.epoch, &route).await {
                Ok(()) => {
                    metrics::counter!("maitred_routes_forwarded_total").increment(1);
                    return Taken::PassedOn;
                }
                Err(Error::NodeOffline(_)) => {
                    if !self.is_available(&owner).await {
                        self.table.forget(&header.key, version);
                    }
                    job.deaf = Some(owner);
                }
                // It may be under way, and its owner answers then.
                Err(Error::Unreachable { .. }) => return Taken::PassedOn,
                Err(error) => return Taken::Failed(RouteRefusal::Again, error.to_string()),
            }
        }
        Taken::Failed(RouteRefusal::Again, "its owner does not listen".to_owned())
    }

    /// Tells the origin of a message of a newer route than the one it sent by (RTE-9). It is told once for each message at
    /// most, and not at all while too many are told.
    fn answer_origin(self: &Arc<Self>, call: &Incoming, header: &Header) {
        let Some(route) = self.table.cached(&header.key) else { return };
        if !origin_is_behind(header.version, route.version, &call.origin, self.lease.id()) {
            return;
        }
        let Some(owner) = route.owner.clone() else { return };
        let Ok(place) = Arc::clone(&self.updates).try_acquire_owned() else { return };
        let (hub, key, version) = (Arc::clone(self), header.key.clone(), route.version);
        let (origin, epoch) = (call.origin.clone(), call.origin_epoch);
        self.tasks.spawn_on(
            async move {
                let _place = place;
                let update = Update { owner: owner.id, owner_epoch: owner.epoch };
                let Ok(body) = to_raw_value(&update) else { return };
                let route = Header { key, version }.text();
                let told = hub.post.send_routed(RoutedCall {
                    node: &origin,
                    epoch,
                    service: ROUTES,
                    method: UPDATE,
                    route: &route,
                    body: &body,
                    deadline: Instant::now() + UPDATE_MAX,
                });
                if let Err(error) = told.await {
                    tracing::debug!(%origin, %error, "could not tell of a newer route");
                }
            },
            &self.runtime,
        );
    }
}
