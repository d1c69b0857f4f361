//! The sweep of the lines: places of dead proxies and of those who stay away go. Every node does it, those that have
//! players in lines more often.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::agent::config::Config;
use crate::agent::core::{Core, jitter};
use crate::error::Result;
use crate::ids::{LineName, NodeId};
use crate::node::roster;
use crate::queue::{LineOptions, LineSweepReport, lines};

use super::line_handle::line;

/// Time between two sweeps of the lines that hold tickets, on a node whose players wait in lines.
const OFTEN: Duration = Duration::from_secs(4);
/// The same on all others, and between two sweeps of the lines of the config that hold none.
const SELDOM: Duration = Duration::from_secs(60);
/// Most lines that one sweep looks at; the others come with the next ones, in turn.
const LINES_MAX: usize = 64;

/// Sweeps until the agent stops.
pub(in crate::agent) async fn sweep_lines(core: Arc<Core>) {
    let every = if core.hears_beats { OFTEN } else { SELDOM };
    let mut all_at = Instant::now() + jitter(SELDOM);
    let mut last: Option<LineName> = None;
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = sleep(jitter(every)) => {}
        }
        // Those whose proxy is as late as this node was are not put away for it.
        if !core.may_judge() {
            continue;
        }
        let all = Instant::now() >= all_at;
        let swept = tokio::select! {
            () = core.stop.cancelled() => return,
            swept = core.judge(sweep(&core, all, &mut last)) => swept,
        };
        match swept {
            Ok(report) => {
                if report != LineSweepReport::default() {
                    tracing::info!(?report, "swept the lines");
                }
                if all {
                    all_at = Instant::now() + jitter(SELDOM);
                }
            }
            Err(error) => tracing::debug!(%error, "could not sweep the lines"),
        }
    }
}

/// One sweep, from the line after `last` on.
async fn sweep(core: &Core, all: bool, last: &mut Option<LineName>) -> Result<LineSweepReport> {
    let config = core.config();
    let mut names: BTreeSet<LineName> = lines(&core.store).await?.into_iter().collect();
    if all {
        names.extend(config.lines.keys().cloned());
    }
    let (done, to_do): (Vec<&LineName>, Vec<&LineName>) =
        names.iter().partition(|name| last.as_ref().is_some_and(|last| *name <= last));
    let (mut report, mut failure) = (LineSweepReport::default(), None);
    for name in to_do.into_iter().chain(done).take(LINES_MAX) {
        *last = Some(name.clone());
        let options = config.lines.get(name).map_or_else(|| unconfigured(name, &config), |line| line.options(name));
        // What stands in the way of one line does not in that of the others.
        match line(core, options)?.sweep().await {
            Ok(swept) => report.add(swept),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(report), Err)
}

/// A line that this node's config does not have: a wait line, or one that was taken out of it.
fn unconfigured(name: &LineName, config: &Config) -> LineOptions {
    config.wait.options(name.clone())
}

/// The lines of servers that are removed end. Any number of nodes may see to it.
pub(in crate::agent) async fn end_removed(core: &Core) -> Result<()> {
    for name in lines(&core.store).await? {
        if let Some(server) = server_of(&name) {
            end_if_removed(core, &server).await?;
        }
    }
    Ok(())
}

/// The server whose own wait line this is.
pub(super) fn server_of(name: &LineName) -> Option<NodeId> {
    NodeId::new(name.as_str().strip_prefix("wait.")?).ok()
}

/// Ends the line of `server` where it is on no roster any more and its row is gone, for as long as one that was killed would
/// be on it: who leaves by the book and comes back finds its players too. They hear of the end as an event.
pub(super) async fn end_if_removed(core: &Core, server: &NodeId) -> Result<()> {
    let rosters = roster::rosters(&core.store).await?;
    let config = core.config();
    let is_listed = rosters.iter().flat_map(|(_, ids)| ids).any(|(id, _)| id == server);
    if is_listed || !roster::is_silent_for(&core.store, server, config.directory.removed_ms).await? {
        return Ok(());
    }
    let report = line(core, config.wait.options(LineName::wait_for(server)))?.end_if_removed(server, &[]).await?;
    if report.out > 0 {
        tracing::info!(%server, players = report.out, "the server is removed, and the line for it has ended");
    }
    Ok(())
}
