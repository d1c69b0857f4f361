//! `maitred demo`: a whole small fleet of real processes on a private store, and a count of what they say.
//!
//! - `fleet` starts `maitred node` processes and speaks their JSON lines.
//! - `players` are the people: each asks, is moved, joins; some are held up, change their mind, or vanish.
//! - `tally` counts what is heard, from the processes' answers and events and from the token channel.
//! - `stage` sets everything up, kills a proxy halfway and reads the end state.
//! - `report` holds the counts against what is promised.

mod fleet;
mod players;
mod report;
mod stage;
mod tally;

use std::io::Write;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use super::context::Context;
use super::view;
use stage::Stage;

/// Fewest players: with fewer not every way of coming late is walked.
const PLAYERS_MIN: u64 = 30;
/// Most players: the first tokens must not end before half of the players have landed.
const PLAYERS_MAX: u64 = 2_000;

/// Options of `maitred demo`. The store is a private one; MAITRED_SERVER names its binary, else the first of
/// redis-server, valkey-server, keydb-server and dragonfly on PATH is taken.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many players are sent through
    #[arg(long, value_name = "N", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(PLAYERS_MIN..=PLAYERS_MAX))]
    players: u64,
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let players = usize::try_from(options.players).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::io("SIGINT", &error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::io("SIGTERM", &error))?;
    // Whatever ends first, dropping the stage ends every process.
    tokio::select! {
        _ = interrupt.recv() => Err(Failure::Io("interrupted".to_owned())),
        _ = terminate.recv() => Err(Failure::Io("terminated".to_owned())),
        outcome = show(context, players) => outcome,
    }
}

async fn show(context: &Context, players: usize) -> Result<(), Failure> {
    let stage = Stage::set(if context.json { |_| {} } else { tell }).await?;
    let outcome = stage.play(players).await;
    let logs = stage.fleet.logs();
    // Every process is gone before the result is shown, whatever becomes of stdout.
    drop(stage);
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

/// Writes a line while processes run: a reader that went away must not end the demo before they are ended.
fn tell(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
