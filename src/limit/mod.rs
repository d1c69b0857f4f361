//! Cooldowns and limits a player, the same at every proxy: a leaky bucket in one hash of the store, by its one clock.
//!
//! Key: `limit:<name>:<player>` (what the player owes, and the operations charged lately; its TTL ends with the debt).
//!
//! - [`Limit`]: how much is let through, checked when it is made.
//! - [`Limits`]: take and refund.
//!
//! Invariants: over any time at most the burst and what the rate adds is let through, by however many proxies; a repeated
//! operation is charged once; a refunded one counts as if it had never been charged. Like the line's gate a limit is not
//! signed: whoever can write to the store can lift it or lock a player out, and nobody acts on anything else for it.

mod rule;
mod take;

pub use rule::Limit;
pub(crate) use rule::{BURST_MAX, COUNT_MAX, INTERVAL_MIN_MS, PER_MAX_MS};
pub use take::{Limits, Verdict};
