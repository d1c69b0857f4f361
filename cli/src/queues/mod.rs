//! `maitred queues`: every line ([`list`]); `maitred queue NAME`: one line ([`show`]), one player in it ([`player`]), what
//! an operator does to it ([`act`]), and a live view ([`watch`]). [`known`]: what the config says of a line; [`look`]: what
//! the store says of it.

mod act;
mod known;
mod list;
mod player;
mod show;
mod standing;
mod watch;

use std::time::Duration;

use clap::{Args, ValueEnum};

use maitred::ids::{LineName, Player};

use super::Failure;
use super::context::Context;
use super::span;

pub(super) use known::{ZoneLines, is_of_one_line};
pub(super) use list::run as list;

/// Players shown unless another number is given.
const LIMIT: usize = 10;
/// Time between two looks of a live view unless another is given.
const EVERY: Duration = Duration::from_secs(1);

const LIST_HELP: &str = "\
Every line that holds tickets, and every one of the config. Weights of lanes and rates are the config's: give the fleet's own \
with --config; a line that it does not name is looked at with the defaults, which a note on stderr says.

admitted/s is what was measured while players waited; estimate is how long the last of the line waits at that pace. The wait \
lines (`wait`, `wait.<server>`) are served from the inventories of backends and have no gate.

With --json one object: zone, as_of (store ms), lines (line, kind (login or wait), configured, waiting, away, lanes (weight, \
waiting), paused, paused_at, gate (paused, paused_at, rate, fixed, open; null for wait lines), admitted_per_s (null where nothing was \
measured), estimate_ms, admitters), not_believed (count, reasons, rows).";

const ONE_HELP: &str = "\
Without an action the line is shown: its gate, the first of it in the order of service, and who dropped. How long somebody \
waits is counted from the place in the line, which outlives a change of proxy. Who admits are the proxies whose rows say so. \
A ticket that does not verify is not shown; it is counted.

pause stops the admission, players go on entering; resume lets the gate rule again. clear puts everybody out who waits or \
dropped; those who were admitted stay admitted. It asks on a terminal, and wants --yes otherwise. What changes a line is \
refused for a name that neither the config nor the store knows. A wait line has no gate; while it is paused backends serve \
nobody from it.

With --json one object. The line: zone and as_of, then as in `queues`, with serial, heads (position, player, lane, proxy, \
waiting_ms, attributes), dropped (player, proxy, left_ms) and not_believed (count, reasons, rows). --player: line, player, \
as_of, state (waiting, away, admitted, none), place (position, lane, estimate_ms), left_ms, ticket (proxy, proxy_epoch, \
session, seq, waiting_ms, attributes), pass (serial, server, link, expires_in_ms, arrived, redeemed, void), not_believed. \
pause and resume: ok, line, paused, waiting. clear: ok, line, out, healed. --watch: one line a round, as in `queues`, with zone, as_of, \
entered (the line was empty and is not), admitted, left (since the line before; null after a gap in what was heard).";

/// Options of `queues`.
#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(super) struct ListOptions {}

/// Options of `queue`.
#[derive(Debug, Args)]
#[command(after_help = ONE_HELP)]
pub(super) struct OneOptions {
    /// The line
    name: LineName,
    /// What is done to it
    #[arg(value_enum, default_value_t = Action::Show)]
    action: Action,
    /// Most players shown of the first of the line, and of those who dropped [default: 10]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show where this player stands, with ticket and pass
    #[arg(long, value_name = "PLAYER", conflicts_with_all = ["watch", "limit"])]
    player: Option<Player>,
    /// Show again and again, until Ctrl-C
    #[arg(long, conflicts_with = "limit")]
    watch: bool,
    /// With --watch, how often: 500ms, 2s, or a number of seconds [default: 1s]
    #[arg(long, value_name = "DURATION", requires = "watch", value_parser = span::parse_seconds)]
    interval: Option<Duration>,
    /// With clear: do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Show it
    Show,
    /// Admit nobody until it is resumed
    Pause,
    /// Let the gate rule again
    Resume,
    /// Put everybody out
    Clear,
}

pub(super) async fn one(context: &Context, options: OneOptions) -> Result<(), Failure> {
    if options.action != Action::Show && (options.player.is_some() || options.watch || options.limit.is_some()) {
        return Err(Failure::Usage("--player, --watch and --limit are for showing a line".to_owned()));
    }
    if options.action != Action::Clear && options.yes {
        return Err(Failure::Usage("--yes is for clear".to_owned()));
    }
    let name = &options.name;
    match options.action {
        Action::Show => match &options.player {
            Some(player) => player::run(context, name, player).await,
            None if options.watch => watch::run(context, name, options.interval.unwrap_or(EVERY)).await,
            None => show::run(context, name, options.limit.unwrap_or(LIMIT)).await,
        },
        Action::Pause => act::pause(context, name, true).await,
        Action::Resume => act::pause(context, name, false).await,
        Action::Clear => act::clear(context, name, options.yes).await,
    }
}
