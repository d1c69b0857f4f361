use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::agent::core::{Core, jitter};
use crate::token::{ReapOptions, reap};

/// Sweeps due tokens. Jitter only shortens the interval; a process that has just started sweeps twice as often until its
/// first beats after it may say that others are dead.
pub(in crate::agent) async fn reaper(core: Arc<Core>) {
    let every = Duration::from_millis(core.config().tokens.reap_interval_ms);
    let early =
        Instant::now() + Duration::from_millis(core.lease.length_ms() + core.config().heartbeat.interval_ms * 2);
    loop {
        let wait = if Instant::now() < early { every / 2 } else { every };
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = sleep(jitter(wait)) => {}
        }
        // A claimant may only be as late as this node was. Tokens end by their time all the same.
        let (judge_until_ms, batch) = (core.judges_until_ms(), core.config().tokens.reap_batch);
        match reap(&core.book, core.own_server(), ReapOptions { judge_until_ms, batch, ..ReapOptions::default() }).await
        {
            Ok(report) if report.expired + report.reopened + report.healed > 0 => {
                tracing::info!(?report, "reaped");
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "could not reap"),
        }
    }
}
