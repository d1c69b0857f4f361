//! What a rush must not break, as pure functions over what was heard: each names what it found, so that a broken history
//! is seen to be broken.
//!
//! Times are µs of the store's clock, which in a private store is this machine's.

mod capacity;
mod order;
mod pace;

pub(super) use capacity::{Cap, Hold, Peak, oversold};
pub(super) use order::{Admission, Joining, Stand, joined_out_of_turn, overtaken};
pub(super) use pace::{Pace, pace};
