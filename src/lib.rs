//! maitred
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agent;
pub mod envelope;
pub mod error;
pub mod ids;
pub mod message;
pub mod node;
pub mod select;
pub mod store;
pub mod token;

pub use error::{Error, Result};
