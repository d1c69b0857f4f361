//! The operator's commands, run as an operator runs them: the binary against a real store (CLI-1). When one of these
//! fails, somebody at three in the morning is shown the wrong picture of the fleet, or none.

mod config;
mod faults;
mod nodes;
mod queues;
mod reap;
mod routes;
mod scripts;
mod tokens;
