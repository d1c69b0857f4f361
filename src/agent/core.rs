use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeEpoch, Role};
use crate::message::{Inbox, Post, Services};
use crate::node::{
    ADMITS_LABEL, Arrivals, CONFIG, Control, DRAINING_LABEL, Directory, Identity, Lease, LoadSample, Membership,
    NodeRecord, NodeState,
};
use crate::queue::LineEvent;
use crate::store::{Feed, FeedItem, Store, Verifier};
use crate::token::{Book, TokenEvent};

use super::background;
use super::config::Config;
use super::lines::{Admitting, Redemptions};
use super::live::Live;

/// Token events that may wait for a slow listener; one that falls behind is told to look at everything again.
const TOKEN_EVENTS: usize = 1_024;
/// Line events that may wait for a slow listener; one that falls behind is told to look at everything again.
const LINE_EVENTS: usize = 1_024;
/// Longest time that handlers may still take when the node leaves.
const HANDLERS_MAX: Duration = Duration::from_secs(2);
/// Longest time that leaving takes.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// What an application reports at each heartbeat. Called on the agent's own task: it must not block.
pub trait LoadSource: Send + Sync + 'static {
    /// The load now.
    fn sample(&self) -> LoadSample;
}

impl<F: Fn() -> LoadSample + Send + Sync + 'static> LoadSource for F {
    fn sample(&self) -> LoadSample {
        self()
    }
}

/// How far an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum AgentStatus {
    /// Not a member yet; retried in the background.
    Connecting {
        /// Why the last try failed.
        error: Option<String>,
    },
    /// Another live process holds the node id; retried when its lease ends.
    Duplicate {
        /// The holder's address.
        addr: String,
        /// Rest of the holder's lease in ms.
        lease_left_ms: u64,
    },
    /// A member.
    Member {
        /// Its epoch.
        epoch: Epoch,
    },
    /// The lease lapsed; retried in the background.
    LeaseLost {
        /// Why the last try failed.
        error: Option<String>,
    },
    /// Refused for good: a defect of the build or a config that cannot work.
    Refused {
        /// Why.
        error: String,
    },
    /// Left.
    Stopped,
}

/// What a node tells the others apart from its load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition {
    pub state: NodeState,
    pub accepting: bool,
}

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

/// A hint from the token channel.
#[derive(Debug, Clone)]
pub(crate) enum TokenHint {
    /// Look at this token again.
    Event(TokenEvent),
    /// Something may have been missed: look at all of them.
    Gap,
}

/// A hint from the line channel: of login lines and of wait lines.
#[derive(Debug, Clone)]
pub(crate) enum LineHint {
    /// Something happened in a line: look there.
    Event(LineEvent),
    /// Something may have been missed: look at all of it.
    Gap,
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

    /// True where the store has this node's row of `epoch`. Asked on the shared connection, whose breaks are counted.
    pub async fn is_known(&self, epoch: Epoch) -> Result<bool> {
        Ok(self.store.row(self.store.keys().node(&self.identity.id)).await?.number("epoch") == Some(epoch.0))
    }

    /// True where this node may say that another one is dead.
    pub fn may_judge(&self) -> bool {
        self.lease.may_judge(&self.store)
    }

    pub fn set_status(&self, status: AgentStatus) {
        self.status.send_if_modified(|now| {
            let changed = *now != status;
            *now = status;
            changed
        });
    }
}

/// One process's membership of the fleet, with its loops: heartbeats, subscription, directory, reaper. Both
/// [`BackendAgent`](super::BackendAgent) and [`ProxyAgent`](super::ProxyAgent) are built on it. Dropping it stops the
/// loops without leaving; [`leave`](Self::leave) leaves.
pub struct Agent {
    core: Arc<Core>,
}

impl Agent {
    /// Starts the loops. Nothing waits for the store here: whether the node is a member shows in
    /// [`status`](Self::status).
    pub(super) fn start(core: Core, sink: mpsc::Sender<FeedItem>, items: mpsc::Receiver<FeedItem>) -> Self {
        let core = Arc::new(core);
        background::spawn(&core, items, sink);
        Self { core }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The config in force now: that of the file, with the pushed one over it.
    pub fn config(&self) -> Arc<Config> {
        self.core.config()
    }

    /// The version of the pushed config in force, `None` where the file's alone is; changes can be awaited. The others
    /// see it as the label `config`.
    pub fn config_version(&self) -> watch::Receiver<Option<u64>> {
        self.core.live.version()
    }

    /// How far it is; changes can be awaited.
    pub fn status(&self) -> watch::Receiver<AgentStatus> {
        self.core.status.subscribe()
    }

    /// Waits until the node is a member. Errors at once where it cannot become one without help: another live process
    /// holds the id ([`Error::DuplicateNode`], retried in the background all the same), or the build is defective.
    /// Otherwise waits for as long as the store cannot be reached. Cancel safe.
    pub async fn joined(&self) -> Result<Epoch> {
        let mut status = self.status();
        loop {
            match &*status.borrow_and_update() {
                AgentStatus::Member { epoch } => return Ok(*epoch),
                AgentStatus::Duplicate { addr, lease_left_ms } => {
                    return Err(Error::DuplicateNode {
                        id: self.core.identity.id.clone(),
                        addr: addr.clone(),
                        lease_left_ms: *lease_left_ms,
                    });
                }
                AgentStatus::Refused { error } => {
                    return Err(Error::Protocol { during: "starting the agent", detail: error.clone() });
                }
                AgentStatus::Stopped => return Err(Error::ShuttingDown),
                AgentStatus::Connecting { .. } | AgentStatus::LeaseLost { .. } => {}
            }
            if status.changed().await.is_err() {
                return Err(Error::ShuttingDown);
            }
        }
    }

    /// The membership's lease and its events.
    pub fn lease(&self) -> &Lease {
        &self.core.lease
    }

    /// The view of the other nodes.
    pub fn directory(&self) -> &Directory {
        &self.core.directory
    }

    /// Messages to other nodes.
    pub fn post(&self) -> &Post {
        &self.core.post
    }

    /// The names this node answers to.
    pub fn services(&self) -> &Services {
        &self.core.services
    }

    /// The reservation book.
    pub fn book(&self) -> &Book {
        &self.core.book
    }

    /// Kill switch and drain entries.
    pub fn control(&self) -> &Control {
        &self.core.control
    }

    /// What was dropped because it could not be believed.
    pub fn verifier(&self) -> &Verifier {
        &self.core.verifier
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.core.store
    }

    /// Tells the others that the node is ready, degraded, or starting again.
    pub fn set_state(&self, state: NodeState) {
        self.core.set_condition(|condition| condition.state = state);
    }

    /// Tells the others whether the node takes new players.
    pub fn set_accepting(&self, accepting: bool) {
        self.core.set_condition(|condition| condition.accepting = accepting);
    }

    /// Tells the others the present load without waiting for the next beat.
    pub fn beat_now(&self) {
        self.core.beat_now.notify_one();
    }

    /// Tells the others that the node is on its way out, takes no more messages, and lets the handlers that run end while
    /// the lease still lets them answer.
    pub(super) async fn quiesce(&self) {
        self.core.set_condition(|condition| {
            condition.state = NodeState::ShuttingDown;
            condition.accepting = false;
        });
        self.core.inbox.stop(HANDLERS_MAX).await;
    }

    /// Stops all loops and takes the node off the roster. Bounded by 5 s; a store that does not answer sees the lease
    /// run out instead. Safe to call again.
    pub async fn leave(&self) {
        let core = &self.core;
        self.quiesce().await;
        core.stop.cancel();
        core.tasks.close();
        if timeout(LEAVE_MAX, core.tasks.wait()).await.is_err() {
            tracing::warn!(node = %core.identity.id, "a loop did not end in time");
        }
        core.set_status(AgentStatus::Stopped);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.core.stop.cancel();
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({} {:?})", self.core.identity.id, *self.core.status.borrow())
    }
}

pub(super) fn membership(core: &Core) -> Membership {
    Membership::new(core.store.clone(), core.verifier.clone(), core.identity.clone(), core.lease.clone())
        .counting(core.arrivals.clone())
}

pub(super) fn token_events() -> broadcast::Sender<TokenHint> {
    broadcast::channel(TOKEN_EVENTS).0
}

pub(super) fn line_events() -> broadcast::Sender<LineHint> {
    broadcast::channel(LINE_EVENTS).0
}
