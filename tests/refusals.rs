//! What the store refuses, as the library and an operator get to see it (REL-4), and scripts that vanish under load
//! (STO-3). When one of these fails, an outage with a plain cause is searched for in the wrong place, or a flush costs
//! players.

mod support;

#[path = "refusals/flush.rs"]
mod flush;
#[path = "refusals/library.rs"]
mod library;
#[path = "refusals/operator.rs"]
mod operator;
#[allow(dead_code, reason = "shared with the tests of the commands; a part of it is used here")]
#[path = "cli/scene.rs"]
mod scene;
#[path = "refusals/states.rs"]
mod states;
