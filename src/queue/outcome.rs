//! How entering and leaving a line end, and a round of its admission, as far as it is definite. What is not definite is an
//! error.

use std::time::Duration;

use serde::Serialize;

use crate::ids::{Player, SessionId};

use super::pass::LoginPass;
use super::read::POSITIONS_MAX;

/// How soon a silent proxy at the head is looked at again: it may enter its players again at any moment.
const SILENT_PAUSE: Duration = Duration::from_millis(200);

/// A player is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Admission {
    /// What lets the player in; [`LoginPass::seal`] makes what the client carries.
    pub pass: LoginPass,
    /// The place in the lane, kept for a transfer that fails.
    pub seq: u64,
    /// The lane.
    pub lane: u16,
    /// The visit that was let in.
    pub session: SessionId,
}

/// A player waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueuedPlace {
    /// The visit: what `leave` and `away` are called with.
    pub session: SessionId,
    /// The place in the lane.
    pub seq: u64,
    /// The lane.
    pub lane: u16,
    /// 1 for the one who is admitted next; exact, and shown up to 10,000.
    pub position: u64,
    /// How long it takes at the present pace, in ms; none where nobody is admitted now.
    pub estimate_ms: Option<u64>,
}

impl QueuedPlace {
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
    Waiting(QueuedPlace),
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

/// Why a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Nobody waits.
    Empty,
    /// More wait than one round looks at.
    More,
    /// Somebody else came first, or the head changed: look again.
    Changed,
    /// The gate is closed for now.
    Gate,
    /// No place is free where the head was to go; or nowhere at all.
    Full,
    /// The head's ticket is of a version that this build does not know.
    Blocked,
    /// An operator paused the line.
    Paused,
    /// The head's proxy is silent, and this node has not been back for long enough to say that it is dead.
    Silent,
}

/// What one round did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Who is in now, in order.
    pub admitted: Vec<Admission>,
    /// Whose proxy is gone: their sequences are kept for the grace.
    pub away: Vec<Player>,
    /// Whose ticket was missing or forged.
    pub evicted: Vec<Player>,
    /// Why it ended.
    pub stop: Stop,
    /// When the gate lets the next one through; none where it does not open by itself.
    pub gate_opens_in: Option<Duration>,
    /// What the gate allows, per second.
    pub rate: u64,
    /// Players who still wait.
    pub waiting: u64,
    /// Places are free, so that another pick may find one.
    pub room: bool,
}

impl Round {
    /// Somebody was let in, put away or put out: the next round is of use at once.
    pub fn progressed(&self) -> bool {
        !(self.admitted.is_empty() && self.away.is_empty() && self.evicted.is_empty())
    }

    /// How long to wait before the next round is of use, at most `tick`. An event may end the wait before.
    pub fn pause(&self, tick: Duration) -> Duration {
        match self.stop {
            Stop::More | Stop::Changed => Duration::ZERO,
            Stop::Full if self.room => Duration::ZERO,
            Stop::Gate => self.gate_opens_in.unwrap_or(tick).clamp(Duration::from_millis(5), tick),
            Stop::Silent => SILENT_PAUSE.min(tick),
            Stop::Empty | Stop::Full | Stop::Blocked | Stop::Paused => tick,
        }
    }
}
