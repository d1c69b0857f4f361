use std::sync::Arc;

use crate::agent::core::Core;

/// Takes a pushed config over, by whichever way the control entries were read.
pub(in crate::agent) async fn take_pushes(core: Arc<Core>) {
    let mut changes = core.control.changes();
    loop {
        core.take_push();
        tokio::select! {
            () = core.stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}
