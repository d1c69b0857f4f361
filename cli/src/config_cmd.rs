use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use maitred::agent::config::Config;
use maitred::error::Error;
use maitred::store::StoreUrl;

use super::Failure;
use super::config_push;
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
    /// Push the file's hot sections into the store: every running node takes them over, without a restart
    ///
    /// Pushed are the keys that the file gives in the sections that can change while a node runs; they go before each
    /// node's own file until another push, or `unpush`. What cannot be pushed is named and stays with each host. The whole
    /// file is checked first: with a problem nothing is changed (exit code 1). Store, zone and secret are those of the file
    /// where --config names no other. With --json one object: ok, version, by, keys, left_out; of a broken file ok, file,
    /// problems.
    Push(config_push::PushOptions),
    /// Show the pushed config that is in force
    ///
    /// With --json one object: version, by, at (null where there is none), value (the pushed sections), not_believed. Which
    /// node has taken it over is in `maitred nodes`.
    Show,
    /// Take the pushed config back: each node's own file is in force again
    ///
    /// With --json one object: ok, version, by.
    Unpush(config_push::UnpushOptions),
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    match options.action {
        Action::Check { file } => check(context, &file),
        Action::Init { file, force } => init(context, &file, force),
        Action::Push(options) => config_push::push(context, &options).await,
        Action::Show => config_push::show(context).await,
        Action::Unpush(options) => config_push::unpush(context, &options).await,
    }
}

fn check(context: &Context, file: &Path) -> Result<(), Failure> {
    match read(file) {
        Ok(config) => {
            good(context, &file.display().to_string(), &config);
            Ok(())
        }
        Err(Error::Config { problems }) => {
            bad(context, file, &problems);
            Err(Failure::Invalid)
        }
        Err(other) => Err(other.into()),
    }
}

/// Reads a file and checks it whole.
pub(super) fn read(file: &Path) -> maitred::Result<Config> {
    let shown = file.display();
    let config = Config::load(file)?;
    // The config knows the scheme of the URL, the store the rest.
    let problem = match config.store.url.as_ref().map(|url| StoreUrl::parse(url.expose())) {
        Some(Err(Error::StoreUrl { problem })) => format!("{shown}: store.url: {problem}"),
        Some(Err(error)) => format!("{shown}: store.url: {error}"),
        Some(Ok(_)) | None => return Ok(config),
    };
    Err(Error::Config { problems: vec![problem] })
}

/// Says what is wrong with a file.
pub(super) fn bad(context: &Context, file: &Path, problems: &[String]) {
    let shown = file.display().to_string();
    if context.json {
        return view::json(&json!({ "ok": false, "file": shown, "problems": problems }));
    }
    for problem in problems {
        view::line(problem);
    }
    view::line(&format!("{shown}: {}", view::counted(problems.len(), "problem")));
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
