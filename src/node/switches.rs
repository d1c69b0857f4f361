use std::collections::BTreeSet;

use crate::ids::NodeId;

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
}

impl Switches {
    /// True where the fleet or `id` is switched off.
    pub fn is_killed(&self, id: &NodeId) -> bool {
        self.fleet || (!self.killed.is_empty() && self.killed.contains(id))
    }

    /// True where an operator drains `id`.
    pub fn is_draining(&self, id: &NodeId) -> bool {
        !self.draining.is_empty() && self.draining.contains(id)
    }
}
