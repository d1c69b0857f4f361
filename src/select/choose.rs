use std::cmp::Reverse;
use std::sync::Arc;

use serde::Serialize;

use crate::ids::{NodeId, Region};
use crate::node::{Liveness, NodeRecord, NodeState, NodeView, Snapshot};

/// What a request wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ask {
    /// This backend and no other.
    pub server: Option<NodeId>,
    /// A place in this region.
    pub region: Option<Region>,
    /// A backend that has this world loaded.
    pub world: Option<String>,
}

/// What is known of a node besides its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// A kill switch is on for it.
    pub killed: bool,
    /// An operator drains it.
    pub draining: bool,
    /// It refused or did not answer a moment ago.
    pub cooling: bool,
}

/// Why a node was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Its last beat is late.
    Suspect,
    /// Its row is older than the limit.
    Stale,
    /// Not ready, or on its way out.
    NotReady,
    /// It takes no new players.
    NotAccepting,
    /// A kill switch is on for it.
    Killed,
    /// An operator drains it.
    Draining,
    /// It refused or did not answer a moment ago.
    Cooling,
    /// It does not serve the region, or for a bare request publishes no kept counts.
    NoRegion,
    /// It has not loaded the world.
    NoWorld,
}

/// A backend to ask, and for which region.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// Its row in the snapshot.
    pub node: Arc<NodeRecord>,
    /// The region to ask for.
    pub region: Option<Region>,
}

/// Backends in the order to ask them, and why the others are not among them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranking {
    /// Best first.
    pub picks: Vec<Pick>,
    /// Left out, by id.
    pub excluded: Vec<(NodeId, Exclusion)>,
}

/// Orders the backends of a snapshot for a request that `own` makes.
///
/// A bare request goes to the backend and region with the most kept places; ties by node id, then region. A request for
/// a region goes by that region's kept places; backends that publish none come last. A named backend is never replaced
/// by another one. Nodes of the roles `proxy`, `link` and `service` are never picked, nor is `own`.
pub fn rank(
    snapshot: &Snapshot,
    ask: &Ask,
    own: &NodeId,
    stale_after_ms: u64,
    standing: impl Fn(&NodeId) -> Standing,
) -> Ranking {
    let mut ranking = Ranking::default();
    let mut ranked: Vec<(Reverse<Option<u64>>, Pick)> = Vec::new();
    for view in snapshot.nodes.iter().filter(|view| is_candidate(view, ask, own)) {
        let id = &view.record.id;
        match check(view, ask, stale_after_ms, standing(id)) {
            Ok((kept, region)) => {
                ranked.push((Reverse(kept), Pick { node: Arc::clone(&view.record), region }));
            }
            Err(exclusion) => ranking.excluded.push((id.clone(), exclusion)),
        }
    }
    // The snapshot is ordered by id and the sort is stable, so ties stay in that order.
    ranked.sort_by_key(|(kept, _)| *kept);
    ranking.picks = ranked.into_iter().map(|(_, pick)| pick).collect();
    ranking
}

fn is_candidate(view: &NodeView, ask: &Ask, own: &NodeId) -> bool {
    let record = &view.record;
    match &ask.server {
        Some(server) => record.id == *server,
        None => record.id != *own && record.role.takes_players(),
    }
}

/// The kept places and the region to ask for, or why the node is left out.
fn check(
    view: &NodeView,
    ask: &Ask,
    stale_after_ms: u64,
    standing: Standing,
) -> Result<(Option<u64>, Option<Region>), Exclusion> {
    let record = &view.record;
    if view.liveness != Liveness::Online {
        return Err(Exclusion::Suspect);
    }
    if view.age_ms >= stale_after_ms {
        return Err(Exclusion::Stale);
    }
    if standing.killed || record.kill {
        return Err(Exclusion::Killed);
    }
    if standing.draining {
        return Err(Exclusion::Draining);
    }
    if !matches!(record.state, NodeState::Ready | NodeState::Degraded) {
        return Err(Exclusion::NotReady);
    }
    if !record.accepting {
        return Err(Exclusion::NotAccepting);
    }
    if standing.cooling {
        return Err(Exclusion::Cooling);
    }
    if ask.world.as_ref().is_some_and(|world| !record.load.worlds.contains(world)) {
        return Err(Exclusion::NoWorld);
    }
    match (&ask.region, &ask.server) {
        (Some(region), _) => {
            let kept = record.kept(region).ok_or(Exclusion::NoRegion)?;
            Ok((kept, Some(region.clone())))
        }
        // A named backend without a named region chooses the region itself.
        (None, Some(_)) => Ok((None, None)),
        (None, None) => {
            let counted = record.load.regions.iter().filter_map(|(region, kept)| Some(((*kept)?, region)));
            // The last of equal maxima wins, so walk backwards to end at the first region by name.
            let most = counted.rev().max_by_key(|(kept, _)| *kept).ok_or(Exclusion::NoRegion)?;
            Ok((Some(most.0), Some(most.1.clone())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Incarnation, Role};
    use crate::node::Load;
    use std::collections::BTreeMap;

    fn id(text: &str) -> NodeId {
        NodeId::new(text).expect("valid")
    }

    fn region(text: &str) -> Region {
        Region::new(text).expect("valid")
    }

    fn view(name: &str, regions: &[(&str, Option<u64>)]) -> NodeView {
        let load = Load {
            regions: regions.iter().map(|(name, kept)| (region(name), *kept)).collect(),
            worlds: vec!["w".to_owned()],
            ..Load::default()
        };
        let record = NodeRecord {
            id: id(name),
            role: Role::backend(),
            addr: "h:1".to_owned(),
            epoch: Epoch(1),
            incarnation: Incarnation::new("i").expect("valid"),
            seq: 1,
            sent_at_ms: 0,
            state: NodeState::Ready,
            accepting: true,
            kill: false,
            players: 0,
            soft_cap: 0,
            load,
            services: Vec::new(),
            labels: BTreeMap::new(),
        };
        NodeView { record: Arc::new(record), liveness: Liveness::Online, age_ms: 0 }
    }

    fn edit(mut view: NodeView, change: impl FnOnce(&mut NodeRecord)) -> NodeView {
        let mut record = (*view.record).clone();
        change(&mut record);
        view.record = Arc::new(record);
        view
    }

    fn order(nodes: Vec<NodeView>, ask: &Ask) -> Vec<String> {
        let mut snapshot = Snapshot { nodes, as_of_ms: 0, stale: false };
        snapshot.nodes.sort_by(|a, b| a.record.id.cmp(&b.record.id));
        let ranking = rank(&snapshot, ask, &id("own"), 3_000, |_| Standing::default());
        let name =
            |pick: &Pick| format!("{}:{}", pick.node.id, pick.region.as_ref().map_or("-", |region| region.as_str()));
        ranking.picks.iter().map(name).collect()
    }

    #[test]
    fn sel_6_a_bare_request_goes_to_the_most_kept_places_ties_by_id_then_region() {
        let nodes = vec![
            view("b2", &[("x", Some(5)), ("a", Some(9))]),
            view("b1", &[("z", Some(9)), ("y", Some(9))]),
            view("b3", &[("x", Some(10))]),
            view("b0", &[("x", None)]),
            view("own", &[("x", Some(99))]),
        ];
        assert_eq!(order(nodes, &Ask::default()), ["b3:x", "b1:y", "b2:a"]);
        assert!(order(vec![view("b0", &[])], &Ask::default()).is_empty(), "none is none");
    }

    #[test]
    fn sel_6_a_named_server_is_never_answered_by_another() {
        let nodes = || vec![view("b1", &[("x", Some(1))]), view("b2", &[("x", Some(9)), ("y", None)])];
        let ask =
            |server: &str, name: Option<&str>| Ask { server: Some(id(server)), region: name.map(region), world: None };
        assert_eq!(order(nodes(), &ask("b1", Some("x"))), ["b1:x"]);
        assert_eq!(order(nodes(), &ask("b2", Some("y"))), ["b2:y"], "without a count it is reached by name");
        assert_eq!(order(nodes(), &ask("b1", None)), ["b1:-"]);
        assert!(order(nodes(), &ask("b1", Some("y"))).is_empty());
        assert!(order(nodes(), &ask("b9", None)).is_empty());
        let by_region = Ask { region: Some(region("y")), ..Ask::default() };
        assert_eq!(order(nodes(), &by_region), ["b2:y"]);
    }

    #[test]
    fn sel_4_each_filter_leaves_out_and_says_why() {
        let base = || view("b1", &[("x", Some(1))]);
        let late = |liveness, age_ms| NodeView { liveness, age_ms, ..base() };
        let cases = [
            (late(Liveness::Suspect, 2_600), Standing::default(), Exclusion::Suspect),
            (late(Liveness::Offline, 4_000), Standing::default(), Exclusion::Suspect),
            (late(Liveness::Online, 3_000), Standing::default(), Exclusion::Stale),
            (edit(base(), |r| r.accepting = false), Standing::default(), Exclusion::NotAccepting),
            (edit(base(), |r| r.state = NodeState::Starting), Standing::default(), Exclusion::NotReady),
            (edit(base(), |r| r.state = NodeState::ShuttingDown), Standing::default(), Exclusion::NotReady),
            (edit(base(), |r| r.kill = true), Standing::default(), Exclusion::Killed),
            (base(), Standing { killed: true, ..Standing::default() }, Exclusion::Killed),
            (base(), Standing { draining: true, ..Standing::default() }, Exclusion::Draining),
            (base(), Standing { cooling: true, ..Standing::default() }, Exclusion::Cooling),
        ];
        for (node, standing, want) in cases {
            let snapshot = Snapshot { nodes: vec![node], as_of_ms: 0, stale: false };
            let ranking = rank(&snapshot, &Ask::default(), &id("own"), 3_000, |_| standing);
            assert!(ranking.picks.is_empty());
            assert_eq!(ranking.excluded, [(id("b1"), want)]);
        }
        let snapshot = Snapshot { nodes: vec![base()], as_of_ms: 0, stale: false };
        let lost = Ask { world: Some("nowhere".to_owned()), ..Ask::default() };
        let ranking = rank(&snapshot, &lost, &id("own"), 3_000, |_| Standing::default());
        assert_eq!(ranking.excluded, [(id("b1"), Exclusion::NoWorld)]);
    }
}
