use crate::error::Result;
use crate::route::{CacheTimes, ObjectRouter, RouteBook, RouteTimes};

use super::core::Agent;

impl Agent {
    /// This node's part in the routes of its zone: messages to objects, and the objects that it keeps. Call it once, and
    /// before the first message: heartbeats from now on say that the node takes part.
    ///
    /// On the way out: [`Keeper::flush`](crate::route::Keeper::flush) for each kind, [`ObjectRouter::stop`], then leave.
    pub fn routes(&self, times: RouteTimes, cache: CacheTimes) -> Result<ObjectRouter> {
        let core = self.core();
        let book = RouteBook::new(core.store.clone(), core.trust.clone(), core.lease.clone(), times);
        let config = core.config();
        let labels = &config.node.labels;
        let router = ObjectRouter::start(book, cache, core.post.clone(), core.directory.clone(), labels)?;
        core.beat_now.notify_one();
        Ok(router)
    }
}
