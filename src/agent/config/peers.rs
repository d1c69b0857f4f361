//! `peers`: nodes that are expected, beside those that are discovered (NOD-12).

use super::fits::{is_addr, shown};
use super::model::{Config, PeerConfig};
use super::problem::Problem;
use super::table::Problems;
use super::yaml::Node;
use crate::ids::{NodeId, Role};

/// Most peers.
const PEERS_MAX: usize = 256;

pub(super) const ALLOWED: &str = "a mapping of at most 256 node ids (1 to 59 characters of A-Z a-z 0-9 . _ -) to \
    { role: 1 to 64 of the same characters, addr: host:port of 1 to 255 bytes }; role may be left out and is backend then";

/// Reads the section.
pub(super) fn read(config: &mut Config, node: &Node) -> Vec<Problem> {
    let mut problems = Problems { allowed: ALLOWED, found: Vec::new() };
    for entry in problems.entries("peers", node) {
        let path = shown("peers", entry.name);
        let Ok(id) = NodeId::new(entry.name) else {
            problems.add(path, entry.place, "the id of the peer does not fit");
            continue;
        };
        let before = problems.found.len();
        let (mut role, mut addr) = (None, None);
        for field in problems.entries(&path, entry.value) {
            let at = shown(&path, field.name);
            match field.name {
                "role" => role = problems.text(at, field.value, |text| Role::new(text).ok()),
                "addr" => addr = problems.text(at, field.value, |text| is_addr(text).then(|| text.to_owned())),
                _ => problems.add(at, field.place, "unknown key"),
            }
        }
        match addr {
            Some(addr) => {
                config.peers.insert(id, PeerConfig { role: role.unwrap_or_else(Role::backend), addr });
            }
            None if problems.found.len() == before => {
                problems.add(path, entry.value.place.or(entry.place), "addr is needed");
            }
            None => {}
        }
    }
    problems.found
}

/// What is wrong with peers that code set.
pub(super) fn check(config: &Config) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let count = config.peers.len();
    if count > PEERS_MAX {
        found.push(("peers".to_owned(), format!("{count} peers are too many")));
    }
    for (id, peer) in config.peers.iter().filter(|(_, peer)| !is_addr(&peer.addr)) {
        found.push((format!("peers.{id}.addr"), format!("does not fit ({} bytes)", peer.addr.len())));
    }
    found
}
