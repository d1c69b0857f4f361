use crate::error::{Error, Result};
use crate::route::{CacheTimes, ObjectRouter, RouteBook, RouteTimes};

use super::core::Agent;

/// Least lock timeout, in ms.
const LOCK_TIMEOUT_MIN_MS: u64 = 10_000;
/// Least time that a free record stays, in ms.
const FREE_MIN_MS: u64 = 5_000;

impl Agent {
    /// This node's part in the routes of its zone: messages to objects, and the objects that it keeps. Call it once, and
    /// before the first message: heartbeats from now on say that the node takes part.
    ///
    /// On the way out: [`Keeper::flush`](crate::route::Keeper::flush) for each kind, [`ObjectRouter::stop`], then leave.
    ///
    /// Errors with [`Error::OutOfBounds`] outside of a runtime, with a lock timeout below 10,000 ms, and where free records
    /// stay for less than 5,000 ms: their versions are what the next owner's version grows from.
    pub fn routes(&self, times: RouteTimes, cache: CacheTimes) -> Result<ObjectRouter> {
        check(times)?;
        let core = self.core();
        let book = RouteBook::new(core.store.clone(), core.trust.clone(), core.lease.clone(), times);
        let config = core.config();
        let labels = &config.node.labels;
        let router = ObjectRouter::start(book, cache, core.post.clone(), core.directory.clone(), labels)?;
        core.beat_now.notify_one();
        Ok(router)
    }
}

fn check(times: RouteTimes) -> Result<()> {
    let least = [
        ("lock timeout", times.lock_timeout_ms, LOCK_TIMEOUT_MIN_MS),
        ("time that a free record stays", times.free_ms, FREE_MIN_MS),
    ];
    match least.into_iter().find(|(_, given, least)| given < least) {
        None => Ok(()),
        Some((what, given, least)) => Err(Error::OutOfBounds {
            what: "route times",
            problem: format!("the {what} is {given} ms; at least {least} ms are allowed"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // with times near to nothing two nodes own one object, or one in the version of another.
    #[test]
    fn r_17_times_that_are_too_short_are_refused() {
        let good = RouteTimes::default();
        check(good).expect("the defaults");
        check(RouteTimes { lock_timeout_ms: 10_000, free_ms: 5_000 }).expect("the least");
        for bad in [RouteTimes { lock_timeout_ms: 9_999, ..good }, RouteTimes { free_ms: 4_999, ..good }] {
            assert!(matches!(check(bad), Err(Error::OutOfBounds { .. })), "{bad:?}");
        }
    }
}
