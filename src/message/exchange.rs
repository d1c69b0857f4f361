use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeId};
use crate::node::{Directory, Lease};
use crate::store::{Store, Verifier};

use super::counts::{Sort, Tally};
use super::failure::{Failure, Outcome, to_reply};
use super::handler::{DynHandler, Incoming};
use super::pending::{Pending, Waiting, random};
use super::post::LISTENERS_ARE_COUNTED;
use super::record::Reply;
use super::services::Services;

/// Bounds of one node's messages.
#[derive(Debug, Clone)]
pub struct MessageOptions {
    /// Longest JSON body sent or answered, in bytes. Default 65,536. The same in the whole fleet: a receiver refuses
    /// what is longer than its own.
    pub max_body_bytes: usize,
    /// Handlers that run at once, those of calls within this process among them; what comes on top of that is answered
    /// `Busy`. Messages to objects have three quarters of them. Default 256, at least 1.
    pub max_concurrent: usize,
    /// Longest wait of a call for its answer, where the caller names none. Default 2 s, 1 ms to 29 s.
    pub call_timeout: Duration,
}

impl Default for MessageOptions {
    fn default() -> Self {
        Self { max_body_bytes: 65_536, max_concurrent: 256, call_timeout: Duration::from_millis(2_000) }
    }
}

/// What [`Post`](super::Post) and [`Inbox`](super::Inbox) of one node share.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) store: Store,
    pub(super) verifier: Verifier,
    pub(super) lease: Lease,
    pub(super) directory: Directory,
    pub(super) services: Services,
    pub(super) options: MessageOptions,
    pub(super) pending: Arc<Pending>,
    pub(super) tally: Tally,
    /// One permit for each handler that runs.
    pub(super) permits: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
    /// No message from other nodes is taken any more.
    pub(super) closing: CancellationToken,
    /// Everything ends.
    pub(super) closed: CancellationToken,
}

/// Where the answer to a call goes.
#[derive(Debug)]
pub(super) struct ReplyTo {
    pub(super) call: String,
    pub(super) node: NodeId,
    pub(super) epoch: Epoch,
    /// The epoch of this node that was asked.
    pub(super) asked_epoch: Epoch,
}

impl Exchange {
    pub(super) fn new(
        store: Store,
        verifier: Verifier,
        lease: Lease,
        directory: Directory,
        services: Services,
        options: MessageOptions,
    ) -> Self {
        let permits = options.max_concurrent.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            store,
            verifier,
            lease,
            directory,
            services,
            options,
            pending: Arc::default(),
            tally: Tally::default(),
            permits: Arc::new(Semaphore::new(permits)),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        }
    }

    /// Lets the caller spawn tasks while it holds the token; `None` once everything has ended. The token is taken
    /// before the check, so that a stop waits for whoever was quicker.
    pub(super) fn enter(&self) -> Option<TaskTrackerToken> {
        let token = self.tasks.token();
        (!self.closed.is_cancelled()).then_some(token)
    }

    /// Publishes to the inbox of `node`, once. Answers how many listened.
    pub(super) async fn publish(&self, node: &NodeId, bytes: &[u8], sort: Sort) -> Result<u64> {
        self.tally.sent(sort);
        self.store.publish(self.store.keys().inbox(node), bytes).await
    }

    /// Publishes a call, once, and waits for its answer. A node that is in a newer epoch and was the only one to hear it is
    /// looked at again.
    pub(super) async fn ask(&self, node: &NodeId, bytes: &[u8], waiting: &mut Waiting) -> Result<Outcome> {
        let alone = match self.publish(node, bytes, Sort::Call).await {
            Ok(0) if LISTENERS_ARE_COUNTED => return Err(Error::NodeOffline(node.clone())),
            Ok(listeners) => LISTENERS_ARE_COUNTED && listeners == 1,
            // It may have arrived, so it must not go out again; the answer, if one comes, tells.
            Err(error @ Error::Unreachable { .. }) => {
                tracing::debug!(%node, %error, "a call may not have been sent");
                false
            }
            Err(error) => return Err(error),
        };
        let outcome = waiting.answer(alone).await?;
        if matches!(outcome, Err(Failure::OldEpoch))
            && let Err(error) = self.directory.read_again(node).await
        {
            tracing::debug!(%node, %error, "could not look at a node in a newer epoch");
        }
        Ok(outcome)
    }

    /// Runs a handler to its end, unless the deadline is over already. A panic ends here.
    pub(super) async fn run(&self, handler: Arc<dyn DynHandler>, incoming: Incoming) -> Outcome {
        // The store's time counts a suspension of this machine too.
        if incoming.remaining().is_zero() || self.store.clock().now_ms() >= incoming.deadline_store_ms {
            self.tally.dropped("expired");
            return Err(Failure::Expired);
        }
        let (service, method) = (incoming.service.clone(), incoming.method.clone());
        let handling = AssertUnwindSafe(async move { handler.handle_boxed(incoming).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = handling => ended,
            () = self.closed.cancelled() => return Err(Failure::cancelled()),
        };
        match ended {
            Ok(Ok(body)) => {
                let (bytes, max_bytes) = (body.get().len(), self.options.max_body_bytes);
                if bytes <= max_bytes { Ok(body) } else { Err(Failure::too_large(bytes, max_bytes)) }
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => {
                tracing::error!(service, method, "a message handler panicked");
                metrics::counter!("maitred_handler_panics_total").increment(1);
                Err(Failure::panicked())
            }
        }
    }

    /// Publishes the answer to a call, once. Nobody can be told where that fails: the caller's timeout says it.
    pub(super) async fn reply(&self, to: &ReplyTo, outcome: Outcome) {
        let (mut status, mut body) = to_reply(outcome);
        let (bytes, max_bytes) = (body.get().len(), self.options.max_body_bytes);
        if bytes > max_bytes {
            (status, body) = to_reply(Err(Failure::too_large(bytes, max_bytes)));
        }
        let epoch = match self.lease.require() {
            Ok(epoch) if epoch == to.asked_epoch => epoch,
            _ => return self.tally.dropped("no_lease"),
        };
        let reply = Reply {
            call: &to.call,
            from: self.lease.id().clone(),
            from_epoch: epoch,
            to: to.node.clone(),
            to_epoch: to.epoch,
            status,
            sent_at_ms: self.store.clock().now_ms(),
            nonce: &random(),
            body: &body,
        };
        let bytes = reply.to_wire(self.verifier.keyring());
        if let Err(error) = self.publish(&to.node, &bytes, Sort::Reply).await {
            tracing::debug!(node = %to.node, %error, "an answer may not have been sent");
            self.tally.dropped("reply_not_sent");
        }
    }
}
