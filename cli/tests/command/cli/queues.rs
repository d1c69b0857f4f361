use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use maitred::ids::{LineName, NodeEpoch, Player, SessionId};
use maitred::node::{ADMITS_LABEL, Liveness, NodeRecord, NodeView, Snapshot};
use maitred::queue::{Admitter, Attributes, Choice, GateOptions, Line, LineOptions};
use maitred::token::BookOptions;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fixtures::command::{CliFixture, Ran, backend, maitred, proxy, run};
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(30);
const CONFIG: &str = "lines: {login: {fixedPerSecond: 10, burst: 1, lanes: [3, 1]}, vip: {}}\n";

async fn fixture() -> (CliFixture, NodeEpoch) {
    let fixture = CliFixture::with_config(CONFIG, BookOptions::default()).await;
    let labels = [(ADMITS_LABEL.to_owned(), "login vip".to_owned())].into();
    let (_p1, p1) = fixture.join(NodeRecord { labels, ..proxy("p1") }).await;
    (fixture, p1)
}

fn name(line: &str) -> LineName {
    LineName::new(line).expect("valid")
}

fn player(name: &str) -> Player {
    Player::new(name).expect("valid")
}

/// The line of the config above.
fn login() -> LineOptions {
    let gate = GateOptions { fixed_per_second: Some(10), burst: Some(1), ..GateOptions::default() };
    LineOptions { gate, lanes: vec![3, 1], ..LineOptions::new(name("login")) }
}

fn line(fixture: &CliFixture, options: LineOptions) -> Line {
    Line::new(fixture.store.clone(), fixture.verifier.clone(), fixture.control.clone(), options).expect("usable")
}

async fn enters(line: &Line, at: &NodeEpoch, who: &str, lane: u16) -> SessionId {
    let (session, attributes) = (SessionId::fresh(), Attributes::new("from lobby").expect("short"));
    line.enter(at, &player(who), lane, &session, &attributes, None).await.expect("the store answers");
    session
}

/// Four wait in two lanes, and one dropped.
async fn crowd(fixture: &CliFixture, p1: &NodeEpoch) -> Line {
    let line = line(fixture, login());
    for (who, lane) in [("alice", 0), ("bob", 0), ("carol", 0), ("dave", 1)] {
        enters(&line, p1, who, lane).await;
    }
    let session = enters(&line, p1, "erin", 0).await;
    let holder = p1.clone();
    line.away(&holder, &player("erin"), &session).await.expect("the store answers");
    line
}

fn of<'a>(told: &'a Value, line: &str) -> &'a Value {
    let lines = told["lines"].as_array().expect("a list");
    lines.iter().find(|one| one["line"] == line).unwrap_or_else(|| panic!("no {line}: {told}"))
}

// QUE-12: an operator who cannot see how long the line is, and what holds it up, cannot help those who wait.
#[tokio::test]
async fn que_12_queues_and_one_line_show_length_gate_order_and_who_admits() {
    let (fixture, p1) = fixture().await;
    crowd(&fixture, &p1).await;
    enters(&line(&fixture, LineOptions::wait_line(name("wait.b1"))), &p1, "frank", 0).await;

    let told = fixture.json(&["queues"]);
    let lines: Vec<&Value> = told["lines"].as_array().expect("a list").iter().map(|line| &line["line"]).collect();
    assert_eq!(lines, ["login", "vip", "wait.b1"]);
    let login = of(&told, "login");
    assert_eq!((&login["waiting"], &login["away"], &login["configured"]), (&json!(4), &json!(1), &json!(true)));
    assert_eq!(login["lanes"], json!([{"weight": 3, "waiting": 3}, {"weight": 1, "waiting": 1}]));
    assert_eq!(login["gate"], json!({"paused": false, "paused_at": null, "rate": 10, "fixed": true, "open": 0}));
    assert_eq!((&login["admitted_per_s"], &login["admitters"]), (&Value::Null, &json!(["p1"])));
    assert!(login["estimate_ms"].as_u64().is_some_and(|ms| ms <= 500), "four at ten a second: {login}");
    let wait = of(&told, "wait.b1");
    assert_eq!((&wait["kind"], &wait["gate"], &wait["waiting"]), (&json!("wait"), &Value::Null, &json!(1)));
    assert_eq!(wait["estimate_ms"], Value::Null, "no gate says how long");

    let ran = fixture.run(&["queues"]).code(0).shows(&["zone eu: 3 lines; 5 players wait, 1 away"]);
    assert_eq!(ran.cells("login")[1..], ["4", "1", "open", "10/s", "-", "0.4 s", "3:3 1:1", "p1"]);
    assert_eq!(ran.cells("vip")[3..5], ["shut: no live backend", "0/s (100/s a backend)"]);
    assert_eq!(ran.cells("wait.b1")[3], "none: places of backends");
    assert!(ran.err.is_empty(), "{ran:?}");

    let told = fixture.json(&["queue", "login"]);
    let heads: Vec<(&Value, &Value)> =
        told["heads"].as_array().expect("a list").iter().map(|head| (&head["position"], &head["player"])).collect();
    let order = ["alice", "dave", "bob", "carol"].map(|player| json!(player));
    let places: Vec<Value> = (1..=4).map(|place| json!(place)).collect();
    assert_eq!(heads, places.iter().zip(&order).collect::<Vec<_>>(), "one of the second lane for three of the first");
    let head = &told["heads"][1];
    assert_eq!((&head["proxy"], &head["lane"], &head["attributes"]), (&json!("p1"), &json!(1), &json!("from lobby")));
    assert!(head["waiting_ms"].as_u64().is_some_and(|ms| ms < 60_000), "{head}");
    let dropped = &told["dropped"][0];
    assert_eq!((&dropped["player"], &dropped["proxy"]), (&json!("erin"), &json!("p1")));
    assert!(dropped["left_ms"].as_u64().is_some_and(|ms| ms > 0 && ms <= 30_000), "{dropped}");
    let ran = fixture.run(&["queue", "login", "--limit", "1"]).code(0);
    assert_eq!((ran.cells("lane 0")[1].as_str(), ran.cells("gate")[1].as_str()), ("3, served by weight 3", "open"));
    assert_eq!(ran.cells("1")[1], "alice");
    ran.shows(&["3 more who wait are not shown", "erin", "PLACE IS KEPT FOR"]);

    // Without the fleet's file lanes and rate are guesses, and that is said.
    let mut command = maitred(&["queue", "login", "--json", "--zone", "eu"]);
    command.args(["--store", &fixture.server.url()]);
    let ran = run(command).code(0).complains(&["login", "defaults", "--config"]);
    assert_eq!((&ran.json()["configured"], &ran.json()["waiting"]), (&json!(false), &json!(4)));
}

// QUE-12: the first question of support is where one player stands.
#[tokio::test]
async fn que_12_one_player_is_found_waiting_away_admitted_and_gone() {
    let (fixture, p1) = fixture().await;
    let line = crowd(&fixture, &p1).await;
    let ask = |who: &str| fixture.json(&["queue", "login", "--player", who]);
    let told = ask("bob");
    assert_eq!((&told["state"], &told["place"]["position"]), (&json!("waiting"), &json!(3)));
    assert_eq!((&told["ticket"]["proxy"], &told["pass"]), (&json!("p1"), &Value::Null));
    fixture.run(&["queue", "login", "--player", "bob"]).code(0).shows(&["waits", "3 (lane 0)", "from lobby"]);
    let told = ask("erin");
    assert_eq!((&told["state"], &told["place"]), (&json!("away"), &Value::Null));
    assert_eq!(ask("nobody")["state"], "none");

    admit(&fixture, &line, &p1).await;
    let told = ask("alice");
    assert_eq!((&told["state"], &told["ticket"]), (&json!("admitted"), &Value::Null));
    assert_eq!(
        (&told["pass"]["server"], &told["pass"]["redeemed"], &told["pass"]["arrived"]),
        (&json!("b1"), &json!(false), &json!(false))
    );
    fixture.run(&["queue", "login", "--player", "alice"]).code(0).shows(&["admitted", "not redeemed, good for", "b1"]);
}

/// Lets the first of the line in, to a backend that joins for it.
async fn admit(fixture: &CliFixture, line: &Line, p1: &NodeEpoch) {
    let record = backend("b1");
    let (_b1, b1) = fixture.join(record.clone()).await;
    let record = Arc::new(NodeRecord { epoch: b1.epoch, ..record });
    let view = NodeView { record, liveness: Liveness::Online, age_ms: 0 };
    let snapshot = Snapshot { nodes: vec![view], as_of_ms: 0, stale: false };
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    eventually("the gate lets somebody in", LIMIT, async || {
        !admitter.round(p1, &snapshot).await.expect("the store answers").admitted.is_empty()
    })
    .await;
}

// QUE-12, R-6: who writes to the store cannot put somebody on the operator's screen, nor hide the rest of the line.
#[tokio::test]
async fn que_12_a_ticket_that_does_not_verify_is_counted_and_not_shown() {
    let (fixture, p1) = fixture().await;
    crowd(&fixture, &p1).await;
    let key = "maitred:{eu}:tickets:login";
    fixture.by_hand(&["HSET", key, "bob", "1 0 p1 1 s 1 1 5ebd00f2.x "]).await;
    let told = fixture.json(&["queue", "login"]);
    let shown: Vec<&Value> = told["heads"].as_array().expect("a list").iter().map(|head| &head["player"]).collect();
    assert_eq!(shown, ["alice", "dave", "carol"]);
    assert_eq!((&told["not_believed"]["count"], &told["heads"][2]["position"]), (&json!(1), &json!(4)));
    fixture.run(&["queue", "login"]).code(0).shows(&["not believed: 1 (malformed_signature 1): tickets:login bob"]);
}

// QUE-12: on opening day the line is stopped, let go and emptied by hand; a slip of the hand must not do it.
#[tokio::test]
async fn que_12_a_line_is_paused_resumed_and_emptied_and_a_slip_is_refused() {
    let (fixture, p1) = fixture().await;
    crowd(&fixture, &p1).await;
    let gate = || of(&fixture.json(&["queues"]), "login")["gate"].clone();

    fixture.run(&["queue", "login", "pause"]).code(0).shows(&["line login is paused", "4 players waiting"]);
    let paused = gate();
    assert!(paused["paused"] == true && paused["paused_at"].as_u64().is_some_and(|at| at > 0), "{paused}");
    fixture.json(&["queue", "login", "pause"]);
    assert_eq!(gate()["paused_at"], paused["paused_at"], "since when nobody comes in");
    let ran = fixture.run(&["queues"]).code(0);
    assert!(ran.cells("login")[3].starts_with("paused "), "{ran:?}");
    assert_eq!(ran.cells("login")[6], "-", "nobody knows how long");
    assert_eq!(fixture.json(&["queue", "login", "resume"])["paused"], false);
    assert_eq!((&gate()["paused"], &gate()["paused_at"]), (&json!(false), &Value::Null));

    let before = fixture.contents().await;
    for (args, code, words) in [
        (&["queue", "logim", "pause"][..], 1, &["no line logim", "the config names login vip"][..]),
        (&["queue", "logim", "clear", "--yes"], 1, &["no line logim"]),
        (&["queue", "wait.b7", "pause"], 1, &["no line wait.b7", "b7 is not on duty"]),
        (&["queue", "login", "clear"], 2, &["everybody", "--yes"]),
        (&["queue", "login", "pause", "--yes"], 2, &["--yes is for clear"]),
        (&["queue", "login", "clear", "--yes", "--player", "bob"], 2, &["for showing a line"]),
    ] {
        fixture.run(args).code(code).complains(words);
    }
    for args in
        [&["queue", "a b"][..], &["queue"], &["queue", "login", "empty"], &["queue", "login", "--interval", "1s"]]
    {
        fixture.run(args).code(2);
    }
    assert_eq!(fixture.contents().await, before, "a refusal changed the store");

    assert_eq!(fixture.json(&["queue", "login", "clear", "--yes"])["out"], 5);
    let told = fixture.json(&["queue", "login"]);
    assert_eq!((&told["waiting"], &told["away"], &told["heads"]), (&json!(0), &json!(0), &json!([])));
    fixture.run(&["queue", "login", "clear", "--yes"]).code(0).shows(&["0 players put out of line login"]);
    // Wait lines too, although no gate rules them.
    fixture.run(&["queue", "wait", "pause"]).code(0).shows(&["line wait is paused: backends serve nobody"]);
    let told = fixture.json(&["queue", "wait"]);
    assert!(told["gate"].is_null() && told["paused"] == true && told["paused_at"].as_u64().is_some(), "{told}");
    assert!(fixture.run(&["queues"]).code(0).cells("wait")[3].starts_with("paused "));
    assert_eq!(fixture.json(&["queue", "wait", "resume"])["paused"], false);
    assert_eq!(fixture.json(&["queue", "wait"])["paused"], false);
    // A line may be shut before the first player comes.
    fixture.run(&["queue", "vip", "pause"]).code(0).shows(&["0 players waiting"]);
}

fn watch(fixture: &CliFixture, more: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let args = [&["queue", "login", "--watch", "--interval", "50ms"], more].concat();
    let mut command = fixture.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    (child, lines.map(|line| line.expect("UTF-8")))
}

// QUE-12: a view that stands still, or does not end when it is told to, is worse than none.
#[tokio::test]
async fn que_12_a_watched_line_shows_what_happens_and_ends_when_it_is_told_to() {
    let (fixture, p1) = fixture().await;
    let line = crowd(&fixture, &p1).await;
    let (child, mut rounds) = watch(&fixture, &["--json"]);
    let mut round = || -> Value { serde_json::from_str(&rounds.next().expect("it goes on")).expect("JSON") };
    let first = round();
    assert_eq!(
        (&first["waiting"], &first["admitted"], &first["gate"]["paused"]),
        (&json!(4), &json!(0), &json!(false))
    );
    assert_eq!((&first["line"], &first["admitters"]), (&json!("login"), &json!(["p1"])));
    admit(&fixture, &line, &p1).await;
    fixture.run(&["queue", "login", "pause"]).code(0);
    let (mut admitted, mut left) = (0, 0);
    let told = (0..1_000).map(|_| round()).find(|told| {
        admitted += told["admitted"].as_u64().expect("nothing was missed");
        left += told["left"].as_u64().expect("nothing was missed");
        told["waiting"] == 3 && told["gate"]["paused"] == true
    });
    let told = told.expect("the change shows");
    assert_eq!((admitted, left), (1, 0), "{told}");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    drop(rounds);
    let ran = Ran::new(&child.wait_with_output().expect("it ends"));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");

    let (child, mut rounds) = watch(&fixture, &[]);
    let told = rounds.next().expect("it goes on");
    for part in ["login waiting 3", "admitted 0", "gate paused", "admitters p1", "rate 10/s"] {
        assert!(told.contains(part), "{part:?} is not in {told:?}");
    }
    // Whoever read the pipe went away.
    drop(rounds);
    let ran = Ran::new(&child.wait_with_output().expect("it ends"));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
}

// QUE-12: who admits is what living proxies say, and nobody where none of them can.
#[tokio::test]
async fn que_12_a_proxy_that_admits_shows_and_one_that_cannot_does_not() {
    let beats = "heartbeat: {intervalMs: 100}\ndirectory: {suspectMs: 300000, offlineMs: 400000}\n";
    let fixture = CliFixture::with_config(&format!("{CONFIG}{beats}"), BookOptions::default()).await;
    let mut command = fixture.command(&["node", "--id", "p7", "--role", "proxy", "--addr", "127.0.0.1:25577"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = piped.spawn().expect("the binary starts");
    let admit = |who: Value| {
        let told = fixture.json(&["queues"]);
        ["login", "vip"].iter().all(|line| of(&told, line)["admitters"] == who)
    };
    eventually("it says that it admits", LIMIT, async || admit(json!(["p7"]))).await;
    fixture.run(&["kill", "on"]).code(0);
    eventually("the kill switch stops it", LIMIT, async || admit(json!([]))).await;
    fixture.run(&["kill", "off"]).code(0);
    eventually("it goes on", LIMIT, async || admit(json!(["p7"]))).await;
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert!(child.wait().expect("it ends").success());
    assert!(admit(json!([])), "it has left");
}

// R-22, QUE-3: where no agent looks after the line, a cron of one line does, and its rehearsal touches nothing.
#[tokio::test]
async fn que_3_reap_looks_after_lines() {
    let (fixture, p1) = fixture().await;
    crowd(&fixture, &p1).await;
    fixture.by_hand(&["ZADD", "maitred:{eu}:away:login", "1", "erin"]).await;
    let lines = |told: &Value| told["lines"].clone();
    assert_eq!(lines(&fixture.json(&["reap", "--dry-run"])), json!({"lines": 1, "away": 0, "out": 1, "healed": 0}));
    fixture.dies("p1").await;
    // Entries of either side without the other, and a line that the list of lines does not know.
    fixture.by_hand(&["ZADD", "maitred:{eu}:line:login", "1", "ghost"]).await;
    fixture.by_hand(&["ZADD", "maitred:{eu}:away:lost", "1", "ghost"]).await;
    fixture.by_hand(&["HSET", "maitred:{eu}:gate:old", "bucket", "0"]).await;
    let before = fixture.contents().await;
    let rehearsed = lines(&fixture.json(&["reap", "--dry-run"]));
    assert_eq!(rehearsed, json!({"lines": 3, "away": 4, "out": 1, "healed": 2}));
    assert_eq!(fixture.contents().await, before, "a dry run changed the store");
    let ran = fixture.run(&["reap"]).code(0);
    assert_eq!(["away", "out", "line entries"].map(|row| ran.cells(row)[1].clone()), ["4", "1", "2"]);
    let told = fixture.json(&["queue", "login"]);
    assert_eq!((&told["waiting"], &told["away"]), (&json!(0), &json!(4)));
    let keys: Vec<String> = fixture.contents().await.into_keys().filter(|key| key.contains(":gate:")).collect();
    assert_eq!(keys, ["maitred:{eu}:gate:login"], "the gate of a line that the config does not know goes");
    assert_eq!(lines(&fixture.json(&["reap"])), json!({"lines": 1, "away": 0, "out": 0, "healed": 0}));
}

// QUE-12: on the worst night one broken key must not hide all other lines, and a line that somebody paused by a wrong
// config must be found again.
#[tokio::test]
async fn que_12_an_odd_line_hides_no_other_and_a_paused_one_is_always_listed() {
    let (fixture, p1) = fixture().await;
    crowd(&fixture, &p1).await;
    fixture.by_hand(&["SET", "maitred:{eu}:gate:vip", "x"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:lines", "odd"]).await;
    fixture.by_hand(&["SET", "maitred:{eu}:away:odd", "x"]).await;
    fixture.by_hand(&["HSET", "maitred:{eu}:gate:forgotten", "paused", "1", "paused_at", "1"]).await;
    let told = fixture.json(&["queues"]);
    let names: Vec<&Value> = told["lines"].as_array().expect("a list").iter().map(|line| &line["line"]).collect();
    assert_eq!(names, ["forgotten", "login"]);
    assert_eq!(of(&told, "login")["waiting"], 4);
    assert_eq!(told["not_believed"]["count"], 2, "{told}");
    fixture.run(&["doctor"]).code(1).shows(&[
        "vip cannot be read",
        "odd cannot be read",
        "paused: forgotten",
        "4 wait",
    ]);
    fixture.by_hand(&["ZADD", "maitred:{eu}:line:login", "1", "ghost"]).await;
    fixture.run(&["reap"]).code(1).complains(&["WRONGTYPE"]);
    let line = fixture.json(&["queue", "login"]);
    assert_eq!(line["waiting"], 4, "the others are swept all the same: {line}");
}
