use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tracing::Span;
use tracing::field::{Empty, display};

use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeId, ServiceName};
use crate::node::{Directory, Lease};
use crate::store::{Store, Verifier};

use super::counts::{MessageCounts, Sort};
use super::exchange::{Exchange, MessageOptions};
use super::failure::Outcome;
use super::handler::{DynHandler, Incoming};
use super::pending::random;
use super::record::Message;
use super::resolve::{Target, Way};
use super::services::{SERVICE_MAX_BYTES, Services, is_service_text};

/// Longest timeout of a call, in ms: below the replay window, so that no deadline outlives it.
pub const CALL_MAX_MS: u64 = 29_000;

/// True where the number that PUBLISH answers says how many listened. It says nothing on a Cluster.
pub(super) const LISTENERS_ARE_COUNTED: bool = true;

/// Sends messages and calls services, at this node and at others. Cheap to clone.
///
/// A message to another node costs one PUBLISH and is never published again, whatever became of the first time: nothing
/// is delivered twice. It is signed under this node's lease, so without one it fails with [`Error::LeaseLost`]; calls
/// within this process need none.
#[derive(Debug, Clone)]
pub struct Post {
    pub(super) exchange: Arc<Exchange>,
}

/// How long one call waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub deadline: Instant,
    pub timeout_ms: u64,
}

impl Post {
    /// The post of the node that `lease` is of. Its inbox is [`Inbox::new`](super::Inbox::new).
    pub fn new(
        store: Store,
        verifier: Verifier,
        lease: Lease,
        directory: Directory,
        services: Services,
        options: MessageOptions,
    ) -> Self {
        Self { exchange: Arc::new(Exchange::new(store, verifier, lease, directory, services, options)) }
    }

    /// What became of this process's messages so far.
    pub fn counts(&self) -> MessageCounts {
        self.exchange.tally.read()
    }

    /// Calls that wait for an answer of another node now.
    pub fn pending_calls(&self) -> usize {
        self.exchange.pending.len()
    }

    /// Until when a call waits that is made now. Errors with [`Error::OutOfBounds`] beyond 1 ms to 29 s.
    pub(crate) fn bound(&self, timeout: Option<Duration>) -> Result<Bound> {
        let timeout = timeout.unwrap_or(self.exchange.options.call_timeout);
        Ok(Bound { deadline: Instant::now() + timeout, timeout_ms: timeout_ms(timeout)? })
    }

    /// Handlers that this node runs at once.
    pub(crate) fn max_concurrent(&self) -> usize {
        self.exchange.options.max_concurrent
    }

    /// The services of this node.
    pub fn services(&self) -> &Services {
        &self.exchange.services
    }

    /// Sends `body` one way. `Ok` says that somebody listened on the node's inbox, not that a handler ran.
    ///
    /// Errors: those of the target ([`Error::NodeNotFound`], [`Error::NodeSuspect`], [`Error::NodeOffline`],
    /// [`Error::NodeRemoved`], [`Error::ServiceNotFound`], [`Error::StaleReference`], [`Error::InvalidId`]);
    /// [`Error::BodyTooLarge`], [`Error::LeaseLost`], [`Error::ShuttingDown`], [`Error::OutOfBounds`];
    /// [`Error::Unreachable`] where it is not known whether it was sent. Cancel safe: a dropped send may have happened.
    pub async fn send<'a, B: Serialize + ?Sized>(
        &self,
        target: impl Into<Target<'a>>,
        method: &str,
        body: &B,
    ) -> Result<()> {
        self.send_raw(target, method, &raw(body)?).await
    }

    /// [`send`](Self::send) of JSON that is at hand.
    pub async fn send_raw<'a>(&self, target: impl Into<Target<'a>>, method: &str, body: &RawValue) -> Result<()> {
        let deadline = Instant::now() + Duration::from_millis(CALL_MAX_MS);
        let request = Request { target: target.into(), method, body, deadline };
        let exchange = &self.exchange;
        self.check(&request)?;
        match exchange.resolve(request.target).await? {
            Way::Here { service, handler } => self.run_here(&request, service, handler, |_| ()),
            Way::There { node, epoch, service } => {
                let bytes = self.sign(&request, "", &node, epoch, &service)?;
                match exchange.publish(&node, &bytes, Sort::Send).await? {
                    0 if LISTENERS_ARE_COUNTED => Err(Error::NodeOffline(node)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Calls a service and waits for its answer, at most `timeout` (1 ms to 29 s; `None`:
    /// [`MessageOptions::call_timeout`]), resolving the target included.
    ///
    /// Errors: those of [`send`](Self::send) but `Unreachable` of the publish; [`Error::Busy`],
    /// [`Error::Callee`] (the handler's own error, unchanged, or one of the codes [`INTERNAL`](super::INTERNAL),
    /// [`REPLY_TOO_LARGE`](super::REPLY_TOO_LARGE), [`CANCELLED`](super::CANCELLED)), and [`Error::Timeout`], after which
    /// it is not known whether the handler ran. Where it is not known whether the message was published the call waits
    /// for its answer all the same.
    ///
    /// Cancel safe: dropping the future forgets the call, and its handler may still run.
    pub async fn call<'a, B: Serialize + ?Sized>(
        &self,
        target: impl Into<Target<'a>>,
        method: &str,
        body: &B,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Box<RawValue>> {
        self.call_raw(target, method, &raw(body)?, timeout).await
    }

    /// [`call`](Self::call), with the answer as a `T`. Errors also with [`Error::Protocol`] where it is none.
    pub async fn call_json<'a, T: DeserializeOwned, B: Serialize + ?Sized>(
        &self,
        target: impl Into<Target<'a>>,
        method: &str,
        body: &B,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<T> {
        let answer = self.call(target, method, body, timeout).await?;
        serde_json::from_str(answer.get())
            .map_err(|error| Error::Protocol { during: "a call", detail: error.to_string() })
    }

    /// [`call`](Self::call) with JSON that is at hand.
    #[tracing::instrument(level = "debug", name = "call", skip_all, fields(to = Empty, method = method))]
    pub async fn call_raw<'a>(
        &self,
        target: impl Into<Target<'a>>,
        method: &str,
        body: &RawValue,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Box<RawValue>> {
        let Bound { deadline, timeout_ms } = self.bound(timeout.into())?;
        let request = Request { target: target.into(), method, body, deadline };
        Span::current().record("to", display(&request.target));
        self.check(&request)?;
        let calling = async {
            match self.exchange.resolve(request.target).await? {
                Way::Here { service, handler } => self.call_here(&request, service, handler).await,
                Way::There { node, epoch, service } => self.call_there(&request, node, epoch, service).await,
            }
        };
        tokio::select! {
            biased;
            ended = timeout_at(deadline, calling) => {
                ended.unwrap_or_else(|_| Err(Error::Timeout { target: request.target.to_string(), timeout_ms }))
            }
            () = self.exchange.closed.cancelled() => Err(Error::ShuttingDown),
        }
    }

    async fn call_here(
        &self,
        request: &Request<'_>,
        service: String,
        handler: Arc<dyn DynHandler>,
    ) -> Result<Box<RawValue>> {
        let (sender, answer) = oneshot::channel();
        self.run_here(request, service.clone(), handler, |outcome| {
            // A caller that is gone wants no answer.
            let _ = sender.send(outcome);
        })?;
        let outcome = answer.await.map_err(|_| Error::ShuttingDown)?;
        outcome.map_err(|failure| failure.into_error(self.exchange.lease.id(), &service, request.life_ms()))
    }

    async fn call_there(
        &self,
        request: &Request<'_>,
        node: NodeId,
        epoch: Epoch,
        service: ServiceName,
    ) -> Result<Box<RawValue>> {
        let exchange = &self.exchange;
        let busy = || Error::Busy { target: request.target.to_string() };
        let mut waiting = exchange.pending.enter(node.clone(), epoch).ok_or_else(busy)?;
        let bytes = self.sign(request, &waiting.call, &node, epoch, &service)?;
        let outcome = exchange.ask(&node, &bytes, &mut waiting).await?;
        outcome.map_err(|failure| failure.into_error(&node, service.as_str(), request.life_ms()))
    }

    /// Starts a handler of this process, in a task of its own: dropping a call does not stop a handler half-way.
    fn run_here(
        &self,
        request: &Request<'_>,
        service: String,
        handler: Arc<dyn DynHandler>,
        answer: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<()> {
        let exchange = &self.exchange;
        let _token = exchange.enter().ok_or(Error::ShuttingDown)?;
        let permit = Arc::clone(&exchange.permits).try_acquire_owned().map_err(|_| {
            exchange.tally.busy();
            Error::Busy { target: request.target.to_string() }
        })?;
        let (id, epoch) = (exchange.lease.id(), exchange.lease.epoch());
        let incoming = Incoming {
            origin: id.clone(),
            origin_epoch: epoch,
            from: id.clone(),
            from_epoch: epoch,
            service,
            method: request.method.to_owned(),
            body: request.body.to_owned(),
            hops: 0,
            route: String::new(),
            call: String::new(),
            nonce: String::new(),
            sent_at_ms: exchange.store.clock().now_ms(),
            deadline_store_ms: exchange.store.clock().now_ms().saturating_add(request.life_ms()),
            deadline: request.deadline,
        };
        let shared = Arc::clone(exchange);
        exchange.tasks.spawn(async move {
            let outcome = shared.run(handler, incoming).await;
            drop(permit);
            answer(outcome);
        });
        Ok(())
    }

    fn check(&self, request: &Request<'_>) -> Result<()> {
        self.check_parts(request.method, request.body)
    }

    /// What is refused before anything happens.
    pub(super) fn check_parts(&self, method: &str, body: &RawValue) -> Result<()> {
        if self.exchange.closed.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        if !is_service_text(method) {
            return Err(Error::OutOfBounds {
                what: "method",
                problem: format!("{method:?} is not 1 to {SERVICE_MAX_BYTES} characters of A-Z a-z 0-9 . _ : -"),
            });
        }
        let (bytes, max_bytes) = (body.get().len(), self.exchange.options.max_body_bytes);
        if bytes > max_bytes { Err(Error::BodyTooLarge { bytes, max_bytes }) } else { Ok(()) }
    }

    /// The message that asks `service` of `to`, under the lease of now; `call` is empty for a one-way send.
    fn sign(
        &self,
        request: &Request<'_>,
        call: &str,
        to: &NodeId,
        to_epoch: Epoch,
        service: &ServiceName,
    ) -> Result<Vec<u8>> {
        let exchange = &self.exchange;
        let epoch = exchange.lease.require()?;
        let id = exchange.lease.id();
        let sent_at_ms = exchange.store.clock().now_ms();
        let message = Message {
            origin: id.clone(),
            origin_epoch: epoch,
            from: id.clone(),
            from_epoch: epoch,
            to: to.clone(),
            to_epoch,
            service: service.as_str(),
            method: request.method,
            call,
            hops: 0,
            route: "",
            sent_at_ms,
            nonce: &random(),
            deadline_ms: sent_at_ms.saturating_add(request.life_ms()),
            body: request.body,
        };
        Ok(message.to_wire(exchange.verifier.keyring()))
    }
}

/// What somebody wants done.
struct Request<'a> {
    target: Target<'a>,
    method: &'a str,
    body: &'a RawValue,
    deadline: Instant,
}

impl Request<'_> {
    /// What is left until the deadline, in ms; at least 1, because a message that lives no time at all is none.
    fn life_ms(&self) -> u64 {
        millis(self.deadline.saturating_duration_since(Instant::now())).max(1)
    }
}

pub(super) fn raw<B: Serialize + ?Sized>(body: &B) -> Result<Box<RawValue>> {
    to_raw_value(body).map_err(|error| Error::OutOfBounds { what: "body", problem: error.to_string() })
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn timeout_ms(timeout: Duration) -> Result<u64> {
    let bounds = Duration::from_millis(1)..=Duration::from_millis(CALL_MAX_MS);
    if bounds.contains(&timeout) {
        return Ok(millis(timeout));
    }
    Err(Error::OutOfBounds {
        what: "timeout",
        problem: format!("{} ms; allowed are 1 to {CALL_MAX_MS} ms", timeout.as_millis()),
    })
}
