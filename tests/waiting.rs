//! What must hold for whoever waits, in a login line for a pass or in a wait line for a token: one table over both kinds.
//! If one of these fails, an accident that costs nobody a place in one kind of line costs it in the other.

mod agents_common;
mod support;

#[path = "waiting/accidents.rs"]
mod accidents;
#[path = "waiting/handover.rs"]
mod handover;
#[path = "waiting/kinds.rs"]
mod kinds;
#[path = "waiting/removed.rs"]
mod removed;
