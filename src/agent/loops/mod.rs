//! What runs in the background. Each loop is started by [`start`](super::start) and ends with the agent's stop token.

mod directory;
mod drain;
mod feed;
mod heart;
mod push;
mod reaper;
mod serve;
mod settle;
mod share_picks;
mod upkeep;

pub(super) use directory::watch_directory;
pub(super) use drain::watch_drain;
pub(super) use feed::{channels, route};
pub(super) use heart::heart;
pub(super) use push::take_pushes;
pub(super) use reaper::reaper;
pub(super) use serve::serve;
pub(super) use settle::settle;
pub(super) use share_picks::share_picks;
pub(super) use upkeep::upkeep;
