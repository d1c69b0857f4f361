//! QUE-9, SEL-7: requests that no backend can serve wait in the store and are served in order as places come in. If one of
//! these fails, players wait for nothing, are served out of their turn, hold a place twice, or are forgotten.

mod blocked;
mod cancel;
mod doubt;
mod fair;
mod lost;
mod named;
mod order;
mod stall;
mod wishes;

use crate::fixtures::waiting::{
    QUIET, end, line, queueing, served, tickets, turned_away, wait_proxy, waits, waits_for_any,
};
