//! POL-3: SIGHUP takes a changed file over, and a file with problems ends nothing.

use serde_json::{Value, json};

use super::{Fleet, LIMIT, ask, sees};
use maitred_testkit::fleet::Node;

/// Writes the file, tells the process, and waits for what it says.
async fn reload(fleet: &Fleet, node: &mut Node, text: &str) -> Value {
    std::fs::write(fleet.config(), text).expect("a config");
    node.sighup();
    let told = |line: &Value| matches!(line["event"].as_str(), Some("reloaded" | "reload_refused"));
    node.wait_for(told, LIMIT).await
}

#[tokio::test]
async fn pol_3_a_hangup_takes_the_file_over_and_a_bad_one_changes_nothing() {
    let fleet = Fleet::new();
    let first = std::fs::read_to_string(fleet.config()).expect("the config");
    let (mut backend, ready) = fleet.node("b1", "backend").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    ask(&mut backend, json!({"op": "places", "id": "s1", "count": 2})).await;
    sees(&mut proxy, "alice").await;

    let bad = reload(&fleet, &mut backend, &format!("{first}heartbeat: 7\nstoer: 1\n")).await;
    let lines: Vec<&str> = bad["problems"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(bad["event"] == "reload_refused" && lines.len() == 2, "{bad}");
    assert!(lines.iter().any(|line| line.contains("network.yml: stoer: unknown key (line 5")), "{bad}");
    let status = ask(&mut backend, json!({"op": "status", "id": "t1"})).await;
    assert_eq!((&status["epoch"], &status["promised"]), (&ready["epoch"], &json!(1)), "it goes on: {status}");

    // Also where no file ever said that the node is enabled; an explicit false does not count for such a node.
    let empty = reload(&fleet, &mut proxy, "").await;
    assert_eq!(empty["event"], "reload_refused", "{empty}");
    let unsaid = reload(&fleet, &mut proxy, &format!("enabled: false\n{first}")).await;
    assert_eq!(unsaid["outcome"], "unchanged", "{unsaid}");

    let hot = reload(&fleet, &mut proxy, &format!("{first}texts: {{ noCandidate: \"nobody home\" }}\n")).await;
    assert_eq!((&hot["outcome"], &hot["changed"]), (&json!("swapped"), &json!(["texts"])));
    let refused = ask(&mut proxy, json!({"op": "dispatch", "id": "r1", "player": "bob", "server": "b9"})).await;
    assert_eq!(refused["message"], "nobody home");

    // Another beat: it leaves and joins anew, and its places stay its own.
    let anew = reload(&fleet, &mut backend, &first.replace("intervalMs: 500", "intervalMs: 400")).await;
    assert_eq!((&anew["outcome"], &anew["changed"]), (&json!("restarted"), &json!(["heartbeat"])));
    let again = backend.wait_for(|line| line["event"] == "ready", LIMIT).await;
    assert!(again["epoch"].as_u64() > ready["epoch"].as_u64(), "{again}");
    let status = ask(&mut backend, json!({"op": "status", "id": "t2"})).await;
    assert_eq!((&status["free"], &status["promised"]), (&json!(2), &json!(0)), "{status}");
    sees(&mut proxy, "carol").await;
    assert_eq!(backend.sigterm().code(), Some(0));
}

// POL-3: a file that blocks its reader must not keep the process from ending: a node that does not leave keeps its places
// promised until somebody kills it.
#[tokio::test]
async fn pol_3_a_config_that_blocks_does_not_hold_up_the_exit() {
    let fleet = Fleet::new();
    let (mut backend, _) = fleet.node("b1", "backend").await;
    std::fs::remove_file(fleet.config()).expect("it is there");
    let made = std::process::Command::new("mkfifo").arg(fleet.config()).status().expect("mkfifo");
    assert!(made.success());
    backend.sighup();
    let refused = backend.wait_for(|line| line["event"] == "reload_refused", LIMIT).await;
    assert!(refused["problems"][0].as_str().is_some_and(|line| line.contains("gave nothing within 5 s")), "{refused}");
    let status = ask(&mut backend, json!({"op": "status", "id": "t1"})).await;
    assert_eq!(status["outcome"], "ok", "it goes on: {status}");
    assert_eq!(backend.sigterm().code(), Some(0));
    let mut conn = fleet.store.conn().await;
    let left: Vec<String> = redis::cmd("KEYS").arg("*node:*").query_async(&mut conn).await.expect("KEYS");
    assert!(left.is_empty(), "it left: {left:?}");
}

// A file that switches the node on can switch it off; the lines are answered all the while.
#[tokio::test]
async fn pol_3_a_file_switches_the_node_off_and_on_again() {
    let fleet = Fleet::new();
    let on = format!("enabled: true\n{}", std::fs::read_to_string(fleet.config()).expect("the config"));
    std::fs::write(fleet.config(), &on).expect("a config");
    let (mut backend, ready) = fleet.node("b1", "backend").await;
    // An editor or a copy that is not done yet: nobody said that the node is to go.
    for (text, want) in [("", "the file is empty"), ("# enabled: true\n", "is empty"), ("zone: eu\n", "is not given")] {
        let refused = reload(&fleet, &mut backend, text).await;
        assert_eq!(refused["event"], "reload_refused", "{refused}");
        let problem = refused["problems"][0].as_str().unwrap_or_default();
        assert!(problem.starts_with("enabled: ") && problem.contains(want), "{refused}");
    }
    let status = ask(&mut backend, json!({"op": "status", "id": "t1"})).await;
    assert_eq!((&status["outcome"], &status["epoch"]), (&json!("ok"), &ready["epoch"]), "it goes on: {status}");
    let off = reload(&fleet, &mut backend, &on.replace("true", "false")).await;
    assert_eq!(off["outcome"], "switched_off");
    let answer = ask(&mut backend, json!({"op": "redeem", "id": "r1", "player": "alice"})).await;
    assert_eq!((&answer["outcome"], &answer["agent"]), (&json!("error"), &json!({"state": "off"})));
    let mut conn = fleet.store.conn().await;
    let left: Vec<String> = redis::cmd("KEYS").arg("*node*").query_async(&mut conn).await.expect("KEYS");
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(reload(&fleet, &mut backend, &on).await["outcome"], "started");
    backend.wait_for(|line| line["event"] == "ready", LIMIT).await;
    let answer = ask(&mut backend, json!({"op": "redeem", "id": "r2", "player": "alice"})).await;
    assert_eq!(answer["outcome"], "none");
}
