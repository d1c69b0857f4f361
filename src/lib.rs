//! maitred
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agent;
pub mod error;
pub mod ids;

pub use error::{Error, Result};
