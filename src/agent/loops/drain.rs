//! A backend that an operator drains (NOD-13) hears of it, and tells the others with its next beat.

use std::sync::Arc;

use crate::agent::backend::{Backend, BackendEvent, Inventory};

/// Tells the application. It ends with the agent.
pub(in crate::agent) async fn watch_drain<I: Inventory>(backend: Arc<Backend<I>>) {
    let core = &backend.core;
    let (mut control, mut status) = (core.control.changes(), core.status.subscribe());
    let mut told = false;
    loop {
        let changed = tokio::select! {
            () = core.stop.cancelled() => return,
            changed = control.changed() => changed,
            // A drain that is in force already is told once the node is a member.
            changed = status.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        if !core.lease.is_valid() {
            continue;
        }
        let drain = core.control.drain(&core.identity.id);
        if std::mem::replace(&mut told, drain.is_some()) == drain.is_some() {
            continue;
        }
        // Who selects without having heard of it sees it in the row.
        core.beat_now.notify_one();
        let event = match drain {
            Some(drain) => BackendEvent::Draining { by: drain.by, at_ms: drain.at },
            None => BackendEvent::Undrained,
        };
        tracing::info!(node = %core.identity.id, ?event, "drain");
        backend.notify(event);
    }
}
