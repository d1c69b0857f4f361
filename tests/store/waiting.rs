//! What must hold for whoever waits, in a login line for a pass or in a wait line for a token: one table over both kinds.
//! If one of these fails, an accident that costs nobody a place in one kind of line costs it in the other.

mod accidents;
mod handover;
mod kinds;
mod removed;
