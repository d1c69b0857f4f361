use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use crate::agent::backend::{Backend, Inventory};
use crate::agent::core::{TokenHint, jitter};

/// Finds out what the backend does not know, and brings places home.
pub(in crate::agent) async fn settle<I: Inventory>(backend: Arc<Backend<I>>) {
    let core = &backend.core;
    let every = Duration::from_millis(core.config().tokens.reap_interval_ms);
    let mut hints = core.token_events.subscribe();
    let mut lease = core.lease.events();
    let mut next = Instant::now() + jitter(every);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            hint = hints.recv() => match hint {
                Ok(TokenHint::Event(event)) => backend.on_token_event(event).await,
                Ok(TokenHint::Gap) | Err(RecvError::Lagged(_)) => backend.check_all_rows().await,
                Err(RecvError::Closed) => return,
            },
            event = lease.recv() => backend.on_lease_event(event.ok()).await,
            () = sleep_until(next) => {
                next = Instant::now() + jitter(every);
                backend.sweep().await;
            }
        }
    }
}
