//! Choosing a backend: pure functions of one moment. No I/O, no clock, no randomness of their own.
//!
//! ```text
//! score(b) = Σ weight × curve(normalise(metric(b))) ÷ weight of b        lowest wins, ties by node id (SEL-1)
//! ```
//!
//! - [`MetricSource`]: where a value comes from. [`Rule`]: how it is normalised, bent and weighed. [`Curve`]: the bends.
//! - [`Memory`]: what a proxy knows itself: cooldowns, recent picks ([`Decaying`]), round trips.
//! - [`rank`]: filters a snapshot (SEL-4) and puts what is left in order, by [`Scorer`] or by the most kept places
//!   (SEL-6). A request walks that order until one backend gives it a place.
//!
//! `docs/load-balancing.md` has the curves drawn.

mod choose;
mod curve;
mod memory;
mod metric;
mod picks;
mod score;

pub use choose::{Ask, Exclusion, NAMED_MAX, Order, Pick, Ranking, Scene, rank};
pub use curve::{Curve, K_BOUNDS, P_BOUNDS, THRESHOLD_BOUNDS};
pub use memory::Memory;
pub use metric::{MetricSource, Rule};
pub use picks::Decaying;
pub use score::{LOCALITY, Scorer};
