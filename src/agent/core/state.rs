use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::config::Config;
use crate::error::Result;
use crate::ids::{Epoch, NodeEpoch, NodeId, Role};
use crate::message::{Inbox, Post, Services};
use crate::node::{
    ADMITS_LABEL, Arrivals, CONFIG, Control, DRAINING_LABEL, Directory, Identity, Lease, LoadSample, Membership,
    NodeRecord, NodeState,
};
use crate::store::{Feed, Store, Verifier};
use crate::token::Book;

use super::admitting::Admitting;
use super::hints::{LineHint, TokenHint};
use super::live::Live;
use super::redemptions::Redemptions;
use super::status::{AgentStatus, Condition, LoadSource};

/// Longest time that handlers may still take when the node leaves.
const HANDLERS_MAX: Duration = Duration::from_secs(2);
/// Longest time that leaving takes.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// What the agents of both roles share: one membership and everything that hangs on it.
pub(crate) struct Core {
    pub live: Live,
    pub store: Store,
    pub verifier: Verifier,
    pub identity: Identity,
    pub lease: Lease,
    pub control: Control,
    pub directory: Directory,
    pub services: Services,
    pub post: Post,
    pub inbox: Inbox,
    pub book: Book,
    pub feed: Feed,
    pub condition: Mutex<Condition>,
    pub load: Box<dyn LoadSource>,
    pub last_load: Mutex<LoadSample>,
    pub beat_now: Notify,
    pub refresh_now: Notify,
    pub hears_beats: bool,
    pub status: watch::Sender<AgentStatus>,
    pub token_events: broadcast::Sender<TokenHint>,
    /// What is heard of login lines and wait lines, where this node listens to them.
    pub line_events: broadcast::Sender<LineHint>,
    /// This node subscribes to the lines' channel. Nothing comes on it where nobody uses lines.
    pub hears_lines: bool,
    pub admitting: Admitting,
    /// Players who came here and whose places are held until a heartbeat counts them.
    pub arrivals: Arrivals,
    pub redemptions: Redemptions,
    /// Where the loops live; work that a dropped future leaves behind goes there too.
    pub runtime: Handle,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl Core {
    /// The config in force now. Whoever needs several values of it for one thing loads it once.
    pub fn config(&self) -> Arc<Config> {
        self.live.config()
    }

    /// Takes the pushed config over where a newer one was verified.
    pub fn take_push(&self) {
        self.live.take_from(&self.control, &self.verifier);
    }

    /// What the next heartbeat says; identity, epoch, number and time are filled in by the membership.
    pub fn record(&self) -> NodeRecord {
        let LoadSample { players, soft_cap, mut load } = self.sample();
        // Where the application does not measure it. Nobody comes to a proxy with a place.
        if self.identity.role != Role::proxy() && load.new_players_per_second.is_none() {
            load.new_players_per_second = Some(self.arrivals.per_second());
        }
        let condition = self.condition();
        let mut labels = self.config().node.labels.clone();
        labels.entry("build".to_owned()).or_insert_with(|| env!("CARGO_PKG_VERSION").to_owned());
        labels.entry("platform".to_owned()).or_insert_with(|| std::env::consts::OS.to_owned());
        // Only a push, an operator and an admitter may say so.
        labels.remove(CONFIG);
        labels.remove(DRAINING_LABEL);
        labels.remove(ADMITS_LABEL);
        labels.extend(self.admitting.label().map(|lines| (ADMITS_LABEL.to_owned(), lines)));
        if let Some(version) = self.live.pushed() {
            labels.insert(CONFIG.to_owned(), version.to_string());
        }
        let drain = self.control.drain(&self.identity.id);
        let accepting = condition.accepting && drain.is_none();
        if let Some(drain) = drain {
            labels.insert(DRAINING_LABEL.to_owned(), drain.by);
        }
        NodeRecord {
            state: condition.state,
            accepting,
            kill: self.control.is_killed(&self.identity.id),
            players,
            soft_cap,
            load,
            services: self.services.published(),
            labels,
            ..NodeRecord::blank(&self.identity)
        }
    }

    /// The worlds that the last heartbeat told of.
    pub fn worlds(&self) -> Vec<String> {
        self.last_load.lock().unwrap_or_else(PoisonError::into_inner).load.worlds.clone()
    }

    /// The application's load, or the last one where its code panics: a heartbeat must not end with it.
    fn sample(&self) -> LoadSample {
        let sampled = catch_unwind(AssertUnwindSafe(|| self.load.sample()));
        let mut last = self.last_load.lock().unwrap_or_else(PoisonError::into_inner);
        match sampled {
            Ok(sample) => *last = sample,
            Err(_) => tracing::error!("the application's load source panicked; the last load is published again"),
        }
        last.clone()
    }

    pub fn condition(&self) -> Condition {
        *self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what the node tells the others, and tells it at once.
    pub fn set_condition(&self, change: impl FnOnce(&mut Condition)) {
        change(&mut self.condition.lock().unwrap_or_else(PoisonError::into_inner));
        self.beat_now.notify_one();
    }

    /// This node as whoever issues, claims or releases. Errors with [`Error::LeaseLost`] without a lease.
    pub fn acting(&self) -> Result<NodeEpoch> {
        Ok(NodeEpoch { id: self.identity.id.clone(), epoch: self.lease.require()? })
    }

    /// This node as whoever cancels or releases, lease or not: those compare the epoch and need no lease.
    pub fn releasing(&self) -> NodeEpoch {
        NodeEpoch { id: self.identity.id.clone(), epoch: self.lease.epoch() }
    }

    /// True where the store has this node's row of `epoch`. Asked on the shared connection, whose breaks are counted.
    pub async fn is_known(&self, epoch: Epoch) -> Result<bool> {
        Ok(self.store.row(self.store.keys().node(&self.identity.id)).await?.number("epoch") == Some(epoch.0))
    }

    /// This node, where it gives places.
    pub fn own_server(&self) -> Option<&NodeId> {
        self.identity.role.gives_places().then_some(&self.identity.id)
    }

    /// True where this node may say that another one is dead.
    pub fn may_judge(&self) -> bool {
        self.lease.may_judge(&self.store)
    }

    /// Until when, in store ms, this node may say so; 0 where it may not.
    pub fn judges_until_ms(&self) -> u64 {
        if self.may_judge() { self.store.clock().now_ms().saturating_add(self.lease.left_ms()) } else { 0 }
    }

    /// Runs what says of other nodes that they are dead, and breaks it off where this node may not say so any more.
    pub async fn judge<T>(&self, judging: impl Future<Output = Result<T>>) -> Result<T> {
        self.lease.judge(&self.store, judging).await
    }

    pub fn set_status(&self, status: AgentStatus) {
        self.status.send_if_modified(|now| {
            let changed = *now != status;
            *now = status;
            changed
        });
    }

    /// The node's part in the roster, for its heartbeats.
    pub fn membership(&self) -> Membership {
        Membership::new(self.store.clone(), self.verifier.clone(), self.identity.clone(), self.lease.clone())
            .counting(self.arrivals.clone())
    }

    /// Reads the control entries. What the store does not answer is read with the next heartbeat that says that they changed.
    pub async fn refresh_control(&self) {
        if let Err(error) = self.control.refresh(&self.store, &self.verifier).await {
            tracing::debug!(%error, "could not read the control entries");
        }
    }

    /// Tells the others that the node is on its way out, takes no more messages, and lets the handlers that run end while
    /// the lease still lets them answer.
    pub async fn quiesce(&self) {
        self.set_condition(|condition| {
            condition.state = NodeState::ShuttingDown;
            condition.accepting = false;
        });
        self.inbox.stop(HANDLERS_MAX).await;
    }

    /// Stops all loops and takes the node off the roster, for at most 5 s; a store that does not answer sees the lease run
    /// out instead.
    pub async fn leave(&self) {
        self.quiesce().await;
        self.stop.cancel();
        self.tasks.close();
        if timeout(LEAVE_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!(node = %self.identity.id, "a loop did not end in time");
        }
        self.set_status(AgentStatus::Stopped);
    }
}
