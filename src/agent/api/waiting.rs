use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::agent::proxy::Proxy;
use crate::agent::wait::{Slot, SlotState, WaitUpdate};
use crate::ids::{LineName, Player, RequestId, SessionId};

/// A request that waits for a place, on the proxy that the player is connected to. Dropped before its end it leaves the line
/// in the background, like a dispatch that is dropped on its way; a transfer that was not read then is released.
///
/// A connection that drops is another thing: [`ProxyAgent::away`](crate::agent::ProxyAgent::away) keeps the place for the
/// grace. So does an agent that stops: the wait ends as cancelled, and a dispatch through any proxy takes the place up again.
pub struct Waiting {
    proxy: Arc<Proxy>,
    slot: Arc<Slot>,
    seen: watch::Receiver<SlotState>,
    told: (Option<u64>, Option<u64>),
    over: bool,
}

impl Waiting {
    pub(super) fn new(proxy: &Arc<Proxy>, slot: Arc<Slot>) -> Self {
        let seen = slot.state.subscribe();
        let told = seen.borrow().place();
        Self { proxy: Arc::clone(proxy), slot, seen, told, over: false }
    }

    /// Who.
    pub fn player(&self) -> &Player {
        &self.slot.request.player
    }

    /// The request.
    pub fn request(&self) -> &RequestId {
        &self.slot.request.id
    }

    /// The line: `wait`, or `wait.<server>` where a server was asked for by name.
    pub fn line(&self) -> &LineName {
        self.slot.line.name()
    }

    /// The visit that holds the ticket now.
    pub fn session(&self) -> SessionId {
        self.slot.visit().session
    }

    /// 1 for the one who is served next, exact up to 10,000; `None`: more than that.
    pub fn position(&self) -> Option<u64> {
        self.seen.borrow().position
    }

    /// How long it takes at the pace of the last half minute, in ms; `None` where nobody was served in it.
    pub fn estimate_ms(&self) -> Option<u64> {
        self.seen.borrow().estimate_ms
    }

    /// The next update, where one comes: positions about every 3 s, of which only the newest is kept for a slow reader, and
    /// the end. `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<WaitUpdate> {
        while !self.over {
            let state = self.seen.borrow_and_update().clone();
            if let Some(end) = state.end {
                self.over = true;
                return Some(end);
            }
            if self.told != state.place() {
                self.told = state.place();
                return Some(WaitUpdate::Position { position: state.position, estimate_ms: state.estimate_ms });
            }
            // The sender lives as long as the slot that is held here.
            self.seen.changed().await.ok()?;
        }
        None
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
        if !self.over {
            self.proxy.abandon(&self.slot);
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({} in {}: {:?})", self.player(), self.line(), *self.seen.borrow())
    }
}
