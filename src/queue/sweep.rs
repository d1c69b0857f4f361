//! The upkeep of lines: places of dead proxies, places kept long enough, index entries without a row. Any number may run
//! at once.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::envelope::push_netstring;
use crate::error::Result;
use crate::ids::{LineName, NodeEpoch, NodeId, Player};
use crate::node::roster::score_ms;
use crate::store::{Invocation, Key, Store, is_over, scripts};

use super::line::Line;
use super::ticket::Ticket;

/// Players in one call.
const BATCH: usize = 256;
/// Tickets that are in memory at a time where all of them are walked.
const WALK_STEP: usize = 4_096;
/// Most players of a line that one sweep looks at for a reason: dead proxies and ended graces.
const SWEEP_MAX: usize = 100_000;

/// How often a line is counted before it is said to be in disorder.
const COUNTED: usize = 3;

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LineSweepReport {
    /// Players whose proxy is gone: their sequence is kept for the grace from now on.
    pub away: u64,
    /// Players whose place is gone.
    pub out: u64,
    /// Index entries that were put right.
    pub healed: u64,
}

impl LineSweepReport {
    /// Adds another sweep's counts.
    pub fn add(&mut self, other: Self) {
        self.away += other.away;
        self.out += other.out;
        self.healed += other.healed;
    }
}

/// Players in the indexes of a line.
struct Counts {
    tickets: u64,
    waiting: u64,
    away: u64,
    /// Through some proxy.
    held: u64,
}

impl Counts {
    /// Every ticket stands in one index, and whoever waits is held by one proxy.
    fn agree(&self) -> bool {
        self.tickets == self.waiting + self.away && self.held == self.waiting
    }
}

fn count(players: usize) -> u64 {
    u64::try_from(players).unwrap_or(u64::MAX)
}

/// The lines that hold tickets.
pub async fn lines(store: &Store) -> Result<Vec<LineName>> {
    let names = store.members(store.keys().lines()).await?;
    Ok(names.iter().filter_map(|name| LineName::new(name).ok()).collect())
}

impl Line {
    /// One sweep: players of dead proxies drop, places whose grace is over go. Where the counts of the indexes do not
    /// agree, all of the line is looked at: an entry may be missing that would name a proxy or a player. Runs `queue/sweep`.
    pub async fn sweep(&self) -> Result<LineSweepReport> {
        let mut report = LineSweepReport::default();
        for holder in self.holders().await? {
            if !self.is_alive(&holder).await? {
                let players = self.held_by(&holder).await?;
                report.add(self.sweep_players(Some(&holder), &players, false).await?);
            }
        }
        let (keys, name) = (self.store.keys(), &self.options.name);
        let (now, grace_ms) = (self.store.clock().now_ms(), self.options.reconnect_grace_ms);
        let due = self.store.overdue(&[keys.away(name)], now, grace_ms, SWEEP_MAX).await?.pop().unwrap_or_default();
        if !due.is_empty() {
            report.add(self.sweep_players(None, &due, false).await?);
        }
        let mut counts = self.counts().await?;
        // A count in the middle of an enter or a leave may not agree; one that is wrong stays so.
        for _ in 1..COUNTED {
            if !counts.agree() {
                counts = self.counts().await?;
            }
        }
        if !counts.agree() {
            report.add(self.heal().await?);
        } else if counts.tickets == 0 {
            // The gate of a line that nobody configured goes with its last ticket.
            report.add(self.sweep_players(None, &[""; 0], false).await?);
        }
        Ok(report)
    }

    /// What [`sweep`](Self::sweep) would do now. Changes nothing. Where the counts of the indexes do not agree, all of the
    /// line is read.
    pub async fn sweep_preview(&self) -> Result<LineSweepReport> {
        let (keys, name) = (self.store.keys(), &self.options.name);
        let (now, grace_ms) = (self.store.clock().now_ms(), self.options.reconnect_grace_ms);
        let (mut dead, mut held) = (Vec::new(), BTreeMap::new());
        for holder in self.holders().await? {
            if !self.is_alive(&holder).await? {
                dead.push(holder.clone());
            }
            let players = self.held_by(&holder).await?;
            held.insert(holder, players);
        }
        if self.counts().await?.agree() {
            let due = self.store.overdue(&[keys.away(name)], now, grace_ms, SWEEP_MAX).await?;
            let dropping = dead.iter().filter_map(|holder| held.get(holder)).map(Vec::len).sum();
            return Ok(LineSweepReport {
                away: count(dropping),
                out: count(due.iter().map(Vec::len).sum()),
                healed: 0,
            });
        }
        let tickets = self.store.scan_row(keys.tickets(name)).await?;
        // A holder may be missing from the index of holders.
        let named: BTreeSet<NodeEpoch> = tickets.fields().filter_map(|(_, text)| Ticket::holder_of(text)).collect();
        for holder in named {
            if !held.contains_key(&holder) && !self.is_alive(&holder).await? {
                dead.push(holder);
            }
        }
        let waiting: BTreeSet<String> =
            self.store.scores(keys.line(name)).await?.into_iter().map(|(player, _)| player).collect();
        let away: BTreeMap<String, f64> = self.store.scores(keys.away(name)).await?.into_iter().collect();
        let mut holders_of: BTreeMap<&str, Vec<&NodeEpoch>> = BTreeMap::new();
        for (holder, players) in &held {
            players.iter().for_each(|player| holders_of.entry(player).or_default().push(holder));
        }
        let players: BTreeSet<&str> = tickets
            .fields()
            .map(|(player, _)| player)
            .chain(waiting.iter().chain(away.keys()).map(String::as_str))
            .chain(holders_of.keys().copied())
            .collect();
        let mut report = LineSweepReport::default();
        for player in players {
            let holder = tickets.get(player).and_then(Ticket::holder_of);
            let (waits, goes_at) = (waiting.contains(player), away.get(player).map(|at| score_ms(*at)));
            let listed_by = holders_of.get(player).map_or(&[][..], Vec::as_slice);
            let is_astray = listed_by.iter().any(|by| Some(*by) != holder.as_ref());
            if tickets.get(player).is_none() || Player::new(player).is_err() {
                report.healed += 1;
            } else if !waits && goes_at.is_some_and(|at| is_over(at, now, grace_ms)) {
                report.out += 1;
            } else if waits && holder.as_ref().is_some_and(|holder| dead.contains(holder)) {
                report.away += 1;
            } else if waits == goes_at.is_some() || is_astray {
                report.healed += 1;
            }
        }
        Ok(report)
    }

    /// Looks at every entry of every index of the line, for an operator or after a doubt. Runs `queue/sweep`.
    pub async fn heal(&self) -> Result<LineSweepReport> {
        let mut report = LineSweepReport::default();
        for holder in self.holders().await? {
            let players = self.held_by(&holder).await?;
            report.add(self.sweep_players(Some(&holder), &players, false).await?);
        }
        report.add(self.walk_tickets(false).await?);
        report.add(self.walk_indexes().await?);
        Ok(report)
    }

    /// The same for some entries of the index of those who wait through `holder`. Runs `queue/sweep`.
    pub async fn heal_held(&self, holder: &NodeEpoch, players: &[Player]) -> Result<LineSweepReport> {
        let names: Vec<&str> = players.iter().map(Player::as_str).collect();
        self.sweep_players(Some(holder), &names, false).await
    }

    /// Puts everybody out. Those who were admitted stay admitted; who enters meanwhile may stay. Runs `queue/sweep`.
    pub async fn clear(&self) -> Result<LineSweepReport> {
        let mut report = self.walk_tickets(true).await?;
        report.add(self.walk_indexes().await?);
        Ok(report)
    }

    /// Ends the wait line of a server that is on no roster any more.
    pub async fn end_if_removed(&self, server: &NodeId, listed: &[NodeId]) -> Result<LineSweepReport> {
        if listed.contains(server) || !self.store.row(self.store.keys().node(server)).await?.is_empty() {
            return Ok(LineSweepReport::default());
        }
        self.clear().await
    }

    /// The incarnations that hold tickets.
    async fn holders(&self) -> Result<Vec<NodeEpoch>> {
        let names = self.store.members(self.store.keys().vias(&self.options.name)).await?;
        Ok(names.iter().filter_map(|name| NodeEpoch::read(name)).collect())
    }

    pub(super) async fn held_by(&self, holder: &NodeEpoch) -> Result<Vec<String>> {
        let name = self.via_name(holder);
        self.store.members(self.store.keys().via(&name)).await
    }

    pub(super) async fn is_alive(&self, holder: &NodeEpoch) -> Result<bool> {
        let row = self.store.row(self.store.keys().node(&holder.id)).await?;
        let now = self.store.clock().now_ms();
        let beat_at = row.number("beat_at").unwrap_or(0);
        Ok(row.number("epoch") == Some(holder.epoch.0) && now.abs_diff(beat_at) <= row.number("lease_ms").unwrap_or(0))
    }

    /// How many stand in each index.
    async fn counts(&self) -> Result<Counts> {
        let (keys, name) = (self.store.keys(), &self.options.name);
        let vias: Vec<String> = self.holders().await?.iter().map(|holder| self.via_name(holder)).collect();
        let vias: Vec<Key<'_>> = vias.iter().map(|via| keys.via(via)).collect();
        let indexes = [keys.line(name), keys.away(name)];
        let (tickets, [waiting, away], held) = self.store.sizes(keys.tickets(name), indexes, &vias).await?;
        Ok(Counts { tickets, waiting, away, held: held.iter().sum() })
    }

    /// Sweeps all tickets, those of one holder together, some thousands at a time: a line may be larger than one wants to
    /// hold in memory.
    async fn walk_tickets(&self, empty: bool) -> Result<LineSweepReport> {
        let key = self.store.keys().tickets(&self.options.name);
        let (mut report, mut cursor) = (LineSweepReport::default(), 0);
        loop {
            let mut groups: BTreeMap<Option<NodeEpoch>, Vec<Vec<u8>>> = BTreeMap::new();
            let mut read = 0;
            while read < WALK_STEP {
                let page;
                (cursor, page) = self.store.row_page(key, cursor).await?;
                read += page.len();
                for (player, text) in page {
                    groups.entry(Ticket::holder_of(&String::from_utf8_lossy(&text))).or_default().push(player);
                }
                if cursor == 0 {
                    break;
                }
            }
            for (holder, players) in groups {
                report.add(self.sweep_players(holder.as_ref(), &players, empty).await?);
            }
            if cursor == 0 {
                return Ok(report);
            }
        }
    }

    /// Sweeps what has no ticket out of those who wait and those who are away.
    async fn walk_indexes(&self) -> Result<LineSweepReport> {
        let (keys, name) = (self.store.keys(), &self.options.name);
        let mut report = LineSweepReport::default();
        for index in [keys.line(name), keys.away(name)] {
            let mut from = None;
            loop {
                let (next, page) = self.store.scores_page(index, from).await?;
                let swept = self.sweep_players(None, &page, false).await?;
                report.add(swept);
                // What went moved the others up: the same step again.
                if swept == LineSweepReport::default() {
                    match next {
                        Some(_) => from = next,
                        None => break,
                    }
                }
            }
        }
        Ok(report)
    }

    /// What is no player's name is put out of every index.
    async fn sweep_players(
        &self,
        holder: Option<&NodeEpoch>,
        players: &[impl AsRef<[u8]>],
        empty: bool,
    ) -> Result<LineSweepReport> {
        let mut report = LineSweepReport::default();
        let batches: Vec<_> = if players.is_empty() { vec![players] } else { players.chunks(BATCH).collect() };
        let (keys, name) = (self.store.keys(), &self.options.name);
        let via = holder.map(|holder| self.via_name(holder));
        let nothing: Key<'_> = keys.vias(name);
        for batch in batches {
            let call = Invocation::new(
                &scripts::QUEUE_SWEEP,
                &[
                    keys.lines(),
                    keys.line(name),
                    keys.tickets(name),
                    keys.away(name),
                    keys.gate(name),
                    keys.vias(name),
                    via.as_deref().map_or(nothing, |via| keys.via(via)),
                    holder.map_or(keys.tickets(name), |holder| keys.node(&holder.id)),
                ],
            )
            .arg(name.as_str())
            .arg(&holder.map(NodeEpoch::to_string).unwrap_or_default())
            .arg(self.options.reconnect_grace_ms)
            .arg(keys.line_events())
            .arg(if self.options.configured { "1" } else { "0" })
            .arg(if empty { "1" } else { "0" });
            let mut list = Vec::new();
            batch.iter().for_each(|player| push_netstring(&mut list, player.as_ref()));
            let call = call.arg(&list);
            let answer = self.store.run(&call).await?;
            for word in answer.values().iter().skip(1) {
                match word.as_str() {
                    "AWAY" => report.away += 1,
                    "OUT" => report.out += 1,
                    "HEALED" => report.healed += 1,
                    _ => {}
                }
            }
        }
        Ok(report)
    }
}
