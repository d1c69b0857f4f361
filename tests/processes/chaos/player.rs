//! Players who come, change their minds, vanish, and come back through another proxy when theirs dies.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::member::{Gone, Member};
use super::world::{AMPLE, SCARCE, World};

/// Players at the same time; each is followed by a new one.
const CROWD: u64 = 14;
/// How often a join is repeated whose answer was not definite.
const JOINS: u32 = 5;

/// Starts the players. Each task ends with its present player once the storm is over.
pub fn crowd(world: &Arc<World>, seed: u64) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for lane in 0..CROWD {
        let (world, mut rng) = (Arc::clone(world), StdRng::seed_from_u64(seed.wrapping_add(lane * 7_919)));
        tasks.spawn(async move {
            let mut store = world.store.conn().await;
            for n in 0_u64.. {
                if world.closing.is_cancelled() {
                    return;
                }
                let name = format!("guest-{lane}-{n}");
                world.record.count("players");
                Guest { world: &world, name, rng: &mut rng, store: &mut store }.play().await;
                about(&mut rng, 120).await;
            }
        });
    }
    tasks
}

struct Guest<'a> {
    world: &'a World,
    name: String,
    rng: &'a mut StdRng,
    store: &'a mut MultiplexedConnection,
}

impl Guest<'_> {
    async fn play(&mut self) {
        let proxy = self.world.proxy(self.rng, None);
        match self.rng.random_range(0..100) {
            0..55 => self.comes(proxy).await,
            55..67 => {
                self.cancels(proxy).await;
                if self.rng.random() {
                    self.comes(proxy).await;
                }
            }
            67..77 => {
                self.world.record.count("vanished");
                let _ = self.dispatch(proxy, &self.world.fresh_id()).await;
            }
            77..85 => {
                let id = self.world.fresh_id();
                if let Ok(answer) = self.dispatch(proxy, &id).await
                    && answer["outcome"] == "transfer"
                {
                    self.world.record.count("not moved");
                    let line = json!({ "op": "release", "player": self.name, "request": id });
                    let _ = proxy.ask(&self.world.fresh_id(), line).await;
                }
                self.comes(proxy).await;
            }
            85..93 => {
                // Arrives after its claim may have been reopened, or its token has expired.
                if let Ok(answer) = self.dispatch(proxy, &self.world.fresh_id()).await {
                    self.world.record.count("late");
                    about(self.rng, 1_700).await;
                    if self.moved(&answer).await {
                        return;
                    }
                }
                self.comes(proxy).await;
            }
            _ => self.comes_twice(proxy).await,
        }
    }

    /// Asks until they have landed: nobody is lost for longer than the faults last.
    async fn comes(&mut self, first: &Arc<Member>) {
        let mut proxy = first;
        loop {
            let id = self.world.fresh_id();
            let impatient = self.rng.random_ratio(1, 8);
            let line = if self.rng.random_ratio(1, 6) { self.take() } else { self.line() };
            let limit = Duration::from_millis(if impatient { 400 } else { 60_000 });
            match timeout(limit, self.ask(proxy, &id, line)).await {
                Ok(Ok(answer)) => {
                    if self.moved(&answer).await {
                        return;
                    }
                }
                // Their proxy died, or they have had enough of it.
                Ok(Err(Gone)) | Err(_) => {
                    self.world.record.count("reconnected");
                    proxy = self.world.proxy(self.rng, Some(proxy));
                }
            }
            about(self.rng, 120).await;
        }
    }

    /// Two proxies look for a place at the same time.
    async fn comes_twice(&mut self, proxy: &Arc<Member>) {
        self.world.record.count("dispatched twice");
        let other = self.world.proxy(self.rng, Some(proxy));
        let (one, two) = (self.world.fresh_id(), self.world.fresh_id());
        let (line, second) = (self.line(), self.line());
        let (first, second) = tokio::join!(proxy.ask(&one, line), other.ask(&two, second));
        let mut landed = false;
        for answer in [first, second].into_iter().flatten() {
            self.tell(&answer);
            landed = landed || self.moved(&answer).await;
        }
        if !landed {
            self.comes(proxy).await;
        }
    }

    // DSP-8: whoever cancels leaves no live token, at whatever step it was.
    async fn cancels(&mut self, proxy: &Arc<Member>) {
        let id = self.world.fresh_id();
        let line = self.line();
        let pause = Duration::from_millis(self.rng.random_range(0..80));
        let cancel = async {
            sleep(pause).await;
            for _ in 0..50 {
                let line = json!({ "op": "cancel", "player": self.name, "request": id });
                let answer = proxy.ask(&self.world.fresh_id(), line).await?;
                if answer["error"].as_str().is_none_or(|error| !error.contains("no such dispatch")) {
                    return Ok(answer);
                }
                sleep(Duration::from_millis(10)).await;
            }
            Err(Gone)
        };
        let (asked, cancelled) = tokio::join!(proxy.ask(&id, line), cancel);
        let (Ok(answer), Ok(cancelled)) = (asked, cancelled) else { return };
        self.tell(&answer);
        self.world.record.count(&format!("cancel {}", cancelled["outcome"].as_str().unwrap_or("-")));
        if cancelled["outcome"] == "cancelled" {
            let row = self.row().await;
            if matches!(row.1.as_deref(), Some("PENDING" | "CLAIMED")) {
                self.world
                    .record
                    .broken(&format!("{} cancelled and has {row:?}; the dispatch said {answer}", self.name));
            }
        }
    }

    fn line(&mut self) -> Value {
        let mut line = json!({ "op": "dispatch", "player": self.name });
        match self.rng.random_range(0..10) {
            0..4 => line["region"] = SCARCE.0.into(),
            4..8 => line["region"] = AMPLE.0.into(),
            8 => {
                line["server"] =
                    self.world.backends[self.rng.random_range(0..self.world.backends.len())].id.clone().into()
            }
            _ => {}
        }
        line
    }

    fn take(&self) -> Value {
        json!({ "op": "take", "player": self.name })
    }

    async fn dispatch(&mut self, proxy: &Member, id: &str) -> Result<Value, Gone> {
        let line = self.line();
        self.ask(proxy, id, line).await
    }

    /// Sends a dispatch or take.
    async fn ask(&self, proxy: &Member, id: &str, line: Value) -> Result<Value, Gone> {
        let answer = proxy.ask(id, line).await?;
        self.tell(&answer);
        Ok(answer)
    }

    fn tell(&self, answer: &Value) {
        let outcome = answer["outcome"].as_str().unwrap_or("-");
        match answer["reason"].as_str() {
            Some(reason) => self.world.record.count(&format!("{outcome} {reason}")),
            None => self.world.record.count(outcome),
        }
        if outcome == "transfer" {
            self.world.record.offered(answer);
        } else if outcome != "refused" {
            self.world.record.broken(&format!("a dispatch of {} ended without a type: {answer}", self.name));
        }
    }

    /// The proxy moves them to the backend that it named. True once they have landed.
    async fn moved(&mut self, answer: &Value) -> bool {
        let Some(server) = answer["server"].as_str().filter(|_| answer["outcome"] == "transfer") else { return false };
        let Some(backend) = self.world.backend(server) else {
            self.world.record.broken(&format!("{} was sent to {server}, which nobody knows", self.name));
            return false;
        };
        about(self.rng, 40).await;
        for _ in 0..JOINS {
            let joins = json!({ "op": "redeem", "player": self.name });
            let Ok(answer) = backend.ask(&self.world.fresh_id(), joins.clone()).await else { return false };
            let (outcome, reason) = (answer["outcome"].as_str().unwrap_or("-"), answer["reason"].as_str());
            self.world.record.count(&format!("join {outcome} {}", reason.unwrap_or("")));
            match (outcome, reason) {
                ("landed", _) => {
                    let (id, state) = self.row().await;
                    if id.as_deref() == answer["token"].as_str() && state.as_deref() != Some("CONSUMED") {
                        self.world
                            .record
                            .broken(&format!("{} landed, and the row says {state:?}: {answer}", self.name));
                    }
                    if self.rng.random_ratio(1, 3) {
                        // Whoever knocks again must not get a second place: the record sees it.
                        let _ = backend.ask(&self.world.fresh_id(), joins).await;
                    }
                    return true;
                }
                ("error", _) | ("refused", Some("in_progress")) => about(self.rng, 100).await,
                _ => return false,
            }
        }
        false
    }

    /// Id and state of the player's row.
    async fn row(&mut self) -> (Option<String>, Option<String>) {
        let key = format!("maitred:{{eu}}:token:{}", self.name);
        let row = redis::cmd("HMGET").arg(key).arg(&["id", "state"]).query_async(self.store).await;
        row.expect("the store answers the test")
    }
}

/// Sleeps between half of the time and one and a half of it.
async fn about(rng: &mut StdRng, ms: u64) {
    sleep(Duration::from_millis(rng.random_range(ms / 2..ms * 3 / 2))).await;
}
