use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use maitred::token::BookOptions;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fixtures::command::{CliFixture, Ran, backend, proxy};
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(30);
const SHORT: BookOptions = BookOptions { ttl_ms: 1_000, claim_reanimate_ms: 100, audit_ms: 100 };
/// The same times for the binary, and a removed age that a test can wait for.
const CONFIG: &str = "heartbeat: {intervalMs: 50}\ndirectory: {suspectMs: 110, offlineMs: 120, removedMs: 300}\n\
    tokens: {ttlMs: 1000, claimReanimateMs: 100, auditMs: 100}\n";

pub fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("it runs");
}

// TOK-6: a look must not touch, and has to say what the touch would do.
#[tokio::test]
async fn tok_6_a_dry_run_changes_nothing_and_says_what_a_run_would_do() {
    let fixture = CliFixture::with_config(CONFIG, BookOptions { ttl_ms: 3_000, audit_ms: 60_000, ..SHORT }).await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    let (_p1, p1) = fixture.join(proxy("p1")).await;
    let claimed = fixture.issue(&b1, "claimed", "{}").await;
    fixture.claim(&claimed, &p1).await;
    fixture.dies("p1").await;
    for name in ["x1", "x2", "x3"] {
        fixture.issue(&b1, name, "{}").await;
    }
    fixture.by_hand(&["ZADD", "maitred:{eu}:due:b1", "1", "nobody"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:due", "b9"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:roles", "ghost"]).await;
    fixture.by_hand(&["HSET", "maitred:{eu}:epochs", "old", "1 1"]).await;
    let due = |told: &Value| told["expired"] == 4 && told["removed"] == json!(["p1"]);
    eventually("all times are over", LIMIT, async || due(&fixture.json(&["reap", "--dry-run"]))).await;

    let before = fixture.contents().await;
    let told = fixture.json(&["reap", "--dry-run"]);
    let ran = fixture.run(&["reap", "--dry-run"]).code(0).shows(&["dry run: nothing was changed"]);
    assert_eq!(ran.cells("expired")[1], "4");
    assert_eq!(fixture.contents().await, before, "a dry run changed the store");

    let counts =
        |told: &Value| ["expired", "reopened", "healed", "removed", "forgotten", "lists"].map(|of| told[of].clone());
    assert_eq!(counts(&told), [json!(4), json!(0), json!(1), json!(["p1"]), json!(1), json!(2)]);
    let done = fixture.json(&["reap"]);
    assert_eq!(counts(&done), counts(&told), "the run does not do what the dry run said");
    assert_eq!((&told["dry_run"], &done["dry_run"]), (&json!(true), &json!(false)));
    let again = fixture.json(&["reap"]);
    assert_eq!(counts(&again), [json!(0), json!(0), json!(0), json!([]), json!(0), json!(0)]);
}

// TOK-6: the claim of a proxy that died is open to the others after one run.
#[tokio::test]
async fn tok_6_a_run_reopens_the_claims_of_the_dead() {
    let times = BookOptions { ttl_ms: 60_000, ..SHORT };
    let fixture = CliFixture::with_config(&CONFIG.replace("ttlMs: 1000", "ttlMs: 60000"), times).await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    let (_p1, p1) = fixture.join(proxy("p1")).await;
    let token = fixture.issue(&b1, "alice", "{}").await;
    fixture.claim(&token, &p1).await;
    fixture.dies("p1").await;
    eventually("the claim is reopened", LIMIT, async || fixture.json(&["reap"])["reopened"] == 1).await;
    assert_eq!(fixture.json(&["tokens", "alice"])["token"]["state"], "PENDING");
}

// STO-16: what ended leaves nothing behind, whichever side of an index was lost.
#[tokio::test]
async fn sto_16_after_everything_ended_one_run_leaves_only_what_may_stay() {
    let mut fixture = CliFixture::with_config(CONFIG, BookOptions { ttl_ms: 30_000, ..SHORT }).await;
    let (mut b1, owner) = fixture.join(backend("b1")).await;
    let (_b2, b2) = fixture.join(backend("b2")).await;
    let (_p1, p1) = fixture.join(proxy("p1")).await;
    let landed = fixture.issue(&owner, "landed", "{}").await;
    fixture.claim(&landed, &p1).await;
    fixture.consume(&landed, &owner).await;
    fixture.use_times(SHORT);
    for n in 0..20 {
        fixture.issue(if n % 2 == 0 { &owner } else { &b2 }, &format!("x{n}"), "{}").await;
    }
    b1.leave().await.expect("b1 leaves");
    // The others die, and both indexes forget that a set exists.
    fixture.dies("p1").await;
    fixture.dies("b2").await;
    fixture.by_hand(&["SREM", "maitred:{eu}:due", "b2"]).await;
    fixture.by_hand(&["SREM", "maitred:{eu}:roles", "backend"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:due", "never-was"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:roles", "nothing"]).await;
    eventually("tokens and audit time are over", LIMIT, async || {
        !fixture.contents().await.keys().any(|key| key.contains(":token:"))
    })
    .await;
    eventually("the removed age is over", LIMIT, async || {
        fixture.json(&["reap", "--dry-run"])["removed"].as_array().is_some_and(|ids| ids.len() == 2)
    })
    .await;
    let told = fixture.json(&["reap"]);
    assert_eq!((&told["removed"], &told["lists"]), (&json!(["b2", "p1"]), &json!(2)), "{told}");
    let keys: BTreeSet<String> = fixture.contents().await.into_keys().collect();
    assert_eq!(keys, BTreeSet::from(["maitred:{eu}:epochs".to_owned()]));
    // A day later the ids are forgotten too.
    assert_eq!(fixture.json(&["reap"])["forgotten"], 0);
    assert_eq!(fixture.json(&["reap", "--forget-after", "0ms"])["forgotten"], 3);
    assert!(fixture.contents().await.is_empty());
}

// TOK-6: any number may run at once, and nobody's place goes back twice.
#[tokio::test]
async fn tok_6_reapers_at_once_share_the_work() {
    let fixture = CliFixture::with_config(CONFIG, BookOptions { audit_ms: 60_000, ..SHORT }).await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    for n in 0..300 {
        fixture.issue(&b1, &format!("x{n}"), "{}").await;
    }
    eventually("all are over", LIMIT, async || fixture.json(&["reap", "--dry-run"])["expired"] == 300).await;
    let limited = fixture.json(&["reap", "--limit", "50"]);
    assert_eq!(limited["expired"], 50, "--limit bounds one sweep");
    let start = |_| fixture.command(&["reap", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let children: Vec<Child> = (0..4).map(start).map(|child| child.expect("the binary starts")).collect();
    let expired = |child: Child| {
        let ran = Ran::new(&child.wait_with_output().expect("it ends")).code(0);
        ran.json()["expired"].as_u64().expect("a count")
    };
    assert_eq!(children.into_iter().map(expired).sum::<u64>(), 250);
}

// TOK-6: where no agent reaps, a cron of one line does, over an outage of the store and until it is told to stop.
#[tokio::test]
async fn tok_6_every_goes_on_over_an_outage_until_it_is_interrupted() {
    let mut fixture = CliFixture::with_config(CONFIG, BookOptions { audit_ms: 60_000, ..SHORT }).await;
    let mut child = fixture
        .command(&["reap", "--every", "50ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut complaints = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut sweep = || lines.next().expect("it goes on").expect("UTF-8");
    assert!(sweep().contains("expired 0  reopened 0"));
    sweep();
    fixture.server.kill();
    assert!(complaints.next().expect("it complains").expect("UTF-8").starts_with("maitred: "));
    fixture.server.restart_empty();
    // What was written before the outage may still be in the pipe.
    std::thread::spawn(move || complaints.for_each(drop));
    let (_b1, b1) = eventually("the store is back", LIMIT, async || {
        fixture.store.prepare().await.ok()?;
        Some(fixture.join(backend("b1")).await)
    })
    .await;
    fixture.issue(&b1, "alice", "{}").await;
    // Far more sweeps than the token has life for.
    assert!((0..600).any(|_| sweep().contains("expired 1")), "the token of after the outage was never reaped");
    interrupt(&child);
    assert!(child.wait().expect("it ends").success());
    fixture.run(&["reap", "--every", "5"]).code(2);
    fixture.run(&["reap", "--limit", "0"]).code(2);
}
