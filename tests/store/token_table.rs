//! What a token does in every state, on a real store: if a cell of this table is wrong, a player is promised two
//! places, loses the one he has, or is let in twice.

mod grid;
mod reading;
mod reasks;
mod refusals;
mod repeats;
mod table;
