//! How a node process starts, stops, and meets another one with its id.

use std::process::Command;
use std::time::{Duration, Instant};

use maitred::envelope::{Keyring, Secret};
use maitred::ids::Zone;
use maitred::node::{Control, KILL};
use maitred::store::{Store, StoreOptions, StoreUrl, Verifier};
use redis::AsyncCommands;
use serde_json::json;

use super::{Fleet, LIMIT, SECRET, ask, sees};
use maitred_testkit::fleet::Node;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn cli_3_the_end_of_stdin_ends_nothing_and_sigterm_leaves_cleanly() {
    let fleet = Fleet::new();
    let (mut backend, _) = fleet.node("b1", "backend").await;
    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    ask(&mut backend, json!({"op": "places", "id": "s1", "count": 5})).await;
    backend.close_stdin();
    let moved = sees(&mut proxy, "alice").await;
    let promised = backend.wait_for(|line| line["event"] == "place_promised", LIMIT).await;
    assert_eq!(promised["token"], moved["token"], "it goes on, and its events go out");
    let mut conn = fleet.store.conn().await;
    let on_roster: Option<f64> = conn.zscore("maitred:{eu}:nodes:backend", "b1").await.unwrap();
    assert!(on_roster.is_some());

    assert_eq!(backend.sigterm().code(), Some(0));
    let home = backend.wait_for(|line| line["event"] == "place_returned", LIMIT).await;
    assert_eq!((&home["player"], &home["reason"]), (&json!("alice"), &json!("shutting_down")));
    let left: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut conn).await.unwrap();
    for gone in ["node:b1", "nodes:backend", "due:b1"] {
        assert!(!left.contains(&format!("maitred:{{eu}}:{gone}")), "{left:?}");
    }
    let state: String = conn.hget("maitred:{eu}:token:alice", "state").await.unwrap();
    assert_eq!(state, "RELEASED");

    proxy.close_stdin();
    assert_eq!(proxy.sigterm().code(), Some(0));
    let left: Vec<String> = redis::cmd("KEYS").arg("*nodes:*").query_async(&mut conn).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn nod_2_a_second_process_with_the_same_id_hears_who_holds_it_and_gets_in_when_that_one_is_dead() {
    let fleet = Fleet::new();
    let (mut first, ready) = fleet.node("b1", "backend").await;
    let mut options = fleet.options("b1", "backend");
    options.addr = "second.example:25565".to_owned();
    let mut second = Node::spawn(&options);
    let duplicate = second.next_line(LIMIT).await;
    assert_eq!((&duplicate["event"], &duplicate["addr"]), (&json!("duplicate"), &json!("b1.example:25565")));
    let rest = duplicate["lease_left_ms"].as_u64().expect("a number");
    assert!(rest > 0 && rest <= 1_750, "{rest}");
    // It is no member, and says so; the first one is not touched.
    let status = ask(&mut second, json!({"op": "status", "id": "t1"})).await;
    assert_eq!(status["agent"]["status"], "duplicate");
    let status = ask(&mut first, json!({"op": "status", "id": "t1"})).await;
    assert_eq!((&status["agent"]["status"], &status["epoch"]), (&json!("member"), &ready["epoch"]));

    first.sigkill();
    let killed = Instant::now();
    let ready_now = second.wait_for(|line| line["event"] == "ready", LIMIT).await;
    assert!(ready_now["epoch"].as_u64() > ready["epoch"].as_u64(), "always a new epoch");
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(1_750 + 1_000 + 2_000), "a lease and one wait between tries, not {took:?}");
}

#[tokio::test]
async fn pol_4_a_switch_that_is_on_at_the_start_is_told_after_the_first_line() {
    let fleet = Fleet::new();
    let zone = Zone::new("eu").unwrap();
    let url = StoreUrl::parse(&fleet.store.url()).unwrap();
    let tool = Store::open(zone.clone(), StoreOptions::new(url)).await.unwrap();
    let verifier = Verifier::new(Keyring::new(zone, Secret::from_base64("TEST", SECRET).unwrap(), Vec::new()));
    let control = Control::default();
    control.put(&tool, &verifier, KILL, "on", "test").await.unwrap();

    let (mut proxy, _) = fleet.node("p1", "proxy").await;
    let told = proxy.next_line(LIMIT).await;
    assert_eq!(told, json!({"event": "kill", "scope": "fleet", "on": true}));
    let refused = ask(&mut proxy, json!({"op": "dispatch", "id": "r1", "player": "alice"})).await;
    assert_eq!((&refused["outcome"], &refused["reason"]), (&json!("refused"), &json!("kill_switch")));
    control.put(&tool, &verifier, KILL, "off", "test").await.unwrap();
    let told = proxy.next_line(LIMIT).await;
    assert_eq!(told, json!({"event": "kill", "scope": "fleet", "on": false}));
}

fn run(fleet: &Fleet, secret: Option<&str>, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(maitred_testkit::program::maitred());
    command.args(["node", "--addr", "h:1", "--store", &fleet.store.url(), "--zone", "eu"]).args(args);
    command.env_remove("MAITRED_SECRET").env_remove("MAITRED_NODE_ID").env("MAITRED_LOG", "trace");
    if let Some(secret) = secret {
        command.env("MAITRED_SECRET", secret);
    }
    let output = command.output().expect("the binary runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

// ENV-2: the one fail-fast of the security path.
#[tokio::test]
async fn env_2_without_a_usable_secret_the_process_refuses_with_2_and_prints_no_secret() {
    let fleet = Fleet::new();
    let node = ["--id", "b1", "--role", "backend"];
    let (code, said) = run(&fleet, None, &node);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("MAITRED_SECRET"), "{said}");
    for bad in ["c2hvcnQtc2VjcmV0LW5vLW9uZQ==", "this is no base64 at all, but secret"] {
        let (code, said) = run(&fleet, Some(bad), &node);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("MAITRED_SECRET") && !said.contains(bad), "{said}");
    }
    for wrong in [&["--role", "backend"][..], &["--id", "a b", "--role", "backend"], &["--id", "b1", "--router"]] {
        let (code, said) = run(&fleet, Some(SECRET), wrong);
        assert_eq!(code, Some(2), "{said}");
        assert!(!said.contains(SECRET), "{said}");
    }
    let mut conn = fleet.store.conn().await;
    let left: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut conn).await.unwrap();
    assert!(left.is_empty(), "nothing was started: {left:?}");
}

#[tokio::test]
async fn env_2_a_secret_in_use_shows_in_no_line_and_in_no_log() {
    let fleet = Fleet::new();
    let mut options = fleet.options("b1", "backend").env("MAITRED_LOG", "trace");
    options.args = ["--json"].map(str::to_owned).to_vec();
    let mut backend = Node::spawn(&options);
    let mut said = backend.next_line(LIMIT).await.to_string();
    said.push_str(&ask(&mut backend, json!({"op": "status", "id": "t1"})).await.to_string());
    backend.sigterm();
    eventually("it logged", LIMIT, async || backend.stderr().contains("b1")).await;
    said.push_str(&backend.stderr());
    assert!(!said.contains(SECRET) && !said.contains(SECRET.trim_end_matches('=')));
}
