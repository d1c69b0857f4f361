use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::agent::config::Config;
use crate::agent::core::{AgentStatus, Core};
use crate::error::{Error, Result};
use crate::ids::Epoch;
use crate::message::{Post, Services};
use crate::node::{Control, Directory, Lease, NodeState};
use crate::store::{Store, Verifier};
use crate::token::Book;

/// One process's membership of the fleet, with its loops: heartbeats, subscription, directory, reaper. Both
/// [`BackendAgent`](super::BackendAgent) and [`ProxyAgent`](super::ProxyAgent) are built on it. Dropping it stops the
/// loops without leaving; [`leave`](Self::leave) leaves.
pub struct Agent {
    core: Arc<Core>,
}

impl Agent {
    pub(super) fn new(core: Arc<Core>) -> Self {
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
    #[doc(hidden)]
    pub fn book(&self) -> &Book {
        &self.core.book
    }

    /// Kill switch and drain entries.
    #[doc(hidden)]
    pub fn control(&self) -> &Control {
        &self.core.control
    }

    /// What was dropped because it could not be believed.
    #[doc(hidden)]
    pub fn verifier(&self) -> &Verifier {
        &self.core.verifier
    }

    /// The store.
    #[doc(hidden)]
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

    /// Stops all loops and takes the node off the roster. Bounded by 5 s; a store that does not answer sees the lease
    /// run out instead. Safe to call again.
    pub async fn leave(&self) {
        self.core.leave().await;
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
