//! What people and programs read: tables on a terminal, JSON with `--json`, a log on stderr.

use std::io::{IsTerminal, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// The environment variable that says what is logged, in tracing's filter syntax.
const LOG_VARIABLE: &str = "MAITRED_LOG";

/// Logs to stderr, from `level` on where the environment says nothing else, so that stdout stays for results.
pub(super) fn start_log(level: &str) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(level));
    let colour = std::io::stderr().is_terminal() && may_colour();
    let started =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour).try_init();
    if started.is_err() {
        tracing::debug!("a log is set up already");
    }
}

/// True where colours help: a terminal, and nobody asked for none.
pub(super) fn colours() -> bool {
    std::io::stdout().is_terminal() && may_colour()
}

fn may_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// True where stdout is a terminal, which can be drawn anew.
pub(super) fn is_screen() -> bool {
    std::io::stdout().is_terminal()
}

/// Starts a screen anew where stdout is a terminal, for what is shown again and again.
pub(super) fn fresh_screen() {
    if is_screen() {
        let mut out = std::io::stdout().lock();
        // A terminal that is gone shows at the next line.
        let _ = out.write_all(b"\x1b[H\x1b[2J");
    }
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

/// A word beside the result, on stderr.
pub(super) fn note(text: &str) {
    let mut err = std::io::stderr().lock();
    // Nobody is left to tell if stderr is gone.
    let _ = writeln!(err, "note: {text}");
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
    optional: usize,
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
        Self { table, colours, optional: 0 }
    }

    /// Lets the last `columns` go, one after another, where the terminal is too narrow for them.
    #[must_use]
    pub fn optional(mut self, columns: usize) -> Self {
        self.optional = columns;
        self
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = (String, Tone)>) {
        let colours = self.colours;
        self.table.add_row(cells.into_iter().map(|(text, tone)| {
            let cell = Cell::new(plain(&text));
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

    pub fn print(mut self) {
        let widths = self.table.column_max_content_widths();
        let mut shown = widths.len();
        // A column has a blank on either side and a line after it.
        let natural = |shown: usize| widths.iter().take(shown).map(|width| usize::from(*width) + 3).sum::<usize>() + 1;
        if let Some(width) = self.table.width() {
            while widths.len() - shown < self.optional && natural(shown) > usize::from(width) {
                shown -= 1;
                if let Some(column) = self.table.column_mut(shown) {
                    column.set_constraint(ColumnConstraint::Hidden);
                }
            }
        }
        line(&self.table.to_string());
    }
}

/// A text that moves no cursor: rows of the store are written by others.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let (escaped, kept) = if c.is_control() { (Some(c.escape_default()), None) } else { (None, Some(c)) };
            escaped.into_iter().flatten().chain(kept)
        })
        .collect()
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

/// `1 node`, `2 nodes`.
pub(super) fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The first `max` characters of a text, and how long it was where that is not all.
pub(super) fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}… ({} bytes)", text.get(..end).unwrap_or_default(), text.len()),
        None => text.to_owned(),
    }
}

/// The time of day of the store's clock, in UTC.
pub(super) fn clock(store_ms: u64) -> String {
    let seconds = store_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
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
