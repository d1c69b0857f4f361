//! The view of the zone's nodes as a value: rows and times go in, states and events come out. No I/O, no clock.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde::Serialize;

use crate::ids::{Epoch, NodeId, Region, ServiceName};

use super::expected::Expected;
use super::liveness::{Liveness, LivenessLimits};
use super::record::{Identity, NodeRecord, NodeState};

/// What changed in the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum DirectoryEvent {
    /// Seen for the first time.
    Joined {
        /// The node.
        node: NodeId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// A new heartbeat of the same epoch.
    Updated {
        /// The node.
        node: NodeId,
    },
    /// Its last beat is late.
    Suspect {
        /// The node.
        node: NodeId,
    },
    /// Silent for a lease's length, or left; or expected by the config and not seen for as long.
    Offline {
        /// The node.
        node: NodeId,
    },
    /// Heard again after being suspect or offline, in the same epoch.
    Back {
        /// The node.
        node: NodeId,
    },
    /// Heard with a new epoch.
    Restarted {
        /// The node.
        node: NodeId,
        /// The epoch that is over.
        old: Epoch,
        /// The new one.
        new: Epoch,
    },
    /// Silent for the removed age.
    Removed {
        /// The node.
        node: NodeId,
    },
}

/// One node of the view.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    /// Its last row. Of a node that is only expected: its id, role and address, epoch 0, and nothing else.
    pub record: Arc<NodeRecord>,
    /// The judgement of its age.
    pub liveness: Liveness,
    /// Age of its last beat in ms, as of the view's last contact with the store; for how long it has been waited for where
    /// it is only expected.
    pub age_ms: u64,
}

/// All nodes of the view at one moment, ordered by id.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The nodes; those that left or were removed are not among them, but where the config expects them.
    pub nodes: Vec<NodeView>,
    /// The store time the ages are judged at.
    pub as_of_ms: u64,
    /// True while the store cannot be heard: the nodes are those of the last contact.
    pub stale: bool,
}

/// A service at a node, of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceRef {
    /// The node.
    pub node: NodeId,
    /// The epoch in which it published the service.
    pub epoch: Epoch,
    /// The service.
    pub service: ServiceName,
}

#[derive(Debug)]
struct Entry {
    record: Arc<NodeRecord>,
    liveness: Liveness,
    /// It said goodbye: offline at once, until a newer row comes.
    left: bool,
    /// Counts as heard then, although its beat is older: the end of an outage of the store.
    heard_floor_ms: u64,
    removed_at_ms: Option<u64>,
}

/// The nodes one process knows of.
#[derive(Debug)]
pub(super) struct View {
    limits: LivenessLimits,
    /// In the order of snapshots, so that making one sorts nothing.
    entries: BTreeMap<NodeId, Entry>,
    expected: Expected,
}

impl View {
    pub(super) fn new(limits: LivenessLimits) -> Self {
        Self { limits, entries: BTreeMap::new(), expected: Expected::default() }
    }

    pub(super) fn get(&self, id: &NodeId) -> Option<&Arc<NodeRecord>> {
        self.entries.get(id).map(|entry| &entry.record)
    }

    /// Expects these nodes and no others.
    pub(super) fn expect(&mut self, peers: impl IntoIterator<Item = Identity>) {
        self.expected.set(peers);
        self.entries.keys().for_each(|id| self.expected.seen(id));
    }

    /// Takes in a verified row; older ones than the one known change nothing.
    pub(super) fn apply(&mut self, record: NodeRecord, now_ms: u64) -> Option<DirectoryEvent> {
        let node = record.id.clone();
        let Some(entry) = self.entries.get_mut(&node) else {
            let epoch = record.epoch;
            // A row off a roster may be of a node that is silent already: no news that it joined.
            let liveness = self.limits.judge(now_ms.saturating_sub(record.sent_at_ms));
            if liveness == Liveness::Removed {
                // Only a beat that somebody kept and published again is that old.
                return None;
            }
            self.expected.seen(&node);
            self.entries.insert(
                node.clone(),
                Entry { record: Arc::new(record), liveness, left: false, heard_floor_ms: 0, removed_at_ms: None },
            );
            return match liveness {
                Liveness::Online => Some(DirectoryEvent::Joined { node, epoch }),
                _ => None,
            };
        };
        if !record.is_newer_than(&entry.record) {
            return None;
        }
        let old = entry.record.epoch;
        let new = record.epoch;
        let was = entry.liveness;
        entry.record = Arc::new(record);
        entry.left = false;
        entry.removed_at_ms = None;
        entry.heard_floor_ms = 0;
        let liveness = self.limits.judge(now_ms.saturating_sub(entry.record.sent_at_ms));
        if was == Liveness::Removed || liveness == Liveness::Online {
            entry.liveness = liveness;
        }
        if liveness != Liveness::Online {
            // A newer beat that is late itself: the next judgement of ages tells so.
            return (old != new && was != Liveness::Removed).then_some(DirectoryEvent::Restarted { node, old, new });
        }
        if was == Liveness::Removed {
            return Some(DirectoryEvent::Joined { node, epoch: new });
        }
        if old != new {
            return Some(DirectoryEvent::Restarted { node, old, new });
        }
        match was {
            Liveness::Online => Some(DirectoryEvent::Updated { node }),
            _ => Some(DirectoryEvent::Back { node }),
        }
    }

    /// The store has no row of a node any more; `known` is what the view had of it before that was read, so that a beat
    /// heard meanwhile counts for more.
    pub(super) fn leave(&mut self, known: &NodeRecord) -> Option<DirectoryEvent> {
        let id = &known.id;
        let entry = self.entries.get_mut(id)?;
        if entry.record.is_newer_than(known) || entry.left || entry.removed_at_ms.is_some() {
            return None;
        }
        entry.left = true;
        let was = std::mem::replace(&mut entry.liveness, Liveness::Offline);
        (was < Liveness::Offline).then(|| DirectoryEvent::Offline { node: id.clone() })
    }

    /// After an outage of the store ended at `now_ms`: whoever was not offline before gets the time to beat again.
    pub(super) fn forgive(&mut self, now_ms: u64) {
        for entry in self.entries.values_mut().filter(|entry| entry.liveness < Liveness::Offline && !entry.left) {
            entry.heard_floor_ms = now_ms;
        }
        self.expected.forgive(now_ms);
    }

    fn age_ms(entry: &Entry, now_ms: u64) -> u64 {
        now_ms.saturating_sub(entry.record.sent_at_ms.max(entry.heard_floor_ms))
    }

    /// Judges all ages anew as of `now_ms`. Ids that were removed are remembered for one more removed age.
    pub(super) fn age(&mut self, now_ms: u64) -> Vec<DirectoryEvent> {
        let limits = self.limits;
        let mut events = self.expected.age(now_ms, limits.offline_ms);
        self.entries.retain(|node, entry| {
            if let Some(removed_at) = entry.removed_at_ms {
                return now_ms.saturating_sub(removed_at) < limits.removed_ms;
            }
            let mut liveness = limits.judge(Self::age_ms(entry, now_ms));
            if entry.left && liveness < Liveness::Offline {
                liveness = Liveness::Offline;
            }
            let was = std::mem::replace(&mut entry.liveness, liveness);
            if was != liveness {
                let node = node.clone();
                match liveness {
                    // No age is judged so.
                    Liveness::Connecting => {}
                    Liveness::Online => events.push(DirectoryEvent::Back { node }),
                    Liveness::Suspect => events.push(DirectoryEvent::Suspect { node }),
                    Liveness::Offline => events.push(DirectoryEvent::Offline { node }),
                    Liveness::Removed => {
                        entry.removed_at_ms = Some(now_ms);
                        events.push(DirectoryEvent::Removed { node });
                    }
                }
            }
            true
        });
        events
    }

    /// The age of each node's last beat in ms, also of those whose row is gone; `None` for whoever is not expected to
    /// beat any more: removed, or shut down in order.
    pub(super) fn ages(&self, now_ms: u64) -> Vec<(NodeId, Option<u64>)> {
        let age = |entry: &Entry| {
            let over = entry.left && entry.record.state == NodeState::ShuttingDown;
            (entry.removed_at_ms.is_none() && !over).then(|| Self::age_ms(entry, now_ms))
        };
        self.entries.iter().map(|(id, entry)| (id.clone(), age(entry))).collect()
    }

    /// One node, judged as of `now_ms`; `Removed` for an id that was removed not long ago.
    pub(super) fn view_of(&self, id: &NodeId, now_ms: u64) -> Option<NodeView> {
        let Some(entry) = self.entries.get(id) else { return self.expected.view_of(id, now_ms) };
        Some(self.judged(entry, now_ms))
    }

    fn judged(&self, entry: &Entry, now_ms: u64) -> NodeView {
        let age_ms = Self::age_ms(entry, now_ms);
        let mut liveness = self.limits.judge(age_ms);
        if entry.removed_at_ms.is_some() {
            liveness = Liveness::Removed;
        } else if entry.left {
            liveness = liveness.max(Liveness::Offline);
        }
        NodeView { record: Arc::clone(&entry.record), liveness, age_ms }
    }

    pub(super) fn snapshot(&self, now_ms: u64, stale: bool) -> Snapshot {
        let there = self.entries.values().filter(|entry| entry.removed_at_ms.is_none() && !entry.left);
        let judged = there.map(|entry| self.judged(entry, now_ms));
        let mut nodes: Vec<NodeView> = judged.filter(|view| view.liveness != Liveness::Removed).collect();
        if !self.expected.is_empty() {
            let shown: HashSet<&NodeId> = nodes.iter().map(|view| &view.record.id).collect();
            let expected: Vec<NodeView> = self.expected.others(now_ms, |id| shown.contains(id)).collect();
            nodes.extend(expected);
            nodes.sort_unstable_by(|a, b| a.record.id.cmp(&b.record.id));
        }
        Snapshot { nodes, as_of_ms: now_ms, stale }
    }
}

impl Snapshot {
    /// The node `id`, if it is in the view.
    pub fn get(&self, id: &NodeId) -> Option<&NodeView> {
        self.nodes.binary_search_by(|view| view.record.id.cmp(id)).ok().and_then(|index| self.nodes.get(index))
    }

    /// Regions of all online nodes, each with the nodes that serve it.
    pub fn regions(&self) -> BTreeMap<Region, BTreeSet<NodeId>> {
        let mut regions: BTreeMap<Region, BTreeSet<NodeId>> = BTreeMap::new();
        for view in self.nodes.iter().filter(|view| view.liveness == Liveness::Online) {
            for region in view.record.load.regions.keys() {
                regions.entry(region.clone()).or_default().insert(view.record.id.clone());
            }
        }
        regions
    }

    /// Services of all online nodes, each with the nodes that answer to it.
    pub fn services(&self) -> BTreeMap<ServiceName, BTreeSet<NodeId>> {
        let mut services: BTreeMap<ServiceName, BTreeSet<NodeId>> = BTreeMap::new();
        for view in self.nodes.iter().filter(|view| view.liveness == Liveness::Online) {
            for service in &view.record.services {
                services.entry(service.clone()).or_default().insert(view.record.id.clone());
            }
        }
        services
    }
}

#[cfg(test)]
mod tests;
