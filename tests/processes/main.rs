//! Tests of real `maitred` processes, with real signals.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod accidents;
mod chaos;
mod drain;
mod kill_and_rotation;
mod minecraft;
mod operating;
mod refusals;
mod route_processes;
mod router;
mod wait;
