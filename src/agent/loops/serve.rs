use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use crate::agent::backend::{Backend, Inventory};
use crate::agent::core::{LineHint, jitter};
use crate::ids::LineName;
use crate::queue::LineEvent;

/// Longest time between two looks.
const TICK: Duration = Duration::from_secs(1);

/// Serves the wait lines until the agent stops.
pub(in crate::agent) async fn serve<I: Inventory>(backend: Arc<Backend<I>>) {
    let core = &backend.core;
    let mut events = core.line_events.subscribe();
    let own = [LineName::wait(), LineName::wait_for(&core.identity.id)];
    let mut next = Instant::now() + jitter(TICK);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            hint = events.recv() => match hint {
                Ok(LineHint::Event(LineEvent::Entered { line } | LineEvent::Paused { line, paused: false }))
                    if own.contains(&line) => {}
                Ok(LineHint::Gap) | Err(RecvError::Lagged(_)) => {}
                Ok(LineHint::Event(_)) => continue,
                Err(RecvError::Closed) => return,
            },
            () = backend.serving.restocked() => {}
            () = sleep_until(next) => {}
        }
        next = Instant::now() + jitter(TICK);
        backend.serve_lines().await;
    }
}
