use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use maitred::agent::config::Config;
use maitred::error::{Class, Result};
use maitred::ids::{Epoch, NodeId, Region, Role, ServiceName};
use maitred::node::roster::{self, Roster};
use maitred::node::{
    CONFIG, Control, ControlEntry, DRAINING_LABEL, KILL, Liveness, LivenessLimits, Load, NodeRecord, NodeState,
};
use maitred::store::{Key, Store, Verifier};

use super::Failure;
use super::context::Context;
use super::doubt::Doubts;
use super::peers::{self, PeerLine};
use super::span::{self, Stop};
use super::view::{self, Grid, Tone};

const JSON_HELP: &str = "\
Liveness goes by the age of the last beat on the store's clock and the directory limits of the config. Nodes that the \
config expects (`peers`) are `connecting` where they were never seen, and `offline` where they were or once they are \
watched for as long as a silent node is given. `gone` is an id on a roster whose row is no more: it stopped without \
saying goodbye. A roster whose key is of another type is not believed, and ends the command with 1.

With --json one object: zone, as_of (store ms), kill (the fleet's switch: on, by, at), nodes (id, role, addr, liveness, \
age_ms, state, accepting, players, soft_cap, regions with kept places or null, killed, kill_heard, draining, drain (by, at) \
or null, drain_heard, services, build, config (the version of the pushed config it runs with, null where its file alone is \
in force), labels, epoch, seq, sent_at, load), gone (id, role, last_beat_at, age_ms), peers (id, role, addr, liveness: \
those of the config that have no row), not_believed (count, reasons, rows), \
control_not_believed. With --watch one such line a round.";

/// Options of this command.
#[derive(Debug, Args)]
#[command(after_help = JSON_HELP)]
pub(super) struct Options {
    /// Only the roster of this role
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,
    /// Show again every so many seconds (2 unless said), until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = span::parse_seconds)]
    watch: Option<Duration>,
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let (store, verifier) = context.fleet_to_read().await?;
    let began_ms = store.clock().now_ms();
    let config = context.config.clone();
    let reader = Reader { store, verifier, limits: context.limits(), role: options.role, config, began_ms };
    let Some(pause) = options.watch else {
        let picture = reader.picture().await?;
        picture.show(context.json);
        return if picture.not_believed.hide_nodes() { Err(Failure::Check) } else { Ok(()) };
    };
    let mut stop = Stop::new()?;
    loop {
        match reader.picture().await {
            Ok(picture) => {
                view::fresh_screen();
                picture.show(context.json);
            }
            // The store may be what is being watched for: its return shows by itself.
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

struct Reader {
    store: Store,
    verifier: Verifier,
    limits: LivenessLimits,
    role: Option<Role>,
    config: Config,
    /// When it looked for the first time.
    began_ms: u64,
}

#[derive(Debug, Serialize)]
struct Picture {
    zone: String,
    as_of: u64,
    kill: Switch,
    nodes: Vec<NodeLine>,
    gone: Vec<Gone>,
    peers: Vec<PeerLine>,
    not_believed: Doubts,
    control_not_believed: u64,
}

#[derive(Debug, Serialize)]
struct Switch {
    on: bool,
    by: Option<String>,
    at: Option<u64>,
}

#[derive(Debug, Serialize)]
struct NodeLine {
    id: NodeId,
    role: Role,
    addr: String,
    liveness: Liveness,
    age_ms: u64,
    state: NodeState,
    accepting: bool,
    players: u64,
    soft_cap: u64,
    regions: BTreeMap<Region, Option<u64>>,
    /// The control entries switch it off.
    killed: bool,
    /// Its own row says that it obeys.
    kill_heard: bool,
    draining: bool,
    drain: Option<Drained>,
    /// Its own row says that it heard of its drain.
    drain_heard: bool,
    services: Vec<ServiceName>,
    build: Option<String>,
    /// The version of the pushed config that it runs with.
    config: Option<u64>,
    labels: BTreeMap<String, String>,
    epoch: Epoch,
    seq: u64,
    sent_at: u64,
    load: Load,
}

/// Who drains a node, and since when.
#[derive(Debug, Serialize)]
struct Drained {
    by: String,
    at: u64,
    #[serde(skip)]
    age_ms: u64,
}

#[derive(Debug, Serialize)]
struct Gone {
    id: NodeId,
    role: Role,
    last_beat_at: u64,
    age_ms: u64,
}

impl Reader {
    async fn picture(&self) -> Result<Picture> {
        let (store, verifier) = (&self.store, &self.verifier);
        store.sync_clock().await?;
        let control = Control::default();
        let before = verifier.audit().total();
        control.refresh(store, verifier).await?;
        let control_not_believed = verifier.audit().total() - before;
        let mut picture = Picture {
            zone: store.keys().zone().to_string(),
            as_of: store.clock().now_ms(),
            kill: Switch::new(control.entry(KILL).filter(|_| control.is_on(KILL))),
            nodes: Vec::new(),
            gone: Vec::new(),
            peers: Vec::new(),
            not_believed: Doubts::default(),
            control_not_believed,
        };
        let (mut rosters, refused) = roster::rosters_and_refused(store).await?;
        let listed: BTreeSet<NodeId> = rosters.iter().flat_map(|(_, ids)| ids).map(|(id, _)| id.clone()).collect();
        let is_wanted = |role: &Role| self.role.as_ref().is_none_or(|wanted| wanted == role);
        rosters.retain(|(role, _)| is_wanted(role));
        for (role, error) in refused.iter().filter(|(role, _)| is_wanted(role)) {
            picture.not_believed.add_roster(role, error);
        }
        for roster in &rosters {
            self.add(&mut picture, &control, roster).await?;
        }
        // An id that changed its role may stand on two rosters for a while.
        picture.nodes.sort_by(|a, b| (&a.role, &a.id).cmp(&(&b.role, &b.id)));
        picture.nodes.dedup_by(|a, b| a.id == b.id);
        let watched_ms = picture.as_of.saturating_sub(self.began_ms);
        picture.peers = peers::missing(store, &self.config, &listed, watched_ms).await?;
        picture.peers.retain(|peer| is_wanted(&peer.role));
        Ok(picture)
    }

    async fn add(&self, picture: &mut Picture, control: &Control, (role, ids): &Roster) -> Result<()> {
        let keys: Vec<Key<'_>> = ids.iter().map(|(id, _)| self.store.keys().node(id)).collect();
        let rows = self.store.rows_each(&keys).await?;
        for ((id, beat_at), row) in ids.iter().zip(rows) {
            let record = match row {
                Ok(row) if row.is_empty() => {
                    let age_ms = picture.as_of.saturating_sub(*beat_at);
                    picture.gone.push(Gone { id: id.clone(), role: role.clone(), last_beat_at: *beat_at, age_ms });
                    continue;
                }
                Ok(row) => NodeRecord::from_row(&self.verifier, id, &row),
                Err(error) => Err(error),
            };
            match record {
                Ok(record) => picture.nodes.push(self.node(record, control, picture.as_of)),
                Err(error) => picture.not_believed.add(format!("node:{id}"), &error),
            }
        }
        Ok(())
    }

    fn node(&self, record: NodeRecord, control: &Control, now_ms: u64) -> NodeLine {
        let age_ms = now_ms.saturating_sub(record.sent_at_ms);
        NodeLine {
            liveness: self.limits.judge(age_ms),
            age_ms,
            killed: control.is_killed(&record.id),
            kill_heard: record.kill,
            draining: control.is_draining(&record.id),
            drain: control.drain(&record.id).map(|entry| Drained {
                by: entry.by,
                at: entry.at,
                age_ms: now_ms.saturating_sub(entry.at),
            }),
            drain_heard: record.labels.contains_key(DRAINING_LABEL),
            regions: record.load.regions.clone(),
            build: record.labels.get("build").cloned(),
            config: record.labels.get(CONFIG).and_then(|version| version.parse().ok()),
            id: record.id,
            role: record.role,
            addr: record.addr,
            state: record.state,
            accepting: record.accepting,
            players: record.players,
            soft_cap: record.soft_cap,
            services: record.services,
            labels: record.labels,
            epoch: record.epoch,
            seq: record.seq,
            sent_at: record.sent_at_ms,
            load: record.load,
        }
    }
}

impl Switch {
    fn new(entry: Option<ControlEntry>) -> Self {
        Self { on: entry.is_some(), at: entry.as_ref().map(|entry| entry.at), by: entry.map(|entry| entry.by) }
    }
}

impl NodeLine {
    fn flags(&self) -> (String, Tone) {
        let mut flags: Vec<String> = Vec::new();
        match (self.killed, self.kill_heard) {
            (true, true) => flags.push("killed".to_owned()),
            (true, false) => flags.push("kill not heard yet".to_owned()),
            (false, true) => flags.push("kill lifted, not heard yet".to_owned()),
            (false, false) => {}
        }
        match (&self.drain, self.drain_heard) {
            (Some(drain), heard) => {
                let heard = if heard { "" } else { ", not heard yet" };
                flags.push(format!("drained by {} {} ago{heard}", view::plain(&drain.by), view::ago(drain.age_ms)));
            }
            (None, true) => flags.push("drain lifted, not heard yet".to_owned()),
            (None, false) => {}
        }
        // Only backends are asked for places, and one that heard of its drain takes nobody for that reason.
        if self.role == Role::backend() && !self.accepting && !self.drain_heard {
            flags.push("not accepting".to_owned());
        }
        let tone = if self.killed || self.kill_heard { Tone::Bad } else { Tone::Warn };
        if flags.is_empty() { ("-".to_owned(), Tone::Dim) } else { (flags.join(", "), tone) }
    }

    fn cells(&self) -> [(String, Tone); 13] {
        let live = match self.liveness {
            Liveness::Online => Tone::Good,
            Liveness::Connecting | Liveness::Suspect => Tone::Warn,
            Liveness::Offline | Liveness::Removed => Tone::Bad,
        };
        let state = if self.state == NodeState::Ready { Tone::Plain } else { Tone::Warn };
        let players = match self.soft_cap {
            0 => self.players.to_string(),
            cap => format!("{}/{cap}", self.players),
        };
        let full = self.soft_cap > 0 && self.players >= self.soft_cap;
        let regions = self.regions.iter().map(|(region, kept)| match kept {
            Some(kept) => format!("{region}:{kept}"),
            None => region.to_string(),
        });
        let services = self.services.iter().map(ToString::to_string);
        [
            (self.id.to_string(), Tone::Plain),
            (self.role.to_string(), Tone::Plain),
            (self.addr.clone(), Tone::Plain),
            (self.liveness.as_str().to_owned(), live),
            (view::ago(self.age_ms), live),
            (self.state.to_string(), state),
            (players, if full { Tone::Warn } else { Tone::Plain }),
            self.flags(),
            self.config.map_or(("file".to_owned(), Tone::Dim), |version| (version.to_string(), Tone::Plain)),
            (list(regions), Tone::Plain),
            (list(services), Tone::Dim),
            (self.build.clone().unwrap_or_else(|| "-".to_owned()), Tone::Dim),
            (self.epoch.to_string(), Tone::Dim),
        ]
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "-".to_owned() } else { items.join(" ") }
}

impl Picture {
    fn show(&self, as_json: bool) {
        if as_json {
            return view::json(self);
        }
        if self.kill.on {
            let by = self.kill.by.as_deref().unwrap_or("?");
            let age = self.as_of.saturating_sub(self.kill.at.unwrap_or(self.as_of));
            view::line(&format!("KILL SWITCH ON for the whole fleet, by {} {} ago", view::plain(by), view::ago(age)));
        }
        if !self.nodes.is_empty() || !self.gone.is_empty() || !self.peers.is_empty() {
            self.grid().print();
        }
        view::line(&self.summary());
        self.not_believed.lines().iter().for_each(|line| view::line(line));
        if self.control_not_believed > 0 {
            view::line(&format!("control entries not believed: {}", self.control_not_believed));
        }
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&[
            "NODE", "ROLE", "ADDR", "LIVE", "BEAT", "STATE", "PLAYERS", "FLAGS", "CONFIG", "REGIONS", "SERVICES",
            "BUILD", "EPOCH",
        ])
        .optional(4);
        for node in &self.nodes {
            grid.row(node.cells());
        }
        for gone in &self.gone {
            let mut cells = vec![
                (gone.id.to_string(), Tone::Plain),
                (gone.role.to_string(), Tone::Plain),
                ("-".to_owned(), Tone::Dim),
                ("gone".to_owned(), Tone::Bad),
                (view::ago(gone.age_ms), Tone::Bad),
            ];
            cells.resize(13, ("-".to_owned(), Tone::Dim));
            grid.row(cells);
        }
        for peer in &self.peers {
            let mut cells = peer.cells();
            cells.resize(13, ("-".to_owned(), Tone::Dim));
            grid.row(cells);
        }
        grid
    }

    fn summary(&self) -> String {
        let mut text = format!("zone {}: {}", self.zone, view::counted(self.nodes.len(), "node"));
        for liveness in [Liveness::Online, Liveness::Suspect, Liveness::Offline, Liveness::Removed] {
            let count = self.nodes.iter().filter(|node| node.liveness == liveness).count();
            if count > 0 {
                text.push_str(&format!(", {count} {}", liveness.as_str()));
            }
        }
        if !self.gone.is_empty() {
            text.push_str(&format!(", and {} gone without a goodbye", self.gone.len()));
        }
        if !self.peers.is_empty() {
            text.push_str(&format!(", {} expected and not there", self.peers.len()));
        }
        let backends = || self.nodes.iter().filter(|node| node.role == Role::backend());
        let (players, places) = backends().fold((0_u64, 0_u64), |(players, places), node| {
            (players.saturating_add(node.players), places.saturating_add(node.soft_cap))
        });
        if backends().next().is_some() {
            text.push_str(&format!("; {} on backends", view::counted(players, "player")));
            // Without a cap nobody said how many there may be.
            if places > 0 {
                text.push_str(&format!(" with room for {places}"));
            }
        }
        text
    }
}
