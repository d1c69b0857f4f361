use std::collections::BTreeSet;

use crate::ids::NodeId;

use super::record::NodeRecord;

/// Who is switched off and who is drained at one moment: what a choice among thousands of nodes looks at, where
/// [`Control`](super::Control) would build the name of an entry for each of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Switches {
    /// The fleet is switched off.
    pub fleet: bool,
    /// Nodes that are switched off by themselves.
    pub killed: BTreeSet<NodeId>,
    /// Nodes that an operator drains.
    pub draining: BTreeSet<NodeId>,
    /// The switch of the fleet was read, on or off.
    pub fleet_known: bool,
    /// Nodes whose own switch was read, on or off.
    pub known: BTreeSet<NodeId>,
}

impl Switches {
    /// True where the fleet or `id` is switched off.
    pub fn is_killed(&self, id: &NodeId) -> bool {
        self.fleet || (!self.killed.is_empty() && self.killed.contains(id))
    }

    /// True where the node of `record` is to be left alone. A switch of the fleet or of that node decides where one was read.
    /// What its own row says is as old as its last beat, and counts only for who knows of no switch, as after the store lost
    /// its data.
    pub fn stops(&self, record: &NodeRecord) -> bool {
        let knows = || self.fleet_known || (!self.known.is_empty() && self.known.contains(&record.id));
        self.is_killed(&record.id) || (record.kill && !knows())
    }

    /// True where an operator drains `id`.
    pub fn is_draining(&self, id: &NodeId) -> bool {
        !self.draining.is_empty() && self.draining.contains(id)
    }
}
