//! What the integration tests stand on: a real store, a faulty wire in front of it, real node processes, and waiting.
//!
//! - [`store`] starts a RESP server of its own for a test and ends it again.
//! - [`fault`] sits between a client and the store, counts commands and loses replies on order.
//! - [`fleet`] runs the `maitred` binary as a node and speaks its JSON lines.
//! - [`wait`] polls for a condition, so that no test sleeps for luck.
//!
//! A test binary takes it in with `mod support;`.
#![allow(dead_code, reason = "every test binary compiles all of this and uses a part of it")]

pub mod fault;
#[cfg(feature = "cli")]
pub mod fleet;
pub mod lane;
pub mod resp;
pub mod store;
pub mod wait;

mod pump;
mod signal;
