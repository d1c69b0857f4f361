//! `initialRouting.servers`: the list of entry servers in a file.

use super::walked::Walked;
use super::yaml::{Node, Value};
use crate::ids::BackendName;
use crate::place::SERVERS_MAX;

/// The allowed values of `initialRouting.servers`, in words.
pub(super) const SERVERS_ALLOWED: &str = "a list of at most 16 names in the order to try them, each once and 1 to 128 \
                                          characters, not blank, no blanks around";

/// Takes the items of a list; each that does not fit is a problem of its own.
pub(super) fn take(walked: &mut Walked, path: &'static str, items: &[Node]) {
    let mut names = Vec::new();
    for (item, number) in items.iter().zip(0_usize..) {
        let name = match &item.value {
            Value::Text(text) => BackendName::new(text).map_err(|_| "does not fit".to_owned()),
            other => Err(format!("expected text, found {} (put it in quotes)", other.kind())),
        };
        match name {
            Ok(name) if names.contains(&name) => {
                walked.item_problem(path, number, item.place, "given twice".to_owned(), SERVERS_ALLOWED);
            }
            Ok(name) => names.push(name),
            Err(what) => walked.item_problem(path, number, item.place, what, SERVERS_ALLOWED),
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
