use crate::agent::config::{FREE_MIN_MS, LOCK_TIMEOUT_MIN_MS};
use crate::error::{Error, Result};
use crate::route::{CacheTimes, KeepTimes, ObjectRouter, RouteBook, RouteTimes};

use super::agent::Agent;
use super::setup::peers;

impl Agent {
    /// This node's part in the routes of its zone: messages to objects, and the objects that it keeps, with the times of
    /// the config's section `routes`. Call it once, and before the first message: heartbeats from now on say that the node
    /// takes part. From now on it also keeps nodes of every role in view, since any of them may own an object.
    ///
    /// On the way out: [`Keeper::flush`](crate::route::Keeper::flush) for each kind, [`ObjectRouter::stop`], then leave.
    ///
    /// Errors with [`Error::OutOfBounds`] outside of a runtime, and where an earlier router of this agent still stands.
    pub fn routes(&self) -> Result<ObjectRouter> {
        let config = self.config();
        self.routes_with(config.routes.times(), config.routes.cache(), config.routes.keep())
    }

    /// [`routes`](Self::routes), with times that the application brings.
    ///
    /// Errors with [`Error::OutOfBounds`] also with a lock timeout below 10,000 ms, and where free records stay for less than
    /// 5,000 ms: their versions are what the next owner's version grows from.
    pub fn routes_with(&self, times: RouteTimes, cache: CacheTimes, keep: KeepTimes) -> Result<ObjectRouter> {
        check(times)?;
        let core = self.core();
        let book = RouteBook::new(core.store.clone(), core.verifier.clone(), core.lease.clone(), times);
        let config = core.config();
        let labels = &config.node.labels;
        let (post, directory) = (core.post.clone(), core.directory.clone());
        let router = ObjectRouter::start(book, cache, keep, post, directory, labels)?;
        // An agent that is only asked looks at proxies alone until now.
        core.directory.keep_all_roles();
        core.directory.expect(peers(&config));
        core.refresh_now.notify_one();
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
