use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use crate::agent::config::Config;
use crate::error::Error;
use crate::store::StoreUrl;

use super::Failure;
use super::context::Context;
use super::view;

/// The file that `init` writes unless another is named.
const FILE: &str = "network.yml";

/// Options of this command.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check a config file: every problem with its path, line and allowed values
    ///
    /// Exit code 0 where the file is good, 2 where it is not. With --json one object: ok, file, problems (lines), and of
    /// a good file enabled, zone, node_id and store (null where the file leaves them to the environment).
    Check {
        /// The file
        file: PathBuf,
    },
    /// Write a commented config file with every default
    ///
    /// A file that exists is left alone (exit code 2) unless --force is given. With --json one object: ok, file, bytes.
    Init {
        /// The file; - for stdout
        #[arg(default_value = FILE)]
        file: PathBuf,
        /// Overwrite the file
        #[arg(long)]
        force: bool,
    },
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    match options.action {
        Action::Check { file } => check(context, &file),
        Action::Init { file, force } => init(context, &file, force),
    }
}

fn check(context: &Context, file: &Path) -> Result<(), Failure> {
    let shown = file.display().to_string();
    let checked = Config::load(file).and_then(|config| {
        // The config knows the scheme of the URL, the store the rest.
        let problem = match config.store.url.as_ref().map(|url| StoreUrl::parse(url.expose())) {
            Some(Err(Error::StoreUrl { problem })) => Some(format!("{shown}: store.url: {problem}")),
            Some(Err(error)) => Some(format!("{shown}: store.url: {error}")),
            Some(Ok(_)) | None => None,
        };
        match problem {
            Some(problem) => Err(Error::Config { problems: vec![problem] }),
            None => Ok(config),
        }
    });
    match checked {
        Ok(config) => {
            good(context, &shown, &config);
            Ok(())
        }
        Err(Error::Config { problems }) => {
            if context.json {
                view::json(&json!({ "ok": false, "file": shown, "problems": problems }));
            } else {
                for problem in &problems {
                    view::line(problem);
                }
                view::line(&format!("{shown}: {}", view::counted(problems.len(), "problem")));
            }
            Err(Failure::Invalid)
        }
        Err(other) => Err(other.into()),
    }
}

fn good(context: &Context, shown: &str, config: &Config) {
    let node = config.node.id.as_ref().map(ToString::to_string);
    let store = config.store.url.as_ref().map(ToString::to_string);
    if context.json {
        return view::json(&json!({
            "ok": true, "file": shown, "problems": [], "enabled": config.enabled, "zone": config.zone,
            "node_id": node, "store": store,
        }));
    }
    let switched = if config.enabled { "enabled" } else { "not enabled" };
    let node = node.unwrap_or_else(|| "from MAITRED_NODE_ID".to_owned());
    let store = store.unwrap_or_else(|| "from MAITRED_STORE".to_owned());
    view::line(&format!("{shown}: ok ({switched}, zone {}, node id {node}, store {store})", config.zone));
}

fn init(context: &Context, file: &Path, force: bool) -> Result<(), Failure> {
    let text = Config::default_yaml();
    if file == Path::new("-") {
        view::line(text.trim_end_matches('\n'));
        return Ok(());
    }
    let shown = file.display().to_string();
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options.open(file).and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Ok(()) if context.json => view::json(&json!({ "ok": true, "file": shown, "bytes": text.len() })),
        Ok(()) => {
            view::line(&format!("wrote {shown}; set enabled, zone and store.url, then: maitred config check {shown}"))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Failure::Usage(format!("{shown} exists and was left alone; --force overwrites it")));
        }
        Err(error) => return Err(Failure::io(&format!("writing {shown}"), &error)),
    }
    Ok(())
}
