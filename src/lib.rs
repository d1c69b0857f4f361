//! maitred
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agent;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod envelope;
pub mod error;
pub mod ids;
pub mod message;
pub mod node;
pub mod select;
pub mod store;
pub mod token;

pub use error::{Error, Result};
