use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::agent::core::{Core, jitter};
use crate::agent::queue;
use crate::error::Error;
use crate::node::roster;

/// Longest time between two looks after silent nodes and old epochs.
const UPKEEP_MAX: Duration = Duration::from_secs(60);

/// Takes silent nodes off the rosters, forgets old epochs, and signs again what only an old secret verifies.
pub(in crate::agent) async fn upkeep(core: Arc<Core>) {
    let removed_ms = core.config().directory.removed_ms;
    let every = Duration::from_millis(removed_ms / 4).clamp(Duration::from_millis(100), UPKEEP_MAX);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = sleep(jitter(every)) => {}
        }
        if !core.may_judge() {
            continue;
        }
        let done = async {
            let removed = roster::remove_silent(&core.store, removed_ms).await?;
            let signed = core.control.sign_again(&core.store, &core.verifier).await?;
            if signed > 0 {
                tracing::info!(signed, "control entries signed again with the present secret");
            }
            queue::end_removed(&core).await?;
            let forgotten = roster::forget(&core.store, roster::FORGET_MS).await?;
            Ok::<_, Error>((removed, forgotten))
        };
        match core.judge(done).await {
            Ok((removed, _)) if !removed.is_empty() => tracing::info!(?removed, "taken off the roster"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "could not look after the rosters"),
        }
    }
}
