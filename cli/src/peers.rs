//! The nodes that the config expects and that have no row, for `maitred nodes` (NOD-12).

use std::collections::BTreeSet;

use serde::Serialize;

use maitred::agent::config::Config;
use maitred::error::Result;
use maitred::ids::{NodeId, Role};
use maitred::node::Liveness;
use maitred::store::Store;

use super::view::Tone;

/// One of them.
#[derive(Debug, Serialize)]
pub(super) struct PeerLine {
    pub id: NodeId,
    pub role: Role,
    addr: String,
    liveness: Liveness,
}

/// What the config expects and `known` is not: offline where the store remembers that it was there, or once it was looked
/// for as long as a silent node is given; connecting before.
pub(super) async fn missing(
    store: &Store,
    config: &Config,
    known: &BTreeSet<NodeId>,
    watched_ms: u64,
) -> Result<Vec<PeerLine>> {
    let peers: Vec<_> = config.peers.iter().filter(|(id, _)| !known.contains(*id)).collect();
    if peers.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<&str> = peers.iter().map(|(id, _)| id.as_str()).collect();
    let epochs = store.fields(&[store.keys().epochs()], &ids).await?;
    let was_there = |id: &NodeId| epochs.first().is_some_and(|row| row.get(id.as_str()).is_some());
    let line = |(id, peer): (&NodeId, &maitred::agent::config::PeerConfig)| PeerLine {
        liveness: if was_there(id) || watched_ms >= config.directory.offline_ms {
            Liveness::Offline
        } else {
            Liveness::Connecting
        },
        id: id.clone(),
        role: peer.role.clone(),
        addr: peer.addr.clone(),
    };
    Ok(peers.into_iter().map(line).collect())
}

impl PeerLine {
    /// Its first cells; nothing else is known of it.
    pub fn cells(&self) -> Vec<(String, Tone)> {
        let live = if self.liveness == Liveness::Offline { Tone::Bad } else { Tone::Warn };
        vec![
            (self.id.to_string(), Tone::Plain),
            (self.role.to_string(), Tone::Plain),
            (self.addr.clone(), Tone::Plain),
            (self.liveness.as_str().to_owned(), live),
        ]
    }
}
