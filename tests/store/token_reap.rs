//! The sweep: expiry, reopening of what the dead had claimed, healing of the index. If these fail, places stay promised
//! to players who never come, a claim is taken from a proxy that is alive, or the store fills up.

mod crowd;
mod healing;
mod reopening;
