use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::envelope::{AuditReason, Kind, REPLAY_WINDOW_MS, ReplayWindow};
use crate::error::Error;
use crate::ids::{Epoch, NodeId};

use super::counts::Sort;
use super::exchange::{Exchange, ReplyTo};
use super::failure::{Failure, from_reply};
use super::handler::Incoming;
use super::pending::Settled;
use super::post::Post;
use super::record::{HEAD_MAX_BYTES, Message, Reply};

/// Messages that are remembered so that none is taken twice; more of them in 30 s cost late ones, never safety.
const REPLAY_CAPACITY: usize = 65_536;
/// Messages of senders that are not in view that may wait for the read of their rows.
const LOOKUPS_MAX: usize = 1_024;
/// Refusals (`Busy` and the like) that may be on their way at once; a caller beyond that learns it by its timeout.
const REFUSALS_MAX: usize = 4_096;

/// Where this node's inbox is named in the audit.
const SOURCE: &str = "inbox";

/// What arrives on this node's inbox channel: verified, taken at most once, and handed to handlers or to the calls that
/// wait. Cheap to clone; clones are one inbox.
///
/// Nothing that arrives makes it wait: signature, addressee, replay and the number of handlers are checked in place, the read of
/// an unknown sender's row and the handlers are tasks of their own, each sort of them bounded.
#[derive(Clone)]
pub struct Inbox {
    inner: Arc<Inner>,
}

struct Inner {
    exchange: Arc<Exchange>,
    replay: Mutex<ReplayWindow>,
    lookups: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

/// A message that was taken, free of the bytes it came in.
#[derive(Debug)]
struct Work {
    incoming: Incoming,
    /// `None` for a one-way send.
    reply_to: Option<ReplyTo>,
}

impl Inbox {
    /// The inbox of the node that `post` is of.
    pub fn new(post: &Post) -> Self {
        let inner = Inner {
            exchange: Arc::clone(&post.exchange),
            replay: Mutex::new(ReplayWindow::new(REPLAY_WINDOW_MS, REPLAY_CAPACITY)),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes one payload of the inbox channel and returns at once. What is not believed is dropped, counted and audited.
    /// Needs a tokio runtime.
    pub fn take(&self, bytes: Vec<u8>) {
        let exchange = &self.inner.exchange;
        // Held until everything is spawned that this payload leads to.
        let Some(_token) = exchange.enter() else { return };
        let max_bytes = exchange.options.max_body_bytes.saturating_add(HEAD_MAX_BYTES);
        let wire = match exchange.verifier.wire(&bytes, max_bytes, SOURCE) {
            Ok(wire) => wire,
            Err(Error::Untrusted { reason, .. }) => return exchange.tally.dropped(reason),
            Err(_) => return exchange.tally.dropped(AuditReason::Malformed.as_str()),
        };
        match wire.kind {
            Kind::Message => match Message::from_fields(&wire.fields) {
                Some(message) => Inner::take_message(&self.inner, message),
                None => self.inner.refuse(AuditReason::Malformed, SOURCE),
            },
            Kind::Reply => match Reply::from_fields(&wire.fields) {
                Some(reply) => self.inner.take_reply(&reply),
                None => self.inner.refuse(AuditReason::Malformed, SOURCE),
            },
            _ => self.inner.refuse(AuditReason::Malformed, SOURCE),
        }
    }

    /// Stops: messages of other nodes are refused from now on, handlers that run get `grace` to end and are dropped
    /// then, and every call that still waits ends with [`Error::ShuttingDown`]. Comes back when no task is left. Call it
    /// while the lease is held, or the last answers cannot be signed. Safe to repeat; if the future is dropped, call it
    /// again.
    pub async fn stop(&self, grace: Duration) {
        let exchange = &self.inner.exchange;
        exchange.closing.cancel();
        exchange.tasks.close();
        if timeout(grace, exchange.tasks.wait()).await.is_err() {
            tracing::warn!(left = exchange.tasks.len(), "message handlers did not end within their grace");
        }
        exchange.closed.cancel();
        exchange.tasks.wait().await;
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({})", self.inner.exchange.lease.id())
    }
}

impl Inner {
    fn refuse(&self, reason: AuditReason, source: &str) {
        self.exchange.verifier.audit().drop(reason, source, SOURCE);
        self.exchange.tally.dropped(reason.as_str());
    }

    /// True where this node is meant, in its present epoch.
    fn is_for_me(&self, to: &NodeId, epoch: Epoch, from: &NodeId) -> bool {
        let lease = &self.exchange.lease;
        if to != lease.id() {
            self.refuse(AuditReason::WrongKey, from.as_str());
            return false;
        }
        if epoch != lease.epoch() {
            self.refuse(AuditReason::OldEpoch, from.as_str());
            return false;
        }
        true
    }

    fn take_reply(&self, reply: &Reply<'_>) {
        let exchange = &self.exchange;
        if !self.is_for_me(&reply.to, reply.to_epoch, &reply.from) {
            return;
        }
        if exchange.store.clock().now_ms().abs_diff(reply.sent_at_ms) > REPLAY_WINDOW_MS {
            return self.refuse(AuditReason::Stale, reply.from.as_str());
        }
        let outcome = from_reply(reply.status, reply.body);
        match exchange.pending.settle(reply.call, &reply.from, reply.from_epoch, outcome) {
            Settled::Delivered => exchange.tally.received(Sort::Reply),
            Settled::Late => exchange.tally.late(),
            Settled::WrongNode => self.refuse(AuditReason::UnknownSender, reply.from.as_str()),
            Settled::WrongEpoch => self.refuse(AuditReason::OldEpoch, reply.from.as_str()),
        }
    }

    /// The order of MSG-4. The signature was checked before.
    fn take_message(inner: &Arc<Self>, message: Message<'_>) {
        let exchange = &inner.exchange;
        let now_ms = exchange.store.clock().now_ms();
        if !inner.is_for_me(&message.to, message.to_epoch, &message.from) {
            return inner.disown(&message, now_ms);
        }
        let seen = {
            let mut replay = inner.replay.lock().unwrap_or_else(PoisonError::into_inner);
            // The nonce is the origin's: the same message over two forwarders is one message.
            let nonce = format!("{} {}", message.nonce, message.hops);
            replay.check(message.origin.as_str(), &nonce, message.sent_at_ms, now_ms)
        };
        if let Err(refusal) = seen {
            return inner.refuse(AuditReason::from(refusal), message.from.as_str());
        }
        if !exchange.lease.is_valid() {
            return exchange.tally.dropped("no_lease");
        }
        let left_ms = message.deadline_ms.saturating_sub(now_ms);
        if left_ms == 0 {
            return exchange.tally.dropped("expired");
        }
        let work = Work::new(&message, Instant::now() + Duration::from_millis(left_ms));
        match exchange.directory.epoch_of(&message.from) {
            Some(known) if known == message.from_epoch => inner.dispatch(work),
            Some(known) if known > message.from_epoch => inner.refuse(AuditReason::OldEpoch, message.from.as_str()),
            _ => Self::read_sender(inner, work),
        }
    }

    /// Tells whoever calls a former epoch of this node that it is over: else only its timeout would. What was sent before
    /// this epoch began the former one may have taken. What was forwarded may have reached more than this process, which
    /// its origin cannot know.
    fn disown(&self, message: &Message<'_>, now_ms: u64) {
        let lease = &self.exchange.lease;
        let epoch = lease.epoch();
        let is_present = now_ms.abs_diff(message.sent_at_ms) <= REPLAY_WINDOW_MS && now_ms < message.deadline_ms;
        if message.to != *lease.id() || message.to_epoch >= epoch || message.sent_at_ms <= epoch.0 || !is_present {
            return;
        }
        if message.is_call() && message.hops == 0 {
            self.decline(Some(ReplyTo { asked_epoch: epoch, ..ReplyTo::of(message) }), Failure::OldEpoch);
        }
    }

    /// Reads the sender's row before anything else happens.
    fn read_sender(inner: &Arc<Self>, work: Work) {
        let Ok(place) = Arc::clone(&inner.lookups).try_acquire_owned() else {
            return inner.exchange.tally.dropped("lookups_full");
        };
        let this = Arc::clone(inner);
        inner.exchange.tasks.spawn(async move {
            let (from, epoch) = (work.incoming.from.clone(), work.incoming.from_epoch);
            let directory = &this.exchange.directory;
            let known = directory.is_current(&from, epoch).await;
            drop(place);
            match known {
                Ok(true) => this.dispatch(work),
                Ok(false) => {
                    let was_there = directory.epoch_of(&from).is_some();
                    let reason = if was_there { AuditReason::OldEpoch } else { AuditReason::UnknownSender };
                    this.refuse(reason, from.as_str());
                }
                Err(error) => {
                    tracing::debug!(%from, %error, "could not look a sender up");
                    this.exchange.tally.dropped("lookup_failed");
                }
            }
        });
    }

    /// Gives a believed message to its handler, if it may run one more.
    fn dispatch(&self, work: Work) {
        let exchange = &self.exchange;
        exchange.tally.received(if work.reply_to.is_some() { Sort::Call } else { Sort::Send });
        if exchange.closing.is_cancelled() {
            return self.decline(work.reply_to, Failure::ShuttingDown);
        }
        let Some(handler) = exchange.services.published_handler(&work.incoming.service) else {
            return self.decline(work.reply_to, Failure::ServiceNotFound);
        };
        let Ok(permit) = Arc::clone(&exchange.permits).try_acquire_owned() else {
            exchange.tally.busy();
            return self.decline(work.reply_to, Failure::Busy);
        };
        let shared = Arc::clone(exchange);
        exchange.tasks.spawn(async move {
            let _permit = permit;
            let outcome = shared.run(handler, work.incoming).await;
            // Nobody waits for an answer after the deadline, and what was passed on is answered elsewhere.
            if let Some(to) = work.reply_to
                && !matches!(outcome, Err(Failure::Expired | Failure::PassedOn))
            {
                shared.reply(&to, outcome).await;
            }
        });
    }

    /// Tells a caller why no handler runs for it. The sender of a one-way message is told nothing.
    fn decline(&self, reply_to: Option<ReplyTo>, failure: Failure) {
        let exchange = &self.exchange;
        let Some(to) = reply_to else {
            return exchange.tally.dropped(failure.status());
        };
        let Ok(place) = Arc::clone(&self.refusals).try_acquire_owned() else {
            return exchange.tally.dropped("refusals_full");
        };
        let shared = Arc::clone(exchange);
        exchange.tasks.spawn(async move {
            let _place = place;
            shared.reply(&to, Err(failure)).await;
        });
    }
}

impl ReplyTo {
    fn of(message: &Message<'_>) -> Self {
        Self {
            call: message.call.to_owned(),
            node: message.origin.clone(),
            epoch: message.origin_epoch,
            asked_epoch: message.to_epoch,
        }
    }
}

impl Work {
    fn new(message: &Message<'_>, deadline: Instant) -> Self {
        let reply_to = message.is_call().then(|| ReplyTo::of(message));
        let incoming = Incoming {
            origin: message.origin.clone(),
            origin_epoch: message.origin_epoch,
            from: message.from.clone(),
            from_epoch: message.from_epoch,
            service: message.service.to_owned(),
            method: message.method.to_owned(),
            body: message.body.to_owned(),
            hops: message.hops,
            route: message.route.to_owned(),
            call: message.call.to_owned(),
            nonce: message.nonce.to_owned(),
            sent_at_ms: message.sent_at_ms,
            deadline_store_ms: message.deadline_ms,
            deadline,
        };
        Self { incoming, reply_to }
    }
}
