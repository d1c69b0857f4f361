use crate::agent::model::{Balanced, Refusal, Transfer};

use super::waiting::Waiting;

/// How a request ends, or goes on.
#[derive(Debug)]
pub enum Outcome {
    /// The player has a place and this proxy moves them.
    Transfer(Box<Transfer>),
    /// The player has no place, and a backend to connect to.
    Balanced(Balanced),
    /// No place now: the player waits for one (`selector.onNoCandidate: queue`).
    Waiting(Waiting),
    /// No place, and why.
    Refused(Refusal),
}

impl From<Result<Box<Transfer>, Refusal>> for Outcome {
    fn from(taken: Result<Box<Transfer>, Refusal>) -> Self {
        taken.map_or_else(Self::Refused, Self::Transfer)
    }
}
