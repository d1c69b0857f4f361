//! Entering a line again with the old sequence: after a lapse of the lease, a wipe, a store that lost its last second, or a turn
//! that came to nothing.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::unconstrained;

use crate::agent::model::Reason;
use crate::error::{Class, Result};
use crate::ids::NodeEpoch;
use crate::queue::Entered;

use super::client::{QueueClient, Why};
use super::waiter::{Ending, Moment, Waiter};

/// How many players enter again at the same time: less than what the store lets through at once, so that none of them waits
/// behind a later one.
const AT_ONCE: usize = 64;

impl QueueClient {
    /// Enters players again who wait here, in this order: the foremost first. The store takes the calls in the order in which
    /// they are sent, so that many may be under way. Of each goes with it the version of what it was decided by.
    pub(super) async fn re_enroll_all(&self, me: &NodeEpoch, waiters: Vec<(Arc<Waiter>, u64)>) -> Result<()> {
        let mut waiters = waiters.into_iter();
        // One that has forgotten the scripts, or whose time is another, is asked twice: not in the middle of the others.
        if let Some((foremost, version)) = waiters.next() {
            self.re_enroll_in_turn(me, foremost, version).await?;
        }
        let calls = stream::iter(waiters.map(|(waiter, version)| self.re_enroll_in_turn(me, waiter, version)));
        // Under tokio's budget those that have used it up are woken the other way round, and sent so.
        unconstrained(calls.buffered(AT_ONCE).try_collect::<()>()).await
    }

    async fn re_enroll_in_turn(&self, me: &NodeEpoch, waiter: Arc<Waiter>, version: u64) -> Result<()> {
        let _turn = self.turns.lock(&waiter.key()).await;
        if waiter.is_over() || waiter.held().version != version {
            return Ok(());
        }
        match self.re_enroll(me, &waiter).await {
            // What nobody can believe or say must not keep the others waiting.
            Err(error) if matches!(error.class(), Class::Trust | Class::Caller) => {
                tracing::debug!(player = %waiter.player, %error, "could not enter a player again");
                Ok(())
            }
            entered => entered,
        }
    }

    /// Enters one again, under the session of the visit and with the sequence that it had. Whoever calls this holds the player's
    /// turn.
    pub(super) async fn re_enroll(&self, me: &NodeEpoch, waiter: &Arc<Waiter>) -> Result<()> {
        let (held, line) = (waiter.held(), &waiter.line);
        let attributes = waiter.attributes(&held)?;
        let place = (held.lane.min(line.last_lane()), held.seq);
        let now = self.moment();
        match line.line.enter_again(me, &waiter.player, &held.session, &attributes, place).await? {
            Entered::Waiting(place) => {
                waiter.placed(&place, Moment { epoch: me.epoch, ..now }, self.core.store.clock().now_ms());
                if matches!(waiter.ending, Ending::Token(_)) {
                    waiter.doubt();
                }
                waiter.counted(place.position.saturating_sub(1), self.core.store.clock().now_ms());
                self.tell_place(waiter, place.shown(), place.estimate_ms);
            }
            Entered::Admitted(admission) => match waiter.ending {
                Ending::Pass(_) => drop(self.admit(waiter, admission).await),
                Ending::Token(_) => {
                    self.refuse(waiter, Why::Failed(Reason::Refused, "a wait line gives no passes".to_owned()));
                }
            },
            Entered::Full => {
                self.refuse(waiter, Why::Full);
            }
        }
        Ok(())
    }
}
