//! `lines`: names to login lines (QUE-1 to QUE-15).

use super::fits::{out_of_range, shown};
use super::line_config::LineConfig;
use super::model::Config;
use super::problem::Problem;
use super::table::{Entry, Problems};
use super::yaml::{Node, Value};
use crate::ids::LineName;
use crate::queue::{Choice, LANES_MAX, WEIGHT_MAX};

/// Most lines.
const LINES_MAX: usize = 16;
/// What the wait lines of backends are named by.
const WAIT: &str = "wait";

pub(super) const ALLOWED: &str = "a mapping of at most 16 names (1 to 64 characters of A-Z a-z 0-9 . _ -, neither wait nor \
    beginning with wait.) to { pick: backend, link or both, maxWaiting: 1 to 10000000, lanes: a list of 1 to 16 weights \
    from 1 to 1000, maxOnlineNew: 1 to 100000, fixedPerSecond: null or 1 to 100000, burst: null or 1 to 100000, \
    reconnectGraceMs: 100 to 3600000, arriveMs: 100 to 3600000, passMs: 1000 to 86400000, maxFailures: 1 to 100, \
    tickMs: 100 to 60000 }, arriveMs more than two beats (2 × heartbeat.intervalMs) and passMs not less than arriveMs; what is \
    left out has its default";

/// A field that is a number, or for some of them nothing.
struct Number {
    name: &'static str,
    min: u64,
    max: u64,
    /// It may be null.
    may_be_none: bool,
    get: fn(&LineConfig) -> Option<u64>,
    set: fn(&mut LineConfig, Option<u64>),
}

const fn needed(
    name: &'static str,
    min: u64,
    max: u64,
    get: fn(&LineConfig) -> Option<u64>,
    set: fn(&mut LineConfig, Option<u64>),
) -> Number {
    Number { name, min, max, may_be_none: false, get, set }
}

const fn optional(
    name: &'static str,
    max: u64,
    get: fn(&LineConfig) -> Option<u64>,
    set: fn(&mut LineConfig, Option<u64>),
) -> Number {
    Number { name, min: 1, max, may_be_none: true, get, set }
}

/// The bounds keep it far below that.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

macro_rules! wide {
    ($name:literal, $min:literal, $max:literal, $field:ident) => {
        needed($name, $min, $max, |line| Some(line.$field), |line, number| line.$field = number.unwrap_or(line.$field))
    };
}

macro_rules! narrow {
    ($name:literal, $max:literal, $field:ident) => {
        needed(
            $name,
            1,
            $max,
            |line| Some(line.$field.into()),
            |line, number| line.$field = number.map_or(line.$field, small),
        )
    };
}

static NUMBERS: [Number; 9] = [
    wide!("maxWaiting", 1, 10_000_000, max_waiting),
    narrow!("maxOnlineNew", 100_000, max_online_new),
    optional(
        "fixedPerSecond",
        100_000,
        |line| line.fixed_per_second.map(u64::from),
        |line, number| line.fixed_per_second = number.map(small),
    ),
    optional("burst", 100_000, |line| line.burst.map(u64::from), |line, number| line.burst = number.map(small)),
    wide!("reconnectGraceMs", 100, 3_600_000, reconnect_grace_ms),
    wide!("arriveMs", 100, 3_600_000, arrive_ms),
    wide!("passMs", 1_000, 86_400_000, pass_ms),
    narrow!("maxFailures", 100, max_failures),
    wide!("tickMs", 100, 60_000, tick_ms),
];

/// Reads the section. A line that is there already (a push over a file) keeps what is not given.
pub(super) fn read(config: &mut Config, node: &Node) -> Vec<Problem> {
    let mut problems = Problems { allowed: ALLOWED, found: Vec::new() };
    for entry in problems.entries("lines", node) {
        let path = shown("lines", entry.name);
        let Ok(name) = LineName::new(entry.name) else {
            problems.add(path, entry.place, "the name of the line does not fit");
            continue;
        };
        if is_wait(&name) {
            problems.add(path, entry.place, "the name belongs to the wait lines of backends");
            continue;
        }
        let before = problems.found.len();
        let mut line = config.lines.get(&name).cloned().unwrap_or_default();
        fields(&path, &entry, &mut line, &mut problems);
        if problems.found.len() == before {
            config.lines.insert(name, line);
        }
    }
    problems.found
}

fn fields(path: &str, entry: &Entry<'_>, line: &mut LineConfig, problems: &mut Problems<'_>) {
    for field in problems.entries(path, entry.value) {
        let at = shown(path, field.name);
        match field.name {
            "pick" => {
                if let Some(pick) = problems.text(at, field.value, pick) {
                    line.pick = pick;
                }
            }
            "lanes" => {
                if let Some(lanes) = lanes(at, field.value, problems) {
                    line.lanes = lanes;
                }
            }
            name => match NUMBERS.iter().find(|number| number.name == name) {
                Some(number) if number.may_be_none && matches!(field.value.value, Value::Nothing) => {
                    (number.set)(line, None);
                }
                Some(number) => {
                    let given = problems.number_in(at, field.value, number.min..=number.max);
                    if given.is_some() {
                        (number.set)(line, given);
                    }
                }
                None => problems.add(at, field.place, "unknown key"),
            },
        }
    }
}

fn pick(text: &str) -> Option<Choice> {
    match text {
        "backend" => Some(Choice::Backend),
        "link" => Some(Choice::LinkOnly),
        "both" => Some(Choice::BackendAndLink),
        _ => None,
    }
}

fn lanes(path: String, node: &Node, problems: &mut Problems<'_>) -> Option<Vec<u32>> {
    let Value::List(items) = &node.value else {
        problems.add(path, node.place, format!("expected a list, found {}", node.value.kind()));
        return None;
    };
    if items.is_empty() || items.len() > LANES_MAX {
        problems.add(path, node.place, format!("{} lanes do not fit", items.len()));
        return None;
    }
    let weights = items.iter().enumerate();
    let weights = weights
        .map(|(at, item)| problems.number_in(format!("{path}[{at}]"), item, 1..=u64::from(WEIGHT_MAX)).map(small));
    // Every one of them is looked at, so that all problems are named.
    weights.collect::<Vec<_>>().into_iter().collect()
}

fn is_wait(name: &LineName) -> bool {
    name.as_str().strip_prefix(WAIT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// What is wrong with lines that code set.
pub(super) fn check(config: &Config) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let count = config.lines.len();
    if count > LINES_MAX {
        found.push(("lines".to_owned(), format!("{count} lines are too many")));
    }
    for (name, line) in &config.lines {
        if is_wait(name) {
            found.push((format!("lines.{name}"), "the name belongs to the wait lines of backends".to_owned()));
        }
        if line.options(name).check().is_err() {
            found.push((format!("lines.{name}.lanes"), "the lanes do not fit".to_owned()));
        }
        for number in &NUMBERS {
            if let Some(value) = (number.get)(line).filter(|value| !(number.min..=number.max).contains(value)) {
                found.push((format!("lines.{name}.{}", number.name), out_of_range(&value)));
            }
        }
    }
    found
}
