//! The state of one member of the fleet, which everything above shares: its store, lease, directory, messages and config.
//!
//! [`state`] holds it, [`status`] says how far it is, [`live`] has the config in force, [`hints`] what the subscription
//! says of tokens and lines, [`admitting`] the lines that this node admits for, [`charge`] what requests are charged against the
//! limits, [`definite`] the repeats until an outcome is known, [`redemptions`] the passes that are being spent, [`jitter`] the
//! spread of timers.

mod admitting;
mod charge;
mod definite;
mod hints;
mod jitter;
mod live;
mod redemptions;
mod state;
mod status;

pub(super) use admitting::Admitting;
pub(super) use charge::{Charge, Denied};
pub(super) use hints::{LineHint, TokenHint, line_hints, token_hints};
pub(super) use jitter::jitter;
pub(super) use live::Live;
pub(super) use redemptions::Redemptions;
pub(super) use state::Core;
pub(super) use status::Condition;
pub use status::{AgentStatus, LoadSource};
