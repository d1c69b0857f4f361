//! SEL-4 and SEL-6: who comes into question at all, and the lobby's pick.

use maitred::ids::Role;
use maitred::node::{Liveness, NodeState, NodeView};
use maitred::select::{Ask, Exclusion, NAMED_MAX};

use super::stage::{Stage, id, in_regions, names, region, view, with};

#[test]
fn sel_4_each_filter_leaves_out_and_says_why() {
    let base = || in_regions("b1", &[("x", Some(1))]);
    let late = |liveness, age_ms| NodeView { liveness, age_ms, ..base() };
    let nothing = |_: &mut Stage| ();
    type Change = fn(&mut Stage);
    let cases: [(NodeView, Change, Exclusion); 12] = [
        (late(Liveness::Suspect, 2_600), nothing, Exclusion::Suspect),
        (late(Liveness::Offline, 4_000), nothing, Exclusion::Suspect),
        (late(Liveness::Online, 3_000), nothing, Exclusion::Stale),
        (with(base(), |r| r.accepting = false), nothing, Exclusion::NotAccepting),
        (with(base(), |r| r.state = NodeState::Starting), nothing, Exclusion::NotReady),
        (with(base(), |r| r.state = NodeState::ShuttingDown), nothing, Exclusion::NotReady),
        (with(base(), |r| r.kill = true), nothing, Exclusion::Killed),
        (base(), |stage| stage.switches.fleet = true, Exclusion::Killed),
        (base(), |stage| _ = stage.switches.killed.insert(id("b1")), Exclusion::Killed),
        (base(), |stage| _ = stage.switches.draining.insert(id("b1")), Exclusion::Draining),
        (base(), |stage| stage.table.cool(&id("b1"), stage.now_ms + 1), Exclusion::Cooling),
        (base(), |stage| stage.ask.world = Some("nowhere".to_owned()), Exclusion::NoWorld),
    ];
    for (node, change, want) in cases {
        let mut stage = Stage::new(vec![node]);
        change(&mut stage);
        for ranking in [stage.by_score(), stage.by_kept()] {
            assert!(ranking.picks.is_empty());
            assert_eq!((ranking.excluded, ranking.left_out), (vec![(id("b1"), want)], 1));
        }
    }
    let mut stage = Stage::new(vec![base()]);
    stage.ask.region = Some(region("y"));
    assert_eq!(stage.by_score().excluded, [(id("b1"), Exclusion::NoRegion)]);
    let mut fine = Stage::new(vec![with(base(), |r| r.state = NodeState::Degraded)]);
    assert_eq!(names(&fine.by_score()), ["b1:-"]);
    // POL-4: what a node obeyed at its last beat may be over.
    let ends: [Change; 2] =
        [|stage| stage.switches.fleet_known = true, |stage| _ = stage.switches.known.insert(id("b1"))];
    for end in ends {
        let mut stage = Stage::new(vec![with(base(), |r| r.kill = true)]);
        end(&mut stage);
        assert_eq!(names(&stage.by_score()), ["b1:-"]);
    }
}

#[test]
fn sel_4_the_chooser_and_nodes_of_other_roles_are_no_backends() {
    let role = |name: &str| with(view(name), |r| r.role = Role::new(name).expect("a role"));
    let mut nodes: Vec<NodeView> = ["proxy", "lobby", "link", "service"].map(role).into();
    nodes.extend([view("own"), role("arena"), view("b1")]);
    let ranking = Stage::new(nodes).by_score();
    assert_eq!(names(&ranking), ["arena:-", "b1:-"]);
    assert_eq!(ranking.left_out, 0, "they never came into question");
}

#[test]
fn a_large_fleet_that_is_left_out_is_counted_and_not_listed() {
    let nodes = (0..100).map(|n| with(view(&format!("b{n:03}")), |r| r.accepting = false)).collect();
    let ranking = Stage::new(nodes).by_score();
    assert_eq!((ranking.excluded.len(), ranking.left_out), (NAMED_MAX, 100));
}

#[test]
fn sel_6_the_lobby_pick_is_the_most_kept_places_ties_by_id_then_region() {
    let mut stage = Stage::new(vec![
        in_regions("b0", &[("x", None)]),
        in_regions("b1", &[("z", Some(9)), ("y", Some(9))]),
        in_regions("b2", &[("x", Some(5)), ("a", Some(9))]),
        in_regions("b3", &[("x", Some(10))]),
        in_regions("own", &[("x", Some(99))]),
        view("unsaid"),
    ]);
    let ranking = stage.by_kept();
    assert_eq!(names(&ranking), ["b3:x", "b1:y", "b2:a"]);
    let without = [(id("b0"), Exclusion::NoRegion), (id("unsaid"), Exclusion::NoRegion)];
    assert_eq!(ranking.excluded, without, "who publishes no counts is reached by name only");
    stage.nodes.reverse();
    assert_eq!(names(&stage.by_kept()), ["b3:x", "b1:y", "b2:a"]);
    stage.switches.killed.insert(id("b3"));
    assert_eq!(names(&stage.by_kept())[0], "b1:y", "no kill-switched peers");
    stage.most = 1;
    assert_eq!(names(&stage.by_kept()), ["b1:y"]);
    assert!(Stage::new(vec![]).by_kept().picks.is_empty(), "none is none");
}

#[test]
fn sel_6_a_named_server_skips_the_pick_and_is_never_answered_by_another() {
    let nodes = || vec![in_regions("b1", &[("x", Some(1))]), in_regions("b2", &[("x", Some(9)), ("y", None)])];
    let ask = |server: &str, name: Option<&str>| {
        let mut stage = Stage::new(nodes());
        stage.ask = Ask { server: Some(id(server)), region: name.map(region), ..Ask::default() };
        names(&stage.by_score())
    };
    assert_eq!(ask("b1", Some("x")), ["b1:x"]);
    assert_eq!(ask("b2", Some("y")), ["b2:y"], "without a count it is reached by name");
    assert_eq!(ask("b1", None), ["b1:-"]);
    assert!(ask("b1", Some("y")).is_empty());
    assert!(ask("b9", None).is_empty());
    let mut stage = Stage::new(nodes());
    stage.ask.region = Some(region("y"));
    assert_eq!(names(&stage.by_score()), ["b2:y"]);
}
