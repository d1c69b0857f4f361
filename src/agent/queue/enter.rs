//! The way into a line. What is on its way and dropped is undone in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Result;
use crate::queue::{Destination, Entered};

use super::client::{QueueClient, Why};
use super::entry::Admitted;
use super::leaves::{LeaveKind, LeaveRequest};
use super::reconcile::Cause;
use super::told::End;
use super::waiter::{Ending, Moment, Waiter};

/// An enter that took so long may have been sent more than once.
const REPEATED_AFTER: Duration = Duration::from_millis(5);

/// How an enter ended.
pub(super) enum Entrance {
    /// The player waits, or the turn has come already: the waiter knows.
    Waits,
    Admitted(Box<Admitted>),
    /// A pass was written for a line that gives none.
    NoPass,
    Full,
    /// Somebody ended it meanwhile, and sees to what is left of it.
    Over,
}

/// An enter under way: dropped before it is definite, it is undone.
struct Entering<'a> {
    client: &'a QueueClient,
    waiter: &'a Arc<Waiter>,
    /// The player's earlier one, whose place this one takes over.
    earlier: Option<Arc<Waiter>>,
    /// How the player leaves where it is not definite.
    kind: LeaveKind,
    is_definite: bool,
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        // The tickets of an agent that stops are kept for the grace.
        let goes = !self.client.core.stop.is_cancelled();
        if !self.is_definite && self.client.end(self.waiter, End::Left) && goes {
            self.client.leaves.leave_behind(LeaveRequest::Waiter(Arc::clone(self.waiter), self.kind));
        }
        let Some(earlier) = self.earlier.take().filter(|_| goes) else { return };
        match earlier.ending {
            // Its ticket may still be there; or its turn had come, and it has a token.
            Ending::Token(_) => self.client.leaves.leave_behind(LeaveRequest::Waiter(earlier, LeaveKind::Quit)),
            // Which of the two holds the ticket is not known.
            Ending::Pass(_) if !self.is_definite => {
                let held = earlier.held();
                self.client.leave_ticket(&earlier, &held, held.session.clone(), self.kind);
            }
            Ending::Pass(_) => {}
        }
    }
}

impl QueueClient {
    /// Puts a player into a line, in the order in which that is asked for: an earlier one of the player here ends. An error
    /// leaves the place to be kept for the grace, for a pass; a request leaves nothing.
    pub(super) async fn enter(&self, waiter: &Arc<Waiter>, offer: Option<&Destination>) -> Result<Entrance> {
        let turn = self.turns.lock(&waiter.key()).await;
        let me = self.core.acting()?;
        if waiter.is_over() {
            return Ok(Entrance::Over);
        }
        // Known before the ticket stands, so that no event about it is missed.
        let earlier = self.table().insert(waiter);
        if let Some(earlier) = &earlier {
            let why = "another request of the player has its place in the line";
            self.refuse(earlier, Why::Replaced(why));
        }
        let mut entering = Entering { client: self, waiter, earlier, kind: LeaveKind::Quit, is_definite: false };
        let held = waiter.held();
        let attributes = waiter.attributes(&held)?;
        // Where the turn of the earlier one has come just now its ticket is gone, and its place is this one's.
        let before = entering.earlier.as_ref().map(|earlier| earlier.held()).filter(|held| held.is_waiting());
        let place = before.map(|held| (held.lane, held.seq));
        let (asked, now) = (Instant::now(), Moment { epoch: me.epoch, ..self.moment() });
        let (line, player, session) = (&waiter.line.line, &waiter.player, &held.session);
        let entered = match place {
            Some(place) => line.enter_again(&me, player, session, &attributes, place).await,
            None => line.enter(&me, player, held.lane, session, &attributes, offer).await,
        };
        if entered.is_err() && matches!(waiter.ending, Ending::Pass(_)) {
            // Who tries again within the grace has the place still.
            entering.kind = LeaveKind::Keep;
        }
        let entered = entered?;
        if waiter.is_over() {
            return Ok(Entrance::Over);
        }
        let entrance = match entered {
            Entered::Waiting(place) => {
                entering.is_definite = true;
                let now_ms = self.core.store.clock().now_ms();
                let heard = waiter.placed(&place, now, now_ms);
                waiter.counted(place.position.saturating_sub(1), now_ms);
                if matches!(waiter.ending, Ending::Token(_)) && asked.elapsed() >= REPEATED_AFTER {
                    waiter.doubt();
                }
                self.tell_place(waiter, place.shown(), place.estimate_ms);
                drop((entering, turn));
                if heard {
                    self.look_at_once(waiter).await;
                }
                return Ok(Entrance::Waits);
            }
            Entered::Admitted(admission) => match waiter.ending {
                // Known as admitted before anybody else has the player's turn.
                Ending::Pass(_) => Entrance::Admitted(Box::new(self.admit(waiter, admission).await)),
                Ending::Token(_) => Entrance::NoPass,
            },
            Entered::Full => {
                self.table().remove(waiter);
                Entrance::Full
            }
        };
        entering.is_definite = true;
        Ok(entrance)
    }

    /// Something was said of the player before the store's answer was here.
    async fn look_at_once(&self, waiter: &Arc<Waiter>) {
        if let Err(error) = self.reconcile(&waiter.line.line, std::slice::from_ref(waiter), Cause::Turn).await {
            tracing::debug!(player = %waiter.player, %error, "could not look after a player; the next tick does");
        }
    }
}
