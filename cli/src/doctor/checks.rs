use std::collections::HashMap;

use maitred::error::{Error, Result, StoreRefusal};
use maitred::node::{Control, KILL, NodeRecord, roster};
use maitred::store::{Invocation, Row, Store, Verifier, scripts};
use maitred::token::Book;

use super::super::context::Context;
use super::super::queues::ZoneLines;
use super::super::view;
use super::{Finding, STRANGER, lines, routes};

/// A round trip beyond this is slow for a store beside the fleet.
const SLOW_TRIP_MICROS: u128 = 20_000;
/// Wall clocks further apart than this make logs hard to read side by side.
const OFFSET_WARN_MS: u64 = 5_000;
/// A token this long past its due time says that nobody reaps.
const OVERDUE_REAPS: u64 = 5;
/// Fields of the control hash that are shown where they are nobody's, and characters of each.
const STRANGERS_SHOWN: usize = 3;
const NAME_SHOWN: usize = 40;

/// Every check, in the order of the report.
pub(super) async fn all(context: &Context, store: &Store, verifier: Option<&Verifier>, findings: &mut Vec<Finding>) {
    if !reachable(store, findings).await {
        return;
    }
    findings.push(server(store).await);
    findings.push(clock(store).await);
    findings.push(pins(store).await);
    findings.push(lua(store).await);
    findings.push(publish(store).await);
    findings.push(rights(store).await);
    match info(store).await {
        Ok(info) => {
            findings.push(memory(&info));
            findings.push(persistence(&info));
            findings.push(replication(&info));
        }
        Err(error) => findings.push(Finding::error("memory", &error)),
    }
    if let Some(verifier) = verifier {
        let entries = Control::default();
        findings.push(or_error("control", control(store, verifier, &entries).await));
        findings.push(or_error("nodes", nodes(context, store, verifier).await));
        findings.push(or_error("tokens", tokens(context, store, verifier).await));
        lines::all(&ZoneLines::over(context, store, verifier, &entries), findings).await;
        findings.push(or_error("routes", routes::check(store, verifier).await));
    }
}

fn or_error(check: &'static str, outcome: Result<Finding>) -> Finding {
    outcome.unwrap_or_else(|error| Finding::error(check, &error))
}

async fn reachable(store: &Store, findings: &mut Vec<Finding>) -> bool {
    let mut trips = Vec::new();
    for _ in 0..5 {
        match store.round_trip().await {
            Ok(trip) => trips.push(trip.as_micros()),
            Err(error) => {
                findings.push(Finding::error("reachable", &error));
                return false;
            }
        }
    }
    trips.sort_unstable();
    let median = trips.get(trips.len() / 2).copied().unwrap_or_default();
    let detail = format!("{}, round trip {median} µs", store.options().url);
    findings.push(if median > SLOW_TRIP_MICROS {
        Finding::warn("reachable", detail, "put the store closer: every step of a player costs a round trip")
    } else {
        Finding::ok("reachable", detail)
    });
    true
}

async fn server(store: &Store) -> Finding {
    match store.server_info().await {
        Ok(server) => {
            let detail = format!("{} {}", server.name, server.version);
            let major_minor = version(&server.version);
            let supported = match server.name.as_str() {
                "redis" => major_minor >= (6, 2),
                "keydb" => major_minor >= (6, 3),
                "valkey" => major_minor >= (7, 2),
                _ => major_minor >= (1, 0),
            };
            if supported {
                Finding::ok("server", detail)
            } else {
                Finding::fail("server", detail, "use Redis 6.2, Valkey 7.2, KeyDB 6.3, Dragonfly 1.0 or newer")
            }
        }
        Err(error) => Finding::error("server", &error),
    }
}

fn version(text: &str) -> (u64, u64) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

async fn clock(store: &Store) -> Finding {
    match store.wall_clock_offset_ms().await {
        Ok(offset) if offset.unsigned_abs() > OFFSET_WARN_MS => Finding::warn(
            "clock",
            format!("the store's clock is {offset} ms from this machine's"),
            "nothing breaks by it, but logs differ: set both by NTP",
        ),
        Ok(offset) => Finding::ok("clock", format!("{offset} ms from this machine's")),
        Err(error) => Finding::error("clock", &error),
    }
}

async fn pins(store: &Store) -> Finding {
    if let Err(error) = scripts::verify_all() {
        return Finding::fail("pins", error.to_string(), "this build is defective: install another");
    }
    let all = scripts::all().len();
    let held = match store.loaded().await {
        Ok(held) => held.into_iter().filter(|held| *held).count(),
        Err(error) => return Finding::error("pins", &error),
    };
    match store.prepare().await {
        Ok(()) => Finding::ok("pins", format!("{all} scripts match; {held} were loaded, all are now")),
        Err(error @ Error::PinMismatch { .. }) => {
            Finding::fail("pins", error.to_string(), "the store computes another hash: do not use it")
        }
        Err(error) => Finding::error("pins", &error),
    }
}

/// A real call of a script that finds nothing to do.
async fn lua(store: &Store) -> Finding {
    let outcome = async {
        let role = maitred::ids::Role::new("doctor")?;
        let keys = store.keys();
        let call = Invocation::new(&scripts::NODE_REMOVE, &[keys.roster(&role), keys.roles(), keys.epochs()])
            .arg(role.as_str())
            .arg(1_u64)
            .arg(keys.node_events());
        store.run(&call).await
    };
    match outcome.await {
        Ok(_) => Finding::ok("lua", "EVALSHA runs"),
        Err(error) => Finding::error("lua", &error),
    }
}

async fn publish(store: &Store) -> Finding {
    match store.publish_in_script(store.keys().control_events(), "doctor").await {
        Ok(heard) => Finding::ok("publish", format!("works in scripts; {heard} connections listen to events:control")),
        Err(error) => Finding::error("publish", &error),
    }
}

/// The commands that the product's user needs, each with a key or channel of the zone.
async fn rights(store: &Store) -> Finding {
    let prefix = store.keys().prefix();
    let key = |name: &str| format!("{prefix}{name}");
    let (node, roster, roles, due, token) =
        (key("node:doctor"), key("nodes:doctor"), key("roles"), key("due:doctor"), key("token:doctor"));
    let (epochs, control, events) = (key("epochs"), key("control"), key("events:node"));
    let (inbox, lines, line) = (key("inbox:doctor"), key("lines"), key("line:doctor"));
    let commands: [&[&str]; 32] = [
        &["EVALSHA", "0000000000000000000000000000000000000000", "1", &node],
        &["SCRIPT", "LOAD", "return 1"],
        &["PING"],
        &["UNWATCH"],
        &["TIME"],
        &["HGETALL", &node],
        &["HGET", &node, "epoch"],
        &["HMGET", &node, "epoch"],
        &["HLEN", &control],
        &["HSET", &node, "a", "b"],
        &["HDEL", &epochs, "a"],
        &["HSCAN", &control, "0"],
        &["DEL", &node],
        &["EXISTS", &roster],
        &["PEXPIRE", &node, "1"],
        &["PEXPIREAT", &token, "1"],
        &["PTTL", &token],
        &["ZADD", &roster, "1", "a"],
        &["ZREM", &due, "a"],
        &["ZREMRANGEBYSCORE", &due, "0", "0"],
        &["ZRANGEBYSCORE", &due, "-inf", "+inf"],
        &["ZSCORE", &line, "a"],
        &["ZCOUNT", &line, "1", "2"],
        &["ZCARD", &line],
        &["SADD", &lines, "a"],
        &["SREM", &lines, "a"],
        &["SCARD", &roles],
        &["SMEMBERS", &roles],
        &["SSCAN", &roles, "0"],
        &["SCAN", "0"],
        &["PUBLISH", &events, "x"],
        &["SUBSCRIBE", &inbox],
    ];
    let mut denied = Vec::new();
    for command in commands {
        match store.may(command).await {
            Ok(None) => {
                return Finding::ok("rights", "this store cannot tell by a dry run; --probe tries them for real");
            }
            Ok(Some(None)) => {}
            Ok(Some(Some(why))) => denied.push(format!("{}: {why}", command.first().copied().unwrap_or_default())),
            Err(error) => return Finding::error("rights", &error),
        }
    }
    if denied.is_empty() {
        Finding::ok("rights", "the user may run what the scripts and reads need")
    } else {
        let advice =
            format!("ACL SETUSER <user> ~{prefix}* &{prefix}* and the commands named; docs/operating.md has the lines");
        Finding::fail("rights", denied.join("; "), advice)
    }
}

type Info = HashMap<String, String>;

async fn info(store: &Store) -> Result<Info> {
    let mut all = Info::new();
    for section in ["memory", "persistence", "replication"] {
        all.extend(store.info(section).await?);
    }
    Ok(all)
}

fn number(info: &Info, name: &str) -> u64 {
    info.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn text<'a>(info: &'a Info, name: &str) -> &'a str {
    info.get(name).map_or("", String::as_str)
}

fn memory(info: &Info) -> Finding {
    let (used, max) = (number(info, "used_memory"), number(info, "maxmemory"));
    let policy = text(info, "maxmemory_policy");
    let mib = |bytes: u64| bytes / 1_048_576;
    let detail = match max {
        0 => format!("{} MiB used, no limit, policy {policy}", mib(used)),
        max => format!("{} of {} MiB used, policy {policy}", mib(used), mib(max)),
    };
    if max > 0 && used >= max {
        return Finding::fail("memory", detail, StoreRefusal::OutOfMemory.advice());
    }
    if !policy.is_empty() && policy != "noeviction" {
        let advice = "set maxmemory-policy noeviction: evicted tokens and leases are lost players and fenced nodes";
        return Finding::warn("memory", detail, advice);
    }
    if max > 0 && used.saturating_mul(10) > max.saturating_mul(8) {
        return Finding::warn("memory", detail, "raise maxmemory before it is reached");
    }
    Finding::ok("memory", detail)
}

fn persistence(info: &Info) -> Finding {
    if number(info, "loading") == 1 {
        return Finding::fail("persistence", "the store reads its data from disk", StoreRefusal::Loading.advice());
    }
    let aof = number(info, "aof_enabled") == 1;
    let failed = text(info, "rdb_last_bgsave_status") == "err" || text(info, "aof_last_write_status") == "err";
    if failed {
        return Finding::fail("persistence", "the last write to disk failed", "look at the store's disk and log");
    }
    if aof {
        return Finding::ok("persistence", "append-only file");
    }
    let advice = "appendonly yes keeps reservations and routes over a restart; without it a restart empties the book";
    Finding::warn("persistence", "no append-only file", advice)
}

fn replication(info: &Info) -> Finding {
    let role = text(info, "role");
    if role == "slave" || role == "replica" {
        return Finding::fail("replication", "this is a replica", StoreRefusal::ReadOnly.advice());
    }
    let replicas = number(info, "connected_slaves");
    Finding::ok("replication", format!("primary with {replicas} replicas"))
}

async fn control(store: &Store, verifier: &Verifier, control: &Control) -> Result<Finding> {
    let before = verifier.audit().total();
    control.refresh(store, verifier).await?;
    let forged = verifier.audit().total() - before;
    let old = control.signed_before(verifier);
    let on: Vec<String> =
        control.entries().into_iter().filter(|(_, e)| e.value == "on").map(|(name, _)| name).collect();
    let mut detail = format!(
        "{} entries, on: {}",
        control.entries().len(),
        if on.is_empty() { "none".into() } else { on.join(", ") }
    );
    let strangers = control.strangers();
    if strangers > 0 {
        let some = strangers_of(store, control).await?;
        detail.push_str(&format!("; {strangers} fields are no entries of the fleet, such as {}", some.join(", ")));
    }
    if forged > 0 {
        let advice = "somebody writes to this store who is no member: change its password, then set the entries anew";
        return Ok(Finding::fail("control", format!("{detail}; {forged} not believed"), advice));
    }
    if strangers > 0 {
        let advice = "nobody reads them; HDEL takes them out, or set the entries again after a DEL of control. Whoever wrote \
                      them has the store's password";
        return Ok(Finding::warn("control", detail, advice));
    }
    if control.is_on(KILL) {
        return Ok(Finding::warn("control", detail, "maitred kill off lets new reservations through again"));
    }
    if !old.is_empty() {
        let advice = "wait until the agents signed them again before the old secret is dropped";
        let detail = format!("{detail}; {} still signed with an old secret", old.len());
        return Ok(Finding::warn("control", detail, advice));
    }
    Ok(Finding::ok("control", detail))
}

/// Names of a few fields of the hash that are no entries in force, as far as a first scan meets them.
async fn strangers_of(store: &Store, control: &Control) -> Result<Vec<String>> {
    let (_, fields) = store.row_page(store.keys().control(), 0).await?;
    let names = fields.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
    let strange = names.filter(|name| control.entry(name).is_none());
    Ok(strange.take(STRANGERS_SHOWN).map(|name| view::plain(&view::cut(&name, NAME_SHOWN))).collect())
}

async fn nodes(context: &Context, store: &Store, verifier: &Verifier) -> Result<Finding> {
    let (mut online, mut late, mut gone, mut forged) = (0_u64, 0_u64, 0_u64, 0_u64);
    let limits = context.limits();
    let (rosters, refused) = roster::rosters_and_refused(store).await?;
    for (_, ids) in rosters {
        let ids: Vec<_> = ids.into_iter().map(|(id, _)| id).collect();
        for (id, row) in ids.iter().zip(roster::rows_of(store, &ids).await?) {
            if row.as_ref().is_ok_and(Row::is_empty) {
                gone += 1;
                continue;
            }
            match row.and_then(|row| NodeRecord::from_row(verifier, id, &row)) {
                Ok(record) => {
                    let age = store.clock().now_ms().saturating_sub(record.sent_at_ms);
                    if limits.judge(age) == maitred::node::Liveness::Online { online += 1 } else { late += 1 }
                }
                Err(_) => forged += 1,
            }
        }
    }
    let detail = format!("{online} online, {late} late, {gone} gone, {forged} not believed");
    if !refused.is_empty() {
        let keys: Vec<String> = refused.iter().map(|(role, _)| format!("nodes:{role}")).collect();
        let detail = format!("{detail}; WRONGTYPE at {}: its nodes are hidden", keys.join(", "));
        return Ok(Finding::fail("nodes", detail, StoreRefusal::WrongType.advice()));
    }
    Ok(if forged > 0 {
        Finding::fail("nodes", detail, STRANGER)
    } else if late > 0 {
        Finding::warn("nodes", detail, "maitred nodes shows which")
    } else {
        Finding::ok("nodes", detail)
    })
}

async fn tokens(context: &Context, store: &Store, verifier: &Verifier) -> Result<Finding> {
    let book: Book = context.book_of(store, verifier, Control::default());
    let servers = book.servers().await?;
    let keys: Vec<_> = servers.iter().map(|server| store.keys().due(server)).collect();
    let patience = context.config.tokens.reap_interval_ms.saturating_mul(OVERDUE_REAPS);
    let before = store.clock().now_ms().saturating_sub(patience).to_string();
    let all: usize = store.score_ranges(&keys, "+inf", usize::from(u16::MAX)).await?.iter().map(Vec::len).sum();
    let late: usize = store.score_ranges(&keys, &before, usize::from(u16::MAX)).await?.iter().map(Vec::len).sum();
    let detail = format!("{all} open on {} servers, {late} overdue", servers.len());
    Ok(if late > 0 {
        Finding::warn("tokens", detail, "no agent reaps: is one running? maitred reap does it by hand")
    } else {
        Finding::ok("tokens", detail)
    })
}
