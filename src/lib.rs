//! maitred
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod error;
pub mod ids;
pub mod store;

pub use error::{Error, Result};
