//! The composition root: every loop of an agent is started here, and nowhere else. Each ends with the agent's stop token,
//! and [`Core::leave`] waits for all of them.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::store::FeedItem;

use super::backend::{Backend, Inventory};
use super::core::Core;
use super::lines::{self, Desk};
use super::loops;
use super::proxy::Proxy;
use super::wait;

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
    core.tasks.spawn(lines::sweeper(Arc::clone(core)));
}

/// The loops of a backend beside those of a member: settling, the operator's drain, the wait lines.
pub(super) fn backend<I: Inventory>(backend: &Arc<Backend<I>>) {
    let tasks = &backend.core.tasks;
    tasks.spawn(loops::settle(Arc::clone(backend)));
    tasks.spawn(loops::watch_drain(Arc::clone(backend)));
    tasks.spawn(loops::serve(Arc::clone(backend)));
}

/// The loops of a proxy beside those of a member: recent picks, requests that wait, players in login lines.
pub(super) fn proxy(proxy: &Arc<Proxy>, desk: &Arc<Desk>) {
    let core = &proxy.core;
    core.tasks.spawn(loops::share_picks(Arc::clone(proxy)));
    core.tasks.spawn(wait::watch(Arc::clone(proxy)));
    core.tasks.spawn(lines::watch(Arc::clone(desk), core.line_events.subscribe()));
    core.tasks.spawn(lines::supervise(Arc::clone(desk)));
    core.tasks.spawn(lines::say_goodbyes(Arc::clone(desk)));
}
