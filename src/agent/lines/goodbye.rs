//! Players who go, also where nobody waits for the answer: repeated until it is definite, else a place without a player
//! stands in the line.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::agent::core::jitter;
use crate::error::Result;
use crate::ids::{Epoch, NodeEpoch, SessionId};
use crate::queue::{Admission, Attributes, Failed, Left};

use super::desk::Desk;
use super::entry::Departure;
use super::turns::Key;

/// Most of them that are remembered. Those beyond are admitted one day and their places are free again after `arriveMs`.
const REMEMBERED_MAX: usize = 100_000;
/// How many are said at the same time.
const AT_ONCE: usize = 16;
/// Time between two tries.
const AGAIN: Duration = Duration::from_millis(200);

/// One player who goes.
#[derive(Debug, Clone)]
pub(super) struct Goodbye {
    pub key: Key,
    /// That of the ticket.
    pub epoch: Epoch,
    pub what: Going,
}

/// In which way.
#[derive(Debug, Clone)]
pub(super) enum Going {
    /// Out of the line, or of an admission.
    Visit { session: SessionId, departure: Departure },
    /// Admitted, and the connection dropped: back to the place, which is kept for the grace.
    Dropped { admission: Box<Admission>, attributes: Attributes, op: SessionId },
}

#[derive(Debug, Default)]
pub(super) struct Goodbyes {
    waiting: Mutex<VecDeque<Goodbye>>,
    more: Notify,
}

impl Goodbyes {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Goodbye>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves it to the background. Needs no runtime.
    pub fn leave_behind(&self, goodbye: Goodbye) {
        let mut waiting = self.waiting();
        if waiting.len() < REMEMBERED_MAX {
            waiting.push_back(goodbye);
        } else {
            tracing::warn!(line = %goodbye.key.0, player = %goodbye.key.1, "too many players who left; one is forgotten");
        }
        drop(waiting);
        self.more.notify_one();
    }
}

impl Desk {
    /// Says it to the store once, with the store's own repeats.
    pub(super) async fn say(&self, goodbye: &Goodbye) -> Result<Left> {
        let (name, player) = &goodbye.key;
        let line = &self.known_room(name)?.line;
        match &goodbye.what {
            Going::Visit { session, departure } => {
                let holder = NodeEpoch { id: self.core.identity.id.clone(), epoch: goodbye.epoch };
                match departure {
                    Departure::Dropped => line.away(&holder, player, session).await,
                    Departure::Quit => line.leave(&holder, player, session).await,
                }
            }
            Going::Dropped { admission, attributes, op } => {
                let holder = self.core.acting()?;
                Ok(match line.failed(&holder, admission, op, attributes, true).await? {
                    Failed::Back | Failed::Away => Left::Away,
                    Failed::Out => Left::Left,
                    Failed::Late | Failed::Landed => Left::None,
                })
            }
        }
    }
}

/// Says what was left behind.
pub(in crate::agent) async fn run(desk: Arc<Desk>) {
    loop {
        tokio::select! {
            () = desk.core.stop.cancelled() => return,
            () = desk.goodbyes.more.notified() => {}
        }
        loop {
            let all = std::mem::take(&mut *desk.goodbyes.waiting());
            if all.is_empty() {
                break;
            }
            let again = Mutex::new(Vec::new());
            let saying = stream::iter(all).for_each_concurrent(AT_ONCE, |goodbye| {
                let (desk, again) = (&desk, &again);
                async move {
                    match desk.say(&goodbye).await {
                        Ok(left) => tracing::debug!(player = %goodbye.key.1, ?left, "left a line"),
                        Err(error) if error.is_retryable() => {
                            tracing::debug!(player = %goodbye.key.1, %error, "leaving a line again");
                            again.lock().unwrap_or_else(PoisonError::into_inner).push(goodbye);
                        }
                        Err(error) => {
                            tracing::warn!(player = %goodbye.key.1, %error, "could not leave a line");
                        }
                    }
                }
            });
            tokio::select! {
                () = desk.core.stop.cancelled() => return,
                () = saying => {}
            }
            let again = again.into_inner().unwrap_or_else(PoisonError::into_inner);
            if !again.is_empty() {
                desk.goodbyes.waiting().extend(again);
                tokio::select! {
                    () = desk.core.stop.cancelled() => return,
                    () = sleep(jitter(AGAIN)) => {}
                }
            }
        }
    }
}
