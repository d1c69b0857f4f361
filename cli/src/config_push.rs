use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use maitred::agent::config::{Config, Push};
use maitred::error::Error;
use maitred::ids::NodeId;
use maitred::node::{CONFIG, Control, ControlEntry};

use super::Failure;
use super::config_cmd::{bad, read};
use super::context::Context;
use super::view::{self, Grid, Tone};

/// Who writes, in the entry.
const WRITER: &str = "cli";

/// Options of `maitred config push`.
#[derive(Debug, Args)]
pub(super) struct PushOptions {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    writer: UnpushOptions,
}

/// Options of `maitred config unpush`.
#[derive(Debug, Args)]
pub(super) struct UnpushOptions {
    /// Who does it, for the record: 1 to 64 of A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "NAME", default_value = WRITER)]
    by: NodeId,
}

pub(super) async fn push(context: &Context, options: &PushOptions) -> Result<(), Failure> {
    let file = &options.file;
    let push = match read(file).and_then(|_| pushable(file)) {
        Ok(push) => push,
        Err(Error::Config { problems }) => {
            bad(context, file, &problems);
            return Err(Failure::Check);
        }
        Err(other) => return Err(other.into()),
    };
    if push.text().is_empty() {
        let sections = Push::sections();
        return Err(Failure::Usage(format!("{} gives nothing that can be pushed: {sections}", file.display())));
    }
    let own = context.or_of(file)?;
    let entry = put(&own, push.text(), &options.writer).await.map_err(|failure| failure.at(&own))?;
    if context.json {
        view::json(&json!({
            "ok": true, "version": entry.version, "by": entry.by, "keys": push.keys(), "left_out": push.left_out(),
        }));
        return Ok(());
    }
    view::line(&format!("pushed config version {}: {}", entry.version, push.keys().join(", ")));
    if !push.left_out().is_empty() {
        view::line(&format!("not pushed, because it stays with each host: {}", push.left_out().join(", ")));
    }
    view::line(
        "each node checks it together with its own file, and keeps what it had where the two do not fit; `maitred nodes` \
         shows the version that each runs with",
    );
    Ok(())
}

pub(super) async fn unpush(context: &Context, options: &UnpushOptions) -> Result<(), Failure> {
    let entry = put(context, "", options).await?;
    if context.json {
        view::json(&json!({ "ok": true, "version": entry.version, "by": entry.by }));
    } else {
        view::line(&format!("no config is pushed any more (version {}): each node's file is in force", entry.version));
    }
    Ok(())
}

pub(super) async fn show(context: &Context) -> Result<(), Failure> {
    let (store, verifier) = context.fleet_to_read().await?;
    let control = Control::default();
    control.refresh(&store, &verifier).await?;
    // The version of a push that was withdrawn is no version of a config.
    let entry = control.entry(CONFIG).filter(|entry| !entry.value.is_empty());
    let forged = verifier.audit().total();
    let value = entry.as_ref().and_then(|entry| serde_json::from_str::<Value>(&entry.value).ok());
    let unusable = entry.as_ref().and_then(|entry| Config::default().with_push(&entry.value).err());
    if context.json {
        let of = |get: fn(&ControlEntry) -> Value| entry.as_ref().map(get);
        view::json(&json!({
            "version": of(|entry| entry.version.into()), "by": of(|entry| entry.by.as_str().into()),
            "at": of(|entry| entry.at.into()), "value": value, "not_believed": forged,
        }));
        return Ok(());
    }
    match &entry {
        None => view::line("no config is pushed: each node's file is in force"),
        Some(entry) => {
            let age = view::ago(store.clock().now_ms().saturating_sub(entry.at));
            view::line(&format!(
                "pushed config version {} by {}, {age} ago; it goes before each file",
                entry.version, entry.by
            ));
            let mut grid = Grid::new(&["KEY", "VALUE"]);
            for (key, value) in value.as_ref().map(|value| leaves("", value)).unwrap_or_default() {
                grid.row([(key, Tone::Plain), (value, Tone::Plain)]);
            }
            grid.print();
        }
    }
    if let Some(error) = unusable {
        view::line(&format!("a node of this build cannot use it: {error}"));
    }
    if forged > 0 {
        view::line(&format!("{forged} entries were not believed (see the log with MAITRED_LOG=warn)"));
    }
    Ok(())
}

fn pushable(file: &Path) -> maitred::Result<Push> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::Config {
        problems: vec![format!("{}: (file): cannot be read: {error}", file.display())],
    })?;
    Push::from_yaml(&text)
}

async fn put(context: &Context, value: &str, options: &UnpushOptions) -> Result<ControlEntry, Failure> {
    let (store, verifier) = context.fleet().await?;
    Ok(Control::default().put(&store, &verifier, CONFIG, value, options.by.as_str()).await?)
}

/// Each value with its path.
fn leaves(path: &str, value: &Value) -> Vec<(String, String)> {
    let Value::Object(map) = value else { return vec![(path.to_owned(), value.to_string())] };
    let under = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    map.iter().flat_map(|(name, value)| leaves(&under(name), value)).collect()
}
