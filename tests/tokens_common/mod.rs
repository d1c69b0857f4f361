//! What the token tests stand on: a zone of its own on a real store, members that joined it, and time that passes on
//! order.
//!
//! - [`Bench`] is one zone: what stands in it, to the byte, and what was heard on its token channel.
//! - [`Member`] is one joined process with its own membership and its own look at the control entries.
//! - [`Bench::age`] lets time pass without waiting for it.
#![allow(dead_code, reason = "every test binary compiles all of this and uses a part of it")]

mod age;
mod bench;
mod member;

pub use bench::{Bench, HOUR_MS, store_options};
pub use member::{Member, payload, player, request, say};
