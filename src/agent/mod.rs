//! What an application embeds.

pub mod config;
