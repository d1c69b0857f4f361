//! What is wrong with lines: those that stand still, and what in them is not believed or not for long.

use maitred::error::{Error, Result, StoreRefusal};
use maitred::ids::{LineName, Player};
use maitred::queue::{LineView, PassRow, Ticket};
use maitred::store::{Key, Row, Verifier};

use super::super::queues::{ZoneLines, is_of_one_line};
use super::super::view;
use super::{Finding, STRANGER};

/// Most tickets of one line that are verified.
const TICKETS_MAX: usize = 10_000;
/// Most passes that are verified, and most keys of the store that are walked for them.
const PASSES_MAX: usize = 10_000;
const KEYS_MAX: usize = 1_000_000;

/// Every check of lines, in the order of the report.
pub(super) async fn all(zone: &ZoneLines, findings: &mut Vec<Finding>) {
    let (lines, odd) = match seen(zone).await {
        Ok(seen) => seen,
        Err(error) => return findings.push(Finding::error("lines", &error)),
    };
    // The other checks leave these out, so that one line hides nothing of the others.
    findings.extend(odd);
    let mut push = |check, outcome: Result<Finding>| {
        findings.push(outcome.unwrap_or_else(|error| Finding::error(check, &error)));
    };
    push("lines", indexes(zone, &lines).await);
    push("gates", gates(zone, &lines).await);
    push("heads", heads(zone, &lines).await);
    push("tickets", tickets(zone, &lines).await);
    push("passes", passes(zone).await);
}

/// The lines that can be read, and a finding for each that cannot.
async fn seen(zone: &ZoneLines) -> Result<(Vec<LineView>, Vec<Finding>)> {
    let (mut lines, mut odd) = (Vec::new(), Vec::new());
    let keys = zone.store.keys();
    for name in zone.names().await? {
        let sizes = zone.store.sizes(keys.tickets(&name), [keys.line(&name), keys.away(&name)], &[]).await;
        let view = match sizes {
            Ok(_) => zone.line(&name)?.view().await,
            Err(error) => Err(error),
        };
        match view {
            Ok(view) => lines.push(view),
            Err(error) if is_of_one_line(&error) => {
                let advice = StoreRefusal::WrongType.advice();
                odd.push(Finding::fail("lines", format!("{name} cannot be read: {error}"), advice));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((lines, odd))
}

/// Tickets have one entry in one of two indexes.
async fn indexes(zone: &ZoneLines, lines: &[LineView]) -> Result<Finding> {
    let keys = zone.store.keys();
    let (mut orphans, mut lost) = (0_u64, 0_u64);
    let (mut waiting, mut away) = (0_u64, 0_u64);
    for line in lines {
        let name = &line.line;
        let indexes = [keys.line(name), keys.away(name)];
        let (tickets, [waits, dropped], _) = zone.store.sizes(keys.tickets(name), indexes, &[]).await?;
        let entries = waits.saturating_add(dropped);
        orphans = orphans.saturating_add(entries.saturating_sub(tickets));
        lost = lost.saturating_add(tickets.saturating_sub(entries));
        (waiting, away) = (waiting.saturating_add(waits), away.saturating_add(dropped));
    }
    let detail = format!("{}, {waiting} wait, {away} away", view::counted(lines.len(), "line"));
    if orphans + lost > 0 {
        let detail = format!("{detail}; {orphans} index entries without a ticket, {lost} tickets without an entry");
        return Ok(Finding::warn("lines", detail, "maitred reap puts them right; give it the fleet's --config"));
    }
    Ok(Finding::ok("lines", detail))
}

async fn gates(zone: &ZoneLines, lines: &[LineView]) -> Result<Finding> {
    let mut paused = Vec::new();
    let now = zone.store.clock().now_ms();
    for line in lines.iter().filter(|line| line.paused) {
        let row = zone.store.row(zone.store.keys().gate(&line.line)).await?;
        let since = row
            .number("paused_at")
            .map(|at| format!(" since {} UTC ({} ago)", view::clock(at), view::ago(now.saturating_sub(at))));
        paused.push(format!("{}{}, {} waiting", line.line, since.unwrap_or_default(), line.waiting));
    }
    if paused.is_empty() {
        return Ok(Finding::ok("gates", "none is paused"));
    }
    let advice = "maitred queue NAME resume lets players in again";
    Ok(Finding::warn("gates", format!("paused: {}", paused.join("; ")), advice))
}

/// A head of an unknown version holds up the whole line, for this build.
async fn heads(zone: &ZoneLines, lines: &[LineView]) -> Result<Finding> {
    let mut blocked = Vec::new();
    for line in lines.iter().filter(|line| line.waiting > 0) {
        let name = &line.line;
        let players = zone.line(name)?.positions(1).await?;
        let names: Vec<&str> = players.iter().map(Player::as_str).collect();
        let Some(player) = players.first() else { continue };
        let row = zone.store.fields(&[zone.store.keys().tickets(name)], &names).await?.pop().unwrap_or_default();
        let ticket = row.get(player.as_str()).map(|text| Ticket::verified(&zone.verifier, name, player, text));
        if let Some(Err(Error::SchemaVersion { version, known, .. })) = ticket {
            blocked.push(format!("the head of {name} is of version {version}, this build knows {known}"));
        }
    }
    if blocked.is_empty() {
        return Ok(Finding::ok("heads", "each is of a known version"));
    }
    let advice = "a node of the build that wrote it has to admit, or bring the others to that build";
    Ok(Finding::fail("heads", blocked.join("; "), advice))
}

/// What verifying many rows found.
#[derive(Debug, Default)]
struct Count {
    good: u64,
    old: u64,
    strange: u64,
    forged: u64,
}

impl Count {
    fn add(&mut self, is_old: Result<bool>) -> Result<()> {
        match is_old {
            Ok(false) => self.good += 1,
            Ok(true) => self.old += 1,
            Err(Error::SchemaVersion { .. }) => self.strange += 1,
            Err(Error::Untrusted { reason: "schema_version", .. }) => self.strange += 1,
            Err(Error::Untrusted { .. } | Error::Refused { refusal: StoreRefusal::WrongType, .. }) => self.forged += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn finding(&self, check: &'static str, scope: &str, when_old: &str) -> Finding {
        let looked_at = self.good + self.old + self.strange + self.forged;
        let mut detail = format!("{looked_at} looked at{scope}, {} not believed", self.forged);
        if self.strange > 0 {
            detail.push_str(&format!(", {} of a version that this build does not know", self.strange));
        }
        if self.old > 0 {
            detail.push_str(&format!(", {} still signed with an old secret", self.old));
        }
        if self.forged > 0 {
            Finding::fail(check, detail, STRANGER)
        } else if self.old > 0 {
            Finding::warn(check, detail, when_old)
        } else {
            Finding::ok(check, detail)
        }
    }
}

async fn tickets(zone: &ZoneLines, lines: &[LineView]) -> Result<Finding> {
    let (mut count, mut cut) = (Count::default(), Vec::new());
    for line in lines {
        let name = &line.line;
        let row = zone.store.scan_row_part(zone.store.keys().tickets(name), TICKETS_MAX).await?;
        let all = line.waiting.saturating_add(line.away);
        let looked_at = row.fields().count();
        if u64::try_from(looked_at).is_ok_and(|looked_at| looked_at < all) && looked_at >= TICKETS_MAX {
            cut.push(format!("{looked_at} of {all} in {name}"));
        }
        for (player, text) in row.fields() {
            // What is no player was written by hand and is looked at by nobody.
            let Ok(player) = Player::new(player) else { continue };
            let ticket = Ticket::verified(&zone.verifier, name, &player, text);
            count.add(ticket.map(|ticket| ticket.is_of_old_secret(&zone.verifier)))?;
        }
    }
    let scope = if cut.is_empty() { String::new() } else { format!(" ({})", cut.join(", ")) };
    Ok(count.finding("tickets", &scope, "wait until the proxies signed them again before the old secret is dropped"))
}

async fn passes(zone: &ZoneLines) -> Result<Finding> {
    let (names, whole) = match zone.store.names_part("pass:", PASSES_MAX, KEYS_MAX).await {
        Ok(found) => found,
        Err(Error::Refused { refusal: StoreRefusal::Denied, .. }) => {
            let advice = "run the doctor as a user that may, before a secret is dropped";
            return Ok(Finding::warn("passes", "not counted: this user may not SCAN", advice));
        }
        Err(error) => return Err(error),
    };
    let of = |name: &String| {
        let (line, player) = name.split_once(':')?;
        Some((LineName::new(line).ok()?, Player::new(player).ok()?, name.clone()))
    };
    let all: Vec<(LineName, Player, String)> = names.iter().filter_map(of).collect();
    let keys: Vec<Key<'_>> = all.iter().map(|(.., name)| zone.store.keys().pass(name)).collect();
    let rows = zone.store.rows_each(&keys).await?;
    let mut count = Count::default();
    for ((line, player, _), row) in all.iter().zip(rows) {
        match row.and_then(|row| old_pass(&zone.verifier, line, player, &row)).transpose() {
            None => {}
            Some(is_old) => count.add(is_old)?,
        }
    }
    let scope = if whole { "" } else { " (not all: the walk stops at 10000 passes or 1000000 keys)" };
    let advice = "keep the old secret accepted until they have expired: sealed passes are not signed again";
    Ok(count.finding("passes", scope, advice))
}

/// Whether a pass is of an old secret; none where it has expired since, or was spent or given up.
fn old_pass(verifier: &Verifier, line: &LineName, player: &Player, row: &Row) -> Result<Option<bool>> {
    let pass = PassRow::from_row(verifier, line, player, row)?;
    let lives = pass.is_some_and(|pass| pass.redeemed_at_ms.is_none() && !pass.void);
    Ok(lives.then(|| !row.text("sig").starts_with(verifier.keyring().kid().as_str())))
}
