//! A store and processes of two builds that share it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::peer::{LIMIT, Peer};

const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const ZONE: &str = "eu";
/// Short times, so that a lease, a claim and a grace run out while somebody looks.
const NETWORK: &str = "heartbeat: { intervalMs: 500 }\ndirectory: { suspectMs: 1300, offlineMs: 1750 }\n\
    dispatch: { cooldownMs: 0 }\nselector: { onNoCandidate: queue }\n\
    tokens: { ttlMs: 20000, claimReanimateMs: 1500, auditMs: 2000, reapIntervalMs: 250 }\n\
    wait: { reconnectGraceMs: 8000 }\n";

/// Lines of the config beyond the times, where a check needs some.
pub const LOGIN: &str = "lines: { login: { fixedPerSecond: 20, burst: 4, tickMs: 100, arriveMs: 20000, \
    reconnectGraceMs: 8000 } }\n";

/// The two binaries.
#[derive(Debug, Clone)]
pub struct Builds {
    pub old: PathBuf,
    pub new: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Build {
    Old,
    New,
}

pub const BOTH: [Build; 2] = [Build::Old, Build::New];

impl Build {
    pub fn other(self) -> Self {
        if self == Self::Old { Self::New } else { Self::Old }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Old { "old" } else { "new" })
    }
}

impl Builds {
    pub fn program(&self, build: Build) -> &Path {
        if build == Build::Old { &self.old } else { &self.new }
    }
}

/// One store, and one config for all.
pub struct Fleet {
    pub store: TestStore,
    builds: Builds,
    dir: TempDir,
}

impl Fleet {
    /// An empty fleet; `config` stands behind the times of all checks.
    pub fn new(builds: Builds, config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("network.yml"), format!("{NETWORK}{config}")).expect("a config");
        Self { store: TestStore::start(), builds, dir }
    }

    /// Starts a node of that build, called by build and role, and waits until it is a member.
    pub async fn node(&self, build: Build, role: &str) -> Peer {
        let id = format!("{build}-{role}");
        let program = self.builds.program(build).to_owned();
        let mut options = NodeOptions::of(program, &id, role, &self.store.url(), ZONE).env("MAITRED_SECRET", SECRET);
        options.addr = format!("{id}.example:25565");
        options.config = Some(self.dir.path().join("network.yml"));
        let mut peer = Peer::new(id, Node::spawn(&options));
        peer.event("it is ready", |line| line["event"] == "ready").await;
        peer
    }

    /// A proxy and a backend of each build, which all see each other: proxies, then backends, the old one first.
    pub async fn four(&self) -> ([Peer; 2], [Peer; 2]) {
        let backends = [self.node(Build::Old, "backend").await, self.node(Build::New, "backend").await];
        let mut proxies = [self.node(Build::Old, "proxy").await, self.node(Build::New, "proxy").await];
        for proxy in &mut proxies {
            online(proxy, 4).await;
        }
        (proxies, backends)
    }

    pub async fn conn(&self) -> MultiplexedConnection {
        self.store.conn().await
    }

    /// Names of the zone's keys that are there, without the zone.
    pub async fn keys(&self) -> Vec<String> {
        let prefix = format!("maitred:{{{ZONE}}}:");
        let mut conn = self.conn().await;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(format!("{prefix}*")).query_async(&mut conn).await.expect("KEYS");
        let mut keys: Vec<String> =
            keys.iter().filter_map(|key| key.strip_prefix(&prefix)).map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// A field of a node's row.
    pub async fn row(&self, id: &str, field: &str) -> Option<String> {
        let mut conn = self.conn().await;
        let key = format!("maitred:{{{ZONE}}}:node:{id}");
        redis::cmd("HGET").arg(key).arg(field).query_async(&mut conn).await.expect("HGET")
    }

    /// Tells a backend its players and places, and waits until its row says so.
    pub async fn load(&self, backend: &mut Peer, players: u64, places: u64) {
        backend.must(json!({"op": "load", "players": players, "soft_cap": places}), "ok").await;
        let id = backend.id.clone();
        eventually(&format!("the row of {id} says {players} of {places}"), LIMIT, async || {
            self.row(&id, "players").await == Some(players.to_string())
                && self.row(&id, "soft_cap").await == Some(places.to_string())
        })
        .await;
    }

    /// Runs a command of that build against the store and hands back what it says in JSON.
    pub fn command(&self, build: Build, args: &[&str]) -> Value {
        let mut command = Command::new(self.builds.program(build));
        command.args(args).args(["--json", "--store", &self.store.url(), "--zone", ZONE]);
        command.arg("--config").arg(self.dir.path().join("network.yml"));
        command.env("MAITRED_SECRET", SECRET).stdin(Stdio::null());
        let output = command.output().expect("the command starts");
        let shown = || format!("{build} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}", shown());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", shown()))
    }
}

/// Waits until the node sees that many members, itself among them.
pub async fn online(peer: &mut Peer, count: u64) {
    eventually(&format!("{} sees {count} members", peer.id), LIMIT, async || {
        peer.ask(json!({"op": "status"})).await["online"] == count
    })
    .await;
}
