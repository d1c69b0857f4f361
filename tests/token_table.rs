//! What a token does in every state, on a real store: if a cell of this table is wrong, a player is promised two
//! places, loses the one he has, or is let in twice.

mod support;
mod tokens_common;

#[path = "token_table/grid.rs"]
mod grid;
#[path = "token_table/reading.rs"]
mod reading;
#[path = "token_table/reasks.rs"]
mod reasks;
#[path = "token_table/refusals.rs"]
mod refusals;
#[path = "token_table/repeats.rs"]
mod repeats;
#[path = "token_table/table.rs"]
mod table;
