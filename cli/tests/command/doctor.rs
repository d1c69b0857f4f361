//! STO-15: `maitred doctor` on a good store and on one with each fault that it knows. When one of these fails, an
//! operator is told that all is well, or is sent to look in the wrong place.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use crate::fixtures::command::{CliFixture, Ran, SECRET, backend, maitred, run};
use maitred::envelope::{Keyring, Kind, Secret};
use maitred::ids::{LineName, NodeId, ObjectKey, OperationId, Player, SessionId, Zone};
use maitred::node::{Control, KILL, kill_name};
use maitred::queue::{Attributes, Line, LineOptions};
use maitred::route::{AcquireOutcome, Cas, RouteBook, RouteTimes};
use maitred::store::{Verifier, scripts};
use maitred::token::{Book, BookOptions, ReapOptions, reap};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use serde_json::Value;

mod probe;

const LIMIT: Duration = Duration::from_secs(20);
const PERSISTENT: &[&str] = &["--appendonly", "yes"];
const OTHER_SECRET: &str = "ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=";

async fn good() -> CliFixture {
    let fixture = CliFixture::on(TestStore::with_args(PERSISTENT), "", BookOptions::default()).await;
    fixture.join(backend("b1")).await;
    fixture
}

/// The report, and the verdict and all texts of one check.
fn checks(told: &Value) -> BTreeMap<String, (String, String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let checks = told["checks"].as_array().expect("a list of checks");
    checks
        .iter()
        .map(|check| (text(&check["check"]), (text(&check["verdict"]), text(&check["detail"]), text(&check["advice"]))))
        .collect()
}

/// What the doctor says of one check: its verdict, and one of the words that have to be in what was found or in what to do.
#[track_caller]
fn says(ran: Ran, code: i32, check: &str, verdict: &str, words: &[&str]) {
    let told = ran.code(code).json();
    assert_eq!(told["ok"], code == 0, "{told}");
    let checks = checks(&told);
    let (is, detail, advice) = checks.get(check).unwrap_or_else(|| panic!("no check {check}: {told}"));
    assert_eq!(is, verdict, "{check}: {told}");
    let said = format!("{detail} | {advice}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    assert_eq!(
        advice.is_empty(),
        verdict == "ok",
        "what to do stands there exactly where something is to be done: {told}"
    );
}

fn json(fixture: &CliFixture, more: &[&str]) -> Ran {
    fixture.run(&[&["doctor", "--json"], more].concat())
}

fn as_user(fixture: &CliFixture, user: &str, args: &[&str]) -> Command {
    let mut command = maitred(args);
    command.args(["--zone", "eu"]).arg("--config").arg(fixture.config());
    command.env("MAITRED_STORE", fixture.server.url().replace("redis://", &format!("redis://{user}@")));
    command
}

#[tokio::test]
async fn sto_15_a_good_store_has_nothing_to_complain_about_and_is_left_as_it_was() {
    let fixture = good().await;
    let before = fixture.contents().await;
    let told = json(&fixture, &[]).code(0).json();
    assert_eq!((&told["ok"], &told["not_believed"]), (&Value::Bool(true), &Value::from(0)), "{told}");
    let found = checks(&told);
    let names = [
        "clock",
        "control",
        "gates",
        "heads",
        "lines",
        "lua",
        "memory",
        "nodes",
        "passes",
        "persistence",
        "pins",
        "publish",
        "reachable",
        "replication",
        "rights",
        "routes",
        "secret",
        "server",
        "tickets",
        "tokens",
    ];
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), names);
    for (check, (verdict, detail, advice)) in &found {
        assert!(verdict == "ok" && !detail.is_empty() && advice.is_empty(), "{check}: {verdict} {detail} {advice}");
    }
    assert!(told["probe"].as_array().is_some_and(Vec::is_empty), "nothing was probed: {told}");
    assert!(!told.to_string().contains(SECRET));
    assert!(fixture.contents().await == before, "a look changes nothing");

    let shown = fixture.run(&["doctor"]).code(0);
    assert!(names.iter().all(|name| shown.out.contains(name)) && !shown.out.contains("FAIL"), "{shown:?}");
    assert!(shown.err.is_empty(), "{shown:?}");
}

#[tokio::test]
async fn sto_15_a_missing_secret_and_a_store_that_is_down_are_told_together() {
    let mut command = maitred(&["doctor", "--json", "--store", "redis://op:hunter2@127.0.0.1:1"]);
    command.env_remove("MAITRED_SECRET");
    let ran = run(command);
    assert!(!ran.out.contains("hunter2"), "{ran:?}");
    let told = ran.code(1).json();
    let found = checks(&told);
    assert!(found["secret"].0 == "fail" && found["secret"].1.contains("MAITRED_SECRET"), "{told}");
    assert!(found["reachable"].0 == "fail" && found["reachable"].1.contains("127.0.0.1:1"), "{told}");

    // The store is looked at without a secret too.
    let fixture = good().await;
    let mut command = fixture.command(&["doctor", "--json"]);
    command.env_remove("MAITRED_SECRET");
    says(run(command), 1, "secret", "fail", &["MAITRED_SECRET", "not set"]);
    let mut command = fixture.command(&["doctor", "--json", "--probe"]);
    command.env_remove("MAITRED_SECRET");
    says(run(command), 1, "rights", "ok", &[]);
}

#[tokio::test]
async fn sto_15_each_fault_of_the_server_has_its_line() {
    let fixture = good().await;
    fixture.by_hand(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    says(json(&fixture, &[]), 0, "memory", "warn", &["allkeys-lru", "noeviction"]);
    fixture.by_hand(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;

    fixture.by_hand(&["CONFIG", "SET", "maxmemory", "1"]).await;
    says(json(&fixture, &[]), 1, "memory", "fail", &["raise maxmemory"]);
    fixture.by_hand(&["CONFIG", "SET", "maxmemory", "0"]).await;

    fixture.by_hand(&["CONFIG", "SET", "appendonly", "no"]).await;
    says(json(&fixture, &[]), 0, "persistence", "warn", &["appendonly yes"]);
    fixture.by_hand(&["CONFIG", "SET", "appendonly", "yes"]).await;

    fixture.by_hand(&["REPLICAOF", "127.0.0.1", "1"]).await;
    says(json(&fixture, &[]), 1, "replication", "fail", &["replica", "primary"]);
    fixture.by_hand(&["REPLICAOF", "NO", "ONE"]).await;

    fixture.by_hand(&["ACL", "SETUSER", "narrow", "on", ">pw", "+@all", "-pexpireat", "~maitred:*", "&*"]).await;
    let narrow = run(as_user(&fixture, "narrow:pw", &["doctor", "--json"]));
    if narrow.out.contains("cannot tell by a dry run") {
        // Before Redis 7 nobody can ask what a user may do; --probe tries it.
        return;
    }
    says(narrow, 1, "rights", "fail", &["PEXPIREAT", "ACL SETUSER", "~maitred:{eu}:*"]);
    fixture.by_hand(&["ACL", "SETUSER", "astray", "on", ">pw", "+@all", "~other:*", "&*"]).await;
    says(run(as_user(&fixture, "astray:pw", &["doctor", "--json"])), 1, "rights", "fail", &["HGETALL", "key"]);
    fixture.by_hand(&["ACL", "SETUSER", "deaf", "on", ">pw", "+@all", "~*", "resetchannels"]).await;
    let deaf = run(as_user(&fixture, "deaf:pw", &["doctor", "--json"]));
    says(deaf, 1, "rights", "fail", &["SUBSCRIBE", "channel"]);
    says(run(as_user(&fixture, "deaf:pw", &["doctor", "--json"])), 1, "publish", "fail", &["channel"]);

    let ran = fixture.run(&["doctor"]).code(0);
    assert!(!ran.out.contains("FAIL"), "all is well again: {ran:?}");
}

#[tokio::test]
async fn sto_15_each_fault_of_the_data_has_its_line() {
    let fixture = good().await;
    let (key, now) = ("maitred:{eu}:node:b1", "maitred:{eu}:node:b2");
    fixture.by_hand(&["COPY", key, now]).await;
    fixture.by_hand(&["ZADD", "maitred:{eu}:nodes:backend", "1", "b2"]).await;
    says(json(&fixture, &[]), 1, "nodes", "fail", &["1 online", "1 not believed", "another secret"]);
    fixture.by_hand(&["DEL", now]).await;
    says(json(&fixture, &[]), 0, "nodes", "ok", &["1 online", "1 gone", "0 not believed"]);

    fixture.by_hand(&["HSET", "maitred:{eu}:control", "kill", "{\"value\":\"on\"}"]).await;
    let told = json(&fixture, &[]).code(1).json();
    assert_eq!(told["not_believed"], 1, "{told}");
    says(json(&fixture, &[]), 1, "control", "fail", &["1 not believed", "change its password"]);
    fixture.by_hand(&["HDEL", "maitred:{eu}:control", "kill"]).await;
    fixture.by_hand(&["HSET", "maitred:{eu}:control", "junk", "x", "kill:a b", "x"]).await;
    says(json(&fixture, &[]), 0, "control", "warn", &["2 fields are no entries", "junk", "HDEL"]);
    fixture.by_hand(&["HDEL", "maitred:{eu}:control", "junk", "kill:a b"]).await;

    fixture.by_hand(&["ZADD", "maitred:{eu}:due:b1", "1", "alice"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:due", "b1"]).await;
    says(json(&fixture, &[]), 0, "tokens", "warn", &["1 overdue", "maitred reap"]);
    fixture.run(&["reap"]).code(0);
    says(json(&fixture, &[]), 0, "tokens", "ok", &["0 overdue"]);

    fixture.by_hand(&["SET", "maitred:{eu}:due", "x"]).await;
    says(json(&fixture, &[]), 1, "tokens", "fail", &["WRONGTYPE", "TYPE"]);
}

// before the old secret is dropped, somebody has to see what it still holds up.
#[tokio::test]
async fn r_29_what_only_an_old_secret_signed_is_counted() {
    let fixture = good().await;
    let zone = Zone::new("eu").expect("valid");
    fixture.control.put(&fixture.store, &fixture.verifier, KILL, "off", "ops").await.expect("written");
    let (b2, _) = fixture.join(backend("b2")).await;
    let book =
        RouteBook::new(fixture.store.clone(), fixture.verifier.clone(), b2.lease().clone(), RouteTimes::default());
    let island = ObjectKey::read("island:i1").expect("a key");
    let AcquireOutcome::Acquired(held) = book.acquire(&island, None, true).await.expect("an answer") else {
        panic!("nobody has it")
    };
    book.save(&held, Cas::NONE, "{}", &OperationId::fresh()).await.expect("saved");
    says(json(&fixture, &[]), 0, "routes", "ok", &["2 routes and objects"]);
    let rotated = |args: &[&str]| {
        let mut command = fixture.command(args);
        command.env("MAITRED_SECRET", OTHER_SECRET).env("MAITRED_SECRET_ALSO", SECRET);
        run(command)
    };
    says(
        rotated(&["doctor", "--json"]),
        0,
        "control",
        "warn",
        &["1 still signed with an old secret", "signed them again"],
    );
    says(
        rotated(&["doctor", "--json"]),
        0,
        "routes",
        "warn",
        &["2 still signed with an old secret", "signed them again"],
    );
    says(rotated(&["doctor", "--json"]), 0, "secret", "ok", &["1 more accepted"]);

    let secret = |text: &str| Secret::from_base64("TEST", text).expect("valid");
    let verifier = Verifier::new(Keyring::new(zone, secret(OTHER_SECRET), vec![secret(SECRET)]));
    let signed = Control::default().sign_again(&fixture.store, &verifier).await.expect("signed");
    assert_eq!(signed, 1);
    says(rotated(&["doctor", "--json"]), 0, "control", "ok", &["1 entries"]);
    // Dropped too early: the nodes' rows are of the old secret still.
    let mut command = fixture.command(&["doctor", "--json"]);
    command.env("MAITRED_SECRET", OTHER_SECRET);
    says(run(command), 1, "nodes", "fail", &["2 not believed", "compare key ids"]);
    fixture.by_hand(&["HSET", "maitred:{eu}:object:island:i1", "sig", "00000000.x"]).await;
    says(
        rotated(&["doctor", "--json"]),
        1,
        "routes",
        "fail",
        &["1 still signed with an old secret", "1 not signed with any"],
    );
}

// STO-15, R-22, R-29: a line that stands still looks like a line that is merely long.
#[tokio::test]
async fn sto_15_each_fault_of_a_line_has_its_line() {
    let fixture = good().await;
    let (_p1, p1) = fixture.join(crate::fixtures::command::proxy("p1")).await;
    let name = LineName::new("login").expect("valid");
    let options = LineOptions::new(name.clone());
    let line =
        Line::new(fixture.store.clone(), fixture.verifier.clone(), fixture.control.clone(), options).expect("usable");
    for who in ["alice", "bob", "carol"] {
        let (who, session) = (Player::new(who).expect("valid"), SessionId::fresh());
        line.enter(&p1, &who, 0, &session, &Attributes::default(), None).await.expect("the store answers");
    }
    says(json(&fixture, &[]), 0, "lines", "ok", &["1 line, 3 wait, 0 away"]);
    says(json(&fixture, &[]), 0, "tickets", "ok", &["3 looked at, 0 not believed"]);
    says(json(&fixture, &[]), 0, "passes", "ok", &["0 looked at"]);

    line.pause().await.expect("the store answers");
    says(json(&fixture, &[]), 0, "gates", "warn", &["paused: login since ", "UTC", "3 waiting", "queue NAME resume"]);
    line.resume().await.expect("the store answers");
    says(json(&fixture, &[]), 0, "gates", "ok", &["none is paused"]);

    fixture.by_hand(&["ZADD", "maitred:{eu}:line:login", "9", "ghost"]).await;
    says(json(&fixture, &[]), 0, "lines", "warn", &["1 index entries without a ticket", "maitred reap"]);
    fixture.run(&["reap"]).code(0);
    says(json(&fixture, &[]), 0, "lines", "ok", &["3 wait"]);

    // Before the old secret is dropped: who still stands there by it.
    let pass = signed_pass(&fixture, &name, "dave").await;
    let rotated = || {
        let mut command = fixture.command(&["doctor", "--json"]);
        command.env("MAITRED_SECRET", OTHER_SECRET).env("MAITRED_SECRET_ALSO", SECRET);
        run(command)
    };
    says(rotated(), 0, "tickets", "warn", &["3 still signed with an old secret", "signed them again"]);
    says(rotated(), 0, "passes", "warn", &["1 still signed with an old secret", "until they have expired"]);
    fixture.by_hand(&["HSET", &pass, "server", "evil"]).await;
    says(json(&fixture, &[]), 1, "passes", "fail", &["1 not believed", "compare key ids"]);
    fixture.by_hand(&["DEL", &pass]).await;

    let tickets = "maitred:{eu}:tickets:login";
    fixture.by_hand(&["HSET", tickets, "bob", "1 0 p1 1 s 1 1 x "]).await;
    says(json(&fixture, &[]), 1, "tickets", "fail", &["3 looked at, 1 not believed", "stranger"]);
    fixture.by_hand(&["HSET", tickets, "alice", "1 0 p1 1 s 1 2 x "]).await;
    says(json(&fixture, &[]), 1, "heads", "fail", &["the head of login is of version 2, this build knows 1"]);
    says(json(&fixture, &[]), 1, "tickets", "fail", &["1 of a version that this build does not know"]);

    fixture.by_hand(&["SET", "maitred:{eu}:lines", "x"]).await;
    says(json(&fixture, &[]), 1, "lines", "fail", &["WRONGTYPE", "TYPE"]);
}

/// The key of a pass that a member signed.
async fn signed_pass(fixture: &CliFixture, line: &LineName, player: &str) -> String {
    let (op, expires_at) = ("op1", (fixture.store.clock().now_ms() + 600_000).to_string());
    let fields = [line.as_str(), player, "b1", "", &expires_at, op, "1"];
    let sig = fixture.verifier.keyring().sign(Kind::Pass, &fields);
    let key = format!("maitred:{{eu}}:pass:{line}:{player}");
    let row = ["server", "b1", "link", "", "expires_at", &expires_at, "op", op, "v", "1", "sig", sig.as_str()];
    let unsigned = ["serial", "1", "seq", "1", "lane", "0", "session", "s1"];
    fixture.by_hand(&[&["HSET", key.as_str()], &row[..], &unsigned[..]].concat()).await;
    key
}
