//! What goes into a line and what comes out of it.

use serde::Serialize;

use crate::ids::{LineName, NodeId, Player};
use crate::queue::{Admission, Attributes};

use super::visit::Visit;

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
    /// The connection dropped: the place is kept for the line's `reconnectGraceMs`.
    Dropped,
    /// The player gave up: the place goes at once.
    Quit,
}

/// What became of a player whose transfer failed.
#[derive(Debug)]
pub enum Failure {
    /// Waits again, before everybody who came later.
    Back(Visit),
    /// The player is gone; the place is kept for the grace.
    Away,
    /// That was one failure too many: out of the line.
    Out,
    /// A newer pass or ticket stands, or none, or this node does not know of the admission: nothing was done.
    Late,
    /// The pass was redeemed: the player is there.
    Landed,
}
