use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::fleet::Member;
use super::ears::Ears;

/// How often a backend is told how many players it has, where that changed.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// What the players walk through.
pub(super) struct World {
    pub line: &'static str,
    pub proxies: Vec<Arc<Member>>,
    pub doors: BTreeMap<String, Door>,
    pub ears: Arc<Ears>,
    /// The run is over: who is still on the way is lost.
    pub over: CancellationToken,
    /// Admissions a second that the gate allows.
    pub rate: u64,
    /// How long the whole line takes at that rate.
    pub length: Duration,
    /// Players who heard of their first admission.
    pub admitted: AtomicU64,
    /// Players whose first entry was answered.
    pub entered: AtomicU64,
    /// Answers that asked for another try.
    pub retries: AtomicU64,
}

impl World {
    /// The proxy of that number, or the next one that runs.
    pub fn proxy(&self, number: usize) -> Option<&Arc<Member>> {
        let count = self.proxies.len().max(1);
        let from = (0..count).filter_map(|step| self.proxies.get((number + step) % count));
        from.into_iter().find(|proxy| !proxy.is_gone())
    }

    pub fn count(&self, what: &AtomicU64) {
        what.fetch_add(1, Ordering::Relaxed);
    }
}

/// A backend, and who is inside.
pub(super) struct Door {
    pub backend: Arc<Member>,
    pub places: u64,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    players: BTreeSet<String>,
    /// The backend has not been told of everybody who came or went.
    changed: bool,
}

impl Door {
    pub fn new(backend: Arc<Member>, places: u64) -> Self {
        let inside = Mutex::new(Inside { players: BTreeSet::new(), changed: true });
        Self { backend, places, inside }
    }

    /// The player counts from before the backend is asked, so that no report of it is ever too low.
    pub fn comes(&self, player: &str) {
        let mut inside = self.inside();
        inside.players.insert(player.to_owned());
        inside.changed = true;
    }

    /// The backend has counted the player by itself: what it is told next is right again.
    pub fn came(&self) {
        self.inside().changed = true;
    }

    pub fn goes(&self, player: &str) {
        let mut inside = self.inside();
        inside.players.remove(player);
        inside.changed = true;
    }

    pub fn players(&self) -> BTreeSet<String> {
        self.inside().players.clone()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the backend how many players it has. True where it took that over.
    pub async fn report(&self) -> bool {
        let players = {
            let mut inside = self.inside();
            inside.changed = false;
            inside.players.len()
        };
        let line = json!({ "op": "load", "players": players, "soft_cap": self.places });
        let told = self.backend.ask(line).await.is_ok_and(|answer| answer["outcome"] == "ok");
        if !told {
            self.inside().changed = true;
        }
        told
    }

    fn has_changed(&self) -> bool {
        self.inside().changed
    }
}

/// Keeps telling a backend how many players it has, until `stop`.
pub(super) async fn keep_reporting(world: Arc<World>, id: String, stop: CancellationToken) {
    let Some(door) = world.doors.get(&id) else { return };
    while !stop.is_cancelled() {
        if door.has_changed() {
            door.report().await;
        }
        sleep(REPORT_EVERY).await;
    }
}

/// Sleeps between half of the time and one and a half of it.
pub(super) async fn about(ms: u64) {
    let time = Duration::from_millis(ms).mul_f64(rand::rng().random_range(0.5..1.5));
    sleep(time).await;
}
