use serde::Serialize;

use crate::ids::Epoch;

/// How far a managed agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ManagedState {
    /// `enabled: false`: no connection, no task of an agent.
    Off,
    /// On its way: nothing went wrong so far.
    Starting,
    /// Not usable now, and tried again by itself: a config with problems, a store that cannot be reached or refuses, a
    /// script that could not be loaded, a subscription that was refused, a node id in use, a lease that ran out.
    Disabled {
        /// Why, for the operator. Holds no secret and no password.
        why: String,
    },
    /// Not usable until somebody does something.
    Refused {
        /// Why, for the operator. Holds no secret and no password.
        why: String,
        /// A script does not match its pin: a defect of the build, and no reload mends it. Otherwise the secret is missing
        /// or short, or node id or store URL are missing, and a reload after that was mended goes on.
        for_good: bool,
    },
    /// Usable.
    Enabled {
        /// The epoch of the membership; [`Epoch::NONE`] for a router, which has none.
        epoch: Epoch,
    },
    /// [`Managed::stop`](crate::agent::Managed::stop) was called.
    Stopped,
}

/// What a reload did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Reloaded {
    /// Nothing that matters changed.
    Unchanged,
    /// The running agent took these sections over without leaving.
    Swapped {
        /// Their names in the file.
        changed: Vec<&'static str>,
    },
    /// The agent left, and a new one was started.
    Restarted {
        /// The sections that changed; empty where only the secret did.
        changed: Vec<&'static str>,
    },
    /// None ran, and one was started.
    Started,
    /// `enabled: false`: the agent left.
    SwitchedOff,
}
