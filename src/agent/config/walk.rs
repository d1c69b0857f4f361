//! Assigns a parsed tree to a [`Config`] along the table: unknown keys, repeated keys and wrong types are found here,
//! bounds in `check`.

use std::collections::BTreeSet;

use super::entry_servers;
use super::fits::{join, out_of_range, shown};
use super::model::Config;
use super::schema::{self, Key, ValueKind};
use super::selector;
use super::walked::Walked;
use super::yaml::{Node, Value};

/// Walks the whole tree, over the defaults.
pub(super) fn walk(root: &Node) -> Walked {
    walk_over(Config::default(), root)
}

/// Walks the whole tree; what it does not give stays as it is in `config`.
pub(super) fn walk_over(config: Config, root: &Node) -> Walked {
    let mut walked = Walked { config, ..Walked::default() };
    walked.section("", root);
    walked
}

impl Walked {
    fn section(&mut self, section: &str, node: &Node) {
        let allowed = schema::names_under(section).join(", ");
        let entries = match &node.value {
            Value::Map(entries) => entries,
            // A section whose keys are all commented out.
            Value::Nothing => return,
            other => {
                let path = if section.is_empty() { "(file)" } else { section };
                let what = format!("expected a mapping, found {}", other.kind());
                return self.problem(path, node.place, what, format!("a mapping of {allowed}"));
            }
        };
        let mut seen = BTreeSet::new();
        for (key, value) in entries {
            let Some(name) = self.name(section, key, &allowed) else { continue };
            let path = join(section, name);
            if !seen.insert(name) {
                self.problem(shown(section, name), key.place, "given twice".to_owned(), "once".to_owned());
            } else if name.contains('.') {
                // A dot would make `tokens.ttlMs` at the top look like the key of that path.
                self.problem(shown(section, name), key.place, "unknown key".to_owned(), allowed.clone());
            } else if let Some(found) = schema::find(&path) {
                self.value(found, value);
            } else if !schema::names_under(&path).is_empty() {
                self.section(&path, value);
            } else {
                self.problem(shown(section, name), key.place, "unknown key".to_owned(), allowed.clone());
            }
        }
    }

    /// The key as a text, or a problem.
    fn name<'a>(&mut self, section: &str, key: &'a Node, allowed: &str) -> Option<&'a str> {
        if let Value::Text(name) = &key.value {
            return Some(name);
        }
        let what = format!("expected a name as key, found {}", key.value.kind());
        let path = if section.is_empty() { "(file)" } else { section };
        self.problem(path, key.place, what, allowed.to_owned());
        None
    }

    fn value(&mut self, key: &'static Key, node: &Node) {
        if let Some(place) = node.place {
            self.places.insert(key.path, place);
        }
        if let ValueKind::Table { read, .. } = &key.kind {
            let found = read(&mut self.config, node);
            if !found.is_empty() {
                self.bad.insert(key.path);
            }
            return self.problems.extend(found);
        }
        if let Err(what) = self.assign(key, node) {
            self.bad.insert(key.path);
            self.problem(key.path, node.place, what, key.allowed());
        }
    }

    /// Puts the value into its field, or says what is wrong with it.
    fn assign(&mut self, key: &'static Key, node: &Node) -> Result<(), String> {
        match key.kind {
            ValueKind::Metrics if node.is_map() => {
                selector::metrics(self, node);
                return Ok(());
            }
            ValueKind::Backends if node.is_map() => {
                selector::backends(self, node);
                return Ok(());
            }
            _ => {}
        }
        let config = &mut self.config;
        match (&key.kind, &node.value) {
            (ValueKind::Flag(at), Value::Flag(flag)) => *at(config) = *flag,
            (ValueKind::Millis { at, .. } | ValueKind::Seconds { at, .. }, Value::Whole(number)) => {
                *at(config) = u64::try_from(*number).map_err(|_| out_of_range(number))?;
            }
            (ValueKind::Count { at, .. }, Value::Whole(number)) => {
                *at(config) = usize::try_from(*number).map_err(|_| out_of_range(number))?;
            }
            (ValueKind::Text { at, .. }, Value::Text(text)) => at(config).clone_from(text),
            (ValueKind::Typed { set, .. }, Value::Text(text)) => {
                if !set(config, text) {
                    return Err("does not fit".to_owned());
                }
            }
            (ValueKind::Labels, Value::Map(entries)) => self.labels(key, entries),
            (ValueKind::Labels, Value::Nothing) => {}
            (ValueKind::Servers, Value::List(items)) => entry_servers::take(self, key.path, items),
            (ValueKind::Servers, other) => return Err(format!("expected a list, found {}", other.kind())),
            (ValueKind::Text { .. } | ValueKind::Typed { .. }, other) => {
                return Err(format!("expected text, found {} (put it in quotes)", other.kind()));
            }
            (ValueKind::Flag(_), other) => return Err(format!("expected true or false, found {}", other.kind())),
            (ValueKind::Millis { .. } | ValueKind::Seconds { .. } | ValueKind::Count { .. }, other) => {
                return Err(format!("expected a whole number, found {}", other.kind()));
            }
            (ValueKind::Labels | ValueKind::Table { .. } | ValueKind::Metrics | ValueKind::Backends, other) => {
                return Err(format!("expected a mapping, found {}", other.kind()));
            }
        }
        Ok(())
    }

    fn labels(&mut self, key: &'static Key, entries: &[(Node, Node)]) {
        for (name, text) in entries {
            let Some(name_text) = self.name(key.path, name, &key.allowed()) else { continue };
            let path = shown(key.path, name_text);
            match &text.value {
                Value::Text(value) => {
                    if self.config.node.labels.insert(name_text.to_owned(), value.clone()).is_some() {
                        self.problem(path, name.place, "given twice".to_owned(), "once".to_owned());
                    }
                }
                other => {
                    let what = format!("expected text, found {} (put it in quotes)", other.kind());
                    self.problem(path, text.place, what, key.allowed());
                }
            }
        }
    }
}
