//! What a run consists of: one store, five processes, wires in front of three of them, and the record of what happened.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::member::Member;
use super::record::Record;
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::fleet::NodeOptions;
use maitred_testkit::store::TestStore;

pub const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub const TTL: Duration = Duration::from_millis(2_500);
pub const REAP: Duration = Duration::from_millis(300);
pub const AUDIT: Duration = Duration::from_millis(3_000);
/// Longest time that an operation of the store is repeated by a node.
pub const OPERATION: Duration = Duration::from_millis(1_500);
/// A process that is frozen for longer has lost its lease (3.5 beats).
pub const LEASE: Duration = Duration::from_millis(700);
/// Longest time between a line and its answer, without the time that the process was frozen: three attempts, the look at
/// the present token, and the cancel, each with the store's whole operation time, on a busy machine.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Fewer than the players who want them: places go from hand to hand.
pub const SCARCE: (&str, u64) = ("scarce", 6);
pub const AMPLE: (&str, u64) = ("ample", 20_000);

const NETWORK: &str = "\
heartbeat: { intervalMs: 200 }
directory: { refreshMs: 500, suspectMs: 500, offlineMs: 800, removedMs: 5000 }
tokens: { ttlMs: 2500, claimReanimateMs: 800, auditMs: 3000, reapIntervalMs: 300 }
dispatch: { maxRetries: 2, attemptTimeoutMs: 600, cooldownMs: 100, staleAfterMs: 700 }
store: { commandTimeoutMs: 300, connectTimeoutMs: 300, operationTimeoutMs: 1500 }
";

pub struct World {
    pub record: Arc<Record>,
    pub proxies: Vec<Arc<Member>>,
    pub backends: Vec<Arc<Member>>,
    pub wires: Vec<(&'static str, Arc<FaultProxy>)>,
    /// The storm is over: no new players.
    pub closing: CancellationToken,
    pub store: TestStore,
    lines: AtomicU64,
    _dir: TempDir,
}

impl World {
    /// Starts everything and waits until the processes are members.
    pub async fn start(seed: u64) -> Self {
        let store = TestStore::start();
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("network.yml");
        std::fs::write(&config, NETWORK).expect("a config");
        let record = Arc::new(Record::new(seed));
        let wires: Vec<(&'static str, Arc<FaultProxy>)> =
            ["p1", "b1", "b2"].map(|id| (id, Arc::new(FaultProxy::start(&store)))).into();
        let member = |id: &str, role: &str| {
            let url = wires.iter().find(|(of, _)| *of == id).map_or_else(|| store.url(), |(_, wire)| wire.url());
            Member::start(options(id, role, &url, config.clone()), &record)
        };
        let proxies: Vec<_> = ["p1", "p2"].map(|id| member(id, "proxy")).into();
        let backends: Vec<_> = ["b1", "b2", "b3"].map(|id| member(id, "backend")).into();
        let world = Self {
            record,
            proxies,
            backends,
            wires,
            closing: CancellationToken::new(),
            store,
            lines: AtomicU64::new(0),
            _dir: dir,
        };
        for member in world.members() {
            member.is_ready().await;
        }
        world
    }

    pub fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.proxies.iter().chain(&self.backends)
    }

    /// An id that no other line has.
    pub fn fresh_id(&self) -> String {
        format!("l{}", self.lines.fetch_add(1, Ordering::Relaxed))
    }

    /// Any proxy; another one than `not` where there is one.
    pub fn proxy(&self, rng: &mut StdRng, not: Option<&Member>) -> &Arc<Member> {
        let others: Vec<_> = self.proxies.iter().filter(|proxy| not.is_none_or(|not| not.id != proxy.id)).collect();
        others[rng.random_range(0..others.len())]
    }

    pub fn backend(&self, id: &str) -> Option<&Arc<Member>> {
        self.backends.iter().find(|backend| backend.id == id)
    }
}

fn options(id: &str, role: &str, url: &str, config: PathBuf) -> NodeOptions {
    let mut options = NodeOptions::new(id, role, url, "eu").env("MAITRED_SECRET", SECRET).env("MAITRED_LOG", "info");
    options.addr = format!("{id}.example:25565");
    options.config = Some(config);
    options
}

/// The lines that open a backend's places.
pub fn places() -> [serde_json::Value; 2] {
    [SCARCE, AMPLE].map(|(region, count)| json!({ "op": "places", "region": region, "count": count }))
}
