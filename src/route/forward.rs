//! What to do with a message to an object: a pure function of its header, the record that this node knows, and what this
//! node holds. The I/O that a step asks for changes its inputs, and the step after it is decided anew.

use crate::ids::{NodeEpoch, NodeId};

use super::record::{Route, RouteVersion};

/// How often a message may be forwarded.
pub const HOPS_MAX: u32 = 16;
/// How often one node may repair what it knows for one message.
pub const REPAIRS_MAX: u32 = 3;

/// What a message's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The version that its sender knows.
    pub version: RouteVersion,
    /// How often it was forwarded.
    pub hops: u32,
}

/// What this node holds of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// Nothing.
    None,
    /// The object, writable under a valid lease.
    Writable(RouteVersion),
    /// The object, but not surely this node's any more: the lease had a gap, or the lock timeout is near.
    Doubtful,
}

/// What this node knows of the object's record.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The record; `None` where there is none, or none was read yet.
    pub route: Option<&'a Route>,
    /// True where it was read for this message.
    pub fresh: bool,
    /// False where the owner's incarnation is known to be gone.
    pub owner_available: bool,
}

/// Who decides.
#[derive(Debug, Clone, Copy)]
pub struct Decider<'a> {
    /// This node, in its present epoch.
    pub me: &'a NodeEpoch,
    /// True where it hosts the kind and the kind may be taken over on demand.
    pub on_demand: bool,
    /// Repairs of this message so far.
    pub repairs: u32,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Give it to the handler.
    Handle,
    /// Ask the store whether the object in memory is this node's still. A repair.
    Confirm,
    /// Drop what is known and read the record. A repair.
    ReadAgain,
    /// The record says this node: load the object and promote it. A repair.
    Load,
    /// Nobody owns it: take it. A repair.
    TakeOver,
    /// Pass it on to the owner.
    Forward(NodeEpoch),
    /// Refuse: it was forwarded as often as it may be.
    TooManyHops,
    /// Refuse: nobody owns it, and this node may not take it.
    NoOwner,
    /// Refuse: what is known changed at every read.
    Again,
}

/// RTE-8, in its order.
pub fn decide(asked: Asked, local: Local, known: Known<'_>, who: Decider<'_>) -> Step {
    let repair = |step: Step| if who.repairs < REPAIRS_MAX { step } else { Step::Again };
    match local {
        // A version above the one that stands in the store was never given, or was lost with the store's data.
        Local::Writable(mine) if asked.version <= mine || confirmed(mine, known, who.me) => return Step::Handle,
        Local::Doubtful => return repair(Step::Confirm),
        Local::Writable(_) if known.fresh => return repair(Step::Confirm),
        Local::Writable(_) => return repair(Step::ReadAgain),
        Local::None => {}
    }
    let Some(route) = known.route else {
        return if known.fresh { nobody(who, repair) } else { repair(Step::ReadAgain) };
    };
    if asked.version > route.version && !known.fresh {
        return repair(Step::ReadAgain);
    }
    match &route.owner {
        Some(owner) if owner == who.me => repair(Step::Load),
        // This node in an epoch that is over: its record is as good as nobody's.
        Some(owner) if owner.id == who.me.id => nobody(who, repair),
        Some(owner) if known.owner_available => forward(asked, owner),
        // What is cached of somebody who is gone may be old.
        Some(_) if !known.fresh => repair(Step::ReadAgain),
        Some(_) => nobody(who, repair),
        None if !known.fresh => repair(Step::ReadAgain),
        None => nobody(who, repair),
    }
}

/// True where a record that was read for this message says that this node's version stands.
fn confirmed(mine: RouteVersion, known: Known<'_>, me: &NodeEpoch) -> bool {
    known.fresh && known.route.is_some_and(|route| route.owner.as_ref() == Some(me) && route.version == mine)
}

fn nobody(who: Decider<'_>, repair: impl Fn(Step) -> Step) -> Step {
    if who.on_demand { repair(Step::TakeOver) } else { Step::NoOwner }
}

fn forward(asked: Asked, owner: &NodeEpoch) -> Step {
    if asked.hops >= HOPS_MAX { Step::TooManyHops } else { Step::Forward(owner.clone()) }
}

/// True where the origin of a message knows less than this node and is to be told (RTE-9).
pub fn origin_is_behind(asked: RouteVersion, known: RouteVersion, origin: &NodeId, me: &NodeId) -> bool {
    known > asked && origin != me
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, ObjectKey};
    use crate::route::RouteState;

    fn owner(node: &str, epoch: u64) -> NodeEpoch {
        NodeEpoch { id: NodeId::new(node).expect("an id"), epoch: Epoch(epoch) }
    }

    fn route(owner: Option<NodeEpoch>, version: u64) -> Route {
        let key = ObjectKey::read("island:a").expect("a key");
        Route { key, owner, version: RouteVersion(version), saved_at_ms: 0, state: RouteState::Owned }
    }

    // RTE-8. One row a rule; what a wrong row costs stands beside it.
    #[test]
    fn rte_8_every_rule_of_receiving() {
        let (me, other) = (owner("b1", 7), owner("b2", 9));
        let (mine, old_mine, theirs) =
            (route(Some(me.clone()), 5), route(Some(owner("b1", 6)), 5), route(Some(other.clone()), 5));
        let free = route(None, 5);
        let moved = route(Some(other.clone()), 6);
        let held = Local::Writable(RouteVersion(5));
        let (cached, fresh, gone, fresh_gone) = ((false, true), (true, true), (false, false), (true, false));
        let forward = || Step::Forward(other.clone());
        type Row<'a> = (u64, u32, Local, Option<&'a Route>, (bool, bool), bool, u32, Step);
        let rows: &[Row<'_>] = &[
            // Own writable object, a header version not above mine: the change is made here.
            (5, 0, held, Some(&mine), cached, false, 0, Step::Handle),
            (0, 16, held, Some(&mine), cached, false, 3, Step::Handle),
            (4, 0, held, None, cached, false, 0, Step::Handle),
            // A newer header: somebody else may own it, and a change here would be lost.
            (6, 0, held, Some(&mine), cached, true, 0, Step::ReadAgain),
            (6, 0, held, Some(&mine), cached, true, 3, Step::Again),
            (6, 0, held, Some(&moved), fresh, true, 1, Step::Confirm),
            (6, 0, held, Some(&mine), fresh, true, 1, Step::Handle),
            // Without a lease in between, nobody knows.
            (5, 0, Local::Doubtful, Some(&mine), cached, true, 0, Step::Confirm),
            (5, 0, Local::Doubtful, Some(&mine), cached, true, 3, Step::Again),
            // Nothing known: one read.
            (0, 0, Local::None, None, cached, true, 0, Step::ReadAgain),
            (6, 0, Local::None, Some(&theirs), cached, true, 0, Step::ReadAgain),
            (6, 0, Local::None, Some(&free), cached, true, 0, Step::ReadAgain),
            // The record says me, and nothing is in memory: after a restart or a transfer.
            (5, 0, Local::None, Some(&mine), cached, false, 0, Step::Load),
            (9, 0, Local::None, Some(&mine), fresh, false, 1, Step::Load),
            (5, 0, Local::None, Some(&mine), fresh, false, 3, Step::Again),
            // Another owner: passed on, at most 16 times.
            (5, 0, Local::None, Some(&theirs), cached, true, 0, forward()),
            (5, 15, Local::None, Some(&theirs), cached, true, 3, forward()),
            (9, 3, Local::None, Some(&theirs), fresh, false, 1, forward()),
            (5, 16, Local::None, Some(&theirs), cached, true, 0, Step::TooManyHops),
            (5, 17, Local::None, Some(&theirs), fresh, true, 1, Step::TooManyHops),
            // An owner that is gone: read once more, then it is nobody's.
            (5, 0, Local::None, Some(&theirs), gone, true, 0, Step::ReadAgain),
            (5, 0, Local::None, Some(&theirs), fresh_gone, true, 1, Step::TakeOver),
            (5, 0, Local::None, Some(&theirs), fresh_gone, false, 1, Step::NoOwner),
            (5, 0, Local::None, Some(&old_mine), cached, true, 0, Step::TakeOver),
            (5, 0, Local::None, Some(&old_mine), cached, false, 0, Step::NoOwner),
            // Nobody: taken over where the kind allows it.
            (5, 0, Local::None, Some(&free), cached, true, 0, Step::ReadAgain),
            (5, 0, Local::None, Some(&free), fresh, true, 1, Step::TakeOver),
            (5, 0, Local::None, Some(&free), fresh, false, 1, Step::NoOwner),
            (0, 0, Local::None, None, fresh, true, 1, Step::TakeOver),
            (0, 0, Local::None, None, fresh, true, 3, Step::Again),
            (0, 0, Local::None, None, fresh, false, 1, Step::NoOwner),
        ];
        for (row, (version, hops, local, route, (fresh, owner_available), on_demand, repairs, step)) in
            rows.iter().enumerate()
        {
            let asked = Asked { version: RouteVersion(*version), hops: *hops };
            let known = Known { route: *route, fresh: *fresh, owner_available: *owner_available };
            let who = Decider { me: &me, on_demand: *on_demand, repairs: *repairs };
            assert_eq!(decide(asked, *local, known, who), *step, "row {row}");
        }
    }

    #[test]
    fn rte_9_only_an_origin_that_knows_less_is_told() {
        let (a, b) = (NodeId::new("a").expect("an id"), NodeId::new("b").expect("an id"));
        assert!(origin_is_behind(RouteVersion(4), RouteVersion(5), &a, &b));
        assert!(!origin_is_behind(RouteVersion(5), RouteVersion(5), &a, &b));
        assert!(!origin_is_behind(RouteVersion(6), RouteVersion(5), &a, &b));
        assert!(!origin_is_behind(RouteVersion(4), RouteVersion(5), &a, &a));
    }
}
