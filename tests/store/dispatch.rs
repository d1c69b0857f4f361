//! Dispatch end to end with agents in this process, each behind a wire of its own to a real store: the chain of
//! attempts, every typed end, the join, and where the places are afterwards. If one of these fails, a player is sent
//! nowhere, sent to two places, or leaves a place behind that nobody gets any more.

mod cancel;
mod chain;
mod leases;
mod lobby;
mod places;
mod reasons;
mod redeem;
mod spread;
