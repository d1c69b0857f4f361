//! Races over one token, and answers that get lost: if these fail, a player is moved by two proxies, lets somebody else
//! in with his place, or sits on two places.

mod support;
mod tokens_common;

#[path = "token_race/lost.rs"]
mod lost;
#[path = "token_race/race.rs"]
mod race;
