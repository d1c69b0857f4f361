//! Messages by a route: the sender names an object, and whoever owns it answers. See `route` for who that is.

use std::fmt;

use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeId};

use super::counts::Sort;
use super::handler::Incoming;
use super::pending::random;
use super::post::{CALL_MAX_MS, LISTENERS_ARE_COUNTED, Post, millis};
use super::record::Message;

/// One message to an object.
#[derive(Clone, Copy)]
pub struct RoutedCall<'a> {
    /// Who is thought to own the object.
    pub node: &'a NodeId,
    /// In which epoch.
    pub epoch: Epoch,
    /// The service that takes it there.
    pub service: &'a str,
    /// The method.
    pub method: &'a str,
    /// The route as the sender knows it.
    pub route: &'a str,
    /// JSON.
    pub body: &'a RawValue,
    /// When the sender stops waiting; less than 30 s from now.
    pub deadline: Instant,
}

impl fmt::Debug for RoutedCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RoutedCall({} {} at {})", self.route, self.method, self.node)
    }
}

impl RoutedCall<'_> {
    fn life_ms(&self) -> u64 {
        millis(self.deadline.saturating_duration_since(Instant::now())).clamp(1, CALL_MAX_MS)
    }
}

impl Post {
    /// Calls an object and waits for the answer of whoever handles the message, until its deadline.
    ///
    /// [`Error::NodeOffline`] and [`Error::ServiceNotFound`] say that no handler ran and none will; other errors are those
    /// of [`call`](Self::call), and [`Error::Routed`]. Cancel safe: dropping the future forgets the call.
    pub async fn call_routed(&self, call: RoutedCall<'_>) -> Result<Box<RawValue>> {
        self.check_parts(call.method, call.body)?;
        let exchange = &self.exchange;
        let timeout_ms = call.life_ms();
        let target = || format!("{}:{}", call.node, call.service);
        let calling = async {
            let waiting = exchange.pending.enter_routed(call.node.clone(), call.epoch);
            let mut waiting = waiting.ok_or_else(|| Error::Busy { target: target() })?;
            let bytes = self.sign_routed(&call, &waiting.call)?;
            let outcome = exchange.ask(call.node, &bytes, &mut waiting).await?;
            outcome.map_err(|failure| failure.into_error(call.node, call.service, timeout_ms))
        };
        tokio::select! {
            biased;
            ended = timeout_at(call.deadline, calling) => {
                ended.unwrap_or_else(|_| Err(Error::Timeout { target: target(), timeout_ms }))
            }
            () = exchange.closed.cancelled() => Err(Error::ShuttingDown),
        }
    }

    /// Sends to an object one way. `Ok` says that somebody listened, not that a handler ran. Errors as those of
    /// [`send`](Self::send).
    pub async fn send_routed(&self, call: RoutedCall<'_>) -> Result<()> {
        self.check_parts(call.method, call.body)?;
        let bytes = self.sign_routed(&call, "")?;
        match self.exchange.publish(call.node, &bytes, Sort::Send).await? {
            0 if LISTENERS_ARE_COUNTED => Err(Error::NodeOffline(call.node.clone())),
            _ => Ok(()),
        }
    }

    fn sign_routed(&self, call: &RoutedCall<'_>, id: &str) -> Result<Vec<u8>> {
        let exchange = &self.exchange;
        let epoch = exchange.lease.require()?;
        let sent_at_ms = exchange.store.clock().now_ms();
        let message = Message {
            origin: exchange.lease.id().clone(),
            origin_epoch: epoch,
            from: exchange.lease.id().clone(),
            from_epoch: epoch,
            to: call.node.clone(),
            to_epoch: call.epoch,
            service: call.service,
            method: call.method,
            call: id,
            hops: 0,
            route: call.route,
            sent_at_ms,
            nonce: &random(),
            deadline_ms: sent_at_ms.saturating_add(call.life_ms()),
            body: call.body,
        };
        Ok(message.to_wire(exchange.verifier.keyring()))
    }

    /// Passes a message on to `node` in `epoch`, once, under `route`: signed by this node, with one hop more, and else as
    /// its origin sent it. Whoever handles it answers the origin.
    ///
    /// Errors with [`Error::NodeOffline`] where nobody listens, so that it may be passed on elsewhere, and with
    /// [`Error::Unreachable`] where it is not known whether it went out: then it must not be sent again.
    pub async fn pass_on(&self, incoming: &Incoming, node: &NodeId, epoch: Epoch, route: &str) -> Result<()> {
        let exchange = &self.exchange;
        let message = Message {
            origin: incoming.origin.clone(),
            origin_epoch: incoming.origin_epoch,
            from: exchange.lease.id().clone(),
            from_epoch: exchange.lease.require()?,
            to: node.clone(),
            to_epoch: epoch,
            service: &incoming.service,
            method: &incoming.method,
            call: &incoming.call,
            hops: incoming.hops.saturating_add(1),
            route,
            sent_at_ms: incoming.sent_at_ms,
            nonce: &incoming.nonce,
            deadline_ms: incoming.deadline_store_ms,
            body: &incoming.body,
        };
        let bytes = message.to_wire(exchange.verifier.keyring());
        let sort = if incoming.is_call() { Sort::Call } else { Sort::Send };
        match exchange.publish(node, &bytes, sort).await? {
            0 if LISTENERS_ARE_COUNTED => Err(Error::NodeOffline(node.clone())),
            _ => Ok(()),
        }
    }
}
