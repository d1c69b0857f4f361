//! What the tests, the demo and the bench of maitred stand on: a server of their own, real node processes, a faulty wire.
//!
//! Two floors. The lower one answers a `Result` and is what the command uses as well:
//!
//! - [`server`] finds, starts and ends the process of a RESP server.
//! - [`private_store`] is a server for one run of a command, on a Unix socket.
//! - [`process`] runs a program that speaks in lines, and starts `maitred node`.
//!
//! The upper one is for tests, and panics with what a reader of a failed test needs:
//!
//! - [`store`] is a server that a test can stop, freeze and start again.
//! - [`fault`] sits between a client and the store, counts commands and loses replies on order.
//! - [`fleet`] runs the `maitred` binary as a node and speaks its JSON lines.
//! - [`program`] is that binary, built where nobody has built it yet.
//! - [`wait`] polls for a condition, so that no test sleeps for luck.
#![forbid(unsafe_code)]

pub mod fault;
pub mod fleet;
pub mod lane;
pub mod private_store;
pub mod process;
pub mod program;
pub mod resp;
pub mod server;
pub mod store;
pub mod wait;

mod pump;
mod signal;
