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
    assert_eq!(view.apply(beat(1, 1, 1_000), 1_000), Some(DirectoryEvent::Joined { node: node(), epoch: Epoch(1) }));
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
    assert_eq!(view.view_of(&node(), 1_100).expect("known").liveness, Liveness::Online);
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
    assert_eq!(view.view_of(&node(), 2_600).expect("remembered").liveness, Liveness::Removed);
    assert!(view.snapshot(2_600, false).nodes.is_empty());
    let back = DirectoryEvent::Joined { node: node(), epoch: Epoch(1) };
    assert_eq!(view.apply(beat(1, 9, 2_700), 2_700), Some(back));
    assert_eq!(view.age(4_200), [DirectoryEvent::Removed { node: node() }]);
    assert_eq!(view.age(5_700), []);
    assert!(view.get(&node()).is_none());
}
