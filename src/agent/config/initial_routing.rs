//! `initialRouting`: where fresh logins go (PLC-2).

use std::time::Duration;

use super::schema::Key;
use super::walk::Walked;
use super::yaml::{Node, Value};
use crate::ids::BackendName;
use crate::place::SERVERS_MAX;

/// The allowed values of `initialRouting.servers`, in words.
pub(super) const SERVERS_ALLOWED: &str = "a list of at most 16 names in the order to try them, each once and 1 to 128 \
                                          characters, not blank, no blanks around";

/// `initialRouting`: where fresh logins go that no placement handler decides about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialRoutingConfig {
    /// Backends in the order to try them, at most 16, each once. None refuses every such login.
    pub servers: Vec<BackendName>,
    /// Longest time of one placement in seconds, from the start of the selection, for the handler, the names and the
    /// connections of all candidates together: 1 to 120.
    pub timeout_seconds: u64,
}

impl InitialRoutingConfig {
    /// Longest time of one placement.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

impl Default for InitialRoutingConfig {
    fn default() -> Self {
        Self { servers: Vec::new(), timeout_seconds: 15 }
    }
}

/// Takes the items of a list; each that does not fit is a problem of its own.
pub(super) fn take(walked: &mut Walked, key: &'static Key, items: &[Node]) {
    let mut names = Vec::new();
    for (item, number) in items.iter().zip(0_usize..) {
        let name = match &item.value {
            Value::Text(text) => BackendName::new(text).map_err(|_| "does not fit".to_owned()),
            other => Err(format!("expected text, found {} (put it in quotes)", other.kind())),
        };
        match name {
            Ok(name) if names.contains(&name) => {
                walked.item_problem(key, number, item.place, "given twice".to_owned());
            }
            Ok(name) => names.push(name),
            Err(what) => walked.item_problem(key, number, item.place, what),
        }
    }
    walked.config.initial_routing.servers = names;
}

/// What is wrong with a list that code may have set.
pub(super) fn fault(servers: &[BackendName]) -> Option<String> {
    if servers.len() > SERVERS_MAX {
        return Some(format!("{} names are too many", servers.len()));
    }
    let twice = servers.iter().zip(0_usize..).any(|(name, number)| servers.iter().take(number).any(|it| it == name));
    twice.then(|| "a name stands in it twice".to_owned())
}
