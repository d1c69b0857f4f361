//! DSP-9: a proxy that is only a router beside proxies that take part. If this fails, a network whose proxies must not
//! publish anything cannot move players, or moves them away from under a proxy that is still at it.

use std::time::{Duration, Instant};

use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(20);
const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const REANIMATE: Duration = Duration::from_millis(1_000);
const REAP: Duration = Duration::from_millis(300);
const NETWORK: &str = "\
heartbeat: { intervalMs: 200 }
directory: { refreshMs: 500, suspectMs: 500, offlineMs: 700 }
tokens: { ttlMs: 60000, claimReanimateMs: 1000, reapIntervalMs: 300 }
dispatch: { cooldownMs: 0, staleAfterMs: 1000 }
store: { commandTimeoutMs: 5000, connectTimeoutMs: 5000, operationTimeoutMs: 10000 }
";

struct RouterFixture {
    store: TestStore,
    dir: tempfile::TempDir,
    asked: u64,
}

impl RouterFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("network.yml"), NETWORK).expect("a config");
        Self { store: TestStore::start(), dir, asked: 0 }
    }

    async fn node(&self, id: &str, role: &str, args: &[&str]) -> (Node, Value) {
        let mut options = NodeOptions::new(id, role, &self.store.url(), "eu").env("MAITRED_SECRET", SECRET);
        options.addr = format!("{id}.example:25565");
        options.config = Some(self.dir.path().join("network.yml"));
        options.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut node = Node::spawn(&options);
        let ready = node.wait_for(|line| line["event"] == "ready", LIMIT).await;
        (node, ready)
    }

    async fn ask(&mut self, node: &mut Node, mut line: Value) -> Value {
        self.asked += 1;
        let id = format!("l{}", self.asked);
        line["id"] = id.as_str().into();
        node.send(&line);
        node.wait_for(|answer| answer["id"] == id.as_str(), LIMIT).await
    }

    /// A place for the player, claimed by the proxy.
    async fn dispatch(&mut self, proxy: &mut Node, player: &str) -> Value {
        eventually(&format!("{player} is given a place"), LIMIT, async || {
            let answer = self.ask(proxy, json!({ "op": "dispatch", "player": player })).await;
            (answer["outcome"] == "transfer").then_some(answer)
        })
        .await
    }

    async fn take(&mut self, proxy: &mut Node, player: &str) -> Value {
        self.ask(proxy, json!({ "op": "take", "player": player })).await
    }

    async fn lands(&mut self, backend: &mut Node, transfer: &Value) {
        let answer = self.ask(backend, json!({ "op": "redeem", "player": transfer["player"] })).await;
        assert_eq!((&answer["outcome"], &answer["token"]), (&json!("landed"), &transfer["token"]), "{answer}");
        assert_eq!(answer["payload"], transfer["payload"]);
    }
}

/// State and claimant of the player's row.
async fn row(conn: &mut MultiplexedConnection, player: &str) -> (String, String, String) {
    let key = format!("maitred:{{eu}}:token:{player}");
    let row: Vec<Option<String>> = redis::cmd("HMGET")
        .arg(key)
        .arg(&["state", "claimant", "claimant_epoch"])
        .query_async(conn)
        .await
        .expect("the store answers");
    let mut row = row.into_iter().map(Option::unwrap_or_default);
    let mut next = || row.next().unwrap_or_default();
    (next(), next(), next())
}

fn states(state: &str, claimant: &str) -> impl Fn(&(String, String, String)) -> bool {
    move |row| row.0 == state && row.1 == claimant
}

fn says(node: &Node, text: &str) -> usize {
    node.stderr().lines().filter(|line| line.contains(text)).count()
}

impl RouterFixture {
    /// Runs the binary as an operator does, and gives the version it wrote.
    fn operator(&self, args: &[&str]) -> u64 {
        let mut command = std::process::Command::new(maitred_testkit::program::maitred());
        command.args(args).args(["--store", &self.store.url(), "--zone", "eu", "--json"]).env("MAITRED_SECRET", SECRET);
        let output = command.output().expect("the binary runs");
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        told["version"].as_u64().expect("a version")
    }

    /// Waits until a player who connects at the router reads `text`.
    async fn reads(&mut self, router: &mut Node, text: &str) {
        eventually(text, LIMIT, async || self.take(router, "nobody").await["message"] == text).await;
    }
}

// POL-5: a router hears no event and never beats; a push and its end come into force there all the same.
#[tokio::test]
async fn pol_5_a_router_takes_a_push_and_its_end_with_the_players_who_connect() {
    let mut fixture = RouterFixture::new();
    let texts = |refused: &str| format!("texts: {{ refused: \"{refused}\" }}\n");
    let file = fixture.dir.path().join("network.yml");
    std::fs::write(&file, format!("{NETWORK}{}", texts("of the file"))).expect("a config");
    let (mut router, _) = fixture.node("r1", "proxy", &["--router"]).await;
    fixture.reads(&mut router, "of the file").await;
    let push = fixture.dir.path().join("push.yml");
    std::fs::write(&push, texts("of the push")).expect("a file");
    let version = fixture.operator(&["config", "push", push.to_str().expect("UTF-8")]);
    fixture.reads(&mut router, "of the push").await;
    let status = fixture.ask(&mut router, json!({ "op": "status" })).await;
    assert_eq!(status["config"], json!(version), "{status}");
    fixture.operator(&["config", "unpush"]);
    fixture.reads(&mut router, "of the file").await;
}

// DSP-9, TOK-3, TOK-6
#[tokio::test]
async fn dsp_9_a_router_and_participants_move_players_of_one_fleet() {
    let mut fixture = RouterFixture::new();
    let mut conn = fixture.store.conn().await;
    let (mut backend, _) = fixture.node("b1", "backend", &[]).await;
    fixture.ask(&mut backend, json!({ "op": "places", "count": 20 })).await;
    let (mut participant, ready) = fixture.node("p1", "proxy", &[]).await;
    assert!(ready.get("router").is_none() && ready["epoch"].as_u64() > Some(0), "{ready}");
    let (mut doomed, _) = fixture.node("p2", "proxy", &[]).await;
    let (mut router, ready) = fixture.node("r1", "proxy", &["--router"]).await;
    assert_eq!((&ready["router"], &ready["epoch"]), (&json!(true), &json!(0)), "{ready}");

    // Each says at its start, once, which of the two it is.
    for (node, is, is_not) in [
        (&participant, "proxy as a participant", "proxy as a router"),
        (&router, "proxy as a router", "proxy as a participant"),
    ] {
        eventually("it says what it is", LIMIT, async || says(node, is) == 1).await;
        let line = node.stderr().lines().find(|line| line.contains(is)).map(str::to_owned).unwrap_or_default();
        assert!(line.contains("INFO") && line.contains("eu") && line.contains("redis://127.0.0.1"), "{line}");
        assert_eq!(says(node, is_not), 0);
    }
    assert_eq!(says(&backend, "proxy as a"), 0);

    // A participant moves a player by itself; who has no token is nobody's to take.
    let moved = fixture.dispatch(&mut participant, "alice").await;
    fixture.lands(&mut backend, &moved).await;
    let nobody = fixture.take(&mut router, "nobody").await;
    assert_eq!((&nobody["outcome"], &nobody["reason"]), (&json!("refused"), &json!("no_token")), "{nobody}");
    let refused = fixture.ask(&mut router, json!({ "op": "dispatch", "player": "nobody" })).await;
    assert_eq!(refused["outcome"], "error", "a router selects nobody: {refused}");

    // A claim of a live participant is not the router's, however old it gets.
    let kept = fixture.dispatch(&mut participant, "carol").await;
    let since = Instant::now();

    // Players whose proxy dies come in through the router.
    let mut lost = Vec::new();
    for player in ["bob", "dave", "erin"] {
        lost.push(fixture.dispatch(&mut doomed, player).await);
    }
    let early = fixture.take(&mut router, "bob").await;
    assert_eq!((&early["outcome"], &early["reason"]), (&json!("refused"), &json!("lost")), "{early}");
    doomed.sigkill();
    for before in &lost {
        let player = before["player"].as_str().expect("a name");
        eventually("the claim of the dead is open", LIMIT, async || {
            states("PENDING", "")(&row(&mut conn, player).await)
        })
        .await;
    }
    let by_router = fixture.take(&mut router, "bob").await;
    for part in ["outcome", "token", "server", "addr", "payload"] {
        let wanted = if part == "outcome" { &json!("transfer") } else { &lost[0][part] };
        assert_eq!(&by_router[part], wanted, "{part}: {by_router}");
    }
    assert_eq!(row(&mut conn, "bob").await, ("CLAIMED".to_owned(), "r1".to_owned(), "0".to_owned()));
    fixture.lands(&mut backend, &by_router).await;

    // The router's claim is open again by its age alone, although the router lives; not before.
    let claimed = Instant::now();
    let taken = fixture.take(&mut router, "dave").await;
    assert_eq!(taken["outcome"], "transfer", "{taken}");
    let held = fixture.take(&mut participant, "dave").await;
    assert!(held["reason"] == "lost" || claimed.elapsed() >= REANIMATE, "{held}");
    eventually("the router's claim is open", LIMIT, async || states("PENDING", "")(&row(&mut conn, "dave").await))
        .await;
    let age = claimed.elapsed();
    assert!(age >= REANIMATE, "open again after {age:?}");
    assert!(router.is_running());
    let again = fixture.take(&mut participant, "dave").await;
    assert_eq!((&again["outcome"], &again["token"]), (&json!("transfer"), &taken["token"]), "{again}");
    assert_eq!(row(&mut conn, "dave").await.1, "p1");
    fixture.lands(&mut backend, &again).await;

    // one who arrives after the router's claim was reopened lands all the same.
    let slow = fixture.take(&mut router, "erin").await;
    assert_eq!(slow["outcome"], "transfer", "{slow}");
    eventually("the router's claim is open", LIMIT, async || states("PENDING", "")(&row(&mut conn, "erin").await))
        .await;
    fixture.lands(&mut backend, &slow).await;

    eventually("the live claim is older than any router's may be", LIMIT, async || {
        since.elapsed() > REANIMATE + REAP * 3
    })
    .await;
    assert_eq!(row(&mut conn, "carol").await.1, "p1", "the participant lost a claim that it holds");
    fixture.lands(&mut backend, &kept).await;

    // It publishes nothing: no row, no entry of a roster, no epoch.
    let keys: Vec<String> = redis::cmd("KEYS").arg("*r1*").query_async(&mut conn).await.expect("KEYS");
    assert!(keys.is_empty(), "{keys:?}");
    let roster: Vec<String> = redis::cmd("ZRANGE")
        .arg("maitred:{eu}:nodes:proxy")
        .arg(0)
        .arg(-1)
        .query_async(&mut conn)
        .await
        .expect("ZRANGE");
    assert!(!roster.contains(&"r1".to_owned()), "{roster:?}");
    let epochs: Vec<String> =
        redis::cmd("HKEYS").arg("maitred:{eu}:epochs").query_async(&mut conn).await.expect("HKEYS");
    assert!(!epochs.contains(&"r1".to_owned()), "{epochs:?}");
    let status = fixture.ask(&mut participant, json!({ "op": "status" })).await;
    assert_eq!(status["audit"], json!({}), "{status}");

    assert!(router.sigterm().success());
    assert!(participant.sigterm().success());
}

// DSP-9: which of the two it is follows from what is wired up, and nothing else can be a router.
#[test]
fn dsp_9_only_a_proxy_can_be_a_router() {
    let output = std::process::Command::new(maitred_testkit::program::maitred())
        .args(["node", "--id", "b1", "--role", "backend", "--router", "--store", "redis://127.0.0.1:1", "--zone", "eu"])
        .env("MAITRED_SECRET", SECRET)
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--role proxy"), "{said}");
}
