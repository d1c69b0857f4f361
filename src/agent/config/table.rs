//! Sections whose keys are names of the operator's own, each with a few fields: `limits`, `lines`, `peers`, and the tables
//! of `selector`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::fits::shown;
use super::problem::{Place, Problem};
use super::yaml::{Node, Value};

/// One key with its value.
pub(super) struct Entry<'a> {
    pub name: &'a str,
    /// Where the key stands.
    pub place: Option<Place>,
    pub value: &'a Node,
}

/// What is wrong with a table.
pub(super) struct Problems<'a> {
    /// What is allowed in the whole of it.
    pub allowed: &'a str,
    pub found: Vec<Problem>,
}

impl Problems<'_> {
    pub(super) fn add(&mut self, path: impl Into<String>, place: Option<Place>, what: impl Into<String>) {
        let allowed = self.allowed.to_owned();
        self.found.push(Problem { path: path.into(), place, what: what.into(), allowed });
    }

    /// The keys of the mapping at `path`, each once. Nothing there is an empty one.
    pub(super) fn entries<'a>(&mut self, path: &str, node: &'a Node) -> Vec<Entry<'a>> {
        let pairs = match &node.value {
            Value::Map(pairs) => pairs,
            Value::Nothing => return Vec::new(),
            other => {
                self.add(path, node.place, format!("expected a mapping, found {}", other.kind()));
                return Vec::new();
            }
        };
        let mut seen = BTreeSet::new();
        let mut entries = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            match &key.value {
                Value::Text(name) if seen.insert(name) => entries.push(Entry { name, place: key.place, value }),
                Value::Text(name) => self.add(shown(path, name), key.place, "given twice"),
                other => self.add(path, key.place, format!("expected a name as key, found {}", other.kind())),
            }
        }
        entries
    }

    /// A whole number from 1 to `max`.
    pub(super) fn number(&mut self, path: String, node: &Node, max: u64) -> Option<u64> {
        self.number_in(path, node, 1..=max)
    }

    /// A whole number within `bounds`.
    pub(super) fn number_in(&mut self, path: String, node: &Node, bounds: RangeInclusive<u64>) -> Option<u64> {
        let what = match &node.value {
            Value::Whole(number) => match u64::try_from(*number) {
                Ok(value) if bounds.contains(&value) => return Some(value),
                _ => format!("{number} is out of range"),
            },
            other => format!("expected a whole number, found {}", other.kind()),
        };
        self.add(path, node.place, what);
        None
    }

    /// A text that becomes something else.
    pub(super) fn text<T>(&mut self, path: String, node: &Node, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let what = match &node.value {
            Value::Text(text) => match read(text) {
                Some(value) => return Some(value),
                None => "does not fit".to_owned(),
            },
            other => format!("expected text, found {} (put it in quotes)", other.kind()),
        };
        self.add(path, node.place, what);
        None
    }
}
