//! SEL-1 against a naive oracle that scores every backend by the formulas as they are written down, and sorts them all.

use std::collections::BTreeMap;

use maitred::ids::NodeId;
use maitred::node::{Liveness, NodeRecord, NodeState, NodeView};
use maitred::select::{Curve, MetricSource, Rule};
use proptest::test_runner::{TestRng, TestRunner};
use rand::RngExt;
use rand::seq::SliceRandom;

use super::stage::{Stage, id, region, view, with};

const SNAPSHOTS: usize = 10_000;

/// What the proxy knows, as a plain table: picks and round trips.
type Known = BTreeMap<NodeId, (f64, Option<f64>)>;

fn value(source: MetricSource, record: &NodeRecord, stage: &Stage, known: &Known) -> Option<f64> {
    let load = &record.load;
    let real = |number: Option<u64>| number.map(|number| u32::try_from(number).expect("small").into());
    let ratio = |part: Option<f64>, whole: Option<f64>| Some(part? / whole.filter(|whole| *whole > 0.0)?);
    let flag = |flag: bool| if flag { 1.0 } else { 0.0 };
    let soft_cap = real(Some(record.soft_cap)).filter(|cap| *cap > 0.0);
    match source {
        MetricSource::Players => real(Some(record.players)),
        MetricSource::SoftCap => soft_cap,
        MetricSource::PlayersPerSoftCap => ratio(real(Some(record.players)), soft_cap),
        MetricSource::Tps1m => load.tps_1m,
        MetricSource::Tps5m => load.tps_5m,
        MetricSource::Tps15m => load.tps_15m,
        MetricSource::Mspt => load.mspt,
        MetricSource::QueueDepth => real(load.queue_depth),
        MetricSource::PendingTransfers => real(load.pending_transfers),
        MetricSource::AvgPipelineMs => load.avg_pipeline_ms,
        MetricSource::ChunkBacklog => real(load.chunk_backlog),
        MetricSource::MemoryEntries => real(load.memory_entries),
        MetricSource::HeapUsed => real(load.heap_used),
        MetricSource::HeapMax => real(load.heap_max),
        MetricSource::HeapUsedPerMax => ratio(real(load.heap_used), real(load.heap_max)),
        MetricSource::StoreLatencyMs => load.store_latency_ms,
        MetricSource::NewPlayersPerSecond => load.new_players_per_second,
        MetricSource::Overloaded => load.overloaded.map(flag),
        MetricSource::StickyRegion => {
            let wanted = stage.ask.prefer.as_ref().or(stage.ask.region.as_ref())?;
            Some(flag(!load.regions.contains_key(wanted)))
        }
        MetricSource::Locality => Some(flag(record.labels.get("locality")? != stage.locality.as_ref()?)),
        MetricSource::RttMs => None,
        MetricSource::RecentPicks => Some(known.get(&record.id).map_or(0.0, |(picks, _)| *picks)),
    }
}

fn bent(curve: Curve, x: f64) -> f64 {
    let s = |k: f64, x: f64| 1.0 / (1.0 + (-k * (x - 0.5)).exp());
    match curve {
        Curve::Linear => x,
        Curve::Exponential { k } => (k * x).exp_m1() / k.exp_m1(),
        Curve::Logarithmic { k } => (k * x).ln_1p() / k.ln_1p(),
        Curve::Sigmoid { k } => (s(k, x) - s(k, 0.0)) / (s(k, 1.0) - s(k, 0.0)),
        Curve::Step { threshold } => {
            if x < threshold {
                0.0
            } else {
                1.0
            }
        }
        Curve::Power { p } => x.powf(p),
    }
}

fn passes(view: &NodeView, stage: &Stage) -> bool {
    let record = &view.record;
    let name = record.role.as_str();
    let wanted = match &stage.ask.server {
        Some(server) => record.id == *server,
        None => record.id != id("own") && !["proxy", "lobby", "link", "service"].contains(&name),
    };
    wanted
        && view.liveness == Liveness::Online
        && view.age_ms < 3_000
        && !record.kill
        && !stage.switches.fleet
        && !stage.switches.killed.contains(&record.id)
        && !stage.switches.draining.contains(&record.id)
        && [NodeState::Ready, NodeState::Degraded].contains(&record.state)
        && record.accepting
        && !stage.table.is_cooling(&record.id, stage.now_ms)
        && stage.ask.world.as_ref().is_none_or(|world| record.load.worlds.contains(world))
        && stage.ask.region.as_ref().is_none_or(|region| record.load.regions.contains_key(region))
}

/// Every backend that passes, best first.
fn oracle(stage: &Stage, known: &Known) -> Vec<NodeId> {
    let passing: Vec<&NodeRecord> =
        stage.nodes.iter().filter(|view| passes(view, stage)).map(|view| &*view.record).collect();
    let picks = |record: &&NodeRecord| known.get(&record.id).map_or(0.0, |(picks, _)| *picks);
    let highest = passing.iter().map(picks).fold(0.0, f64::max);
    // What a row says, the round trip, the region that is preferred, recent picks: each a sum by the names of its rules.
    let part = |rule: &Rule| match rule.source {
        MetricSource::RttMs => 1,
        MetricSource::StickyRegion => 2,
        MetricSource::RecentPicks => 3,
        _ => 0,
    };
    let rtt = |record: &NodeRecord| known.get(&record.id).and_then(|(_, rtt)| *rtt);
    let mut scored: Vec<(&NodeRecord, [f64; 4])> = Vec::new();
    for record in &passing {
        let mut sums = [0.0; 4];
        for rule in stage.rules.values() {
            let max = if part(rule) == 3 { rule.max.max(highest) } else { rule.max };
            let value = match rule.source {
                // What stands for one that was not measured follows below.
                MetricSource::RttMs => Some(rtt(record).unwrap_or(0.0)),
                source => value(source, record, stage, known),
            };
            let x = match value {
                Some(value) if !value.is_nan() => {
                    let x = ((value - rule.min) / (max - rule.min)).clamp(0.0, 1.0);
                    if rule.invert { 1.0 - x } else { x }
                }
                _ => 1.0,
            };
            sums[part(rule)] += rule.weight * bent(rule.curve, x);
        }
        scored.push((record, sums));
    }
    let measured = scored.iter().filter(|(record, _)| rtt(record).is_some()).map(|(_, sums)| sums[1]);
    if let Some(best) = measured.reduce(f64::min) {
        scored.iter_mut().filter(|(record, _)| rtt(record).is_none()).for_each(|(_, sums)| sums[1] = best);
    }
    let score = |(record, sums): (&NodeRecord, [f64; 4])| {
        let weight = stage.weights.get(&record.id).copied().unwrap_or(1.0);
        ((sums[0] + sums[1] + sums[2] + sums[3]) / weight, record.id.clone())
    };
    let mut scored: Vec<(f64, NodeId)> = scored.into_iter().map(score).collect();
    scored.sort_by(|a, b| a.0.partial_cmp(&b.0).expect("numbers").then_with(|| a.1.cmp(&b.1)));
    scored.into_iter().map(|(_, id)| id).collect()
}

/// Values out of few, so that many backends are alike and ties are common.
fn maybe<T>(rng: &mut TestRng, some: impl FnOnce(&mut TestRng) -> T) -> Option<T> {
    rng.random_bool(0.8).then(|| some(rng))
}

fn node(rng: &mut TestRng, name: &str) -> NodeView {
    let mut node = with(view(name), |record| {
        record.players = rng.random_range(0..5) * 25;
        record.soft_cap = rng.random_range(0..4) * 50;
        record.accepting = rng.random_bool(0.9);
        record.kill = rng.random_bool(0.05);
        let states = [NodeState::Ready, NodeState::Ready, NodeState::Ready, NodeState::Degraded, NodeState::Starting];
        record.state = states[rng.random_range(0..states.len())];
        let load = &mut record.load;
        load.tps_1m = maybe(rng, |rng| f64::from(rng.random_range(15..=20)));
        load.mspt = maybe(rng, |rng| f64::from(rng.random_range(0..6)) * 20.0);
        load.queue_depth = maybe(rng, |rng| rng.random_range(0..4) * 20);
        load.pending_transfers = maybe(rng, |rng| rng.random_range(0..4));
        load.avg_pipeline_ms =
            maybe(rng, |rng| if rng.random_bool(0.05) { f64::NAN } else { rng.random_range(0.0..3e3) });
        load.chunk_backlog = maybe(rng, |rng| rng.random_range(0..100));
        load.heap_used = maybe(rng, |rng| rng.random_range(0..4) * 100);
        load.heap_max = maybe(rng, |rng| rng.random_range(0..2) * 400);
        load.store_latency_ms = maybe(rng, |rng| f64::from(rng.random_range(0..3)));
        load.overloaded = maybe(rng, |rng| rng.random_bool(0.5));
        for name in ["x", "y"] {
            if rng.random_bool(0.7) {
                load.regions.insert(region(name), maybe(rng, |rng| rng.random_range(0..9)));
            }
        }
        if rng.random_bool(0.9) {
            load.worlds.push("w".to_owned());
        }
        if rng.random_bool(0.5) {
            let place = if rng.random_bool(0.5) { "eu" } else { "us" };
            record.labels.insert("locality".to_owned(), place.to_owned());
        }
    });
    node.age_ms = rng.random_range(0..3_300);
    if rng.random_bool(0.05) {
        node.liveness = Liveness::Suspect;
    }
    node
}

fn rules(rng: &mut TestRng) -> BTreeMap<String, Rule> {
    if rng.random_bool(0.5) {
        return Rule::defaults();
    }
    let rule = |rng: &mut TestRng| {
        let curve = Curve::ALL[rng.random_range(0..Curve::ALL.len())];
        let (min, span) = (rng.random_range(-5.0..5.0), rng.random_range(0.5..100.0));
        let weight = if rng.random_bool(0.2) { 0.0 } else { rng.random_range(0.0..3.0) };
        let source = MetricSource::ALL[rng.random_range(0..MetricSource::ALL.len())];
        Rule { source, weight, min, max: min + span, invert: rng.random_bool(0.3), curve }
    };
    (0..rng.random_range(0..8)).map(|n| (format!("m{n}"), rule(rng))).collect()
}

fn stage(rng: &mut TestRng) -> (Stage, Known) {
    let count = rng.random_range(0..24);
    let mut stage = Stage::new((0..count).map(|n| node(rng, &format!("b{n:02}"))).collect());
    stage.rules = rules(rng);
    stage.most = rng.random_range(1..6);
    stage.locality = maybe(rng, |_| "eu".to_owned());
    stage.ask.region = rng.random_bool(0.3).then(|| region("x"));
    stage.ask.prefer = rng.random_bool(0.3).then(|| region("y"));
    stage.ask.world = rng.random_bool(0.3).then(|| "w".to_owned());
    stage.ask.server = rng.random_bool(0.1).then(|| id("b03"));
    let mut known = Known::new();
    for view in &stage.nodes {
        let id = &view.record.id;
        if rng.random_bool(0.3) {
            stage.weights.insert(id.clone(), rng.random_range(0.1..4.0));
        }
        if rng.random_bool(0.05) {
            stage.switches.draining.insert(id.clone());
        }
        if rng.random_bool(0.05) {
            stage.switches.killed.insert(id.clone());
        }
        if rng.random_bool(0.1) {
            stage.table.cool(id, stage.now_ms + rng.random_range(0..2));
        }
        let picks = if rng.random_bool(0.5) { rng.random_range(0..30_u32) } else { 0 };
        for _ in 0..picks {
            stage.table.picked(id, stage.now_ms, false);
        }
        let rtt = maybe(rng, |rng| f64::from(rng.random_range(0..300)));
        if let Some(rtt) = rtt {
            stage.table.answered(id, rtt);
        }
        known.insert(id.clone(), (f64::from(picks), rtt));
    }
    (stage, known)
}

/// A later moment of the same fleet: new beats, nodes that came and went, switches, now and then another config.
fn later(rng: &mut TestRng, stage: &mut Stage) {
    stage.nodes.retain(|_| rng.random_bool(0.95));
    for view in &mut stage.nodes {
        if rng.random_bool(0.3) {
            let name = view.record.id.to_string();
            *view = node(rng, &name);
        }
    }
    if rng.random_bool(0.2) {
        stage.nodes.push(node(rng, "a-new-one"));
    }
    for view in &stage.nodes {
        if rng.random_bool(0.1) {
            stage.switches.draining.insert(view.record.id.clone());
        }
    }
    if rng.random_bool(0.2) {
        stage.rules = rules(rng);
    }
    if rng.random_bool(0.2) {
        stage.weights.clear();
    }
    if rng.random_bool(0.2) {
        stage.locality = Some("us".to_owned());
    }
}

fn picked(stage: &mut Stage) -> Vec<NodeId> {
    stage.by_score().picks.iter().map(|pick| pick.node.id.clone()).collect()
}

#[test]
fn sel_1_ten_thousand_snapshots_are_ranked_as_by_an_oracle_that_sorts_them_all() {
    let mut runner = TestRunner::deterministic();
    let rng = runner.rng();
    let (mut with_picks, mut with_more) = (0, 0);
    let mut number = 0;
    while number < SNAPSHOTS {
        let (mut stage, known) = stage(rng);
        // A table that has seen earlier moments ranks as a fresh one does.
        for moment in 0..3 {
            let wanted = oracle(&stage, &known);
            let got = picked(&mut stage);
            let most = stage.most.min(wanted.len());
            assert_eq!(got, wanted[..most], "snapshot {number}, moment {moment}: {:?}", stage.rules);
            assert_eq!(picked(&mut stage), got, "same input, same pick");
            let (order, shuffled) = (stage.nodes.clone(), &mut stage.nodes);
            shuffled.shuffle(rng);
            assert_eq!(picked(&mut stage), got, "a shuffled snapshot, same pick");
            stage.nodes = order;
            with_picks += usize::from(!got.is_empty());
            with_more += usize::from(wanted.len() > stage.most);
            number += 1;
            later(rng, &mut stage);
        }
    }
    assert!(with_picks > SNAPSHOTS / 2 && with_more > SNAPSHOTS / 4, "{with_picks} {with_more}");
}
