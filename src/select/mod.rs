//! Choosing a backend: pure functions of one moment. No I/O, no clock, no randomness of their own.
//!
//! ```text
//! score(b) = Σ weight × curve(normalise(metric(b))) ÷ weight of b        lowest wins, ties by node id (SEL-1)
//! ```
//!
//! - [`MetricSource`]: where a value comes from. [`Rule`]: how it is normalised, bent and weighed. [`Curve`]: the bends.
//! - [`Candidates`]: a snapshot made ready for many choices, with what a proxy knows itself: cooldowns, recent picks,
//!   round trips. What a heartbeat says is scored once, when it comes.
//! - [`rank`]: filters the candidates (SEL-4) and puts what is left in order, by score or by the most kept places (SEL-6).
//!   A request walks that order until one backend gives it a place.
//!
//! `docs/load-balancing.md` has the curves drawn.

mod candidates;
mod choose;
mod curve;
mod metric;
mod picks;
mod row;
mod score;

pub use candidates::{Candidates, Setting};
pub use choose::{Ask, Exclusion, NAMED_MAX, Order, Pick, RankContext, Ranking, rank};
pub use curve::Curve;
pub use metric::{MetricSource, Rule};
pub(crate) use picks::decayed;
pub use score::LOCALITY;
