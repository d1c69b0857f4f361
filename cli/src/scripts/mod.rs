//! `maitred scripts`: what this build carries, whether it is what was reviewed, and the pins themselves ([`pin`]).

mod pin;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;

use maitred::error::{Error, Result};
use maitred::store::{Script, scripts};

use super::Failure;
use super::context::Context;
use super::view::{self, Grid, Tone};

/// Options of this command.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the scripts of this build, and which of them the store holds
    ///
    /// Works without a store. With --json one object: scripts (name, sha1, bytes, loaded: true, false, or null where the
    /// store did not answer), store_error.
    List,
    /// Compare every script of this build with its pin
    ///
    /// Exit code 1 where one differs, with both hashes; with --loaded also where the store does not hold one. With --json
    /// one object: ok, scripts (name, ok, pinned, computed, and with --loaded loaded).
    Verify {
        /// Ask the store too whether it holds every script
        #[arg(long)]
        loaded: bool,
    },
    /// Load every script into the store and compare its answers with the pins
    ///
    /// With --json one object: ok, loaded (names).
    Load,
    /// Put the parts into the scripts under lua/ and write the pins under sha1/ anew
    ///
    /// In the format of sha1sum, so that `sha1sum -c sha1/*/*.sha1` passes. Pins without a script are removed. With --json
    /// one object: ok, added, changed, removed (paths of pins), unchanged (a number).
    Pin {
        /// The root of the repository
        #[arg(long, value_name = "DIR", default_value = ".")]
        root: PathBuf,
    },
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    match options.action {
        Action::List => {
            list(context).await;
            Ok(())
        }
        Action::Verify { loaded } => verify(context, loaded).await,
        Action::Load => load(context).await,
        Action::Pin { root } => pin::run(context, &root),
    }
}

/// Which scripts the store holds. A build whose scripts do not match their pins asks no store.
async fn loaded(context: &Context) -> Result<Vec<bool>> {
    context.unprepared_store().await?.loaded().await
}

async fn list(context: &Context) {
    #[derive(Serialize)]
    struct Line {
        name: &'static str,
        sha1: &'static str,
        bytes: usize,
        loaded: Option<bool>,
    }
    let held = loaded(context).await;
    let line = |(at, script): (usize, &&'static Script)| Line {
        name: script.name(),
        sha1: script.pinned(),
        bytes: script.source().len(),
        loaded: held.as_ref().ok().and_then(|held| held.get(at).copied()),
    };
    let lines: Vec<Line> = scripts::all().iter().enumerate().map(line).collect();
    let error = held.as_ref().err().map(ToString::to_string);
    if context.json {
        return view::json(&json!({ "scripts": lines, "store_error": error }));
    }
    let mut grid = Grid::new(&["SCRIPT", "SHA1", "BYTES", "LOADED"]);
    for line in lines {
        grid.row([
            (line.name.to_owned(), Tone::Plain),
            (line.sha1.to_owned(), Tone::Dim),
            (line.bytes.to_string(), Tone::Plain),
            shown(line.loaded),
        ]);
    }
    grid.print();
    if let Some(error) = error {
        view::line(&format!("loaded is not known: {error}"));
    }
}

fn shown(loaded: Option<bool>) -> (String, Tone) {
    match loaded {
        Some(true) => ("yes".to_owned(), Tone::Good),
        Some(false) => ("no".to_owned(), Tone::Warn),
        None => ("?".to_owned(), Tone::Dim),
    }
}

async fn verify(context: &Context, ask: bool) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        name: &'static str,
        ok: bool,
        pinned: &'static str,
        computed: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        loaded: Option<bool>,
    }
    let sound = scripts::verify_all().is_ok();
    // Only a sound build may ask a store; what is wrong with this one is told either way.
    let held = if ask && sound { Some(loaded(context).await?) } else { None };
    let line = |(at, script): (usize, &&'static Script)| Line {
        name: script.name(),
        ok: script.verify().is_ok(),
        pinned: script.pinned(),
        computed: script.computed(),
        loaded: held.as_ref().and_then(|held| held.get(at).copied()),
    };
    let lines: Vec<Line> = scripts::all().iter().enumerate().map(line).collect();
    let ok = lines.iter().all(|line| line.ok && line.loaded != Some(false));
    if context.json {
        view::json(&json!({ "ok": ok, "scripts": lines }));
    } else {
        for error in scripts::all().iter().filter_map(|script| script.verify().err()) {
            view::line(&mismatch(&error));
        }
        for line in lines.iter().filter(|line| line.loaded == Some(false)) {
            view::line(&format!("script {} is not in the store; `maitred scripts load` puts it there", line.name));
        }
        if ok {
            let more = if ask { ", and the store holds them all" } else { "" };
            view::line(&format!("ok: {} scripts match their pins{more}", lines.len()));
        }
    }
    if ok { Ok(()) } else { Err(Failure::Check) }
}

/// A mismatch with what can be done about it.
fn mismatch(error: &Error) -> String {
    format!("{error}; restore the script, or if the change is meant, run `maitred scripts pin` and build again")
}

async fn load(context: &Context) -> Result<(), Failure> {
    context.store().await?;
    let names: Vec<&str> = scripts::all().iter().map(|script| script.name()).collect();
    if context.json {
        view::json(&json!({ "ok": true, "loaded": names }));
    } else {
        view::line(&format!("loaded {} scripts; the store's hashes match the pins", names.len()));
    }
    Ok(())
}
