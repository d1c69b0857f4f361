//! What people and programs read: tables on a terminal, JSON with `--json`, a log on stderr.

use std::io::{IsTerminal, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// The environment variable that says what is logged, in tracing's filter syntax.
const LOG_VARIABLE: &str = "MAITRED_LOG";

/// Logs to stderr, from `level` on where the environment says nothing else, so that stdout stays for results.
pub(super) fn start_log(level: &str) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(level));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let started =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour).try_init();
    if started.is_err() {
        tracing::debug!("a log is set up already");
    }
}

/// True where colours help: a terminal, and nobody asked for none.
pub(super) fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a line to stdout. A reader that went away ends the program quietly, as pipes do.
pub(super) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes a value as one line of JSON.
pub(super) fn json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => line(&text),
        Err(error) => print_failure(false, &format!("could not write JSON: {error}")),
    }
}

/// An error: for people on stderr, for programs as an object on stdout.
pub(super) fn print_failure(as_json: bool, text: &str) {
    if as_json {
        json(&serde_json::json!({ "ok": false, "error": text }));
    } else {
        let mut err = std::io::stderr().lock();
        // Nobody is left to tell if stderr is gone.
        let _ = writeln!(err, "maitred: {text}");
    }
}

/// How a cell looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
}

/// A table for people: full width on a terminal, no colours when piped.
pub(super) struct Grid {
    table: Table,
    colours: bool,
}

impl Grid {
    pub fn new(headers: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        let colours = colours();
        table.set_header(headers.iter().map(|text| {
            let cell = Cell::new(text);
            if colours { cell.add_attribute(Attribute::Bold) } else { cell }
        }));
        Self { table, colours }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = (String, Tone)>) {
        let colours = self.colours;
        self.table.add_row(cells.into_iter().map(|(text, tone)| {
            let cell = Cell::new(text);
            match tone {
                _ if !colours => cell,
                Tone::Plain => cell,
                Tone::Good => cell.fg(Color::Green),
                Tone::Warn => cell.fg(Color::Yellow),
                Tone::Bad => cell.fg(Color::Red),
                Tone::Dim => cell.add_attribute(Attribute::Dim),
            }
        }));
    }

    pub fn print(&self) {
        line(&self.table.to_string());
    }
}

/// A progress bar on stderr; nothing where stderr is no terminal.
pub(super) fn progress(length: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    // A template that does not parse leaves the library's own.
    if let Ok(style) = ProgressStyle::with_template("{msg:20} {wide_bar} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

/// A duration in words that fit a cell.
pub(super) fn ago(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}
