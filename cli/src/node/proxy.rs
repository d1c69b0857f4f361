use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use tokio_util::task::TaskTracker;

use maitred::agent::{ConfigSource, Managed, Outcome, ProxyAgent, Request, Transfer, WaitUpdate, Waiting};
use maitred::ids::{Player, RequestId, ServiceName};
use maitred::node::LoadSample;
use maitred::select::Ask;
use maitred::token::{CancelOutcome, ReleaseOutcome};

use super::backend::{absent, set_load, status};
use super::line::{Line, error};
use super::queue::Queue;
use super::session::Outputs;

/// Dispatches whose ids are remembered for `cancel` and `release`.
const REMEMBERED: usize = 16_384;

/// A proxy behind JSON lines.
pub(super) struct Duty {
    managed: Managed<ProxyAgent>,
    load: Arc<Mutex<LoadSample>>,
    recent: Known,
    /// Where the ends of requests that wait are told.
    outputs: Outputs,
    tasks: TaskTracker,
    queue: Queue,
}

/// What is remembered of recent dispatches; clones are one.
#[derive(Clone, Default)]
struct Known(Arc<Mutex<Recent>>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a dispatch or take, with the transfer remembered for a later `release`.
    fn moved(&self, id: &str, player: &Player, outcome: &Outcome) -> Value {
        if let Outcome::Transfer(transfer) = outcome
            && let Some(entry) = self.lock().requests.get_mut(&(player.clone(), id.to_owned()))
        {
            entry.1 = Some((**transfer).clone());
        }
        told(id, player, outcome)
    }
}

/// The requests and transfers behind the ids that clients gave their dispatches.
#[derive(Default)]
struct Recent {
    order: VecDeque<(Player, String)>,
    requests: HashMap<(Player, String), (RequestId, Option<Transfer>)>,
    /// Those that are not answered yet.
    running: HashSet<(Player, String)>,
}

impl Recent {
    fn remember(&mut self, player: &Player, id: &str, request: RequestId) {
        let key = (player.clone(), id.to_owned());
        if self.requests.insert(key.clone(), (request, None)).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.requests.remove(&oldest);
            }
        }
    }
}

/// A dispatch or take under way, or a request that waits: as long as it is there, its id stands for it alone.
struct Running {
    recent: Known,
    key: (Player, String),
}

impl Drop for Running {
    fn drop(&mut self) {
        self.recent.lock().running.remove(&self.key);
    }
}

impl Duty {
    pub fn start(source: ConfigSource, is_lobby: bool, outputs: Outputs, tasks: TaskTracker, queue: Queue) -> Self {
        let load = Arc::new(Mutex::new(LoadSample::default()));
        let sample = Arc::clone(&load);
        let managed = Managed::start(source, move |setup| {
            let sample = Arc::clone(&sample);
            let sample = move || sample.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if is_lobby { setup.lobby(sample) } else { setup.proxy(sample) }
        });
        Self { managed, load, recent: Known::default(), outputs, tasks, queue }
    }

    pub fn managed(&self) -> &Managed<ProxyAgent> {
        &self.managed
    }

    pub async fn answer(&self, line: Line) -> Value {
        let line = match line {
            Line::Load { id, players, soft_cap, load } => {
                set_load(&self.load, players, soft_cap, *load);
                return json!({ "id": id, "outcome": "ok" });
            }
            line => line,
        };
        let Some(proxy) = self.managed.agent() else { return absent(line.id(), &self.managed) };
        match line {
            Line::Dispatch { id, player, region, server, prefer, source, first_join, may_be_placed, bypass } => {
                let ask = Ask { server, region, prefer, ..Ask::default() };
                let request = Request { source, ask, first_join, may_be_placed, bypass, ..Request::new(player) };
                self.dispatch(&proxy, &id, request).await
            }
            Line::Take { id, player } => self.take(&proxy, &id, &player).await,
            Line::Cancel { id, player, request, dropped } => {
                if dropped && let Some(answer) = self.dropped(&proxy, id.as_deref(), &player, &request).await {
                    return answer;
                }
                self.cancel(&proxy, id.as_deref(), &player, &request).await
            }
            Line::Release { id, player, request, reason } => {
                let reason = reason.as_deref().unwrap_or("not_moved");
                self.release(&proxy, id.as_deref(), &player, &request, reason).await
            }
            Line::Find { id, player } => match proxy.find(&player).await {
                Ok(Some(row)) => json!({ "id": id, "outcome": "found", "token": row }),
                Ok(None) => json!({ "id": id, "outcome": "none", "player": player }),
                Err(why) => error(id.as_deref(), &why),
            },
            Line::Status { id } => status(proxy.agent(), id.as_deref()),
            // The future of everything that a line can lead to would be too deep for the compiler in one piece.
            other => Box::pin(self.queue.answer(&proxy, other)).await,
        }
    }

    /// `None` where the player has a request under way with this id: a cancel could mean either of the two.
    fn begin(&self, player: &Player, id: &str) -> Option<Running> {
        let key = (player.clone(), id.to_owned());
        // The lock is let go first, and a refused one is never made: its end would take the other's place away.
        let is_new = self.recent.lock().running.insert(key.clone());
        is_new.then(|| Running { recent: self.recent.clone(), key })
    }

    async fn dispatch(&self, proxy: &ProxyAgent, id: &str, request: Request) -> Value {
        let player = request.player.clone();
        let Some(running) = self.begin(&player, id) else { return still_runs(id) };
        self.recent.lock().remember(&player, id, request.id.clone());
        let outcome = proxy.dispatch(request).await;
        let answer = self.recent.moved(id, &player, &outcome);
        if let Outcome::Waiting(waiting) = outcome {
            let (outputs, recent, id) = (self.outputs.clone(), self.recent.clone(), id.to_owned());
            self.tasks.spawn(async move {
                until_its_end(waiting, &id, &recent, &outputs).await;
                drop(running);
            });
        }
        answer
    }

    async fn take(&self, proxy: &ProxyAgent, id: &str, player: &Player) -> Value {
        let Some(_running) = self.begin(player, id) else { return still_runs(id) };
        let outcome = proxy.take(player).await;
        if let Outcome::Transfer(transfer) = &outcome {
            self.recent.lock().remember(player, id, transfer.request.clone());
        }
        self.recent.moved(id, player, &outcome)
    }

    fn known(&self, player: &Player, request: &str) -> Option<(RequestId, Option<Transfer>)> {
        self.recent.lock().requests.get(&(player.clone(), request.to_owned())).cloned()
    }

    /// The connection of a player who waits dropped. `None` where the request does not wait.
    async fn dropped(&self, proxy: &ProxyAgent, id: Option<&str>, player: &Player, request: &str) -> Option<Value> {
        let (request_id, _) = self.known(player, request)?;
        match proxy.away(player, &request_id).await {
            Ok(true) => Some(json!({ "id": id, "outcome": "away", "player": player, "request": request })),
            Ok(false) => None,
            Err(why) => Some(error(id, &why)),
        }
    }

    async fn cancel(&self, proxy: &ProxyAgent, id: Option<&str>, player: &Player, request: &str) -> Value {
        let Some((request_id, _)) = self.known(player, request) else {
            return json!({ "id": id, "outcome": "error", "error": "no such dispatch of the player" });
        };
        match proxy.cancel(player, &request_id).await {
            Ok(outcome) => {
                let word = match outcome {
                    CancelOutcome::Marked | CancelOutcome::Released => "cancelled",
                    CancelOutcome::Lost => "lost",
                    CancelOutcome::Landed => "landed",
                };
                json!({ "id": id, "outcome": word, "player": player, "request": request })
            }
            Err(why) => error(id, &why),
        }
    }

    async fn release(
        &self,
        proxy: &ProxyAgent,
        id: Option<&str>,
        player: &Player,
        request: &str,
        reason: &str,
    ) -> Value {
        let Some((_, Some(transfer))) = self.known(player, request) else {
            return json!({ "id": id, "outcome": "error", "error": "no such transfer of the player" });
        };
        if ServiceName::new(reason).is_err() {
            return json!({ "id": id, "outcome": "error", "error": "reason is no word of A-Z a-z 0-9 . _ -" });
        }
        match proxy.failed(&transfer, reason).await {
            Ok(outcome) => json!({ "id": id, "outcome": released(&outcome), "player": player, "request": request }),
            Err(why) => error(id, &why),
        }
    }
}

/// Tells everybody how a request that waits goes on, and how it ends.
async fn until_its_end(mut waiting: Waiting, id: &str, recent: &Known, outputs: &Outputs) {
    let player = waiting.player().clone();
    while let Some(update) = waiting.next().await {
        let outcome = match update {
            WaitUpdate::Position { position, estimate_ms } => {
                outputs.tell(&json!({
                    "event": "position", "id": id, "player": player, "line": waiting.line(), "position": position,
                    "estimate_ms": estimate_ms,
                }));
                continue;
            }
            WaitUpdate::Transfer(transfer) => Outcome::Transfer(transfer),
            WaitUpdate::Refused(refusal) => Outcome::Refused(refusal),
        };
        let mut line = recent.moved(id, &player, &outcome);
        if let Some(line) = line.as_object_mut()
            && let Some(word) = line.remove("outcome")
        {
            line.insert("event".to_owned(), word);
        }
        outputs.tell(&line);
    }
}

fn still_runs(id: &str) -> Value {
    json!({ "id": id, "outcome": "error", "error": "a request of the player with this id is not answered yet" })
}

/// The answer to a dispatch or take.
pub(super) fn told(id: &str, player: &Player, outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Transfer(transfer) => json!({
            "id": id, "outcome": "transfer", "player": player, "server": transfer.server,
            "addr": transfer.addr, "token": transfer.token.id, "payload": transfer.payload(),
            "deadline_ms": transfer.left_ms(),
        }),
        Outcome::Balanced(balanced) => json!({
            "id": id, "outcome": "balanced", "player": player, "server": balanced.server, "addr": balanced.addr,
        }),
        Outcome::Waiting(waiting) => json!({
            "id": id, "outcome": "waiting", "player": player, "line": waiting.line(), "position": waiting.position(),
            "estimate_ms": waiting.estimate_ms(),
        }),
        Outcome::Refused(refusal) => {
            let mut line = json!({
                "id": id, "outcome": "refused", "player": player, "reason": refusal.reason.as_str(),
                "message": refusal.message, "detail": refusal.detail,
            });
            if let Some(wait_ms) = refusal.retry_after_ms {
                line["retry_after_ms"] = wait_ms.into();
            }
            line
        }
    }
}

/// The word of a release.
pub(super) fn released(outcome: &ReleaseOutcome) -> &'static str {
    match outcome {
        ReleaseOutcome::Released | ReleaseOutcome::Ended(_) | ReleaseOutcome::None => "released",
        ReleaseOutcome::Lost => "lost",
        ReleaseOutcome::Landed => "landed",
    }
}
