//! `maitred demo`: a whole small fleet of real processes on a private store, and a count of what they say.
//!
//! - `fleet` starts `maitred node` processes and speaks their JSON lines.
//! - `players` are the people: each asks, is moved, joins; some are held up, change their mind, or vanish.
//! - `tally` counts what is heard, from the processes' answers and events and from the token channel.
//! - `stage` sets everything up, kills a proxy halfway and reads the end state.
//! - `report` holds the counts against what is promised.
//! - `rush` is another play on the same ground: everybody comes to a line at once.
//!
//! Both stand on a `ground` of their own, and show their `verdict` alike.

mod fleet;
mod ground;
mod players;
mod report;
mod rush;
mod stage;
mod tally;
mod verdict;

use std::io::Write;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use super::context::Context;
use super::view;
use stage::Stage;
use verdict::Proof;

/// Fewest players: with fewer not every way of coming late is walked.
const PLAYERS_MIN: u64 = 30;
/// Most players: the first tokens must not end before half of the players have landed.
const PLAYERS_MAX: u64 = 2_000;
/// Fewest players of a rush: with fewer nobody gives up or fails.
const RUSH_MIN: u64 = 50;
/// Most players of a rush: one process speaks for all of them.
const RUSH_MAX: u64 = 20_000;

/// Options of `maitred demo`. The store is a private one; MAITRED_SERVER names its binary, else the first of
/// redis-server, valkey-server, keydb-server and dragonfly on PATH is taken.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many players are sent through
    #[arg(long, value_name = "N", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(PLAYERS_MIN..=PLAYERS_MAX))]
    players: u64,
    /// Let N players come to a login line at once instead: 4 proxies, 3 backends, one gate
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "2000", conflicts_with = "players",
        value_parser = clap::value_parser!(u64).range(RUSH_MIN..=RUSH_MAX))]
    rush: Option<u64>,
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let players = options.rush.unwrap_or(options.players);
    let players = usize::try_from(players).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::io("SIGINT", &error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::io("SIGTERM", &error))?;
    // Whatever ends first, dropping the stage ends every process.
    tokio::select! {
        _ = interrupt.recv() => Err(Failure::Io("interrupted".to_owned())),
        _ = terminate.recv() => Err(Failure::Io("terminated".to_owned())),
        outcome = rush(context, players), if options.rush.is_some() => outcome,
        outcome = show(context, players), if options.rush.is_none() => outcome,
    }
}

async fn show(context: &Context, players: usize) -> Result<(), Failure> {
    let stage = Stage::set(sayer(context)).await?;
    let outcome = stage.play(players).await;
    let logs = stage.fleet.logs();
    // Every process is gone before the result is shown, whatever becomes of stdout.
    drop(stage);
    judge(context, outcome, &logs)
}

async fn rush(context: &Context, players: usize) -> Result<(), Failure> {
    let stage = rush::Stage::set(players, sayer(context)).await?;
    let outcome = stage.play().await;
    let logs = stage.fleet.logs();
    drop(stage);
    judge(context, outcome, &logs)
}

/// Shows what a run proves; where it proves too little, also what the processes said.
fn judge(context: &Context, outcome: Result<impl Proof, Failure>, logs: &str) -> Result<(), Failure> {
    let holds = outcome.and_then(|evidence| {
        if !context.json {
            return if evidence.print() { Ok(()) } else { Err(Failure::Check) };
        }
        let (ok, summary) = evidence.for_programs();
        view::json(&summary);
        if ok {
            return Ok(());
        }
        evidence.failures().iter().for_each(|failure| view::print_failure(false, failure));
        Err(Failure::Check)
    });
    if holds.is_err() && !logs.is_empty() {
        view::print_failure(false, &format!("what the processes said:\n{logs}"));
    }
    holds
}

fn sayer(context: &Context) -> fn(&str) {
    if context.json { |_| {} } else { tell }
}

/// Writes a line while processes run: a reader that went away must not end the demo before they are ended.
fn tell(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
