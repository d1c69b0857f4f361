//! Choosing a backend: pure functions of one snapshot of the directory. No I/O, no clock, no randomness of their own.
//!
//! [`rank`] filters the snapshot and orders what is left; a request walks that order until one backend gives it a place.
//! [`Cooldowns`] remembers who refused or did not answer a moment ago.

mod choose;
mod cooldown;

pub use choose::{Ask, Exclusion, Pick, Ranking, Standing, rank};
pub use cooldown::Cooldowns;
