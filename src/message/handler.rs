use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::error::RouteRefusal;
use crate::ids::{Epoch, NodeId};

use super::failure::{Failure, Outcome};

/// A message as a handler gets it: verified, from a member in its present epoch, or from this node itself.
#[derive(Debug)]
pub struct Incoming {
    /// Who wants it done.
    pub origin: NodeId,
    /// The origin's epoch.
    pub origin_epoch: Epoch,
    /// Who sent it: the origin, or a forwarder.
    pub from: NodeId,
    /// The sender's epoch.
    pub from_epoch: Epoch,
    /// The service that was asked.
    pub service: String,
    /// The method.
    pub method: String,
    /// JSON, byte for byte as it was sent.
    pub body: Box<RawValue>,
    /// How often it was forwarded.
    pub hops: u32,
    /// The route it goes by, empty where it names its node.
    pub route: String,
    /// When the caller stops waiting, in store ms.
    pub deadline_store_ms: u64,
    /// Id of the call, empty for a one-way send.
    pub(super) call: String,
    pub(super) nonce: String,
    pub(super) sent_at_ms: u64,
    pub(super) deadline: Instant,
}

impl Incoming {
    /// When the caller stops waiting, on this process's clock. A handler that runs on is not stopped, but its answer
    /// is dropped then.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The time until [`deadline`](Self::deadline); zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// True where somebody waits for an answer.
    pub fn is_call(&self) -> bool {
        !self.call.is_empty()
    }

    /// The body as a `T`. Errors with code `bad_request`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_str(self.body.get()).map_err(|error| CallError::new("bad_request", error.to_string()))
    }
}

/// A handler's own error; the caller gets both texts unchanged in [`Error::Callee`](crate::Error::Callee).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct CallError {
    /// A word for programs, such as `no_place`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

impl CallError {
    /// An error of this code and message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    /// The service has no such method: code `unknown_method`.
    pub fn unknown_method(call: &Incoming) -> Self {
        Self::new("unknown_method", format!("{} has no method {}", call.service, call.method))
    }
}

/// Answers the messages to one service.
///
/// Handlers of one node run concurrently, at most [`MessageOptions::max_concurrent`](super::MessageOptions); one that
/// never ends keeps its place among them. A panic is caught and answered. The future is dropped only when the inbox
/// stops and its grace is over. The answer to a one-way send goes nowhere.
pub trait Handler: Send + Sync + 'static {
    /// Handles one message and answers with JSON or an error of its own.
    fn handle(&self, call: Incoming) -> impl Future<Output = Result<Box<RawValue>, CallError>> + Send;
}

/// [`Handler`] as an object.
pub(super) trait DynHandler: Send + Sync + 'static {
    fn handle_boxed(&self, call: Incoming) -> BoxFuture<'_, Outcome>;
}

impl<H: Handler> DynHandler for H {
    fn handle_boxed(&self, call: Incoming) -> BoxFuture<'_, Outcome> {
        self.handle(call).map(|ended| ended.map_err(Failure::Callee)).boxed()
    }
}

/// How a message that goes by a route ended at this node.
#[derive(Debug)]
pub enum Taken {
    /// Handled; this is the answer.
    Answered(Box<RawValue>),
    /// The handler's own error.
    Refused(CallError),
    /// Not handled, or not to its end, with a sentence for people.
    Failed(RouteRefusal, String),
    /// The node is on its way out; no handler ran.
    ShuttingDown,
    /// As many run as may; no handler ran.
    Busy,
    /// Another node answers: nothing more is said here.
    PassedOn,
}

/// Takes the messages to a service that go by a route, such as those to objects.
pub trait RoutedHandler: Send + Sync + 'static {
    /// Takes one message.
    fn take(&self, call: Incoming) -> impl Future<Output = Taken> + Send;
}

/// A [`RoutedHandler`] as an object.
pub(super) struct Routed<H>(pub(super) H);

impl<H: RoutedHandler> DynHandler for Routed<H> {
    fn handle_boxed(&self, call: Incoming) -> BoxFuture<'_, Outcome> {
        let taking = self.0.take(call).map(|taken| match taken {
            Taken::Answered(body) => Ok(body),
            Taken::Refused(error) => Err(Failure::Callee(error)),
            Taken::Failed(refusal, detail) => Err(Failure::Routed(refusal, detail)),
            Taken::ShuttingDown => Err(Failure::ShuttingDown),
            Taken::Busy => Err(Failure::Busy),
            Taken::PassedOn => Err(Failure::PassedOn),
        });
        taking.boxed()
    }
}

struct FnHandler<F>(F);

impl<F, Fut> Handler for FnHandler<F>
where
    F: Fn(Incoming) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Box<RawValue>, CallError>> + Send + 'static,
{
    fn handle(&self, call: Incoming) -> impl Future<Output = Result<Box<RawValue>, CallError>> + Send {
        (self.0)(call)
    }
}

/// A handler out of a function over raw JSON.
pub fn handler_fn<F, Fut>(handle: F) -> impl Handler
where
    F: Fn(Incoming) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Box<RawValue>, CallError>> + Send + 'static,
{
    FnHandler(handle)
}

struct JsonHandler<F, T> {
    handle: F,
    body: PhantomData<fn(T)>,
}

impl<F, Fut, T, R> Handler for JsonHandler<F, T>
where
    F: Fn(T, Incoming) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, CallError>> + Send + 'static,
    T: DeserializeOwned + Send + 'static,
    R: Serialize + Send + 'static,
{
    async fn handle(&self, call: Incoming) -> Result<Box<RawValue>, CallError> {
        let body = call.json()?;
        let answer = (self.handle)(body, call).await?;
        to_raw_value(&answer).map_err(|error| CallError::new("bad_answer", error.to_string()))
    }
}

/// A handler out of a function over types of serde. A body that is no `T` is answered with code `bad_request`.
///
/// ```
/// use maitred::message::{CallError, Services, json_handler};
///
/// let services = Services::new();
/// let greeter = json_handler(|name: String, _call| async move { Ok::<_, CallError>(format!("hello, {name}")) });
/// let registration = services.register("greeter", greeter)?;
/// assert_eq!(services.published().len(), 1);
/// registration.unregister();
/// assert!(services.published().is_empty());
/// # Ok::<(), maitred::Error>(())
/// ```
pub fn json_handler<F, Fut, T, R>(handle: F) -> impl Handler
where
    F: Fn(T, Incoming) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, CallError>> + Send + 'static,
    T: DeserializeOwned + Send + 'static,
    R: Serialize + Send + 'static,
{
    JsonHandler { handle, body: PhantomData::<fn(T)> }
}

impl fmt::Debug for dyn DynHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}
