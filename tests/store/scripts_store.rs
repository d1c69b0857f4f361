//! The scripts through the library's own calls: loaded and compared at `open`, loaded again after the store forgot them,
//! and run a second time under the same operation without a second effect.
//!
//! A repeat that had an effect would land a player twice or promise a place twice; one that was told otherwise than the
//! first time would give up a place that it has.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use maitred::ids::{NodeId, Player, Role, Zone};
use maitred::store::{Answer, Invocation, Store, StoreOptions, StoreUrl, scripts};
use redis::Connection;

use crate::script_bridge::contents::{Contents, ask, contents, same, words};
use crate::script_bridge::reply::Reply;
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::{TestStore, command_stats};

/// A store, the library's view of it, and a connection past the library.
struct Bench {
    server: TestStore,
    store: Store,
    past: Connection,
}

impl Bench {
    async fn open() -> Self {
        let server = TestStore::start();
        let url = StoreUrl::parse(&server.url()).expect("a URL");
        let store = Store::open(Zone::new("eu").expect("a zone"), StoreOptions::new(url)).await.expect("opens");
        let past = redis::Client::open(server.url()).expect("a URL").get_connection().expect("the store listens");
        Self { server, store, past }
    }

    async fn run(&self, call: &Invocation) -> Answer {
        self.store.run(call).await.expect("an answer")
    }

    /// An epoch that the store accepts although the estimate of its clock may be ahead a little.
    fn epoch(&self) -> u64 {
        self.now() - 300
    }

    fn now(&self) -> u64 {
        self.store.clock().now_ms()
    }

    /// Calls of a command since the last [`forget_counts`](Self::forget_counts).
    async fn calls(&self, command: &str) -> u64 {
        let stats = command_stats(&mut self.server.conn().await).await;
        stats.get(command).map_or(0, |stat| stat.calls)
    }

    fn forget_counts(&mut self) {
        ask(&mut self.past, &words(["CONFIG", "RESETSTAT"]));
    }

    /// Runs `call` twice and compares answers and stores. `passing` are parts of values that follow the clock.
    async fn twice(&mut self, what: &str, call: &Invocation, word: &str, passing: &[&str]) {
        let first = self.run(call).await;
        assert_eq!(first.word(), word, "{what}: {first:?}");
        let before = steady(contents(&mut self.past), passing);
        let second = self.run(call).await;
        assert_eq!(second.word(), first.word(), "STO-10: {what} answers something else the second time");
        let after = steady(contents(&mut self.past), passing);
        assert_eq!(same(&before, &after), Ok(()), "STO-10: {what} had a second effect");
    }
}

/// Leaves out hash fields that begin with one of `passing`, and the scores of rosters if `score` is among them.
fn steady(mut contents: Contents, passing: &[&str]) -> Contents {
    for (kind, values, _) in contents.values_mut() {
        match kind.as_str() {
            "hash" => values.retain(|value| !passing.iter().any(|field| value.starts_with(&format!("{field} =")))),
            "zset" if passing.contains(&"score") => *values = values.iter().step_by(2).cloned().collect(),
            _ => {}
        }
    }
    contents
}

fn id(id: &str) -> NodeId {
    NodeId::new(id).expect("an id")
}

fn alice() -> Player {
    Player::new("alice").expect("a player")
}

fn join(store: &Store, node: &str, role: &Role, epoch: u64) -> Invocation {
    let keys = store.keys();
    let roster = keys.roster(role);
    let node_id = id(node);
    let mut call =
        Invocation::new(&scripts::NODE_JOIN, &[keys.node(&node_id), roster, keys.roles(), keys.epochs(), roster])
            .arg(node)
            .arg(role.as_str())
            .arg("10.0.0.1:25577")
            .arg(epoch);
    for text in ["inc1", "0"] {
        call = call.arg(text);
    }
    call = call.arg(epoch);
    for text in ["ready", "1", "0", "0", "0", "{}", "[]", "{}", "1", "sig", "", "0", "60000", role.as_str()] {
        call = call.arg(text);
    }
    call.arg(keys.node_events()).arg("row")
}

fn beat(store: &Store, node: &str, role: &Role, epoch: u64) -> Invocation {
    let keys = store.keys();
    let node_id = id(node);
    let key_list = [keys.node(&node_id), keys.roster(role), keys.roles(), keys.control(), keys.held(&node_id)];
    let mut call = Invocation::new(&scripts::NODE_BEAT, &key_list)
        .arg(node)
        .arg(role.as_str())
        .arg(epoch)
        .arg("inc1")
        .arg("1")
        .arg(epoch);
    for text in ["ready", "1", "0", "3", "200", "{}", "[]", "{}", "sig", "60000"] {
        call = call.arg(text);
    }
    [""; 5].iter().fold(call.arg(keys.node_events()).arg("row"), |call, text| call.arg(*text))
}

fn leave(store: &Store, node: &str, role: &Role, epoch: u64) -> Invocation {
    let keys = store.keys();
    Invocation::new(&scripts::NODE_LEAVE, &[keys.node(&id(node)), keys.roster(role), keys.roles(), keys.epochs()])
        .arg(node)
        .arg(role.as_str())
        .arg(epoch)
        .arg("inc1")
        .arg(keys.node_events())
}

fn issue(store: &Store, token: &str, request: &str, epoch: u64, now: u64) -> Invocation {
    let keys = store.keys();
    let (server, player) = (id("b1"), alice());
    let (due, due_servers, held) = (keys.due(&server), keys.due_servers(), keys.held(&server));
    let key_list = [keys.token(&player), keys.node(&server), due, due_servers, keys.control(), held];
    let call = Invocation::new(&scripts::TOKEN_ISSUE, &key_list);
    let call = call.arg(token).arg("alice").arg("b1").arg(epoch).arg(request).arg("1").arg("{}");
    let call = call.arg(now).arg(now + 30_000).arg("1").arg("sig").arg(now + 20_000).arg("5000").arg("60000");
    call.arg(keys.token_events()).arg("").arg("off").arg("").arg("off").arg("0")
}

fn claim(store: &Store, token: &str, epoch: u64, op: &str) -> Invocation {
    let keys = store.keys();
    let (server, claimant, player) = (id("b1"), id("p1"), alice());
    let mut call = Invocation::new(
        &scripts::TOKEN_CLAIM,
        &[keys.token(&player), keys.node(&claimant), keys.node(&server), keys.control()],
    )
    .arg(token)
    .arg("b1")
    .arg("p1")
    .arg(epoch);
    for text in [op, "sig", "", "off", "", "off", "", "off"] {
        call = call.arg(text);
    }
    call
}

fn consume(store: &Store, token: &str, epoch: u64, op: &str) -> Invocation {
    let keys = store.keys();
    let (server, player) = (id("b1"), alice());
    let key_list = [keys.token(&player), keys.node(&server), keys.due(&server), keys.due_servers(), keys.held(&server)];
    Invocation::new(&scripts::TOKEN_CONSUME, &key_list)
        .arg(token)
        .arg("alice")
        .arg("b1")
        .arg(epoch)
        .arg(op)
        .arg("60000")
        .arg("0")
}

fn release(store: &Store, token: &str) -> Invocation {
    let keys = store.keys();
    let (server, player) = (id("b1"), alice());
    let mut call =
        Invocation::new(&scripts::TOKEN_RELEASE, &[keys.token(&player), keys.due(&server), keys.due_servers()]);
    for text in [token, "alice", "b1", "operator", "cli", "0", "", "asked", "60000"] {
        call = call.arg(text);
    }
    call.arg(keys.token_events())
}

fn cancel(store: &Store, request: &str) -> Invocation {
    let keys = store.keys();
    let (server, player) = (id("b1"), alice());
    let mut call =
        Invocation::new(&scripts::TOKEN_CANCEL, &[keys.token(&player), keys.due_servers(), keys.due(&server)]);
    for text in ["alice", request, "p1", "0", "", "60000"] {
        call = call.arg(text);
    }
    call.arg(keys.token_events()).arg("b1")
}

#[tokio::test]
async fn sto_2_open_loads_every_script_under_its_pin() {
    let mut bench = Bench::open().await;
    for script in scripts::all() {
        let known = ask(&mut bench.past, &words(["SCRIPT", "EXISTS", script.pinned()]));
        assert_eq!(known, Reply::Array(vec![Reply::Int(1)]), "{} was not loaded as it is pinned", script.name());
    }
}

#[tokio::test]
async fn sto_3_a_forgotten_script_is_loaded_again_and_the_call_repeated_once() {
    let mut bench = Bench::open().await;
    let call = cancel(&bench.store, "r1");
    for forgotten in [true, false] {
        if forgotten {
            ask(&mut bench.past, &words(["SCRIPT", "FLUSH"]));
        }
        bench.forget_counts();
        assert_eq!(bench.run(&call).await.word(), "CANCELLED");
        let (calls, loads) = if forgotten { (2, 1) } else { (1, 0) };
        assert_eq!(bench.calls("evalsha").await, calls, "forgotten: {forgotten}");
        assert_eq!(bench.calls("script|load").await + bench.calls("script").await, loads, "only that script");
    }
}

#[tokio::test]
async fn sto_3_a_pipeline_sends_again_only_what_was_refused() {
    let mut bench = Bench::open().await;
    let role = Role::proxy();
    let mut calls = Vec::new();
    for number in 0..20 {
        calls.push(leave(&bench.store, &format!("p{number}"), &role, 1));
        if number % 4 == 0 {
            calls.push(cancel(&bench.store, &format!("r{number}")));
        }
    }
    ask(&mut bench.past, &words(["SCRIPT", "FLUSH"]));
    ask(&mut bench.past, &words(["SCRIPT", "LOAD", scripts::NODE_LEAVE.source()]));
    bench.forget_counts();
    let answers = bench.store.run_many(&calls).await.expect("the pipeline goes through");
    assert_eq!(bench.calls("evalsha").await, 25 + 5, "20 leaves and 5 cancels, and the 5 cancels again");
    let words: Vec<String> = answers.into_iter().map(|answer| answer.expect("healed").word().to_owned()).collect();
    for (at, word) in words.iter().enumerate() {
        let expected = if at % 5 == 1 { "CANCELLED" } else { "LEFT" };
        assert_eq!(word, expected, "each answer in its place: {words:?}");
    }
}

#[tokio::test]
async fn sto_3_a_pipeline_after_a_full_flush_answers_every_call() {
    let mut bench = Bench::open().await;
    let calls: Vec<Invocation> = (0..8).map(|number| cancel(&bench.store, &format!("r{number}"))).collect();
    ask(&mut bench.past, &words(["SCRIPT", "FLUSH"]));
    bench.forget_counts();
    let answers = bench.store.run_many(&calls).await.expect("the pipeline goes through");
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.word() == "CANCELLED")));
    assert_eq!(bench.calls("evalsha").await, 16);
}

// A connection a call would be measurably slower, and a burst of players would open hundreds of them.
#[tokio::test]
async fn sto_11_many_calls_at_once_share_one_connection_and_one_wait() {
    let server = TestStore::start();
    let wire = FaultProxy::start(&server);
    let mut options = StoreOptions::new(StoreUrl::parse(&wire.url()).expect("a URL"));
    options.command_timeout = Duration::from_secs(10);
    options.operation_timeout = Duration::from_secs(20);
    let store = Store::open(Zone::new("eu").expect("a zone"), options).await.expect("opens");
    // The shared one, and the first of the pool, which says at once where a password is wrong.
    assert_eq!(wire.connections(), 2);
    wire.delay(Duration::from_millis(100));
    let calls: Vec<Invocation> = (0..200).map(|number| cancel(&store, &format!("r{number}"))).collect();
    let began = Instant::now();
    let answers = join_all(calls.iter().map(|call| store.run(call))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.word() == "CANCELLED")));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "200 calls one after the other take 20 s: {:?}",
        began.elapsed()
    );
    assert_eq!(wire.connections(), 2);
    // A bulk read waits for itself alone, on a connection of the pool.
    store.rows(&[store.keys().token(&alice())]).await.expect("a row");
    assert_eq!(wire.connections(), 2);
}

#[tokio::test]
async fn sto_10_a_repeated_join_beat_and_leave_have_no_second_effect() {
    let mut bench = Bench::open().await;
    let (role, epoch) = (Role::proxy(), bench.epoch());
    // The row says when it was written, and `epochs` when the id was last seen.
    let clock = ["beat_at", "score", "p1"];
    bench.twice("join", &join(&bench.store, "p1", &role, epoch), "JOINED", &clock).await;
    bench.twice("beat", &beat(&bench.store, "p1", &role, epoch), "BEAT", &[]).await;
    bench.twice("leave", &leave(&bench.store, "p1", &role, epoch), "LEFT", &[]).await;
}

#[tokio::test]
async fn sto_10_a_repeated_token_operation_has_no_second_effect() {
    let mut bench = Bench::open().await;
    let store = bench.store.clone();
    let epoch = bench.epoch();
    for (node, role) in [("b1", Role::backend()), ("p1", Role::proxy())] {
        assert_eq!(bench.run(&join(&store, node, &role, epoch)).await.word(), "JOINED");
    }
    bench.twice("issue", &issue(&store, "t1", "r1", epoch, bench.now()), "ISSUED", &[]).await;
    bench.twice("claim", &claim(&store, "t1", epoch, "c1"), "CLAIMED", &[]).await;
    bench.twice("consume", &consume(&store, "t1", epoch, "u1"), "CONSUMED", &[]).await;
    // One after another, while the player's later tokens come and go.
    for number in 2..=4 {
        let (token, request) = (format!("t{number}"), format!("r{number}"));
        bench.twice("issue", &issue(&store, &token, &request, epoch, bench.now()), "ISSUED", &[]).await;
        bench.twice("release", &release(&store, &token), "RELEASED", &[]).await;
        bench.twice("an older consume", &consume(&store, "t1", epoch, "u1"), "CONSUMED", &[]).await;
        assert_eq!(bench.run(&consume(&store, "t1", epoch, "u2")).await.word(), "REPLAY", "TOK-4");
    }
    // The mark of a cancel says when it was last made.
    bench.twice("cancel", &cancel(&store, "r9"), "CANCELLED", &["cancelled"]).await;
    assert_eq!(bench.run(&issue(&store, "t9", "r9", epoch, bench.now())).await.word(), "CANCELLED", "R-15");
}
