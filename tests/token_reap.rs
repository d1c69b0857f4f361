//! The sweep: expiry, reopening of what the dead had claimed, healing of the index. If these fail, places stay promised
//! to players who never come, a claim is taken from a proxy that is alive, or the store fills up.

mod support;
mod tokens_common;

#[path = "token_reap/crowd.rs"]
mod crowd;
#[path = "token_reap/healing.rs"]
mod healing;
#[path = "token_reap/reopening.rs"]
mod reopening;
