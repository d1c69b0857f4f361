//! The test support itself, against a real server: a fault that is not injected, or a command that is not counted,
//! would make every test that stands on it green for nothing.

mod support;

#[path = "support_selftest/fault.rs"]
mod fault;
#[path = "support_selftest/fleet.rs"]
mod fleet;
#[path = "support_selftest/resp.rs"]
mod resp;
#[path = "support_selftest/store.rs"]
mod store;
