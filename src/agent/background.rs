//! The loops of an agent. Each is owned by the agent's task tracker and ends with its stop token.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::error::{Class, Error, Result};
use crate::ids::Epoch;
use crate::node::{BeatOutcome, LeaseEvent, Membership, NodeState, roster};
use crate::queue::LineEvent;
use crate::store::{FeedChannel, FeedItem};
use crate::token::{ReapOptions, TokenEvent, reap};

use super::core::{AgentStatus, Core, LineHint, TokenHint, membership};
use super::lines::sweeper;
use super::wait;

/// How often ages are judged anew.
const AGE_EVERY: Duration = Duration::from_millis(100);
/// Longest time between two looks after silent nodes and old epochs.
const UPKEEP_MAX: Duration = Duration::from_secs(60);
/// Longest wait between two tries to become a member.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Longest time that a join or beat under way may still take when the node leaves; the rest of the time for leaving is the
/// goodbye's.
const ROUND_MAX: Duration = Duration::from_secs(2);

/// Starts every loop.
pub(super) fn spawn(core: &Arc<Core>, items: mpsc::Receiver<FeedItem>, feed_sink: mpsc::Sender<FeedItem>) {
    let keys = core.store.keys();
    let mut channels = vec![
        (FeedChannel::Control, keys.control_events().to_string()),
        (FeedChannel::Token, keys.token_events().to_string()),
        (FeedChannel::Inbox, keys.inbox(&core.identity.id).to_string()),
    ];
    if core.hears_beats {
        channels.push((FeedChannel::Node, keys.node_events().to_string()));
    }
    if core.hears_lines {
        channels.push((FeedChannel::Line, keys.line_events().to_string()));
    }
    let (feed, store, stop) = (core.feed.clone(), core.store.clone(), core.stop.clone());
    core.tasks.spawn(async move { feed.run(store, channels, feed_sink, stop).await });
    core.tasks.spawn(route(Arc::clone(core), items));
    core.tasks.spawn(heart(Arc::clone(core)));
    core.tasks.spawn(watch_directory(Arc::clone(core)));
    core.tasks.spawn(reaper(Arc::clone(core)));
    core.tasks.spawn(upkeep(Arc::clone(core)));
    core.tasks.spawn(take_pushes(Arc::clone(core)));
    core.tasks.spawn(sweeper(Arc::clone(core)));
}

/// Becomes a member, keeps the lease up, and leaves at the end.
async fn heart(core: Arc<Core>) {
    let mut member = membership(&core);
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
                        core.lease.tell(LeaseEvent::Resumed { epoch: core.lease.epoch() });
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
            core.lease.tell(LeaseEvent::Lost { epoch: core.lease.epoch() });
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
        core.lease.tell(event);
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

/// Takes what the subscription brings to whom it concerns.
async fn route(core: Arc<Core>, mut items: mpsc::Receiver<FeedItem>) {
    loop {
        let item = tokio::select! {
            () = core.stop.cancelled() => return,
            item = items.recv() => item,
        };
        match item {
            None => return,
            Some(FeedItem::Down) => {}
            Some(FeedItem::Gap) => {
                core.refresh_now.notify_one();
                hint(&core, TokenHint::Gap);
                line_hint(&core, LineHint::Gap);
                refresh_control(&core).await;
            }
            Some(FeedItem::Message(channel, bytes)) => match channel {
                FeedChannel::Inbox => core.inbox.take(bytes),
                FeedChannel::Control => refresh_control(&core).await,
                FeedChannel::Node => {
                    if let Err(error) = core.directory.hear(&bytes).await {
                        tracing::debug!(%error, "could not look at a node again");
                    }
                }
                FeedChannel::Token => {
                    if let Some(event) = TokenEvent::read(&bytes) {
                        hint(&core, TokenHint::Event(event));
                    }
                }
                FeedChannel::Line => {
                    if let Some(event) = LineEvent::read(&bytes) {
                        line_hint(&core, LineHint::Event(event));
                    }
                }
            },
        }
    }
}

fn hint(core: &Core, hint: TokenHint) {
    // No listener: a proxy has no use for it.
    let _ = core.token_events.send(hint);
}

fn line_hint(core: &Core, hint: LineHint) {
    // No listener: no line is in use here.
    let _ = core.line_events.send(hint);
}

/// Reads the control entries. What the store does not answer is read with the next heartbeat that says that they changed.
pub(super) async fn refresh_control(core: &Core) {
    if let Err(error) = core.control.refresh(&core.store, &core.verifier).await {
        tracing::debug!(%error, "could not read the control entries");
    }
}

/// Takes a pushed config over, by whichever way the control entries were read.
async fn take_pushes(core: Arc<Core>) {
    let mut changes = core.control.changes();
    loop {
        core.take_push();
        tokio::select! {
            () = core.stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

/// Keeps the view of the others fresh.
async fn watch_directory(core: Arc<Core>) {
    let every = Duration::from_millis(core.config().directory.refresh_ms);
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.refresh_now.notified() => next = Instant::now(),
            () = sleep(AGE_EVERY) => {}
        }
        if Instant::now() >= next {
            match core.directory.refresh().await {
                Ok(()) => next = Instant::now() + jitter(every),
                Err(error) => {
                    tracing::debug!(%error, "could not read the rosters");
                    next = Instant::now() + jitter(every.min(RETRY_MAX));
                }
            }
        }
        core.directory.age();
    }
}

/// Sweeps due tokens. Jitter only shortens the interval; a process that has just started sweeps twice as often for its
/// first beats.
async fn reaper(core: Arc<Core>) {
    let every = Duration::from_millis(core.config().tokens.reap_interval_ms);
    let early = Instant::now() + Duration::from_millis(core.config().heartbeat.interval_ms * 2);
    let options = ReapOptions { batch: core.config().tokens.reap_batch, ..ReapOptions::default() };
    loop {
        let wait = if Instant::now() < early { every / 2 } else { every };
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = sleep(jitter(wait)) => {}
        }
        match reap(&core.book, options).await {
            Ok(report) if report.expired + report.reopened + report.healed > 0 => {
                tracing::info!(?report, "reaped");
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "could not reap"),
        }
    }
}

/// Takes silent nodes off the rosters, forgets old epochs, and signs again what only an old secret verifies.
async fn upkeep(core: Arc<Core>) {
    let removed_ms = core.config().directory.removed_ms;
    let every = Duration::from_millis(removed_ms / 4).clamp(Duration::from_millis(100), UPKEEP_MAX);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = sleep(jitter(every)) => {}
        }
        let done = async {
            let removed = roster::remove_silent(&core.store, removed_ms).await?;
            let signed = core.control.sign_again(&core.store, &core.verifier).await?;
            if signed > 0 {
                tracing::info!(signed, "control entries signed again with the present secret");
            }
            wait::upkeep(&core).await?;
            let forgotten = roster::forget(&core.store, roster::FORGET_MS).await?;
            Ok::<_, Error>((removed, forgotten))
        };
        match done.await {
            Ok((removed, _)) if !removed.is_empty() => tracing::info!(?removed, "taken off the roster"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "could not look after the rosters"),
        }
    }
}

/// Between three quarters of the time and all of it.
pub(super) fn jitter(time: Duration) -> Duration {
    time.mul_f64(rand::rng().random_range(0.75..1.0))
}
