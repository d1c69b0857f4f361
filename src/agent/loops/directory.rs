use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::agent::core::{Core, jitter};

/// How often ages are judged anew.
const AGE_EVERY: Duration = Duration::from_millis(100);
/// Longest wait until a roster is read again that could not be.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Keeps the view of the others fresh.
pub(in crate::agent) async fn watch_directory(core: Arc<Core>) {
    let every = Duration::from_millis(core.config().directory.refresh_ms);
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.refresh_now.notified() => next = Instant::now(),
            () = sleep(AGE_EVERY) => {}
        }
        if Instant::now() >= next {
            match core.directory.refresh().await {
                Ok(()) => next = Instant::now() + jitter(every),
                Err(error) => {
                    tracing::debug!(%error, "could not read the rosters");
                    next = Instant::now() + jitter(every.min(RETRY_MAX));
                }
            }
        }
        core.directory.age();
    }
}
