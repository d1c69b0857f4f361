//! The `maitred` command, run as people and programs run it.

#[path = "../../../tests/fixtures/mod.rs"]
mod fixtures;

mod bench_command;
mod cli;
mod config_push;
mod curves;
mod demo;
mod doctor;
mod rush;
mod sidecar;
