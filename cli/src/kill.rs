use clap::{Args, ValueEnum};
use serde_json::json;

use maitred::ids::NodeId;
use maitred::node::{Control, ControlEntry, KILL, kill_name};

use super::Failure;
use super::context::Context;
use super::view;

/// Who writes, in the entry.
const WRITER: &str = "cli";

/// Options of `maitred kill`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Switch on, switch off, or show
    action: Action,
    /// Only this node instead of the whole fleet
    #[arg(long, value_name = "ID")]
    node: Option<NodeId>,
    /// Who does it, for the record: 1 to 64 of A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "NAME", default_value = WRITER)]
    by: NodeId,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Action {
    /// No issue and no claim from now on; those under way land
    On,
    /// All goes on
    Off,
    /// What is in force
    Status,
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let only_looks = matches!(options.action, Action::Status);
    let (store, verifier) = if only_looks { context.fleet_to_read().await? } else { context.fleet().await? };
    let control = Control::default();
    let name = options.node.as_ref().map_or_else(|| KILL.to_owned(), kill_name);
    match options.action {
        Action::Status => {
            control.refresh(&store, &verifier).await?;
            status(context, &control, &verifier);
            return Ok(());
        }
        Action::On | Action::Off => {
            let value = if matches!(options.action, Action::On) { "on" } else { "off" };
            let entry = control.put(&store, &verifier, &name, value, options.by.as_str()).await?;
            if context.json {
                view::json(
                    &json!({ "ok": true, "name": name, "value": entry.value, "version": entry.version, "by": entry.by }),
                );
            } else {
                let scope = options.node.as_ref().map_or_else(|| "the fleet".to_owned(), ToString::to_string);
                view::line(&format!("kill switch of {scope}: {value} (version {})", entry.version));
            }
        }
    }
    Ok(())
}

/// Every kill entry in force, and how many did not verify.
fn status(context: &Context, control: &Control, verifier: &maitred::store::Verifier) {
    let entries: Vec<(String, ControlEntry)> =
        control.entries().into_iter().filter(|(name, _)| name == KILL || name.starts_with("kill:")).collect();
    let forged = verifier.audit().total();
    if context.json {
        let entries: Vec<_> = entries
            .iter()
            .map(|(name, entry)| json!({ "name": name, "value": entry.value, "version": entry.version, "by": entry.by, "at": entry.at }))
            .collect();
        view::json(&json!({ "fleet": control.is_on(KILL), "entries": entries, "not_believed": forged }));
        return;
    }
    if entries.is_empty() {
        view::line("no kill switch was ever set");
    } else {
        let mut grid = view::Grid::new(&["switch", "value", "by", "version"]);
        for (name, entry) in entries {
            let tone = if entry.value == "on" { view::Tone::Bad } else { view::Tone::Good };
            grid.row([
                (name, view::Tone::Plain),
                (entry.value, tone),
                (entry.by, view::Tone::Plain),
                (entry.version.to_string(), view::Tone::Dim),
            ]);
        }
        grid.print();
    }
    if forged > 0 {
        view::line(&format!("{forged} entries were not believed (see the log with MAITRED_LOG=warn)"));
    }
}
