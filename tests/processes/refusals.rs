//! What the store refuses, as the library and an operator get to see it (REL-4), and scripts that vanish under load
//! (STO-3). When one of these fails, an outage with a plain cause is searched for in the wrong place, or a flush costs
//! players.

mod flush;
mod library;
mod operator;
mod states;
