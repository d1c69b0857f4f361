//! Nodes that the config expects (NOD-12), as a value: what the view shows of them while no row of theirs is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::NodeId;

use super::liveness::Liveness;
use super::record::{Identity, NodeRecord};
use super::view::{DirectoryEvent, NodeView};

#[derive(Debug)]
struct Peer {
    /// Says who it is and where, and nothing else: epoch 0, no services, accepting nobody.
    record: Arc<NodeRecord>,
    /// Since when it has been waited for; none before the store was heard.
    since_ms: Option<u64>,
    /// It was seen, or never came in time.
    over: bool,
}

/// The nodes that are expected.
#[derive(Debug, Default)]
pub(super) struct Expected {
    peers: BTreeMap<NodeId, Peer>,
}

impl Expected {
    /// True where nobody is expected.
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Expects these and no others; who was expected before is waited for no longer than from then on.
    pub(super) fn set(&mut self, peers: impl IntoIterator<Item = Identity>) {
        let mut before = std::mem::take(&mut self.peers);
        for identity in peers {
            let (since_ms, over) =
                before.remove(&identity.id).map_or((None, false), |known| (known.since_ms, known.over));
            let record = Arc::new(NodeRecord::blank(&identity));
            self.peers.insert(identity.id, Peer { record, since_ms, over });
        }
    }

    /// A row of the node was taken in: from now on that is what is known of it, and without it the node is offline.
    pub(super) fn seen(&mut self, id: &NodeId) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.over = true;
        }
    }

    /// Who was not seen for `offline_ms` is offline; each is told once.
    pub(super) fn age(&mut self, now_ms: u64, offline_ms: u64) -> Vec<DirectoryEvent> {
        let mut events = Vec::new();
        for (node, peer) in self.peers.iter_mut().filter(|(_, peer)| !peer.over) {
            let since = *peer.since_ms.get_or_insert(now_ms);
            if now_ms.saturating_sub(since) >= offline_ms {
                peer.over = true;
                events.push(DirectoryEvent::Offline { node: node.clone() });
            }
        }
        events
    }

    /// After an outage of the store: nobody could be seen while it lasted.
    pub(super) fn forgive(&mut self, now_ms: u64) {
        for peer in self.peers.values_mut().filter(|peer| peer.since_ms.is_some()) {
            peer.since_ms = Some(now_ms);
        }
    }

    /// One of them, without a row of it.
    pub(super) fn view_of(&self, id: &NodeId, now_ms: u64) -> Option<NodeView> {
        self.peers.get(id).map(|peer| view(peer, now_ms))
    }

    /// All of them but those of `shown`.
    pub(super) fn others<'a>(
        &'a self,
        now_ms: u64,
        shown: impl Fn(&NodeId) -> bool + 'a,
    ) -> impl Iterator<Item = NodeView> + 'a {
        self.peers.iter().filter(move |(id, _)| !shown(id)).map(move |(_, peer)| view(peer, now_ms))
    }
}

fn view(peer: &Peer, now_ms: u64) -> NodeView {
    NodeView {
        record: Arc::clone(&peer.record),
        liveness: if peer.over { Liveness::Offline } else { Liveness::Connecting },
        age_ms: now_ms.saturating_sub(peer.since_ms.unwrap_or(now_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Role;

    fn id(text: &str) -> NodeId {
        NodeId::new(text).expect("valid")
    }

    fn identity(text: &str) -> Identity {
        Identity { id: id(text), role: Role::backend(), addr: "h:1".to_owned() }
    }

    fn liveness(expected: &Expected, text: &str) -> Liveness {
        expected.view_of(&id(text), 0).expect("expected").liveness
    }

    // NOD-12: an operator waits for a node that will never come, or is told at every read that it did not.
    #[test]
    fn nod_12_who_is_never_seen_is_connecting_and_then_offline_once() {
        let mut expected = Expected::default();
        expected.set([identity("b1"), identity("b2")]);
        assert_eq!(liveness(&expected, "b1"), Liveness::Connecting);
        assert_eq!(expected.age(1_000, 350), [], "the wait begins with the first read of the store");
        assert_eq!(expected.age(1_349, 350), []);
        expected.seen(&id("b2"));
        assert_eq!(expected.age(1_350, 350), [DirectoryEvent::Offline { node: id("b1") }]);
        assert_eq!(expected.age(9_999, 350), [], "told once");
        assert_eq!(liveness(&expected, "b1"), Liveness::Offline);
        assert_eq!(liveness(&expected, "b2"), Liveness::Offline, "seen once, and its row is gone");
        let left: Vec<_> = expected.others(0, |shown| *shown == id("b2")).map(|view| view.record.id.clone()).collect();
        assert_eq!(left, [id("b1")]);
    }

    // NOD-8
    #[test]
    fn nod_12_an_outage_of_the_store_counts_for_nobody() {
        let mut expected = Expected::default();
        expected.set([identity("b1")]);
        expected.age(1_000, 350);
        expected.forgive(60_000);
        assert_eq!(expected.age(60_349, 350), []);
        expected.set([identity("b1"), identity("b2")]);
        assert_eq!(expected.age(60_350, 350), [DirectoryEvent::Offline { node: id("b1") }], "b2 is new");
        assert_eq!(liveness(&expected, "b2"), Liveness::Connecting);
    }
}
