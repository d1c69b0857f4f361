//! The end of the lines of removed servers. Any number of nodes may see to it.

use crate::agent::core::Core;
use crate::error::Result;
use crate::ids::{LineName, NodeId};
use crate::node::roster;
use crate::queue::{Line, lines};

use super::options;

/// The lines of servers that are removed end.
pub(in crate::agent) async fn upkeep(core: &Core) -> Result<()> {
    for name in lines(&core.store).await? {
        if let Some(Ok(server)) = name.as_str().strip_prefix("wait.").map(NodeId::new) {
            end_if_removed(core, &server).await?;
        }
    }
    Ok(())
}

/// Ends the line of `server` where it is on no roster any more and its row is gone. Its players hear of it as an event.
pub(super) async fn end_if_removed(core: &Core, server: &NodeId) -> Result<()> {
    let rosters = roster::rosters(&core.store).await?;
    let listed: Vec<NodeId> = rosters.into_iter().flat_map(|(_, ids)| ids).map(|(id, _)| id).collect();
    let options = options(LineName::wait_for(server), &core.config().wait);
    let line = Line::new(core.store.clone(), core.verifier.clone(), core.control.clone(), options)?;
    let report = line.end_if_removed(server, &listed).await?;
    if report.out > 0 {
        tracing::info!(%server, players = report.out, "the server is removed, and the line for it has ended");
    }
    Ok(())
}
