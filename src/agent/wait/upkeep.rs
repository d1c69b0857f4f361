//! The upkeep of wait lines. Any number of nodes may be at it.

use crate::error::Result;
use crate::ids::{LineName, NodeId};
use crate::node::roster;
use crate::queue::{Line, lines};

use super::super::core::Core;
use super::options;

fn line(core: &Core, name: LineName) -> Result<Line> {
    let options = options(name, &core.config().wait);
    Line::new(core.store.clone(), core.trust.clone(), core.control.clone(), options)
}

/// Places of dead proxies and ended graces in all wait lines; the lines of servers that are removed end.
pub(in crate::agent) async fn upkeep(core: &Core) -> Result<()> {
    for name in lines(&core.store).await? {
        let server = name.as_str().strip_prefix("wait.").map(NodeId::new);
        if server.is_none() && name != LineName::wait() {
            continue;
        }
        let report = line(core, name.clone())?.sweep().await?;
        if report.away + report.out + report.healed > 0 {
            tracing::info!(line = %name, ?report, "swept a wait line");
        }
        if let Some(Ok(server)) = server {
            end_if_removed(core, &server).await?;
        }
    }
    Ok(())
}

/// Ends the line of `server` where it is on no roster any more and its row is gone. Its players hear of it as an event.
pub(super) async fn end_if_removed(core: &Core, server: &NodeId) -> Result<()> {
    let rosters = roster::rosters(&core.store).await?;
    let listed: Vec<NodeId> = rosters.into_iter().flat_map(|(_, ids)| ids).map(|(id, _)| id).collect();
    let report = line(core, LineName::wait_for(server))?.end_if_removed(server, &listed).await?;
    if report.out > 0 {
        tracing::info!(%server, players = report.out, "the server is removed, and the line for it has ended");
    }
    Ok(())
}
