//! Dispatch end to end with agents in this process, each behind a wire of its own to a real store: the chain of
//! attempts, every typed end, the join, and where the places are afterwards. If one of these fails, a player is sent
//! nowhere, sent to two places, or leaves a place behind that nobody gets any more.

mod agents_common;
mod support;

#[path = "dispatch/cancel.rs"]
mod cancel;
#[path = "dispatch/chain.rs"]
mod chain;
#[path = "dispatch/leases.rs"]
mod leases;
#[path = "dispatch/lobby.rs"]
mod lobby;
#[path = "dispatch/places.rs"]
mod places;
#[path = "dispatch/reasons.rs"]
mod reasons;
#[path = "dispatch/redeem.rs"]
mod redeem;
#[path = "dispatch/spread.rs"]
mod spread;
