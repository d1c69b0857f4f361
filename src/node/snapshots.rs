use std::sync::{Arc, PoisonError, RwLock};

use super::view::Snapshot;

/// Age at which a shared snapshot is made anew although no row changed, so that ages go on.
const OLD_MS: u64 = 50;
/// Nodes for each ms that a snapshot may be late for those who ask all the time.
const NODES_A_MS: usize = 100;

/// The snapshot that was made last, for all who ask until something changes.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    last: RwLock<Last>,
}

#[derive(Debug, Default)]
struct Last {
    snapshot: Option<Arc<Snapshot>>,
    /// How many changes it has in it, at least.
    made_of: u64,
    /// How many there were.
    changes: u64,
}

impl Snapshots {
    /// Something changed.
    pub fn changed(&self) {
        self.last.write().unwrap_or_else(PoisonError::into_inner).changes += 1;
    }

    /// The last snapshot where it can still be used at `now_ms`, else what `make` makes. With `may_be_late` one that a
    /// change has overtaken is used while it is younger than a ms for every hundred nodes.
    pub fn get(&self, now_ms: u64, stale: bool, may_be_late: bool, make: impl FnOnce() -> Snapshot) -> Arc<Snapshot> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshot) = &last.snapshot {
            let late_ms = u64::try_from(snapshot.nodes.len() / NODES_A_MS).unwrap_or(OLD_MS).min(OLD_MS);
            let allowed_ms = match (last.changes == last.made_of, may_be_late) {
                (true, _) => OLD_MS,
                (false, true) => late_ms,
                (false, false) => 0,
            };
            if now_ms.saturating_sub(snapshot.as_of_ms) < allowed_ms && snapshot.stale == stale {
                return Arc::clone(snapshot);
            }
        }
        // A change that comes while it is made counts as one that it does not have.
        let changes = last.changes;
        drop(last);
        let snapshot = Arc::new(make());
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        (last.snapshot, last.made_of) = (Some(Arc::clone(&snapshot)), changes);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{NodeId, Role};
    use crate::node::{Identity, Liveness, NodeRecord, NodeView};

    /// A snapshot of `nodes` nodes, made at `now_ms`.
    fn made(nodes: usize, now_ms: u64) -> Snapshot {
        let id = NodeId::new("b1").expect("valid");
        let record = Arc::new(NodeRecord::blank(&Identity { id, role: Role::backend(), addr: "h:1".to_owned() }));
        let view = NodeView { record, liveness: Liveness::Online, age_ms: 0 };
        Snapshot { nodes: vec![view; nodes], as_of_ms: now_ms, stale: false }
    }

    /// Whether the snapshot made at 1,000 still serves at `now_ms` after a change.
    fn serves(nodes: usize, now_ms: u64, may_be_late: bool) -> bool {
        let snapshots = Snapshots::default();
        snapshots.get(1_000, false, may_be_late, || made(nodes, 1_000));
        snapshots.changed();
        snapshots.get(now_ms, false, may_be_late, || made(nodes, now_ms)).as_of_ms == 1_000
    }

    #[test]
    fn nod_7_a_snapshot_is_shared_until_something_changes_or_ages_have_to_go_on() {
        let snapshots = Snapshots::default();
        let at = |now_ms, stale| snapshots.get(now_ms, stale, false, || Snapshot { stale, ..made(3, now_ms) }).as_of_ms;
        assert_eq!([at(1_000, false), at(1_049, false), at(1_050, false)], [1_000, 1_000, 1_050]);
        assert_eq!(at(1_051, true), 1_051, "a view that turned stale says so at once");
        snapshots.changed();
        assert_eq!([at(1_052, true), at(1_053, true)], [1_052, 1_052]);
        // A change while it is made is in the next one.
        snapshots.changed();
        snapshots.get(1_054, true, false, || {
            snapshots.changed();
            Snapshot { stale: true, ..made(3, 1_054) }
        });
        assert_eq!(at(1_055, true), 1_055);
    }

    #[test]
    fn a_change_may_be_late_only_in_a_large_fleet_and_only_for_who_says_so() {
        assert!(!serves(99, 1_001, true), "a small fleet is never late");
        assert!(serves(1_000, 1_009, true) && !serves(1_000, 1_010, true));
        assert!(serves(100_000, 1_049, true) && !serves(100_000, 1_050, true));
        assert!(!serves(1_000, 1_001, false));
    }
}
