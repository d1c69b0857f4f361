//! `maitred demo --rush`: everybody comes to one line at once, through processes that are killed on the way.

use std::process::Command;

use serde_json::Value;

fn rush() -> Command {
    let mut command = Command::new(maitred_testkit::program::maitred());
    command.args(["demo", "--json"]).env_remove("MAITRED_SERVER");
    // `make test` may have found the server outside PATH.
    if let Some(server) = std::env::var_os("MAITRED_TEST_SERVER") {
        command.env("MAITRED_SERVER", server);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// QUE-1 to QUE-8, QUE-13, QUE-15: one proxy is killed with players in the line. If this fails, somebody is overtaken,
// forgotten, let in twice or too fast on the opening day, or a backend gets more than it can hold.
#[test]
fn que_6_a_rush_through_real_processes_is_fair_and_oversells_nothing() {
    let output = rush().args(["--rush", "600"]).output().expect("could not run maitred");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    assert_eq!(out.lines().count(), 1, "more than one object on stdout: {out}");
    let result: Value = serde_json::from_str(&out).expect("one JSON object");
    assert_eq!(result["ok"], true);
    for (key, number) in [
        ("players", 600),
        ("overtaken", 0),
        ("joined_out_of_turn", 0),
        ("moved", 0),
        ("too_fast", 0),
        ("admitted_twice", 0),
        ("forgotten", 0),
        ("unheard", 0),
        ("oversold", 0),
        ("looks_oversold", 0),
        ("keys_left", 0),
        ("proxies_killed", 1),
    ] {
        assert_eq!(result[key], number, "{key}: {result}");
    }
    let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key} is no number: {result}"));
    assert_eq!(number("landed") + number("quit") + number("vanished"), 600, "{result}");
    for key in ["stranded", "transfers_failed", "proxy_changes", "quit", "looks"] {
        assert!(number(key) >= 1, "{key}: {result}");
    }
    assert!(number("admissions") >= number("landed"), "{result}");
    assert!(number("busiest_second") <= number("rate_per_second") + number("burst"), "{result}");
    for key in ["waited_ms", "told_first_ms"] {
        let parts = ["p50", "p95", "max"].map(|part| result[key][part].as_u64().expect("a number"));
        assert!(parts.is_sorted() && parts[2] > 0, "{result}");
    }
}

// CLI-2: numbers that no rush can be made of are wrong usage, and nothing is started for them.
#[test]
fn cli_2_absurd_rushes_are_wrong_usage() {
    for arguments in
        [["--rush", "0"], ["--rush", "49"], ["--rush", "20001"], ["--rush", "all"], ["--rush=99", "--players=99"]]
    {
        let output = rush().args(arguments).output().expect("could not run maitred");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("rush"), "{arguments:?}: {}", text(&output.stderr));
    }
}
