//! A player's visit to a line, as the application holds it.

use serde::Serialize;
use tokio::sync::watch;

use crate::ids::{LineName, Player, SessionId};

use super::entry::Admitted;

/// What a waiting player hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// Another position or estimate.
    Position {
        /// 1 for the one who is admitted next, exact up to 10,000; `None`: more than that.
        position: Option<u64>,
        /// How long it takes at the present pace, in ms; `None` where nobody is admitted now.
        estimate_ms: Option<u64>,
    },
    /// The player is in. The last update.
    Admitted(Box<Admitted>),
    /// The player does not wait here any more. The last update.
    Out {
        /// Why.
        why: OutReason,
    },
}

/// Why a player does not wait any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutReason {
    /// The place is gone: left, emptied by an operator, or away for longer than the grace.
    Gone,
    /// The player entered again, here or through another proxy, and that visit has the place.
    Elsewhere,
    /// The place was lost with the node's membership, and the line had become full before the player could enter again.
    Full,
}

impl OutReason {
    /// The text for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Elsewhere => "elsewhere",
            Self::Full => "full",
        }
    }
}

/// What the desk knows of a visit, newest last: positions that nobody read in time are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VisitState {
    pub position: Option<u64>,
    pub estimate_ms: Option<u64>,
    pub end: Option<Update>,
}

/// A player who waits. Dropping it changes nothing in the line:
/// [`left`](crate::agent::ProxyAgent::left) does.
#[derive(Debug)]
pub struct Visit {
    line: LineName,
    player: Player,
    session: SessionId,
    state: watch::Receiver<VisitState>,
    over: bool,
}

impl Visit {
    pub(super) fn new(line: LineName, player: Player, session: SessionId, state: watch::Receiver<VisitState>) -> Self {
        Self { line, player, session, state, over: false }
    }

    /// The line.
    pub fn line(&self) -> &LineName {
        &self.line
    }

    /// Who.
    pub fn player(&self) -> &Player {
        &self.player
    }

    /// The visit's id, new at each enter.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// 1 for the one who is admitted next, exact up to 10,000; `None`: more than that.
    pub fn position(&self) -> Option<u64> {
        self.state.borrow().position
    }

    /// How long it takes at the present pace, in ms; `None` where nobody is admitted now.
    pub fn estimate_ms(&self) -> Option<u64> {
        self.state.borrow().estimate_ms
    }

    /// The next update, where one comes. Only the newest position is kept for a slow reader. `None` after the last one,
    /// and where the player left ([`ProxyAgent::left`](crate::agent::ProxyAgent::left)) or the agent stopped. Cancel safe.
    pub async fn next(&mut self) -> Option<Update> {
        if self.over {
            return None;
        }
        if self.state.changed().await.is_err() {
            self.over = true;
            return None;
        }
        let state = self.state.borrow_and_update();
        match &state.end {
            Some(end) => {
                self.over = true;
                Some(end.clone())
            }
            None => Some(Update::Position { position: state.position, estimate_ms: state.estimate_ms }),
        }
    }
}
