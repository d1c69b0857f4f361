//! `maitred bench`: what the product costs, each figure beside its floor in the same run.
//!
//! A floor is the least that the same work can cost: for a script's server time a script with the same writes and no
//! check or read ([`bare`]), for whole lives three EVALSHA that do nothing, for calls a bare ping-pong over PUBLISH, for
//! memory the bytes of names and values. Ours and the floor alternate, so that a machine that slows down hits both, and
//! a figure is the median over the rounds. Figures of two machines say little about each other, ratios do.
//!
//! - [`stage`]: a zone of its own with a backend and a proxy.
//! - [`calls`]: the calls of one token's life, as the book makes them.
//! - [`server`]: the server's own time per call, out of `INFO commandstats`.
//! - [`routes`]: the same for what is done with routes.
//! - [`client`], [`messages`]: what a process gets done, with 1 and 64 in flight ([`flight`]).
//! - [`memory`]: bytes of a token's row.
//! - [`queue`]: lines of up to a million players, on demand.
//! - [`figure`]: medians, the table, the JSON.

mod bare;
mod calls;
mod client;
mod figure;
mod flight;
mod memory;
mod messages;
mod pingpong;
mod queue;
mod routes;
mod server;
mod stage;

use clap::Args;
use serde::Serialize;

use maitred::store::ServerInfo;
use maitred_testkit::private_store::PrivateStore;

use self::figure::{Figure, print_table};
use self::stage::Stage;
use super::context::Context;
use super::{Failure, view};

/// Options of this command. Without `--store` it measures on a private store.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Lives of a token in one round of the server's figures
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    lives: u16,
    /// Rounds; a figure is the median over them
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Measure lines of 1,000, 100,000 and 1,000,000 waiting players instead (takes minutes, and half a GB in the store)
    #[arg(long)]
    queue: bool,
    /// With --queue: leave out the lines above this many
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "queue")]
    waiting: u64,
}

/// What the command says to programs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    store: &'a ServerInfo,
    lives: u16,
    rounds: u16,
    figures: &'a [Figure],
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let private = if context.names_store { None } else { Some(PrivateStore::start().await.map_err(Failure::Io)?) };
    let url = match &private {
        Some(store) => store.url(),
        None => context.config.store_url()?.expose().to_owned(),
    };
    let mut stage = Stage::set(&context.config, &url).await?;
    let outcome = if options.queue {
        let bar = view::progress(1, "lines");
        let figures = queue::measure(&mut stage, usize::from(options.rounds), options.waiting, &bar).await;
        bar.finish_and_clear();
        figures
    } else {
        measure(&mut stage, &options).await
    };
    stage.clear().await?;
    let figures = outcome?;
    let info = stage.store.server_info().await?;
    if context.json {
        view::json(&Report { store: &info, lives: options.lives, rounds: options.rounds, figures: &figures });
    } else {
        let place = if private.is_some() { "private" } else { "shared: others on it disturb the figures" };
        view::line(&format!("{} {} ({place}), medians of {} rounds", info.name, info.version, options.rounds));
        print_table(&figures);
    }
    Ok(())
}

async fn measure(stage: &mut Stage, options: &Options) -> Result<Vec<Figure>, Failure> {
    let bar = view::progress(u64::from(options.rounds) * 4, "server time");
    let (lives, rounds) = (usize::from(options.lives), usize::from(options.rounds));
    let mut figures = server::measure(stage, lives, rounds, &bar).await?;
    figures.extend(routes::measure(stage, lives, rounds, &bar).await?);
    bar.set_message("lives");
    figures.extend(client::measure(stage, rounds, &bar).await?);
    bar.set_message("calls");
    figures.extend(messages::measure(stage, rounds, &bar).await?);
    figures.extend(memory::measure(stage).await?);
    bar.finish_and_clear();
    Ok(figures)
}
