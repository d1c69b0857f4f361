//! What goes into a login line and what comes out of it.

use serde::Serialize;

use crate::ids::{LineName, NodeId, Player};
use crate::queue::{Admission, Attributes};

/// A player who wants to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The line.
    pub line: LineName,
    /// Who.
    pub player: Player,
    /// The lane, from 0: one that the line is configured with.
    pub lane: u16,
    /// The application's own, at most 64 bytes.
    pub attributes: Attributes,
}

impl Entry {
    /// Into the first lane, without attributes.
    pub fn new(line: LineName, player: Player) -> Self {
        Self { line, player, lane: 0, attributes: Attributes::default() }
    }
}

/// A player is in: where to, and what is needed there. To be followed by
/// [`arrived`](crate::agent::ProxyAgent::arrived), [`failed_admission`](crate::agent::ProxyAgent::failed_admission) or
/// [`left`](crate::agent::ProxyAgent::left).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Admitted {
    /// The line.
    pub line: LineName,
    /// Who.
    pub player: Player,
    /// The backend; none where the line leads to a link only.
    pub server: Option<NodeId>,
    /// Where the backend takes players; none where this node does not know it (yet).
    pub addr: Option<String>,
    /// The link, where the line leads to one.
    pub link: Option<NodeId>,
    /// Where the link takes players; none where this node does not know it (yet).
    pub link_addr: Option<String>,
    /// The sealed login pass: what the player's client carries, and the backend or link verifies and redeems.
    pub pass: String,
    /// The admission that the pass was made from.
    pub admission: Admission,
}

/// How a player leaves before being let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Departure {
    /// The connection dropped: the sequence is kept for the line's `reconnectGraceMs`.
    Dropped,
    /// The player gave up: the ticket goes at once.
    Quit,
}

/// Why a player does not wait any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutReason {
    /// The place is gone: left, emptied by an operator, or away for longer than the grace.
    Gone,
    /// The player entered again, here or through another proxy, and that visit has the ticket.
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
