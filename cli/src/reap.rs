use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::Instant;

use maitred::error::{Class, Error, Result, StoreRefusal};
use maitred::ids::{LineName, NodeId, Role};
use maitred::node::Lease;
use maitred::node::roster::{self, FORGET_MS};
use maitred::queue::{LineSweepReport, lines};
use maitred::route::{self, RouteBook};
use maitred::token::{Book, ReapOptions, ReapReport, reap_servers};

use super::Failure;
use super::context::Context;
use super::queues::{ZoneLines, is_of_one_line};
use super::span::{self, Stop};
use super::view::{self, Grid, Tone};

/// Servers swept in one step, so that a long sweep shows how far it is.
const STEP: usize = 64;
/// Keys of a line that may be left over without a name on the list of lines.
const LINE_KEYS: [&str; 4] = ["tickets:", "line:", "away:", "gate:"];
/// Time between two walks over the whole keyspace of a command that goes on.
const WALK_EVERY: Duration = Duration::from_secs(60);

const JSON_HELP: &str = "\
Expires tokens whose time is over, reopens claims of the dead, takes nodes off the roster that were silent for \
directory.removedMs, forgets the last epoch of ids unseen for a day, and heals every index. In lines, players of dead \
proxies drop, and places whose grace is over go; the gate of a line that a named config does not know goes with its last \
ticket. Routes of owners that are gone and saved nothing for routes.lockTimeoutMs are free. Times come from the config: \
give the fleet's own with --config. Any number may run at once.

With --json one object a sweep: dry_run, as_of (store ms), expired, reopened, kept (looked at again later), healed (index \
entries without a token), skipped (taken by another reaper), servers, removed (ids taken off the roster), forgotten (ids), \
lists (names of servers, roles and owners that nothing stood behind), lines (lines looked at, away (players whose proxy is gone), out \
(places that went), healed (index entries)), routes (released, kept, healed (index entries), skipped, nodes (that \
have an index)), elapsed_ms.";

/// Options of this command.
#[derive(Debug, Args)]
#[command(after_help = JSON_HELP)]
pub(super) struct Options {
    /// Change nothing, say what a sweep would do
    #[arg(long)]
    dry_run: bool,
    /// Go on until Ctrl-C, with a sweep this often: 500ms, 2s, 1m
    #[arg(long, value_name = "DURATION", value_parser = span::parse_interval)]
    every: Option<Duration>,
    /// Most tokens of one sweep
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,
    /// Forget ids unseen for this long
    #[arg(long, value_name = "DURATION", hide = true, value_parser = span::parse)]
    forget_after: Option<Duration>,
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let zone = ZoneLines::open(context).await?;
    // Whoever sweeps owns nothing.
    let nobody = Lease::new(NodeId::new("cli")?, 1);
    let sweep = Sweep {
        zone: zone.clone(),
        routes: RouteBook::new(zone.store.clone(), zone.verifier.clone(), nobody, context.config.routes.times()),
        book: context.book_of(&zone.store, &zone.verifier, zone.control.clone()),
        tokens: ReapOptions {
            dry_run: options.dry_run,
            judge_until_ms: u64::MAX,
            batch: context.config.tokens.reap_batch,
            limit: options.limit,
        },
        removed_ms: context.config.directory.removed_ms,
        forget_ms: options.forget_after.map_or(FORGET_MS, span::ms),
    };
    let Some(pause) = options.every else {
        sweep.run(true).await?.show(context.json);
        return Ok(());
    };
    let mut stop = Stop::new()?;
    let mut walk_at = Instant::now();
    loop {
        let walk = Instant::now() >= walk_at;
        if walk {
            walk_at = Instant::now() + WALK_EVERY;
        }
        match sweep.run(walk).await {
            Ok(report) if context.json => view::json(&report),
            Ok(report) => view::line(&report.line()),
            // A reaper that ends with the store's first hiccup would be missed when it is back.
            Err(error) if matches!(error.class(), Class::Store) => {
                view::print_failure(context.json, &error.to_string())
            }
            Err(error) => return Err(error.into()),
        }
        if stop.within(pause).await {
            return Ok(());
        }
    }
}

struct Sweep {
    zone: ZoneLines,
    routes: RouteBook,
    book: Book,
    tokens: ReapOptions,
    removed_ms: u64,
    forget_ms: u64,
}

/// What one sweep did, or would do.
#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    as_of: u64,
    #[serde(flatten)]
    tokens: ReapReport,
    removed: Vec<NodeId>,
    forgotten: u64,
    lists: usize,
    lines: Lines,
    routes: route::RouteSweepReport,
    elapsed_ms: u64,
}

#[derive(Debug, Default, Serialize)]
struct Lines {
    lines: usize,
    #[serde(flatten)]
    swept: LineSweepReport,
}

/// Names on an index and names that have keys: both are swept, so that neither can hide from the other.
struct Names {
    all: Vec<String>,
    /// On the index, without a key behind them.
    empty: usize,
}

impl Sweep {
    /// With `walk` the keyspace is looked through for sets that no index names.
    async fn run(&self, walk: bool) -> Result<Report> {
        let started = Instant::now();
        let store = self.book.store();
        store.sync_clock().await?;
        let mut report = Report {
            dry_run: self.tokens.dry_run,
            as_of: store.clock().now_ms(),
            tokens: ReapReport::default(),
            removed: Vec::new(),
            forgotten: 0,
            lists: 0,
            lines: Lines::default(),
            routes: route::RouteSweepReport::default(),
            elapsed_ms: 0,
        };
        self.sweep_tokens(walk, &mut report).await?;
        self.sweep_nodes(walk, &mut report).await?;
        self.sweep_lines(walk, &mut report).await?;
        self.sweep_routes(walk, &mut report).await?;
        report.elapsed_ms = span::ms(started.elapsed());
        Ok(report)
    }

    async fn sweep_tokens(&self, walk: bool, report: &mut Report) -> Result<()> {
        let store = self.book.store();
        let listed = store.members(store.keys().due_servers()).await?;
        let names = self.names(walk, "due:", listed).await?;
        let servers: Vec<NodeId> = names.all.iter().filter_map(|name| NodeId::new(name).ok()).collect();
        report.lists += names.empty;
        let bar = (servers.len() > STEP).then(|| view::progress(u64::try_from(servers.len()).unwrap_or(0), "sweeping"));
        let mut options = self.tokens;
        for step in servers.chunks(STEP) {
            let swept = reap_servers(&self.book, step, options).await?;
            options.limit = options.limit.saturating_sub(usize::try_from(tokens_of(&swept)).unwrap_or(usize::MAX));
            report.tokens.add(&swept);
            if let Some(bar) = &bar {
                bar.inc(u64::try_from(step.len()).unwrap_or(0));
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(())
    }

    async fn sweep_nodes(&self, walk: bool, report: &mut Report) -> Result<()> {
        let store = self.book.store();
        let listed = store.members(store.keys().roles()).await?;
        let names = self.names(walk, "nodes:", listed).await?;
        let roles: Vec<Role> = names.all.iter().filter_map(|name| Role::new(name).ok()).collect();
        let rosters = roster::rosters_of(store, &roles).await?;
        report.lists += names.empty;
        if self.tokens.dry_run {
            report.removed = roster::silent(store, &rosters, self.removed_ms).await?;
            let forgettable = roster::forgettable(store, &rosters, self.forget_ms).await?;
            report.forgotten = u64::try_from(forgettable).unwrap_or(u64::MAX);
        } else {
            report.removed = roster::remove_silent_of(store, &rosters, self.removed_ms).await?;
            report.forgotten = roster::forget(store, self.forget_ms).await?;
        }
        Ok(())
    }

    async fn sweep_lines(&self, walk: bool, report: &mut Report) -> Result<()> {
        let listed = lines(&self.zone.store).await?;
        let mut failure = None;
        let mut names: BTreeSet<String> = listed.iter().map(ToString::to_string).collect();
        for kind in LINE_KEYS {
            names.extend(self.names(walk, kind, Vec::new()).await?.all);
        }
        for name in names.iter().filter_map(|name| LineName::new(name).ok()) {
            let line = self.zone.line(&name)?;
            let swept = if self.tokens.dry_run { line.sweep_preview().await } else { line.sweep().await };
            report.lines.lines += 1;
            match swept {
                Ok(swept) => report.lines.swept.add(swept),
                // What stands in the way of one line does not in that of the others.
                Err(error) if is_of_one_line(&error) => {
                    failure = failure.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn sweep_routes(&self, walk: bool, report: &mut Report) -> Result<()> {
        let store = self.routes.store();
        let listed = store.members(store.keys().owners()).await?;
        let names = self.names(walk, "owned:", listed).await?;
        report.lists += names.empty;
        let owners = names.all.iter().filter_map(|name| NodeId::new(name).ok()).collect();
        let options = route::SweepOptions { dry_run: self.tokens.dry_run, ..route::SweepOptions::default() };
        report.routes = route::sweep_owners(&self.routes, owners, options).await?;
        Ok(())
    }

    /// `listed`, and with `walk` the names behind `kind` that have a key. What is no name of ours was written by hand.
    async fn names(&self, walk: bool, kind: &'static str, listed: Vec<String>) -> Result<Names> {
        let mut all: BTreeSet<String> = listed.iter().cloned().collect();
        if !walk {
            return Ok(Names { all: all.into_iter().collect(), empty: 0 });
        }
        let found = match self.book.store().names(kind).await {
            Ok(found) => found,
            Err(Error::Refused { refusal: StoreRefusal::Denied, .. }) => {
                tracing::warn!("the store does not let this user SCAN: sets that no index names are not looked for");
                return Ok(Names { all: all.into_iter().collect(), empty: 0 });
            }
            Err(error) => return Err(error),
        };
        let there: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        let empty = listed.iter().filter(|name| !there.contains(name.as_str())).count();
        all.extend(found);
        Ok(Names { all: all.into_iter().collect(), empty })
    }
}

/// Tokens that a sweep looked at.
fn tokens_of(report: &ReapReport) -> u64 {
    report.expired + report.reopened + report.kept + report.healed + report.skipped
}

impl Report {
    fn show(&self, as_json: bool) {
        if as_json {
            return view::json(self);
        }
        if self.dry_run {
            view::line("dry run: nothing was changed, a sweep would do this");
        }
        let tokens = &self.tokens;
        let removed: Vec<&str> = self.removed.iter().map(NodeId::as_str).collect();
        let removed = if removed.is_empty() { String::new() } else { format!(": {}", removed.join(" ")) };
        let mut grid = Grid::new(&["WHAT", "COUNT", ""]);
        for (what, count, text) in [
            ("expired", tokens.expired, "tokens whose time was over; their places go back"),
            ("reopened", tokens.reopened, "claims of proxies that are gone; another may claim"),
            ("kept", tokens.kept, "tokens that are looked at again later"),
            ("healed", tokens.healed, "index entries without a token"),
            ("skipped", tokens.skipped, "tokens that another reaper took, or that just changed"),
            (
                "removed",
                u64::try_from(self.removed.len()).unwrap_or(0),
                &format!("silent nodes off the roster{removed}"),
            ),
            ("forgotten", self.forgotten, "ids that nobody has seen for long"),
            (
                "lists",
                u64::try_from(self.lists).unwrap_or(0),
                "names of servers, roles and owners without anything behind them",
            ),
            ("away", self.lines.swept.away, "players in lines whose proxy is gone; the place is kept for the grace"),
            ("out", self.lines.swept.out, "places in lines that were kept long enough"),
            ("line entries", self.lines.swept.healed, "index entries of lines that were put right"),
            ("routes", self.routes.released, "routes of owners long gone that are free now"),
            ("route entries", self.routes.healed, "index entries of routes that were put right"),
        ] {
            let tone = if count == 0 { Tone::Dim } else { Tone::Plain };
            grid.row([(what.to_owned(), tone), (count.to_string(), tone), (text.to_owned(), tone)]);
        }
        grid.print();
        view::line(&format!("servers with due tokens: {}; took {} ms", tokens.servers, self.elapsed_ms));
    }

    fn line(&self) -> String {
        let tokens = &self.tokens;
        format!(
            "{}{} expired {}  reopened {}  kept {}  healed {}  skipped {}  removed {}  forgotten {}  lists {}  away {}  out {}  line entries {}  routes {}  route entries {}  in {} ms",
            view::clock(self.as_of),
            if self.dry_run { " (dry run)" } else { "" },
            tokens.expired,
            tokens.reopened,
            tokens.kept,
            tokens.healed,
            tokens.skipped,
            self.removed.len(),
            self.forgotten,
            self.lists,
            self.lines.swept.away,
            self.lines.swept.out,
            self.lines.swept.healed,
            self.routes.released,
            self.routes.healed,
            self.elapsed_ms,
        )
    }
}
