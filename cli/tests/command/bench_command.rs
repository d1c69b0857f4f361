//! `maitred bench` on a private store: the command as people and programs run it.

use serde_json::Value;
use std::process::Command;

// CLI-1: without a floor beside it a figure says nothing, and a figure that is missing says less.
#[test]
fn cli_1_bench_gives_every_figure_and_its_floor_as_json() {
    let mut command = Command::new(maitred_testkit::program::maitred());
    let output = command.args(["bench", "--json", "--rounds", "1", "--lives", "20"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON text");
    let figures = report["figures"].as_array().expect("figures");
    let named = |name: &str| {
        let found = figures.iter().find(|figure| figure["figure"] == name);
        found.unwrap_or_else(|| panic!("{name} is missing from {report}"))
    };
    for name in [
        "server: issue",
        "server: claim",
        "server: consume",
        "server: issue + claim + consume",
        "lives of a token, 1 in flight",
        "lives of a token, 64 in flight",
        "calls, 1 in flight",
        "calls, 64 in flight, p99",
        "row of a token, payload 500 bytes",
    ] {
        let figure = named(name);
        for value in ["ours", "floor", "ratio"] {
            assert!(figure[value].as_f64().is_some_and(|value| value > 0.0), "{figure}");
        }
    }
    for name in ["release", "cancel", "reap, a token", "beat", "join"] {
        assert!(named(&format!("server: {name}"))["ours"].as_f64() > Some(0.0), "{name}");
    }
}

// QUE-11: what a waiting player costs is printed key by key, and the work by the length of the line.
#[test]
fn que_11_bench_measures_lines_on_demand() {
    let mut command = Command::new(maitred_testkit::program::maitred());
    let args = ["bench", "--json", "--queue", "--waiting", "1000", "--rounds", "2"];
    let output = command.args(args).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON text");
    let figures = report["figures"].as_array().expect("figures");
    for name in [
        "line of 1000: join",
        "line of 1000: position",
        "line of 1000: leave",
        "line of 1000: admit, a player",
        "a player of 1000: line:",
        "a player of 1000: tickets:",
        "a player of 1000: via:",
    ] {
        let found = figures.iter().find(|figure| figure["figure"] == name);
        assert!(found.is_some_and(|figure| figure["ours"].as_f64() > Some(0.0)), "{name}: {report}");
    }
}

// CLI-2: where no server is found, people learn which ones will do.
#[test]
fn cli_2_without_a_server_the_error_names_those_that_will_do() {
    let mut command = Command::new(maitred_testkit::program::maitred());
    let output = command.arg("bench").env("PATH", "/nowhere").env_remove("MAITRED_SERVER").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("make demo") && text.contains("valkey-server"), "{text}");
}
