//! The composition root: every loop of an agent is started here, and nowhere else. Each ends with the agent's stop token,
//! and [`Core::leave`] waits for all of them.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::store::FeedItem;

use super::backend::{Backend, Inventory};
use super::core::Core;
use super::loops;
use super::proxy::Proxy;
use super::queue;

/// The loops of every member: subscription, heartbeat, directory, reaper, upkeep, pushed configs, sweep of the lines.
pub(super) fn member(core: &Arc<Core>, sink: mpsc::Sender<FeedItem>, items: mpsc::Receiver<FeedItem>) {
    let (feed, store, stop) = (core.feed.clone(), core.store.clone(), core.stop.clone());
    let channels = loops::channels(core);
    core.tasks.spawn(async move { feed.run(store, channels, sink, stop).await });
    core.tasks.spawn(loops::route(Arc::clone(core), items));
    core.tasks.spawn(loops::heart(Arc::clone(core)));
    core.tasks.spawn(loops::watch_directory(Arc::clone(core)));
    core.tasks.spawn(loops::reaper(Arc::clone(core)));
    core.tasks.spawn(loops::upkeep(Arc::clone(core)));
    core.tasks.spawn(loops::take_pushes(Arc::clone(core)));
    core.tasks.spawn(queue::sweep_lines(Arc::clone(core)));
}

/// The loops of a backend beside those of a member: settling, the operator's drain, the wait lines.
pub(super) fn backend<I: Inventory>(backend: &Arc<Backend<I>>) {
    let tasks = &backend.core.tasks;
    tasks.spawn(loops::settle(Arc::clone(backend)));
    tasks.spawn(loops::watch_drain(Arc::clone(backend)));
    tasks.spawn(loops::serve(Arc::clone(backend)));
}

/// The loops of a proxy beside those of a member: recent picks, and three for the players who wait through it.
pub(super) fn proxy(proxy: &Arc<Proxy>) {
    let (tasks, client) = (&proxy.core.tasks, &proxy.queue);
    tasks.spawn(loops::share_picks(Arc::clone(proxy)));
    tasks.spawn(queue::poll_lines(Arc::clone(client)));
    tasks.spawn(queue::admit_lines(Arc::clone(client)));
    tasks.spawn(queue::send_leaves(Arc::clone(client)));
}
