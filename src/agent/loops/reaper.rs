use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::agent::core::{Core, jitter};
use crate::token::{ReapOptions, reap};

/// Sweeps due tokens. Jitter only shortens the interval; a process that has just started sweeps twice as often for its
/// first beats.
pub(in crate::agent) async fn reaper(core: Arc<Core>) {
    let every = Duration::from_millis(core.config().tokens.reap_interval_ms);
    let early = Instant::now() + Duration::from_millis(core.config().heartbeat.interval_ms * 2);
    let options = ReapOptions { batch: core.config().tokens.reap_batch, ..ReapOptions::default() };
    loop {
        let wait = if Instant::now() < early { every / 2 } else { every };
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = sleep(jitter(wait)) => {}
        }
        // A claimant may only be as late as this node was.
        if !core.may_judge() {
            continue;
        }
        match reap(&core.book, options).await {
            Ok(report) if report.expired + report.reopened + report.healed > 0 => {
                tracing::info!(?report, "reaped");
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "could not reap"),
        }
    }
}
