//! The test support itself, against a real server: a fault that is not injected, or a command that is not counted,
//! would make every test that stands on it green for nothing.

mod fault;
mod fleet;
mod private_store;
mod resp;
mod store;
