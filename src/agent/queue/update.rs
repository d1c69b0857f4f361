use crate::agent::model::{Refusal, Transfer};

/// What a player who waits hears.
#[derive(Debug, Clone)]
pub enum WaitUpdate {
    /// Another position or estimate.
    Position {
        /// 1 for the one who is served next, exact up to 10,000; `None`: more than that.
        position: Option<u64>,
        /// How long it takes at the pace of the last half minute, in ms; `None` where nobody was served in it.
        estimate_ms: Option<u64>,
    },
    /// The player has a place and this proxy moves them. The last update.
    Transfer(Box<Transfer>),
    /// No place, and why. The last update.
    Refused(Refusal),
}
