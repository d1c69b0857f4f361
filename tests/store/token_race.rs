//! Races over one token, and answers that get lost: if these fail, a player is moved by two proxies, lets somebody else
//! in with his place, or sits on two places.

mod lost;
mod race;
