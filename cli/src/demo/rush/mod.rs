//! `maitred demo --rush`: everybody comes at once, to a small fleet of real processes with one line in front of it.
//!
//! - `scale`: how large and how fast everything is for so many players.
//! - `players` are the people: each enters at a proxy and waits; some drop and return, give up, or fail to be moved.
//! - `world` is what they share: proxies, and backends that count who is inside.
//! - `ears` hear the processes, and hand what concerns a player to that player.
//! - `watch`: the line's channel, the places in the store, and the live view.
//! - `history` is every `story` and what else was heard; `check` finds what must not be in it, and `report` says so, with a `summary` for programs.
//! - `stage` sets everything up, kills a proxy in the middle and reads the end state.

mod check;
mod ears;
mod history;
mod players;
mod report;
mod scale;
mod stage;
mod story;
mod summary;
mod watch;
mod world;

pub(super) use stage::Stage;
