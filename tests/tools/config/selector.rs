//! SEL-2 and SEL-3 as they stand in a file: metrics and weights whose names are the file's own. When one of these fails,
//! a fleet is balanced by other numbers than its operator wrote.

use maitred::agent::config::{Config, OnNoCandidate};
use maitred::ids::NodeId;
use maitred::select::{Curve, MetricSource, Rule};

use super::{file, problems};

fn metrics(text: &str) -> String {
    file("selector.metrics", text)
}

#[test]
fn sel_3_the_defaults_are_the_documented_block() {
    let rule = |source, weight, max, curve| Rule { weight, max, curve, ..Rule::new(source) };
    let table = [
        ("heap", rule(MetricSource::HeapUsedPerMax, 0.4, 1.0, Curve::Sigmoid { k: 10.0 })),
        ("mspt", rule(MetricSource::Mspt, 1.5, 100.0, Curve::Exponential { k: 3.0 })),
        ("pipelineMs", rule(MetricSource::AvgPipelineMs, 0.7, 2_000.0, Curve::Sigmoid { k: 8.0 })),
        ("playerLoad", rule(MetricSource::PlayersPerSoftCap, 0.0, 1.0, Curve::Logarithmic { k: 9.0 })),
        ("proxyLatency", rule(MetricSource::RttMs, 0.3, 200.0, Curve::Linear)),
        ("queueDepth", rule(MetricSource::QueueDepth, 0.5, 64.0, Curve::Linear)),
        ("recentPicks", rule(MetricSource::RecentPicks, 0.5, 10.0, Curve::Linear)),
        ("regionAffinity", rule(MetricSource::StickyRegion, 0.2, 1.0, Curve::Step { threshold: 0.5 })),
    ];
    let config = Config::default();
    let found: Vec<(&str, Rule)> = config.selector.metrics.iter().map(|(name, rule)| (name.as_str(), *rule)).collect();
    assert_eq!(found, table);
    assert_eq!(config.selector.recent_picks.halflife_ms, 10_000);
    assert!(!config.selector.recent_picks.shared && config.selector.backends.is_empty());
    assert_eq!(config.selector.on_no_candidate, OnNoCandidate::Refuse);
}

#[test]
fn sel_3_a_file_changes_single_values_and_the_rest_stays() {
    let text =
        metrics("{ mspt: { weight: 3, curve: { k: 4 } }, heap: { curve: { type: power } }, queueDepth: {}, x: }");
    let found = problems(Config::from_yaml(&text));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("selector.metrics.x: it needs a source") && found[0].contains("rttMs"), "{found:?}");

    let text =
        metrics("{ mspt: { weight: 3, curve: { k: 4 } }, heap: { curve: { p: 3, type: power } }, queueDepth: {} }");
    let config = Config::from_yaml(&text).expect(&text);
    let before = Rule::defaults();
    let mut wanted = before.clone();
    wanted.insert("mspt".to_owned(), Rule { weight: 3.0, curve: Curve::Exponential { k: 4.0 }, ..before["mspt"] });
    wanted.insert("heap".to_owned(), Rule { curve: Curve::Power { p: 3.0 }, ..before["heap"] });
    assert_eq!(config.selector.metrics, wanted);
}

#[test]
fn sel_2_values_out_of_bounds_are_errors_with_path_line_and_bounds() {
    for (text, path, said, allowed) in [
        ("{mspt: {weight: -0.1}}", "mspt.weight", "-0.1 is out of range", "from 0 to 1000"),
        ("{mspt: {weight: 1001}}", "mspt.weight", "1001 is out of range", "from 0 to 1000"),
        ("{mspt: {weight: .nan}}", "mspt.weight", "NaN is out of range", "from 0 to 1000"),
        ("{mspt: {weight: \"1\"}}", "mspt.weight", "expected a number, found text", "from 0 to 1000"),
        ("{mspt: {weight: 1e400}}", "mspt.weight", "", "from 0 to 1000"),
        ("{mspt: {normalize: {min: 100}}}", "mspt.normalize", "min 100 is not below max 100", "min below max"),
        ("{mspt: {normalize: {min: 5, max: 4.5}}}", "mspt.normalize", "min 5 is not below max 4.5", "min below max"),
        (
            "{mspt: {normalize: {max: 1e16}}}",
            "mspt.normalize.max",
            "is out of range",
            "a number from -1000000000000000",
        ),
        ("{mspt: {normalize: {clamp: true}}}", "mspt.normalize.clamp", "unknown key", "min, max"),
        ("{mspt: {curve: {k: 0.09}}}", "mspt.curve.k", "0.09 is out of range", "from 0.1 to 20"),
        ("{mspt: {curve: {k: 20.1}}}", "mspt.curve.k", "20.1 is out of range", "from 0.1 to 20"),
        ("{mspt: {curve: {type: power, p: 8.1}}}", "mspt.curve.p", "8.1 is out of range", "from 0.1 to 8"),
        ("{mspt: {curve: {type: step, threshold: 1.1}}}", "mspt.curve.threshold", "1.1 is out", "from 0 to 1"),
        ("{mspt: {curve: {type: linear, k: 3}}}", "mspt.curve.k", "does not go with the curve linear", "no parameter"),
        ("{mspt: {curve: {type: step, p: 3}}}", "mspt.curve.p", "does not go with the curve step", "threshold"),
        (
            "{mspt: {curve: {type: step, p: 3, threshold: 0.2}}}",
            "mspt.curve.p",
            "does not go with the curve step",
            "threshold",
        ),
        (
            "{mspt: {curve: {k: 3, p: 3, type: power}}}",
            "mspt.curve.k",
            "does not go with the curve power",
            "with power: p",
        ),
        ("{mspt: {curve: {type: round}}}", "mspt.curve.type", "does not fit", "linear, exponential, logarithmic"),
        ("{mspt: {curve: 3}}", "mspt.curve", "expected a mapping", "type, k, p, threshold"),
        ("{mspt: {source: playerCount}}", "mspt.source", "does not fit", "players/softCap"),
        ("{mspt: {invert: 1}}", "mspt.invert", "expected true or false", "true or false"),
        ("{mspt: {wieght: 1}}", "mspt.wieght", "unknown key", "source, weight, normalize, invert, curve"),
        ("{mspt: {weight: 1, weight: 2}}", "mspt.weight", "given twice", "source, weight"),
        ("{mspt: {}, mspt: {}}", "mspt", "given twice", "at most 32 names"),
        ("{mspt: 3}", "mspt", "expected a mapping", "source, weight"),
        ("{\"a b\": {source: mspt}}", "(a key that is no name)", "unknown key", "at most 32 names"),
    ] {
        let found = problems(Config::from_yaml(&metrics(text)));
        assert_eq!(found.len(), 1, "{text} {found:?}");
        assert!(
            found[0].starts_with(&format!("selector.metrics.{path}: {said}")) || found[0].contains(said),
            "{found:?}"
        );
        assert!(found[0].starts_with(&format!("selector.metrics.{path}: ")), "{text} {found:?}");
        assert!(found[0].contains("(line 2, column "), "{text} {found:?}");
        assert!(found[0].split_once("; allowed: ").expect("allowed").1.contains(allowed), "{text} {found:?}");
    }
    let found = problems(Config::from_yaml(&metrics("{mspt: {curve: {type: power, threshold: 7, k: 300, p: 2}}}")));
    let said = |key: &str| format!("selector.metrics.mspt.curve.{key}: does not go with the curve power");
    assert!(
        found.len() == 2 && found[0].starts_with(&said("threshold")) && found[1].starts_with(&said("k")),
        "{found:?}"
    );
    let many: Vec<String> = (0..25).map(|n| format!("m{n}: {{source: mspt}}")).collect();
    let found = problems(Config::from_yaml(&metrics(&format!("{{{}}}", many.join(", ")))));
    assert!(found.len() == 1 && found[0].starts_with("selector.metrics: 33 metrics are too many"), "{found:?}");
}

#[test]
fn sel_1_a_backends_weight_is_above_0() {
    let backends = |text: &str| Config::from_yaml(&file("selector.backends", text));
    let config = backends("{b1: {weight: 0.001}, b2: {weight: 1000}, b3: {}}").expect("in bounds");
    let id = |name: &str| NodeId::new(name).expect("an id");
    assert_eq!(config.selector.backends.into_iter().collect::<Vec<_>>(), [(id("b1"), 0.001), (id("b2"), 1_000.0)]);
    for (text, path) in [
        ("{b1: {weight: 0}}", "b1.weight: 0 is out of range"),
        ("{b1: {weight: -1}}", "b1.weight: -1 is out of range"),
        ("{b1: {weight: much}}", "b1.weight: expected a number"),
        ("{b1: 2}", "b1: expected a mapping"),
        ("{b1: {wait: 2}}", "b1.wait: unknown key"),
        ("{\"a b\": {weight: 2}}", "(a key that is no name): unknown key"),
    ] {
        let found = problems(backends(text));
        assert!(found.len() == 1 && found[0].starts_with(&format!("selector.backends.{path}")), "{text} {found:?}");
        assert!(found[0].contains("(line 2, column "), "{found:?}");
    }
}

#[test]
fn sel_2_values_that_code_sets_have_the_same_bounds() {
    let mut config = Config { enabled: true, ..Config::default() };
    config.node.id = Some(NodeId::new("p1").expect("an id"));
    config.check_enabled().expect("the defaults are good");
    let rule = Rule { weight: f64::NAN, min: f64::NEG_INFINITY, ..Rule::new(MetricSource::Mspt) };
    config.selector.metrics.insert("mspt".to_owned(), Rule { curve: Curve::Power { p: 0.0 }, ..rule });
    config.selector.backends.insert(NodeId::new("b1").expect("an id"), 0.0);
    let found = problems(config.check_enabled().map(|()| config));
    let paths: Vec<&str> = found.iter().map(|line| line.split(": ").next().unwrap_or_default()).collect();
    let mspt = |key: &str| format!("selector.metrics.mspt.{key}");
    assert_eq!(paths, [&*mspt("weight"), &*mspt("normalize.min"), &*mspt("curve.p"), "selector.backends.b1.weight"]);
}
