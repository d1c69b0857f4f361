use clap::Args;
use serde_json::json;

use maitred::ids::NodeId;
use maitred::node::{Control, ControlEntry, DRAIN_PREFIX, drain_name};

use super::Failure;
use super::context::Context;
use super::view;

/// Who writes, in the entry.
const WRITER: &str = "cli";

const DRAIN_HELP: &str = "\
A drained node gets no new players and keeps those it has; places that were promised before are still taken up. It stays \
drained until `maitred undrain`, whatever is restarted, also before it ever joined. After the store lost its data say it again: \
processes that run remember it, those that start later do not.";

/// Options of `maitred drain`.
#[derive(Debug, Args)]
#[command(after_help = DRAIN_HELP)]
pub(super) struct Drain {
    /// The node
    #[arg(value_name = "NODE", required_unless_present = "status")]
    node: Option<NodeId>,
    /// Show every drain in force, or that of the node, instead
    #[arg(long)]
    status: bool,
    /// Who does it, for the record: 1 to 59 of A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "NAME", default_value = WRITER)]
    by: NodeId,
}

/// Options of `maitred undrain`.
#[derive(Debug, Args)]
pub(super) struct Undrain {
    /// The node
    #[arg(value_name = "NODE")]
    node: NodeId,
    /// Who does it, for the record: 1 to 59 of A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "NAME", default_value = WRITER)]
    by: NodeId,
}

pub(super) async fn drain(context: &Context, options: Drain) -> Result<(), Failure> {
    match options.node {
        Some(node) if !options.status => put(context, &node, "on", &options.by).await,
        only => status(context, only.as_ref()).await,
    }
}

pub(super) async fn undrain(context: &Context, options: Undrain) -> Result<(), Failure> {
    put(context, &options.node, "off", &options.by).await
}

async fn put(context: &Context, node: &NodeId, value: &str, by: &NodeId) -> Result<(), Failure> {
    let (store, verifier) = context.fleet().await?;
    let entry = Control::default().put(&store, &verifier, &drain_name(node), value, by.as_str()).await?;
    if context.json {
        view::json(&json!({
            "ok": true, "node": node, "draining": entry.is_on(), "version": entry.version, "by": entry.by,
            "at": entry.at,
        }));
    } else {
        view::line(&format!("drain of {node}: {value} (version {})", entry.version));
    }
    Ok(())
}

/// Every drain in force, and how many entries did not verify.
async fn status(context: &Context, only: Option<&NodeId>) -> Result<(), Failure> {
    let (store, verifier) = context.fleet_to_read().await?;
    let control = Control::default();
    only.iter().for_each(|node| control.want(&drain_name(node)));
    control.refresh(&store, &verifier).await?;
    let not_believed = verifier.audit().total();
    let drains: Vec<(String, ControlEntry)> = control
        .entries()
        .into_iter()
        .filter_map(|(name, entry)| Some((name.strip_prefix(DRAIN_PREFIX)?.to_owned(), entry)))
        .filter(|(node, entry)| entry.is_on() && only.is_none_or(|only| only.as_str() == node))
        .collect();
    if context.json {
        let drains: Vec<_> = drains
            .iter()
            .map(|(node, entry)| json!({ "node": node, "by": entry.by, "at": entry.at, "version": entry.version }))
            .collect();
        view::json(&json!({ "drains": drains, "not_believed": not_believed }));
        return Ok(());
    }
    match (drains.is_empty(), only) {
        (true, Some(node)) => view::line(&format!("{node} is not drained")),
        (true, None) => view::line("no node is drained"),
        (false, _) => {
            let now = store.clock().now_ms();
            let mut grid = view::Grid::new(&["node", "by", "since", "version"]);
            for (node, entry) in drains {
                grid.row([
                    (node, view::Tone::Warn),
                    (entry.by, view::Tone::Plain),
                    (view::ago(now.saturating_sub(entry.at)), view::Tone::Plain),
                    (entry.version.to_string(), view::Tone::Dim),
                ]);
            }
            grid.print();
        }
    }
    if not_believed > 0 {
        view::line(&format!("{not_believed} entries were not believed (see the log with MAITRED_LOG=warn)"));
    }
    Ok(())
}
