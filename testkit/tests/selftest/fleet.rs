//! The steering of processes, tried on `cat` and `sh`: if it fails, fault tests kill nobody or wait for nothing.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use maitred_testkit::fleet::Node;
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(10);

fn shell(script: &str) -> Node {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Node::from_command("shell", command)
}

#[tokio::test]
async fn lines_go_in_and_come_out_in_order() {
    let mut node = Node::from_command("cat", Command::new("cat"));
    for n in 0..3 {
        node.send(&json!({"op": "dispatch", "id": n}));
    }
    assert_eq!(node.next_line(LIMIT).await["id"], 0);
    node.send_line("this is no JSON");
    let last = node.wait_for(|line| line["id"] == 2, LIMIT).await;
    assert_eq!(last, json!({"op": "dispatch", "id": 2}));
    node.close_stdin();
    eventually("cat ends with its input", LIMIT, async || !node.is_running()).await;
}

#[tokio::test]
async fn a_frozen_process_says_nothing_until_it_goes_on() {
    let mut node = Node::from_command("cat", Command::new("cat"));
    node.send(&json!({"n": 1}));
    node.next_line(LIMIT).await;
    node.sigstop();
    // More than a pipe holds: sending must not wait for the frozen reader.
    let long = "x".repeat(1_000);
    for _ in 0..200 {
        node.send(&json!({"long": long}));
    }
    let silent = tokio::time::timeout(Duration::from_millis(200), node.wait_for(|_| true, LIMIT)).await;
    assert!(silent.is_err(), "a frozen process said {silent:?}");
    assert!(node.is_running());
    node.sigcont();
    for _ in 0..200 {
        node.next_line(LIMIT).await;
    }
}

#[tokio::test]
async fn signals_end_a_process_the_way_they_should() {
    let mut polite = shell("trap 'exit 7' TERM; echo '{}'; while :; do sleep 0.01; done");
    polite.next_line(LIMIT).await;
    assert_eq!(polite.sigterm().code(), Some(7));
    assert!(!polite.is_running());

    let mut killed = Node::from_command("cat", Command::new("cat"));
    assert!(killed.is_running());
    killed.sigkill();
    assert!(!killed.is_running());
}

#[tokio::test]
#[should_panic(expected = "the reason on stderr")]
async fn a_failure_shows_the_stderr_of_the_process() {
    let mut node = shell("echo the reason on stderr >&2; echo '{}'; exec sleep 60");
    node.next_line(LIMIT).await;
    eventually("stderr is read", LIMIT, async || !node.stderr().is_empty()).await;
    node.next_line(Duration::from_millis(50)).await;
}

#[tokio::test]
#[should_panic(expected = "ended its output")]
async fn the_end_of_a_process_ends_the_wait() {
    shell("exit 3").wait_for(|_| true, LIMIT).await;
}
