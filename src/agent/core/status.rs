//! How far an agent is, and what the application tells it about the node.

use serde::Serialize;

use crate::ids::Epoch;
use crate::node::{LoadSample, NodeState};

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
pub(in crate::agent) struct Condition {
    pub state: NodeState,
    pub accepting: bool,
}
