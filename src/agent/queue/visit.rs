//! A player's visit to a login line, as the application holds it.

use crate::ids::{LineName, Player, SessionId};

use super::entry::{Admitted, OutReason};
use super::told::{End, Listener, News};

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

/// How entering a line ended.
#[derive(Debug)]
pub enum Entering {
    /// The player is in.
    Admitted(Box<Admitted>),
    /// The player has a place in the line.
    Waiting(Visit),
    /// The line holds as many as it may.
    Full,
}

/// What became of a player whose transfer failed.
#[derive(Debug)]
pub enum Failure {
    /// Waits again, before everybody who came later.
    Back(Visit),
    /// The player is gone; the sequence is kept for the grace.
    Away,
    /// That was one failure too many: out of the line.
    Out,
    /// A newer pass or ticket stands, or none, or this node does not know of the admission: nothing was done.
    Late,
    /// The pass was redeemed: the player is there.
    Landed,
}

/// A player who waits. Dropping it changes nothing in the line:
/// [`left`](crate::agent::ProxyAgent::left) does.
#[derive(Debug)]
pub struct Visit {
    line: LineName,
    player: Player,
    session: SessionId,
    listener: Listener,
}

impl Visit {
    pub(super) fn new(line: LineName, player: Player, session: SessionId, listener: Listener) -> Self {
        Self { line, player, session, listener }
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
        self.listener.position()
    }

    /// How long it takes at the present pace, in ms; `None` where nobody is admitted now.
    pub fn estimate_ms(&self) -> Option<u64> {
        self.listener.estimate_ms()
    }

    /// The next update, where one comes. Only the newest position is kept for a slow reader. `None` after the last one,
    /// and where the player left ([`ProxyAgent::left`](crate::agent::ProxyAgent::left)) or the agent stopped. Cancel safe.
    pub async fn next(&mut self) -> Option<Update> {
        Some(match self.listener.next().await? {
            News::Position { position, estimate_ms } => Update::Position { position, estimate_ms },
            News::End(End::Admitted(admitted)) => Update::Admitted(admitted),
            News::End(End::Out(why)) => Update::Out { why },
            // Those are of wait lines.
            News::End(End::Transfer(_) | End::Refused(_) | End::Left) => return None,
        })
    }
}
