//! The agents' part of login lines.

mod api;
mod desk;
mod entry;
mod pass;
mod visit;

pub use entry::{Admitted, Departure, Entering, Entry, Failure};
pub use visit::{OutReason, Update, Visit};
