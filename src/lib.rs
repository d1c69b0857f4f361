//! maitred
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod envelope;
pub mod error;
pub mod ids;
pub mod message;
pub mod node;
pub mod store;

pub use error::{Error, Result};
