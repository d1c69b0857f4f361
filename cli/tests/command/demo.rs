//! `maitred demo`: the whole fleet in one command, which must say no when anything does not hold.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn demo() -> Command {
    let mut command = Command::new(maitred_testkit::program::maitred());
    command.arg("demo").env_remove("MAITRED_SERVER");
    // `make test` may have found the server outside PATH.
    if let Some(server) = std::env::var_os("MAITRED_TEST_SERVER") {
        command.env("MAITRED_SERVER", server);
    }
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("could not run maitred")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// CLI-2, DSP-5, TOK-6, TOK-7: one proxy is killed with players under way. If this fails, players are lost or get two
// places when a proxy dies, or places stay away for good.
#[test]
fn cli_2_dsp_5_the_demo_loses_nobody_when_a_proxy_is_killed() {
    let output = run(demo().args(["--json", "--players", "120"]));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    assert_eq!(out.lines().count(), 1, "more than one object on stdout: {out}");
    let result: Value = serde_json::from_str(&out).expect("one JSON object");

    let mut keys: Vec<&str> = result.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut wanted = [
        "ok",
        "players",
        "landed",
        "landed_twice",
        "lost",
        "places_promised",
        "places_returned",
        "places_leaked",
        "reanimated",
        "proxies_killed",
        "elapsed_ms",
        "store",
    ];
    keys.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(keys, wanted);
    assert_eq!(result["ok"], true);
    for (key, number) in [
        ("players", 120),
        ("landed", 120),
        ("landed_twice", 0),
        ("lost", 0),
        ("places_leaked", 0),
        ("proxies_killed", 1),
    ] {
        assert_eq!(result[key], number, "{key}: {result}");
    }
    let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key} is no number: {result}"));
    assert!(number("reanimated") >= 1, "{result}");
    assert_eq!(number("places_promised"), number("landed") + number("places_returned"), "{result}");
    assert!(number("elapsed_ms") > 0);
    for key in ["name", "version"] {
        assert!(result["store"][key].as_str().is_some_and(|text| !text.is_empty()), "{result}");
    }
}

// CLI-2: people read a table, a line an invariant, and no colour when piped.
#[test]
fn cli_2_people_read_a_table() {
    let output = run(demo().args(["--players", "30"]));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    for part in ["invariant", "players who landed twice", "places leaked", "SIGKILL", "Everything holds"] {
        assert!(out.contains(part), "{part:?} is missing:\n{out}");
    }
    assert!(!out.contains('\u{1b}'), "colours in a pipe:\n{out}");
}

// CLI-2: numbers that no run can be made of are wrong usage, and nothing is started for them.
#[test]
fn cli_2_absurd_numbers_of_players_are_wrong_usage() {
    for players in ["0", "1", "2001", "-3", "many", "18446744073709551616"] {
        let output = run(demo().args(["--json", &format!("--players={players}")]));
        assert_eq!(output.status.code(), Some(2), "{players}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("players"), "{players}: {}", text(&output.stderr));
    }
}

// CLI-2: without a server the demo says what to install.
#[test]
fn cli_2_a_missing_server_is_told_clearly() {
    let output = run(demo().arg("--json").env("PATH", "").env_remove("MAITRED_SERVER"));
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_str(&text(&output.stdout)).expect("one JSON object");
    assert_eq!(result["ok"], false);
    assert!(result["error"].as_str().is_some_and(|error| error.contains("redis-server")), "{result}");

    let output = run(demo().env("MAITRED_SERVER", "/nowhere/redis-server"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/redis-server"), "{}", text(&output.stderr));

    // A program that is no server ends the demo too, with what it said.
    let output = run(demo().env("MAITRED_SERVER", "/bin/false"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/bin/false"), "{}", text(&output.stderr));
}

// CLI-2: whoever interrupts the demo is left with no process and no file of it.
#[test]
fn cli_2_an_interrupted_demo_leaves_nothing_behind() {
    let dir = tempfile::Builder::new().prefix("maitred-test-").tempdir_in("/tmp").expect("a directory");
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = demo().env("TMPDIR", dir.path()).stdout(Stdio::piped()).spawn().expect("could not run maitred");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let heard = lines.find(|line| line.contains("players ask for a place"));
        let started = processes_of(child.id());
        let sent = kill_process(Pid::from_child(&child), signal);
        let status = child.wait().expect("the demo was not waited for");
        assert!(heard.is_some(), "the demo ended early: {status}");
        sent.expect("could not signal the demo");
        assert_eq!(status.code(), Some(1));
        if cfg!(target_os = "linux") {
            assert_eq!(started.len(), 5, "4 nodes and the store: {started:?}");
        }
        for pid in started {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left after {signal:?}");
        }
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).expect("readable").flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "files are left after {signal:?}: {left:?}");
    }
}

/// The children of a process, where the system shows them as files.
fn processes_of(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}
