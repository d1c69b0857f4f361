//! Bounds of the stored values and their relations. Works on a [`Config`] from a file as well as on one that code set.

use super::entry_servers;
use super::fits::{LABELS_MAX, is_label_name, is_label_text, out_of_range, shown};
use super::model::Config;
use super::problem::Problem;
use super::schema::{self, Key, ValueKind};
use super::selector;
use super::walked::Walked;

/// Checks every value that was taken; the problems join those of the walk.
pub(super) fn check(walked: &mut Walked) {
    for key in schema::KEYS {
        if walked.bad.contains(key.path) {
            continue;
        }
        let own = match key.kind {
            ValueKind::Metrics => selector::check_metrics(walked),
            ValueKind::Backends => selector::check_backends(walked),
            _ => Vec::new(),
        };
        walked.problems.extend(own);
        let found = bounds(key, &mut walked.config);
        if !found.is_empty() {
            walked.bad.insert(key.path);
        }
        let place = walked.places.get(key.path).copied();
        walked.problems.extend(found.into_iter().map(|(path, what)| Problem {
            path,
            place,
            what,
            allowed: key.allowed(),
        }));
    }
    relations(walked);
}

/// Path and problem of each value of `key` that is out of bounds.
fn bounds(key: &Key, config: &mut Config) -> Vec<(String, String)> {
    let one = |fits: bool, what: String| if fits { Vec::new() } else { vec![(key.path.to_owned(), what)] };
    match &key.kind {
        ValueKind::Flag(_) | ValueKind::Typed { .. } | ValueKind::Metrics | ValueKind::Backends => Vec::new(),
        ValueKind::Millis { min, max, at } | ValueKind::Seconds { min, max, at } => {
            let value = *at(config);
            one((*min..=*max).contains(&value), out_of_range(&value))
        }
        ValueKind::Count { min, max, at, .. } => {
            let value = *at(config);
            one(u64::try_from(value).is_ok_and(|value| (*min..=*max).contains(&value)), out_of_range(&value))
        }
        ValueKind::Text { fits, at, .. } => {
            let text = at(config);
            one(fits(text), format!("does not fit ({} bytes)", text.len()))
        }
        ValueKind::Labels => labels(key.path, config),
        ValueKind::Table { check, .. } => check(config),
        ValueKind::Servers => {
            let fault = entry_servers::fault(&config.initial_routing.servers);
            fault.map(|what| (key.path.to_owned(), what)).into_iter().collect()
        }
    }
}

fn labels(path: &str, config: &Config) -> Vec<(String, String)> {
    let labels = &config.node.labels;
    let mut found = Vec::new();
    if labels.len() > LABELS_MAX {
        found.push((path.to_owned(), format!("{} labels are too many", labels.len())));
    }
    for (name, text) in labels {
        if !is_label_name(name) {
            found.push((shown(path, name), "the name of the label does not fit".to_owned()));
        }
        if !is_label_text(text) {
            found.push((shown(path, name), format!("the text of the label does not fit ({} bytes)", text.len())));
        }
    }
    found
}

/// Two values that may contradict each other.
struct Relation {
    path: String,
    /// The key that this is about, and the other one.
    keys: [&'static str; 2],
    holds: bool,
    what: String,
}

/// NOD-7, the life of a claim, and the promises of a line. A relation with a value that is wrong by itself is not looked at.
fn relations(walked: &mut Walked) {
    for Relation { path, keys, holds, what } in fixed(&walked.config).into_iter().chain(of_lines(&walked.config)) {
        if holds || keys.iter().any(|key| walked.bad.contains(key)) {
            continue;
        }
        // The key itself may be a default; then the place is that of the key that does not fit it.
        let place = keys.iter().find_map(|key| walked.places.get(*key)).copied();
        let [key, _] = keys;
        let allowed = schema::find(key).map(Key::allowed).unwrap_or_default();
        walked.problems.push(Problem { path, place, what, allowed });
    }
}

fn fixed(config: &Config) -> Vec<Relation> {
    let Config { heartbeat, directory, tokens, .. } = config;
    let two_beats = heartbeat.interval_ms.saturating_mul(2);
    let (suspect, offline, removed) = (directory.suspect_ms, directory.offline_ms, directory.removed_ms);
    let rules = [
        ("directory.suspectMs", "heartbeat.intervalMs", two_beats < suspect, {
            format!("{suspect} is not more than two beats (2 × heartbeat.intervalMs = {two_beats})")
        }),
        ("directory.offlineMs", "directory.suspectMs", suspect < offline, {
            format!("{offline} is not more than directory.suspectMs ({suspect})")
        }),
        ("directory.removedMs", "directory.offlineMs", offline < removed, {
            format!("{removed} is not more than directory.offlineMs ({offline})")
        }),
        ("tokens.claimReanimateMs", "tokens.ttlMs", tokens.claim_reanimate_ms <= tokens.ttl_ms, {
            format!("{} is more than tokens.ttlMs ({})", tokens.claim_reanimate_ms, tokens.ttl_ms)
        }),
    ];
    let relation = |(path, other, holds, what): (&'static str, _, _, _)| Relation {
        path: path.to_owned(),
        keys: [path, other],
        holds,
        what,
    };
    rules.into_iter().map(relation).collect()
}

/// A promise that ends before a heartbeat has counted the player is sold twice: one may just have been sent when the player
/// comes, and one may be lost. A pass that ends before its promise keeps a place for nobody.
fn of_lines(config: &Config) -> Vec<Relation> {
    let two_beats = config.heartbeat.interval_ms.saturating_mul(2);
    let relations = config.lines.iter().flat_map(|(name, line)| {
        let (arrive, pass) = (line.arrive_ms, line.pass_ms);
        [
            Relation {
                path: format!("lines.{name}.arriveMs"),
                keys: ["lines", "heartbeat.intervalMs"],
                holds: two_beats < arrive,
                what: format!("{arrive} is not more than two beats (2 × heartbeat.intervalMs = {two_beats})"),
            },
            Relation {
                path: format!("lines.{name}.passMs"),
                keys: ["lines", "lines"],
                holds: arrive <= pass,
                what: format!("{pass} is less than lines.{name}.arriveMs ({arrive})"),
            },
        ]
    });
    relations.collect()
}

impl Config {
    /// Age of a backend's last beat from which it is sent nobody, in ms: `dispatch.staleAfterMs`, but never so little that a
    /// backend whose beats come in time is passed over between two of them.
    pub fn stale_after_ms(&self) -> u64 {
        let interval = self.heartbeat.interval_ms;
        self.dispatch.stale_after_ms.max(interval.saturating_add(interval / 2))
    }
}
