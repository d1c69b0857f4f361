//! `limits`: names to what one player may do.

use super::fits::shown;
use super::model::Config;
use super::problem::Problem;
use super::table::{Entry, Problems};
use super::yaml::Node;
use crate::error::Error;
use crate::ids::LimitName;
use crate::limit::{BURST_MAX, COUNT_MAX, INTERVAL_MIN_MS, Limit, PER_MAX_MS};

/// Most limits.
const LIMITS_MAX: usize = 64;

pub(super) const ALLOWED: &str = "a mapping of at most 64 names (1 to 64 characters of A-Z a-z 0-9 . _ -) to \
    { count: 1 to 10000, perMs: 1 to 2592000000, burst: 1 to 64 } with at least 500 ms for each of count, or to \
    { cooldownMs: 500 to 2592000000 }; burst may be left out, all of it has to be free again within 30 days";

/// Reads the section.
pub(super) fn read(config: &mut Config, node: &Node) -> Vec<Problem> {
    let mut problems = Problems { allowed: ALLOWED, found: Vec::new() };
    for entry in problems.entries("limits", node) {
        let path = shown("limits", entry.name);
        let Ok(name) = LimitName::new(entry.name) else {
            problems.add(path, entry.place, "the name of the limit does not fit");
            continue;
        };
        if let Some(limit) = limit(&path, &entry, &mut problems) {
            config.limits.insert(name, limit);
        }
    }
    problems.found
}

/// One limit; what is wrong with it is among the problems then.
fn limit(path: &str, entry: &Entry<'_>, problems: &mut Problems<'_>) -> Option<Limit> {
    let before = problems.found.len();
    let (mut count, mut per_ms, mut burst, mut cooldown) = (None, None, None, None);
    for field in problems.entries(path, entry.value) {
        let at = shown(path, field.name);
        match field.name {
            "count" => count = problems.number(at, field.value, COUNT_MAX),
            "perMs" => per_ms = problems.number(at, field.value, PER_MAX_MS),
            "burst" => burst = problems.number(at, field.value, BURST_MAX),
            "cooldownMs" => cooldown = problems.number(at, field.value, PER_MAX_MS),
            _ => problems.add(at, field.place, "unknown key"),
        }
    }
    if problems.found.len() > before {
        return None;
    }
    let made = match (cooldown, count, per_ms, burst) {
        (Some(cooldown), None, None, None) if cooldown < INTERVAL_MIN_MS => Err(format!("{cooldown} ms is too short")),
        (Some(cooldown), None, None, None) => Limit::cooldown(cooldown).map_err(what),
        (None, Some(count), Some(per_ms), burst) => {
            Limit::new(count, per_ms, burst.unwrap_or_else(|| count.min(BURST_MAX))).map_err(what)
        }
        (Some(_), ..) => Err("cooldownMs stands alone".to_owned()),
        (None, ..) => Err("count and perMs are needed, or cooldownMs".to_owned()),
    };
    made.map_err(|what| problems.add(path, entry.value.place.or(entry.place), what)).ok()
}

fn what(error: Error) -> String {
    match error {
        Error::OutOfBounds { problem, .. } => problem,
        other => other.to_string(),
    }
}

/// What is wrong with limits that code set: each of them was checked when it was made.
pub(super) fn check(config: &Config) -> Vec<(String, String)> {
    let count = config.limits.len();
    if count > LIMITS_MAX { vec![("limits".to_owned(), format!("{count} limits are too many"))] } else { Vec::new() }
}
