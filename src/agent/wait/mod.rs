//! Wait lines (QUE-9): requests that no inventory could serve wait in the store, and backends turn the tickets into tokens
//! as places come in.
//!
//! ```text
//!  proxy                                        backend
//!    │ no candidate, or no place at any           │
//!    │── queue/enter ──► wait | wait.<server>     │ places come in, somebody enters, its tick
//!    │   Waiting: position, estimate              │── reserve ── queue/drain ──► PENDING token
//!    │◄── drained (an event; lost: the next tick) ┘
//!    │── token/claim ──► Transfer
//! ```
//!
//! - [`Waiting`](super::Waiting): what the application holds of a request that waits. [`WaitUpdate`]: what it hears.
//! - `slot`: one such request on its proxy. `waits`: all of them. `enter`, `decide`, `watch`: how it gets into the line, what
//!   becomes of it, and the loop that looks.
//! - `upkeep`: lines of removed servers.
//!
//! Invariants: a place is given for one ticket, and goes home only when it is certain that no token stands for it; whoever
//! finds out what became of a ticket reads the ticket before the token; a player whose turn came to nothing stands in front
//! again; a request ends once. What the store and the proxy do not agree on, a lost event, a ticket put away during a lapse that
//! nobody noticed, a ticket without a player, is put right within a few seconds.

mod decide;
mod enter;
mod pace;
mod slot;
mod update;
mod upkeep;
mod waits;
mod watch;

pub(super) use enter::{line_for, queue};
pub(super) use slot::{Slot, SlotState};
pub use update::WaitUpdate;
pub(super) use upkeep::upkeep;
pub(super) use waits::Waits;
pub(super) use watch::watch;

use crate::ids::LineName;
use crate::queue::LineOptions;

use super::config::WaitConfig;

/// What the operations of the wait line `name` are told.
pub(super) fn options(name: LineName, config: &WaitConfig) -> LineOptions {
    LineOptions {
        max_waiting: u64::try_from(config.max_waiting).unwrap_or(u64::MAX),
        reconnect_grace_ms: config.reconnect_grace_ms,
        ..LineOptions::wait_line(name)
    }
}
