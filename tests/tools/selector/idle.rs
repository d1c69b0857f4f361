//! SEL-2 and SEL-3: recent picks over any silence. When this fails, the first crowd after a quiet night goes to one backend.

use std::collections::BTreeMap;

use maitred::ids::NodeId;
use proptest::prelude::*;

use super::stage::{HALFLIFE_MS, Stage, id, view};

const BACKENDS: usize = 3;

/// What can happen to the counts.
#[derive(Debug, Clone)]
enum Step {
    /// The table is brought to now.
    TakeIn,
    /// A choice, and its pick.
    Choose { share: bool },
    /// A pick without a choice right before it.
    Picked { backend: usize, share: bool },
    /// The counts of all proxies are read.
    Hear(Vec<f64>),
    /// Own picks are taken for the other proxies.
    Take,
    /// They have them.
    Told,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::TakeIn),
        3 => any::<bool>().prop_map(|share| Step::Choose { share }),
        1 => (0..BACKENDS, any::<bool>()).prop_map(|(backend, share)| Step::Picked { backend, share }),
        3 => prop::collection::vec(prop_oneof![Just(0.0), 0.0..50.0_f64, 0.0..1e9_f64], BACKENDS).prop_map(Step::Hear),
        1 => Just(Step::Take),
        1 => Just(Step::Told),
    ]
}

/// From none to far beyond the 1,075 half-lives after which no number holds what is left of one pick.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(0),
        3 => 0..3 * HALFLIFE_MS,
        2 => 0..100 * HALFLIFE_MS,
        2 => 0..3_000 * HALFLIFE_MS,
        1 => 0..1_000_000_000_000_u64,
    ]
}

/// One backend as it is written down: so many picks then, so many that the others do not know of.
#[derive(Debug, Clone, Copy, Default)]
struct Plain {
    picks: f64,
    at_ms: u64,
    unshared: u32,
    in_flight: u32,
}

impl Plain {
    fn now(&self, now_ms: u64) -> f64 {
        let age = u32::try_from((now_ms - self.at_ms).min(1_000_000_000)).expect("cut off");
        let halflife = u32::try_from(HALFLIFE_MS).expect("short");
        self.picks * 0.5_f64.powf(f64::from(age) / f64::from(halflife))
    }

    fn picked(&mut self, now_ms: u64, share: bool) {
        (self.picks, self.at_ms) = (self.now(now_ms) + 1.0, now_ms);
        self.unshared = if share { self.unshared + 1 } else { 0 };
    }
}

fn name(number: usize) -> NodeId {
    id(&format!("b{number}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sel_3_after_any_silence_counts_are_numbers_and_the_pick_is_the_one_with_the_fewest(
        steps in prop::collection::vec((gap(), step()), 1..40),
    ) {
        let nodes = (0..BACKENDS).map(|number| view(&format!("b{number}"))).collect();
        let mut stage = Stage::new(nodes).only_recent_picks();
        let mut plain = [Plain::default(); BACKENDS];
        for (gap, step) in steps {
            stage.now_ms += gap;
            let now_ms = stage.now_ms;
            match &step {
                Step::TakeIn => stage.take_in(),
                Step::Choose { share } => {
                    let best = stage.by_score().picks.swap_remove(0).node.id.clone();
                    let number = (0..BACKENDS).find(|number| name(*number) == best).expect("one of them");
                    let fewest = plain.iter().map(|it| it.now(now_ms)).fold(f64::INFINITY, f64::min);
                    let its = plain[number].now(now_ms);
                    // Which of two is first that differ in their last digits is left open.
                    prop_assert!(its <= fewest * (1.0 + 1e-9) + 1e-9, "{best} has {its}, another {fewest}: {plain:?}");
                    stage.table.picked(&best, now_ms, *share);
                    plain[number].picked(now_ms, *share);
                }
                Step::Picked { backend, share } => {
                    stage.table.picked(&name(*backend), now_ms, *share);
                    plain[*backend].picked(now_ms, *share);
                }
                Step::Hear(counts) => {
                    let shared: BTreeMap<NodeId, f64> = (0..).map(name).zip(counts.iter().copied()).collect();
                    stage.table.take_shared_picks(&shared, now_ms);
                    for (it, count) in plain.iter_mut().zip(counts) {
                        (it.picks, it.at_ms) = (count + f64::from(it.unshared + it.in_flight), now_ms);
                    }
                }
                Step::Take => {
                    stage.table.take_unshared(BACKENDS);
                    for it in plain.iter_mut().filter(|it| it.unshared > 0) {
                        it.in_flight = std::mem::take(&mut it.unshared);
                    }
                }
                Step::Told => {
                    stage.table.told();
                    plain.iter_mut().for_each(|it| it.in_flight = 0);
                }
            }
            for (it, number) in plain.iter().zip(0..) {
                let (got, want) = (stage.table.picks(&name(number), now_ms), it.now(now_ms));
                let is_near = (got - want).abs() <= 1e-9 + want * 1e-9;
                prop_assert!(got.is_finite() && is_near, "after {step:?}: {got}, by hand {want}");
            }
        }
    }
}

#[test]
fn sel_9_a_crowd_after_a_quiet_night_is_spread_though_the_counts_were_read_all_night() {
    let mut stage = Stage::new(vec![view("b0"), view("b1")]).only_recent_picks();
    stage.pick();
    for _ in 0..4 {
        // Nobody chooses, so that nothing but the reading touches the table.
        stage.now_ms += 1_000 * HALFLIFE_MS;
        stage.table.take_shared_picks(&BTreeMap::new(), stage.now_ms);
    }
    let picks: Vec<NodeId> = (0..10).map(|_| stage.pick()).collect();
    assert_eq!(picks.iter().filter(|pick| **pick == id("b0")).count(), 5, "{picks:?}");
}
