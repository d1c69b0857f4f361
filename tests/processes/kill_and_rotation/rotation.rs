//! R-29, ENV-4: the secret of a fleet of processes is changed, one process at a time, in three rolls, while players come.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use maitred::envelope::Secret;
use maitred::node::{Control, KILL};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use super::client::{Process, Secrets, Talk};
use crate::fixtures::agents::{LIMIT, SECRET as OLD, key, operator};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const NEW: &str = "ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=";
const NODES: [(&str, &str); 4] = [("b1", "backend"), ("p1", "proxy"), ("b2", "backend"), ("p2", "proxy")];
const PLAYERS_AT_ONCE: u64 = 12;
/// Short times: a lease of 1.05 s, upkeep about every second.
const CONFIG: &str = "heartbeat: { intervalMs: 300 }\n\
    directory: { suspectMs: 800, offlineMs: 1050, removedMs: 4000 }\n\
    dispatch: { cooldownMs: 100, attemptTimeoutMs: 1500 }\n\
    tokens: { ttlMs: 10000, claimReanimateMs: 1000, reapIntervalMs: 500 }\n\
    store: { commandTimeoutMs: 2000, operationTimeoutMs: 4000 }\n";

/// How a player fared who was refused: asks again, at whichever proxy, until they land. Nobody waits for longer.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Default)]
struct Board {
    talks: Mutex<HashMap<String, Talk>>,
    stop: AtomicBool,
    landed: AtomicU64,
    retries: AtomicU64,
}

impl Board {
    fn talk(&self, id: &str) -> Option<Talk> {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn set(&self, id: &str, talk: Talk) {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), talk);
    }

    async fn ask(&self, id: &str, line: Value) -> Option<Value> {
        self.talk(id)?.ask(line).await
    }

    /// One player from the request to the landing.
    async fn play(&self, player: &str, first: usize) {
        let (began, mut said) = (Instant::now(), Vec::new());
        for attempt in first.. {
            assert!(began.elapsed() < PATIENCE, "{player} was lost; they were told {said:#?}");
            if attempt > first {
                self.retries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let proxy = ["p1", "p2"][attempt % 2];
            let Some(moved) = self.ask(proxy, json!({ "op": "dispatch", "player": player })).await else { continue };
            if moved["outcome"] != "transfer" {
                said.push(moved);
                continue;
            }
            let server = moved["server"].as_str().expect("a server");
            match self.ask(server, json!({ "op": "redeem", "player": player })).await {
                Some(landed) if landed["outcome"] == "landed" => {
                    self.landed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Some(other) => said.push(other),
                None => {}
            }
        }
    }
}

struct Fleet {
    store: TestStore,
    config: PathBuf,
    processes: HashMap<&'static str, Process>,
    board: Arc<Board>,
    logs: Vec<String>,
}

impl Fleet {
    async fn start(config: &Path, secrets: Secrets) -> Self {
        let mut fleet = Self {
            store: TestStore::start(),
            config: config.to_owned(),
            processes: HashMap::new(),
            board: Arc::new(Board::default()),
            logs: Vec::new(),
        };
        for (id, role) in NODES {
            fleet.begin(id, role, secrets).await;
        }
        fleet
    }

    async fn begin(&mut self, id: &'static str, role: &str, secrets: Secrets) {
        let process = Process::start(id, role, &self.store.url(), self.config.clone(), secrets).await;
        if role == "backend" {
            process.talk().ask(json!({ "op": "places", "count": 5_000 })).await.expect("places");
        }
        self.board.set(id, process.talk());
        self.processes.insert(id, process);
    }

    /// Every process ends and comes back with other secrets, one after the other; the next one waits until players go
    /// through all that is up.
    async fn roll(&mut self, secrets: Secrets) {
        for (id, role) in NODES {
            let log = self.processes.remove(id).expect("it runs").end().await;
            self.logs.push(log);
            self.begin(id, role, secrets).await;
            let landed = self.board.landed.load(Ordering::Relaxed);
            for proxy in ["p1", "p2"] {
                eventually("the proxies see everybody", LIMIT, async || {
                    let status = self.board.ask(proxy, json!({ "op": "status" })).await.expect("a status");
                    status["online"].as_u64().is_some_and(|online| online >= 3)
                })
                .await;
            }
            eventually("players land", LIMIT, async || self.board.landed.load(Ordering::Relaxed) > landed + 20).await;
        }
    }

    async fn check_audits(&self, when: &str) {
        for (id, _) in NODES {
            let status = self.board.ask(id, json!({ "op": "status" })).await.expect("a status");
            assert_eq!(status["audit"], json!({}), "{when}: {id} dropped something: {status}");
        }
        let running = self.processes.values().map(Process::stderr);
        for log in self.logs.iter().cloned().chain(running) {
            assert!(!log.contains("maitred::audit"), "{when}: {log}");
        }
    }
}

/// Rows of live tokens and of nodes, and control entries, that only the secret `kid` does not verify.
async fn left(conn: &mut MultiplexedConnection, kid: &str) -> Vec<String> {
    const LOOK: &str = "
        local left = {}
        local function look(pattern, live)
          for _, key in ipairs(redis.call('KEYS', pattern)) do
            local row = redis.call('HMGET', key, 'sig', 'state', 'claim_sig', 'last_claim_sig')
            local counts = not live or row[2] == 'PENDING' or row[2] == 'CLAIMED'
            for _, sig in ipairs({ row[1] or '', row[3] or '', row[4] or '' }) do
              if counts and sig ~= '' and string.sub(sig, 1, #ARGV[3]) ~= ARGV[3] then left[#left + 1] = key end
            end
          end
        end
        look(ARGV[1], true)
        look(ARGV[2], false)
        local entries = redis.call('HGETALL', KEYS[1])
        for i = 1, #entries, 2 do
          if not string.find(entries[i + 1], '\"sig\":\"' .. ARGV[3], 1, true) then left[#left + 1] = entries[i] end
        end
        return left";
    let pattern = |kind: &str| key(&format!("{kind}:*")).replace('{', "[{]").replace('}', "[}]");
    redis::cmd("EVAL")
        .arg(LOOK)
        .arg(1)
        .arg(key("control"))
        .arg(pattern("token"))
        .arg(pattern("node"))
        .arg(kid)
        .query_async(conn)
        .await
        .expect("a look")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_29_the_secret_changes_in_three_rolls_and_no_request_is_lost() {
    let config = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(config.path(), CONFIG).expect("the config is written");
    let mut fleet = Fleet::start(config.path(), Secrets { signs: OLD, also: None }).await;
    let mut conn = fleet.store.conn().await;
    // Entries of the old secret, in force and not.
    let (store, verifier) = operator(&fleet.store).await;
    let control = Control::default();
    control.put(&store, &verifier, KILL, "off", "ops").await.expect("written");
    control.put(&store, &verifier, "kill:b9", "on", "ops").await.expect("written");

    let players: Vec<_> = (0..PLAYERS_AT_ONCE)
        .map(|lane| {
            let board = Arc::clone(&fleet.board);
            tokio::spawn(async move {
                for n in 0_usize.. {
                    if board.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    board.play(&format!("l{lane}-{n}"), n).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    let landed = || fleet.board.landed.load(Ordering::Relaxed);
    eventually("players land", LIMIT, async || landed() > 50).await;

    fleet.roll(Secrets { signs: OLD, also: Some(NEW) }).await;
    fleet.check_audits("everybody accepts the new one").await;
    fleet.roll(Secrets { signs: NEW, also: Some(OLD) }).await;
    fleet.check_audits("everybody signs with the new one").await;
    let kid = Secret::from_base64("TEST", NEW).expect("a secret").kid();
    eventually("nothing is left that only the old secret verifies", LIMIT, async || {
        left(&mut conn, kid.as_str()).await.is_empty()
    })
    .await;
    fleet.roll(Secrets { signs: NEW, also: None }).await;

    fleet.board.stop.store(true, Ordering::Relaxed);
    for player in players {
        player.await.expect("nobody was lost");
    }
    fleet.check_audits("everybody dropped the old one").await;
    let (landed, retries) = (fleet.board.landed.load(Ordering::Relaxed), fleet.board.retries.load(Ordering::Relaxed));
    assert!(landed > 250 && retries < landed, "{landed} landed, {retries} asked again: this showed nothing");
    // The entries still say what they said.
    let entries: HashMap<String, String> =
        redis::cmd("HGETALL").arg(key("control")).query_async(&mut conn).await.expect("HGETALL");
    assert!(
        entries[KILL].contains("\"value\":\"off\"") && entries["kill:b9"].contains("\"value\":\"on\""),
        "{entries:?}"
    );
}
