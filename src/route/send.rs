//! Messages to objects, as this node sends them.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::error::{Error, Result, RouteRefusal};
use crate::ids::{NodeEpoch, ObjectKey};
use crate::message::RoutedCall;

use super::forward::Asked;
use super::hub::{Hub, service_of};
use super::keeper::{Job, Served, not_from_within};
use super::record::{Header, RouteVersion};

/// How often one message is sent.
const SENDS_MAX: usize = 2;

/// Where a message goes.
struct Aim {
    owner: NodeEpoch,
    version: RouteVersion,
}

/// A message that this node sends.
pub(super) struct Order<'a> {
    pub key: &'a ObjectKey,
    pub method: &'a str,
    pub body: &'a RawValue,
    pub deadline: Instant,
    /// The time until then, when it was given.
    pub timeout_ms: u64,
    /// False for a one-way send.
    pub is_call: bool,
}

impl Hub {
    /// RTE-7. A message goes out a second time only where the first surely did not arrive.
    pub async fn dispatch(self: &Arc<Self>, order: Order<'_>) -> Result<Box<RawValue>> {
        let mut deaf: Option<NodeEpoch> = None;
        let mut sends = 0;
        loop {
            let aim = self.aim(&order, deaf.as_ref()).await?;
            let aim = if self.is_here(order.key, &aim.owner) {
                match self.here(&order, &aim, deaf.as_ref()).await? {
                    Ok(body) => return Ok(body),
                    Err(elsewhere) => elsewhere,
                }
            } else {
                aim
            };
            let header = Header { key: order.key.clone(), version: aim.version }.text();
            let call = RoutedCall {
                node: &aim.owner.id,
                epoch: aim.owner.epoch,
                service: &service_of(order.key.kind()),
                method: order.method,
                route: &header,
                body: order.body,
                deadline: order.deadline,
            };
            let sent = if order.is_call {
                self.post.call_routed(call).await
            } else {
                self.post.send_routed(call).await.map(|()| RawValue::NULL.to_owned())
            };
            sends += 1;
            match sent {
                Err(error @ (Error::NodeOffline(_) | Error::ServiceNotFound { .. })) => {
                    if !self.is_available(&aim.owner).await {
                        self.table.forget(order.key, aim.version);
                    }
                    if sends >= SENDS_MAX || Instant::now() >= order.deadline {
                        return Err(error);
                    }
                    deaf = Some(aim.owner);
                }
                Err(Error::Routed { refusal, detail, .. }) => {
                    return Err(Error::Routed { object: order.key.to_string(), refusal, detail });
                }
                ended => return ended,
            }
        }
    }

    /// The owner, else the default place.
    async fn aim(&self, order: &Order<'_>, deaf: Option<&NodeEpoch>) -> Result<Aim> {
        let key = order.key;
        let mut route = self.table.lookup(key).await?;
        let mut fresh = false;
        loop {
            let version = route.as_ref().map_or(RouteVersion::NONE, |route| route.version);
            if let Some(owner) = route.as_ref().and_then(|route| route.owner.clone())
                && Some(&owner) != deaf
                && self.is_available(&owner).await
            {
                return Ok(Aim { owner, version });
            }
            if !std::mem::replace(&mut fresh, true) {
                route = self.table.read(key).await?;
                continue;
            }
            let refused = |detail: &str| Error::Routed {
                object: key.to_string(),
                refusal: RouteRefusal::NoOwner,
                detail: detail.to_owned(),
            };
            if !self.is_on_demand(key.kind()) {
                return Err(refused("nobody owns it, and its kind is not taken over on demand"));
            }
            let owner = self.default_place(key, deaf).ok_or_else(|| refused("no node that is ready hosts its kind"))?;
            return Ok(Aim { owner, version });
        }
    }

    /// True where this node's keeper has a say: it owns the object or is to, or somebody is at it.
    fn is_here(&self, key: &ObjectKey, owner: &NodeEpoch) -> bool {
        let hosted = self.keeper(key.kind());
        hosted.is_some_and(|keeper| owner.id == *self.lease.id() || keeper.has_place(key))
    }

    /// Gives the message to this node's keeper. The inner `Err` says where to send it instead.
    async fn here(
        &self,
        order: &Order<'_>,
        aim: &Aim,
        deaf: Option<&NodeEpoch>,
    ) -> Result<std::result::Result<Box<RawValue>, Aim>> {
        let Some(keeper) = self.keeper(order.key.kind()) else { return Err(Error::ShuttingDown) };
        not_from_within(order.key)?;
        let job = Job {
            key: order.key.clone(),
            method: order.method.to_owned(),
            body: order.body.to_owned(),
            origin: self.lease.id().clone(),
            asked: Asked { version: aim.version, hops: 0 },
            deadline: order.deadline,
            deaf: deaf.cloned(),
        };
        let target = || format!("{}:{}", self.lease.id(), service_of(order.key.kind()));
        match tokio::time::timeout_at(order.deadline, keeper.serve(job)).await.unwrap_or(Served::Late) {
            Served::Answered(body) => Ok(Ok(body)),
            Served::Elsewhere(owner, version) => Ok(Err(Aim { owner, version })),
            Served::Refused(error) => Err(Error::Callee { target: target(), code: error.code, message: error.message }),
            Served::Failed(refusal, detail) => Err(Error::Routed { object: order.key.to_string(), refusal, detail }),
            Served::ShuttingDown => Err(Error::ShuttingDown),
            Served::Late => Err(Error::Timeout { target: target(), timeout_ms: order.timeout_ms }),
        }
    }
}
