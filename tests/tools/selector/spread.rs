//! SEL-1 and SEL-3: ties, weights, and what recent picks do to a crowd between two beats.

use std::collections::BTreeMap;

use maitred::ids::NodeId;
use maitred::node::NodeView;
use maitred::select::{Curve, MetricSource, Rule};

use super::stage::{HALFLIFE_MS, Stage, id, names, view, with};

fn equal(count: usize) -> Vec<NodeView> {
    (0..count)
        .map(|n| {
            with(view(&format!("b{n:02}")), |record| {
                record.load.mspt = Some(20.0);
                record.load.queue_depth = Some(3);
                record.load.avg_pipeline_ms = Some(200.0);
                (record.load.heap_used, record.load.heap_max) = (Some(2), Some(4));
            })
        })
        .collect()
}

fn burst(stage: &mut Stage, requests: usize) -> BTreeMap<NodeId, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        *counts.entry(stage.pick()).or_default() += 1;
    }
    counts
}

#[test]
fn sel_1_with_every_weight_at_zero_ties_go_by_node_id() {
    let busy = with(view("b1"), |record| record.load.mspt = Some(99.0));
    let mut stage = Stage::new(vec![view("b3"), busy, view("b2")]);
    stage.rules.values_mut().for_each(|rule| rule.weight = 0.0);
    assert_eq!(names(&stage.by_score()), ["b1:-", "b2:-", "b3:-"]);
    assert_eq!(burst(&mut stage, 5), BTreeMap::from([(id("b1"), 5)]), "recent picks weigh nothing either");
}

#[test]
fn sel_1_the_lowest_sum_wins_and_a_weight_divides_it() {
    let load = |name: &str, mspt: f64| with(view(name), |record| record.load.mspt = Some(mspt));
    let mut stage = Stage::new(vec![load("b1", 40.0), load("b2", 20.0), load("b3", 30.0)]);
    stage.rules = BTreeMap::from([("mspt".to_owned(), Rule { max: 100.0, ..Rule::new(MetricSource::Mspt) })]);
    assert_eq!(names(&stage.by_score()), ["b2:-", "b3:-", "b1:-"]);
    // 0.4 / 2.5 = 0.16, below 0.2.
    stage.weights.insert(id("b1"), 2.5);
    assert_eq!(names(&stage.by_score()), ["b1:-", "b2:-", "b3:-"]);
    // 0.2 / 0.5 = 0.4, above 0.3.
    stage.weights.insert(id("b2"), 0.5);
    assert_eq!(names(&stage.by_score()), ["b1:-", "b3:-", "b2:-"]);
}

#[test]
fn sel_1_weight_2_against_1_takes_twice_as_many_where_only_recent_picks_count() {
    let mut stage = Stage::new(equal(2)).only_recent_picks();
    stage.weights.insert(id("b00"), 2.0);
    let counts = burst(&mut stage, 900);
    assert!((597..=603).contains(&counts[&id("b00")]), "{counts:?}");
}

// The whole score is divided, so that what both have in common prefers the heavier one too.
#[test]
fn sel_1_weight_2_against_1_on_equal_backends_halves_the_whole_score() {
    let mut stage = Stage::new(equal(2));
    stage.weights.insert(id("b01"), 2.0);
    assert_eq!(names(&stage.by_score()), ["b01:-", "b00:-"]);
    let rule = |source, weight| Rule { weight, max: 100.0, curve: Curve::Linear, ..Rule::new(source) };
    // Both cost 0.2; picks cost up to 0.5: (0.2 + 0.5 a) / 2 = 0.2 + 0.5 b, so the other gets none before a is 0.4.
    let picks = Rule { max: 10.0, ..rule(MetricSource::RecentPicks, 0.5) };
    stage.rules = BTreeMap::from([("mspt".to_owned(), rule(MetricSource::Mspt, 1.0)), ("picks".to_owned(), picks)]);
    assert_eq!(burst(&mut stage, 4), BTreeMap::from([(id("b01"), 4)]));
    let counts = burst(&mut stage, 5);
    assert!(counts[&id("b00")] >= 1, "{counts:?}");
}

#[test]
fn sel_3_recent_picks_spread_a_burst_between_two_beats_evenly() {
    for backends in [2, 8, 30] {
        let mut stage = Stage::new(equal(backends));
        let counts = burst(&mut stage, 1_000);
        let even = 1_000.0 / f64::from(u32::try_from(backends).expect("few"));
        for (id, count) in &counts {
            let count = f64::from(u32::try_from(*count).expect("few"));
            assert!((count - even).abs() <= even * 0.1, "{id}: {count} of {even}");
        }
        assert_eq!(counts.len(), backends);
    }
}

#[test]
fn sel_3_a_pick_is_forgotten_by_half_every_halflife() {
    let mut stage = Stage::new(equal(2)).only_recent_picks();
    for _ in 0..4 {
        stage.table.picked(&id("b00"), stage.now_ms, false);
    }
    stage.now_ms += HALFLIFE_MS;
    // 2 are left of 4.
    let first: Vec<NodeId> = (0..3).map(|_| stage.pick()).collect();
    assert_eq!(first, [id("b01"), id("b01"), id("b00")]);
}

#[test]
fn sel_3_what_is_measured_here_counts_and_who_was_not_measured_is_as_good_as_the_best() {
    let mut stage = Stage::new(vec![view("b1"), view("b2"), view("b3"), view("b4")]);
    stage.rules.retain(|name, _| name == "proxyLatency");
    assert_eq!(names(&stage.by_score()), ["b1:-", "b2:-", "b3:-", "b4:-"], "nobody was");
    stage.table.answered(&id("b1"), 150.0);
    stage.table.answered(&id("b2"), 20.0);
    stage.table.answered(&id("b4"), 30.0);
    assert_eq!(names(&stage.by_score()), ["b2:-", "b3:-", "b4:-", "b1:-"]);
    // The best of those who come into question, and no other.
    stage.switches.draining.extend([id("b2"), id("b4")]);
    assert_eq!(names(&stage.by_score()), ["b1:-", "b3:-"]);
    // Whatever the rule calls good.
    stage.switches.draining.clear();
    stage.rules.values_mut().for_each(|rule| rule.invert = true);
    assert_eq!(names(&stage.by_score()), ["b1:-", "b3:-", "b4:-", "b2:-"]);
}

#[test]
fn sel_3_a_backend_that_was_never_asked_gets_players_however_few_come() {
    let mut nodes = equal(2);
    let newcomer = nodes.pop().expect("two");
    let mut stage = Stage::new(nodes);
    let ask = |stage: &mut Stage| {
        stage.now_ms += 3_000;
        let backend = stage.pick();
        stage.table.answered(&backend, 20.0);
        backend
    };
    for _ in 0..40 {
        ask(&mut stage);
    }
    stage.nodes.push(newcomer);
    let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
    for _ in 0..40 {
        *counts.entry(ask(&mut stage)).or_default() += 1;
    }
    assert!(counts.len() == 2 && counts.values().all(|count| *count >= 15), "{counts:?}");
}

#[test]
fn sel_3_more_is_better_where_a_metric_is_inverted() {
    let load = |name: &str, tps: f64| with(view(name), |record| record.load.tps_1m = Some(tps));
    let mut stage = Stage::new(vec![load("b1", 12.0), load("b2", 19.5), load("b3", 20.0), view("b4")]);
    let tps = Rule { max: 20.0, invert: true, ..Rule::new(MetricSource::Tps1m) };
    stage.rules = BTreeMap::from([("tps".to_owned(), tps)]);
    assert_eq!(names(&stage.by_score()), ["b3:-", "b2:-", "b1:-", "b4:-"]);
}
