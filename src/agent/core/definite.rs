//! What goes on in the background until its outcome is definite.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::Error;
use crate::ids::Player;

use super::state::Core;

/// Between two tries.
const RETRY_EVERY: Duration = Duration::from_millis(200);

impl Core {
    /// After a try that failed: `what` was tried for `player`. Answers whether to try again, after a wait: while a repeat can
    /// help, the time `until` which it matters is not over, and the agent does not stop.
    pub(in crate::agent) async fn again(
        &self,
        what: &'static str,
        player: &Player,
        error: &Error,
        until: Option<Instant>,
    ) -> bool {
        if !error.is_retryable() || until.is_some_and(|until| Instant::now() >= until) {
            tracing::warn!(%player, what, %error, "could not be done; what it was to end ends by its time");
            return false;
        }
        tracing::debug!(%player, what, %error, "trying again");
        self.before_retry().await
    }

    /// The wait before another try. Answers false where the agent stops meanwhile.
    pub(in crate::agent) async fn before_retry(&self) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = sleep(RETRY_EVERY) => true,
        }
    }
}
