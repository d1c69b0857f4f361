//! `selector`: the metrics of the score, the weights of single backends, recent picks. Names of metrics and ids of
//! backends are the file's own, so that the table of keys ends at `selector.metrics` and `selector.backends`, and what
//! stands below is walked and checked here.

use std::ops::RangeInclusive;

use super::fits::{is_label_name, out_of_range, shown};
use super::problem::{Place, Problem};
use super::table::{Entry, Problems};
use super::walked::Walked;
use super::yaml::{Node, Value};
use crate::ids::NodeId;
use crate::select::{Curve, MetricSource, Rule};

/// Most metrics.
const METRICS_MAX: usize = 32;
/// Most backends with a weight of their own.
const BACKENDS_MAX: usize = 512;
const WEIGHT: RangeInclusive<f64> = 0.0..=1_000.0;
const BACKEND_WEIGHT: RangeInclusive<f64> = 0.001..=1_000.0;
const VALUE: RangeInclusive<f64> = -1e15..=1e15;
const METRIC_KEYS: &str = "source, weight, normalize, invert, curve";

const METRICS: &str = "selector.metrics";
const BACKENDS: &str = "selector.backends";
pub(super) const METRICS_ALLOWED: &str = "a mapping of at most 32 names (1 to 64 characters of A-Z a-z 0-9 . _ -) to mappings of \
    source, weight, normalize, invert, curve";
pub(super) const BACKENDS_ALLOWED: &str =
    "a mapping of at most 512 node ids to { weight: a number from 0.001 to 1000 }";

/// A number, whole or not.
fn number(value: &Value) -> Result<f64, String> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "so large a number is out of every range here")]
        Value::Whole(whole) => Ok(*whole as f64),
        Value::Fraction(real) => Ok(*real),
        other => Err(format!("expected a number, found {}", other.kind())),
    }
}

fn numbers(range: &RangeInclusive<f64>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}

/// The entries of `node`, each key once and a name, for `each` to take. Its answer is false for a key it does not know.
fn entries(
    walked: &mut Walked,
    path: &str,
    node: &Node,
    allowed: &str,
    mut each: impl FnMut(&mut Walked, &str, &str, &Node) -> bool,
) {
    let mut table = Problems { allowed, found: Vec::new() };
    let found = table.entries(path, node);
    walked.problems.append(&mut table.found);
    for Entry { name, place, value } in found {
        let inner = shown(path, name);
        if let Some(place) = value.place {
            walked.spots.insert(inner.clone(), place);
        }
        if !each(walked, name, &inner, value) {
            walked.problem(inner, place, "unknown key".to_owned(), allowed.to_owned());
        }
    }
}

/// Walks `selector.metrics`.
pub(super) fn metrics(walked: &mut Walked, node: &Node) {
    entries(walked, METRICS, node, METRICS_ALLOWED, |walked, name, path, value| {
        if !is_label_name(name) {
            return false;
        }
        metric(walked, name, path, value);
        true
    });
}

fn metric(walked: &mut Walked, name: &str, path: &str, node: &Node) {
    let known = walked.config.selector.metrics.get(name).copied();
    let mut rule = known.unwrap_or_else(|| Rule::new(MetricSource::Players));
    let mut has_source = known.is_some();
    let before = walked.problems.len();
    entries(walked, path, node, METRIC_KEYS, |walked, key, path, value| {
        match key {
            "source" => {
                has_source = true;
                source(walked, path, value, &mut rule);
            }
            "weight" => real(walked, path, value, &WEIGHT, &mut rule.weight),
            "invert" => match &value.value {
                Value::Flag(flag) => rule.invert = *flag,
                other => {
                    let what = format!("expected true or false, found {}", other.kind());
                    walked.problem(path, value.place, what, "true or false".to_owned());
                }
            },
            "normalize" => normalize(walked, path, value, &mut rule),
            "curve" => curve(walked, path, value, &mut rule),
            _ => return false,
        }
        true
    });
    if !has_source && walked.problems.len() == before {
        let what = "it needs a source, for no default metric has this name".to_owned();
        walked.problem(path, node.place, what, source_names());
    }
    walked.config.selector.metrics.insert(name.to_owned(), rule);
}

fn real(walked: &mut Walked, path: &str, node: &Node, range: &RangeInclusive<f64>, at: &mut f64) {
    match number(&node.value) {
        Ok(value) => *at = value,
        Err(what) => walked.problem(path, node.place, what, numbers(range)),
    }
}

fn source_names() -> String {
    let names: Vec<&str> = MetricSource::ALL.into_iter().map(MetricSource::name).collect();
    format!("source: {}", names.join(", "))
}

fn source(walked: &mut Walked, path: &str, node: &Node, rule: &mut Rule) {
    let what = match &node.value {
        Value::Text(text) => match MetricSource::named(text) {
            Some(source) => {
                rule.source = source;
                return;
            }
            None => "does not fit".to_owned(),
        },
        other => format!("expected text, found {}", other.kind()),
    };
    walked.problem(path, node.place, what, source_names());
}

fn normalize(walked: &mut Walked, path: &str, node: &Node, rule: &mut Rule) {
    entries(walked, path, node, "min, max", |walked, key, path, value| {
        match key {
            "min" => real(walked, path, value, &VALUE, &mut rule.min),
            "max" => real(walked, path, value, &VALUE, &mut rule.max),
            _ => return false,
        }
        true
    });
}

fn curve(walked: &mut Walked, path: &str, node: &Node, rule: &mut Rule) {
    let mut given = Vec::new();
    entries(walked, path, node, "type, k, p, threshold", |walked, key, path, value| {
        match key {
            "type" => {
                let what = match &value.value {
                    Value::Text(text) => match Curve::named(text) {
                        Some(curve) => {
                            rule.curve = curve;
                            return true;
                        }
                        None => "does not fit".to_owned(),
                    },
                    other => format!("expected text, found {}", other.kind()),
                };
                let names: Vec<&str> = Curve::ALL.into_iter().map(Curve::name).collect();
                walked.problem(path, value.place, what, names.join(", "));
            }
            "k" | "p" | "threshold" => {
                let before = walked.problems.len();
                let mut parameter = f64::NAN;
                real(walked, path, value, &VALUE, &mut parameter);
                if walked.problems.len() == before {
                    given.push((key.to_owned(), path.to_owned(), value.place, parameter));
                }
            }
            _ => return false,
        }
        true
    });
    // The type may stand behind its parameter, and behind others that do not go with it.
    for (name, path, place, value) in given {
        match rule.curve.parameter() {
            Some((wanted, ..)) if wanted == name => rule.curve = rule.curve.with_parameter(value),
            wanted => {
                let allowed = wanted.map_or("no parameter".to_owned(), |(wanted, ..)| wanted.to_owned());
                let what = format!("does not go with the curve {}", rule.curve.name());
                walked.problem(path, place, what, format!("with {}: {allowed}", rule.curve.name()));
            }
        }
    }
}

/// Walks `selector.backends`.
pub(super) fn backends(walked: &mut Walked, node: &Node) {
    entries(walked, BACKENDS, node, BACKENDS_ALLOWED, |walked, name, path, value| {
        let Ok(id) = NodeId::new(name) else { return false };
        entries(walked, path, value, "weight", |walked, key, path, value| {
            if key != "weight" {
                return false;
            }
            let mut weight = 1.0;
            real(walked, path, value, &BACKEND_WEIGHT, &mut weight);
            walked.config.selector.backends.insert(id.clone(), weight);
            true
        });
        true
    });
}

/// Where a value below `path` stands; the nearest part of its path that the file gives.
fn spot(walked: &Walked, path: &str) -> Option<Place> {
    let mut path = path;
    loop {
        if let Some(place) = walked.spots.get(path) {
            return Some(*place);
        }
        path = path.rsplit_once('.')?.0;
    }
}

/// Bounds of the metrics, whether a file or code gave them.
pub(super) fn check_metrics(walked: &Walked) -> Vec<Problem> {
    let metrics = &walked.config.selector.metrics;
    let mut problems = Vec::new();
    let mut problem = |path: String, what: String, allowed: String| {
        problems.push(Problem { place: spot(walked, &path), path, what, allowed });
    };
    if metrics.len() > METRICS_MAX {
        problem(METRICS.to_owned(), format!("{} metrics are too many", metrics.len()), METRICS_ALLOWED.to_owned());
    }
    for (name, rule) in metrics {
        let path = shown(METRICS, name);
        if !is_label_name(name) {
            problem(path.clone(), "the name of the metric does not fit".to_owned(), METRICS_ALLOWED.to_owned());
        }
        if !WEIGHT.contains(&rule.weight) {
            problem(format!("{path}.weight"), out_of_range(&rule.weight), numbers(&WEIGHT));
        }
        let ends = [("min", rule.min), ("max", rule.max)];
        let wrong: Vec<_> = ends.into_iter().filter(|(_, value)| !VALUE.contains(value)).collect();
        for (key, value) in &wrong {
            problem(format!("{path}.normalize.{key}"), out_of_range(value), numbers(&VALUE));
        }
        if wrong.is_empty() && rule.min >= rule.max {
            let what = format!("min {} is not below max {}", rule.min, rule.max);
            problem(format!("{path}.normalize"), what, "min below max".to_owned());
        }
        if let Some((key, value, (low, high))) = rule.curve.parameter()
            && !(low..=high).contains(&value)
        {
            problem(format!("{path}.curve.{key}"), out_of_range(&value), numbers(&(low..=high)));
        }
    }
    problems
}

/// Bounds of the weights of single backends.
pub(super) fn check_backends(walked: &Walked) -> Vec<Problem> {
    let backends = &walked.config.selector.backends;
    let mut problems = Vec::new();
    if backends.len() > BACKENDS_MAX {
        problems.push(Problem {
            path: BACKENDS.to_owned(),
            place: spot(walked, BACKENDS),
            what: format!("{} backends are too many", backends.len()),
            allowed: BACKENDS_ALLOWED.to_owned(),
        });
    }
    let wrong = backends.iter().filter(|(_, weight)| !BACKEND_WEIGHT.contains(weight));
    problems.extend(wrong.map(|(id, weight)| {
        let path = format!("{BACKENDS}.{id}.weight");
        Problem { place: spot(walked, &path), path, what: out_of_range(weight), allowed: numbers(&BACKEND_WEIGHT) }
    }));
    problems
}
