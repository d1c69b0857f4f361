use std::fmt;
use std::sync::Arc;

use crate::agent::queue::{End, Listener, News, QueueClient, WaitUpdate, Waiter};
use crate::ids::{LineName, Player, RequestId, SessionId};

/// A request that waits for a place, on the proxy that the player is connected to. Dropped before its end it leaves the line
/// in the background, like a dispatch that is dropped on its way; a transfer that was not read then is released.
///
/// A connection that drops is another thing: [`ProxyAgent::away`](crate::agent::ProxyAgent::away) keeps the sequence for
/// the grace. So does an agent that stops: the wait ends as cancelled, and a dispatch through any proxy takes the sequence up again.
pub struct Waiting {
    queue: Arc<QueueClient>,
    waiter: Arc<Waiter>,
    request: RequestId,
    listener: Listener,
}

impl Waiting {
    pub(super) fn new(queue: &Arc<QueueClient>, waiter: Arc<Waiter>) -> Self {
        let request = waiter.request().map_or_else(RequestId::fresh, |request| request.id.clone());
        let listener = waiter.listen();
        Self { queue: Arc::clone(queue), waiter, request, listener }
    }

    /// Who.
    pub fn player(&self) -> &Player {
        &self.waiter.player
    }

    /// The request.
    pub fn request(&self) -> &RequestId {
        &self.request
    }

    /// The line: `wait`, or `wait.<server>` where a server was asked for by name.
    pub fn line(&self) -> &LineName {
        self.waiter.line_name()
    }

    /// The visit that holds the ticket now.
    pub fn session(&self) -> SessionId {
        self.waiter.session()
    }

    /// 1 for the one who is served next, exact up to 10,000; `None`: more than that.
    pub fn position(&self) -> Option<u64> {
        self.listener.position()
    }

    /// How long it takes at the pace of the last half minute, in ms; `None` where nobody was served in it.
    pub fn estimate_ms(&self) -> Option<u64> {
        self.listener.estimate_ms()
    }

    /// The next update, where one comes: positions about every 3 s, of which only the newest is kept for a slow reader, and
    /// the end. `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<WaitUpdate> {
        Some(match self.listener.next().await? {
            News::Position { position, estimate_ms } => WaitUpdate::Position { position, estimate_ms },
            News::End(End::Transfer(transfer)) => WaitUpdate::Transfer(transfer),
            News::End(End::Refused(refusal)) => WaitUpdate::Refused(refusal),
            // Those are of login lines.
            News::End(End::Admitted(_) | End::Out(_) | End::Left) => return None,
        })
    }

    /// Waits for the end. Cancel safe: the handle is still there.
    pub async fn end(&mut self) -> Option<WaitUpdate> {
        loop {
            match self.next().await? {
                WaitUpdate::Position { .. } => {}
                end => return Some(end),
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.listener.is_over() {
            self.queue.abandon(&self.waiter);
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({} in {}: {:?})", self.player(), self.line(), self.listener)
    }
}
