//! The view of the zone's nodes as a value: rows and times go in, states and events come out. No I/O, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::ids::{Epoch, NodeId, Region, ServiceName};

use super::liveness::{Liveness, LivenessLimits};
use super::record::{NodeRecord, NodeState};

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
    /// Silent for a lease's length, or left.
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
    /// Its last row.
    pub record: Arc<NodeRecord>,
    /// The judgement of its age.
    pub liveness: Liveness,
    /// Age of its last beat in ms, as of the view's last contact with the store.
    pub age_ms: u64,
}

/// All nodes of the view at one moment, ordered by id.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The nodes, those that left or were removed not among them.
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
}

impl View {
    pub(super) fn new(limits: LivenessLimits) -> Self {
        Self { limits, entries: BTreeMap::new() }
    }

    pub(super) fn get(&self, id: &NodeId) -> Option<&Arc<NodeRecord>> {
        self.entries.get(id).map(|entry| &entry.record)
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
    }

    fn age_ms(entry: &Entry, now_ms: u64) -> u64 {
        now_ms.saturating_sub(entry.record.sent_at_ms.max(entry.heard_floor_ms))
    }

    /// Judges all ages anew as of `now_ms`. Ids that were removed are remembered for one more removed age.
    pub(super) fn age(&mut self, now_ms: u64) -> Vec<DirectoryEvent> {
        let mut events = Vec::new();
        let limits = self.limits;
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
    pub(super) fn look(&self, id: &NodeId, now_ms: u64) -> Option<NodeView> {
        Some(self.judged(self.entries.get(id)?, now_ms))
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
        let nodes = judged.filter(|view| view.liveness != Liveness::Removed).collect();
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
mod tests {
    use super::super::NodeState;
    use super::*;
    use crate::ids::{Incarnation, Role};

    const LIMITS: LivenessLimits = LivenessLimits { suspect_ms: 250, offline_ms: 350, removed_ms: 1_500 };

    fn beat(epoch: u64, seq: u64, sent_at_ms: u64) -> NodeRecord {
        NodeRecord {
            id: node(),
            role: Role::proxy(),
            addr: "a:1".to_owned(),
            epoch: Epoch(epoch),
            incarnation: Incarnation::new("one").expect("valid"),
            seq,
            sent_at_ms,
            state: NodeState::Ready,
            accepting: true,
            kill: false,
            players: 0,
            soft_cap: 0,
            load: super::super::Load::default(),
            services: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    fn node() -> NodeId {
        NodeId::new("p1").expect("valid")
    }

    fn online() -> View {
        let mut view = View::new(LIMITS);
        assert_eq!(
            view.apply(beat(1, 1, 1_000), 1_000),
            Some(DirectoryEvent::Joined { node: node(), epoch: Epoch(1) })
        );
        view
    }

    // NOD-9: an application that counts on `suspect` would never hear of it.
    #[test]
    fn nod_9_a_newer_beat_that_is_late_itself_is_no_news_but_its_age_is() {
        let mut view = online();
        assert_eq!(view.apply(beat(1, 2, 1_100), 1_400), None);
        assert_eq!(view.age(1_400), [DirectoryEvent::Suspect { node: node() }]);
        assert_eq!(view.apply(beat(1, 3, 1_200), 1_460), None);
        assert_eq!(view.age(1_600), [DirectoryEvent::Offline { node: node() }]);
        let restarted = DirectoryEvent::Restarted { node: node(), old: Epoch(1), new: Epoch(2) };
        assert_eq!(view.apply(beat(2, 4, 1_300), 1_600), Some(restarted), "references to the old epoch are over");
        assert_eq!(view.age(1_800), []);
    }

    // a goodbye is looked up while the node is back already.
    #[test]
    fn r_10_a_beat_heard_while_a_goodbye_is_looked_up_counts_for_more() {
        let mut view = online();
        let known = view.get(&node()).cloned().expect("known");
        view.apply(beat(1, 2, 1_100), 1_100);
        assert_eq!(view.leave(&known), None);
        assert_eq!(view.look(&node(), 1_100).expect("known").liveness, Liveness::Online);
        let known = view.get(&node()).cloned().expect("known");
        assert_eq!(view.leave(&known), Some(DirectoryEvent::Offline { node: node() }));
        assert_eq!(view.leave(&known), None, "told once");
    }

    // NOD-8: the view lives through an outage, and whoever was not offline before gets the time to beat again.
    #[test]
    fn nod_8_the_time_of_an_outage_counts_for_nobody() {
        let mut view = online();
        view.forgive(60_000);
        assert_eq!(view.age(60_000), []);
        assert_eq!(view.age(60_300), [DirectoryEvent::Suspect { node: node() }]);
        assert_eq!(view.age(60_400), [DirectoryEvent::Offline { node: node() }]);
        view.forgive(120_000);
        assert_eq!(view.age(120_000), [DirectoryEvent::Removed { node: node() }], "not who was offline already");
    }

    // ENV-7: beats of removed nodes, kept and published again, would fill the memory of every observer.
    #[test]
    fn env_7_a_beat_of_the_removed_age_is_not_taken_in_and_a_removed_id_is_dropped() {
        let mut view = View::new(LIMITS);
        assert_eq!(view.apply(beat(1, 1, 1_000), 2_500), None);
        assert!(view.get(&node()).is_none());

        let mut view = online();
        assert_eq!(view.age(2_500), [DirectoryEvent::Removed { node: node() }]);
        let known = view.get(&node()).cloned().expect("remembered");
        assert_eq!(view.leave(&known), None);
        assert_eq!(view.look(&node(), 2_600).expect("remembered").liveness, Liveness::Removed);
        assert!(view.snapshot(2_600, false).nodes.is_empty());
        let back = DirectoryEvent::Joined { node: node(), epoch: Epoch(1) };
        assert_eq!(view.apply(beat(1, 9, 2_700), 2_700), Some(back));
        assert_eq!(view.age(4_200), [DirectoryEvent::Removed { node: node() }]);
        assert_eq!(view.age(5_700), []);
        assert!(view.get(&node()).is_none());
    }
}
