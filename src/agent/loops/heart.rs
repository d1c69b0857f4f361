//! The heartbeat: becomes a member, keeps the lease up, and leaves at the end.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::agent::core::{AgentStatus, Core};
use crate::error::{Class, Error, Result};
use crate::ids::Epoch;
use crate::node::{BeatOutcome, LeaseEvent, Membership, NodeState};

/// Longest wait between two tries to become a member.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Longest time that a join or beat under way may still take when the node leaves; the rest of the time for leaving is the
/// goodbye's.
const ROUND_MAX: Duration = Duration::from_secs(2);

/// Becomes a member, keeps the lease up, and leaves at the end.
pub(in crate::agent) async fn heart(core: Arc<Core>) {
    let mut member = core.membership();
    let mut beats = interval(Duration::from_millis(core.config().heartbeat.interval_ms));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut joined = false;
    let mut lapsed = false;
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => break,
            _ = beats.tick() => {}
            () = core.beat_now.notified(), if joined => {}
        }
        let round = async { if joined { beat(&core, &mut member).await } else { join(&core, &mut member).await } };
        // A join that was sent makes a live row: what came of it has to be known before the node can leave.
        let outcome = tokio::select! {
            outcome = round => outcome,
            () = overdue(&core) => break,
        };
        if core.stop.is_cancelled() {
            joined = outcome.unwrap_or(joined);
            break;
        }
        let beating = joined;
        match outcome {
            Ok(still_member) => {
                joined = still_member;
                if joined {
                    // A join says so itself.
                    if std::mem::take(&mut lapsed) && beating {
                        core.lease.notify(LeaseEvent::Resumed { epoch: core.lease.epoch() });
                    }
                    core.set_status(AgentStatus::Member { epoch: core.lease.epoch() });
                } else {
                    // The row is gone, or somebody else's: the join decides at once.
                    beats.reset_immediately();
                }
            }
            Err(error) => {
                if !refused(&core, &error) {
                    return;
                }
                if !joined {
                    pause(&core, &error).await;
                    beats.reset_immediately();
                }
            }
        }
        if core.lease.epoch() != Epoch::NONE && !core.lease.is_valid() && !lapsed {
            lapsed = true;
            core.lease.notify(LeaseEvent::Lost { epoch: core.lease.epoch() });
        }
    }
    goodbye(&core, &mut member, joined).await;
}

/// The last beat says that the node is on its way out, so that nobody is sent here any more; then it leaves.
async fn goodbye(core: &Core, member: &mut Membership, joined: bool) {
    if joined {
        core.set_condition(|condition| {
            condition.state = NodeState::ShuttingDown;
            condition.accepting = false;
        });
        if let Err(error) = member.beat(core.record(), &core.control).await {
            tracing::debug!(%error, "could not say goodbye");
        }
    }
    if let Err(error) = member.leave().await {
        tracing::warn!(%error, "could not leave; the lease runs out by itself");
    }
}

/// Waits until the node leaves and the round under way took its time.
async fn overdue(core: &Core) {
    core.stop.cancelled().await;
    sleep(ROUND_MAX).await;
}

/// Joins. False where the node leaves instead: nothing was sent.
async fn join(core: &Core, member: &mut Membership) -> Result<bool> {
    tokio::select! {
        biased;
        () = core.stop.cancelled() => return Ok(false),
        ready = ready(core) => ready?,
    }
    member.join(core.record()).await.map(|_| true)
}

/// What comes before a join.
async fn ready(core: &Core) -> Result<()> {
    core.store.prepare().await?;
    // A member that hears nothing would be asked and never answer. One that was heard before is not kept off the roster by
    // a subscription that comes back a moment later.
    if core.lease.epoch() == Epoch::NONE {
        core.feed.subscribed().await?;
    }
    core.control.refresh(&core.store, &core.verifier).await?;
    core.take_push();
    Ok(())
}

/// One heartbeat. False where the node has to join again.
async fn beat(core: &Core, member: &mut Membership) -> Result<bool> {
    match member.beat(core.record(), &core.control).await? {
        BeatOutcome::Acknowledged { control_changed } => {
            if control_changed {
                core.control.refresh(&core.store, &core.verifier).await?;
                // The next beat says which version is in force.
                core.take_push();
            }
            Ok(true)
        }
        BeatOutcome::Gone | BeatOutcome::Fenced => Ok(false),
    }
}

/// Shows what went wrong. False where no retry can help.
fn refused(core: &Core, error: &Error) -> bool {
    if let Error::PinMismatch { .. } = error {
        tracing::error!(%error, "refusing to enable");
        core.set_status(AgentStatus::Refused { error: error.to_string() });
        return false;
    }
    if let Error::DuplicateNode { addr, lease_left_ms, .. } = error {
        let event = LeaseEvent::Duplicate { addr: addr.clone(), lease_left_ms: *lease_left_ms };
        core.lease.notify(event);
        core.set_status(AgentStatus::Duplicate { addr: addr.clone(), lease_left_ms: *lease_left_ms });
        return true;
    }
    tracing::warn!(%error, "no heartbeat got through");
    let error = Some(error.to_string());
    if core.lease.epoch() == Epoch::NONE {
        core.set_status(AgentStatus::Connecting { error });
    } else if !core.lease.is_valid() {
        core.set_status(AgentStatus::LeaseLost { error });
    }
    true
}

async fn pause(core: &Core, error: &Error) {
    let wait = match error {
        Error::DuplicateNode { lease_left_ms, .. } => Duration::from_millis(*lease_left_ms).min(RETRY_MAX),
        Error::Contended { .. } => RETRY_MAX / 4,
        _ if error.class() == Class::Store => RETRY_MAX / 4,
        _ => RETRY_MAX,
    };
    let jittered = wait.mul_f64(rand::rng().random_range(0.5..1.0));
    tokio::select! {
        () = core.stop.cancelled() => {}
        () = sleep(jittered.max(Duration::from_millis(10))) => {}
    }
}
