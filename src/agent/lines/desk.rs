//! The desk of a proxy.

/// The visits of this node's players.
pub(crate) struct Desk {}
