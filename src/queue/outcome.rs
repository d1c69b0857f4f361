//! How entering and leaving a line end, as far as it is definite. What is not definite is an error.

use serde::Serialize;

use crate::ids::SessionId;

use super::look::POSITIONS_MAX;
use super::pass::LoginPass;

/// A player is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Admission {
    /// What lets the player in; [`LoginPass::seal`] makes what the client carries.
    pub pass: LoginPass,
    /// The place in the lane, kept for a transfer that fails.
    pub seq: u64,
    /// The lane.
    pub lane: u16,
}

/// A player waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The visit: what `leave` and `away` are called with.
    pub session: SessionId,
    /// The place in the lane.
    pub seq: u64,
    /// The lane.
    pub lane: u16,
    /// 1 for the one who is admitted next; exact, and shown up to [`POSITIONS_MAX`].
    pub position: u64,
    /// How long it takes at the present pace, in ms; none where nobody is admitted now.
    pub estimate_ms: Option<u64>,
}

impl Waiting {
    /// The position for people: exact for the first 10,000, none beyond.
    pub fn shown(&self) -> Option<u64> {
        (self.position <= POSITIONS_MAX).then_some(self.position)
    }
}

/// How an enter ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entered {
    /// Nobody waits and the gate is open, or the player has a live pass already.
    Admitted(Admission),
    /// The player has a place.
    Waiting(Waiting),
    /// The line holds as many as it may.
    Full,
}

/// How a leave ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The place is gone, or the pass is over.
    Left,
    /// The place is kept for the grace.
    Away,
    /// A newer session holds the ticket: nothing was done.
    Other,
    /// There was neither a ticket nor an unspent pass.
    None,
}
