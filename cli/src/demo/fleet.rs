use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maitred_testkit::process::{NodeOptions, Process};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Failure;

/// Longest wait for a node's answer to one line.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Longest time until a node is a member of the fleet.
const READY_MAX: Duration = Duration::from_secs(20);
/// Last bytes of a node's log that are shown when something fails.
const LOG_SHOWN: usize = 2_000;

/// What every node is started with.
pub(super) struct Launch<'a> {
    pub store: String,
    pub zone: &'a str,
    pub config: &'a Path,
    /// Handed over by the environment, never in the arguments that other users can list.
    pub secret: &'a str,
}

/// Who hears what the processes say besides their answers.
pub(super) trait Hears: Send + Sync + 'static {
    /// An event line of a node.
    fn event(&self, node: &str, event: &str, line: &Value);
    /// What does not belong here.
    fn odd(&self, line: String);
}

/// The node went away before it answered, or did not answer in time.
#[derive(Debug)]
pub(super) struct NoAnswer;

type Pending = Mutex<HashMap<String, oneshot::Sender<Value>>>;

/// One `maitred node` process. Dropping it kills it.
pub(super) struct Member {
    pub id: String,
    process: Mutex<Process>,
    pending: Arc<Pending>,
    next: AtomicU64,
    ready: CancellationToken,
    gone: CancellationToken,
}

impl Member {
    /// Starts the process; `port` only makes its address differ, nobody listens there.
    pub fn spawn(
        launch: &Launch<'_>,
        id: &str,
        role: &str,
        port: u16,
        ears: Arc<dyn Hears>,
    ) -> Result<Arc<Self>, Failure> {
        let failed = |error: std::io::Error| Failure::io(&format!("starting {id}"), &error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut options = NodeOptions::of(program, id, role, &launch.store, launch.zone);
        options.addr = format!("127.0.0.1:{port}");
        options.config = Some(launch.config.to_owned());
        let command = options.env("MAITRED_SECRET", launch.secret).command();
        let (process, lines) = Process::spawn(id, command).map_err(failed)?;
        let member = Arc::new(Self {
            id: id.to_owned(),
            process: Mutex::new(process),
            pending: Arc::default(),
            next: AtomicU64::new(1),
            ready: CancellationToken::new(),
            gone: CancellationToken::new(),
        });
        let hearing = Hearing {
            id: member.id.clone(),
            pending: Arc::clone(&member.pending),
            ready: member.ready.clone(),
            gone: member.gone.clone(),
            ears,
        };
        // It ends with the process.
        tokio::spawn(hearing.read(lines));
        Ok(member)
    }

    /// Waits until the node says that it is ready.
    pub async fn ready(&self) -> Result<(), Failure> {
        tokio::select! {
            () = self.ready.cancelled() => Ok(()),
            () = self.gone.cancelled() => Err(Failure::Io(format!("{} ended at its start", self.id))),
            () = tokio::time::sleep(READY_MAX) => {
                Err(Failure::Io(format!("{} was not ready within {} s", self.id, READY_MAX.as_secs())))
            }
        }
    }

    /// Ends when the process is gone.
    pub async fn gone(&self) {
        self.gone.cancelled().await;
    }

    pub fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }

    /// An id for a line that has not been used here.
    pub fn fresh_id(&self) -> String {
        format!("{}.{}", self.id, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a line and waits for its answer.
    pub async fn ask(&self, line: Value) -> Result<Value, NoAnswer> {
        self.ask_as(self.fresh_id(), line).await
    }

    /// Sends a line under an id of the caller's and waits for its answer.
    pub async fn ask_as(&self, id: String, mut line: Value) -> Result<Value, NoAnswer> {
        line["id"] = json!(id);
        let (answer, answered) = oneshot::channel();
        self.pending().insert(id.clone(), answer);
        let asked = async {
            if !self.process().send_line(&line.to_string()) {
                return Err(NoAnswer);
            }
            answered.await.map_err(|_| NoAnswer)
        };
        let outcome = tokio::select! {
            () = self.gone.cancelled() => Err(NoAnswer),
            answer = timeout(ANSWER_MAX, asked) => answer.unwrap_or(Err(NoAnswer)),
        };
        if outcome.is_err() {
            self.pending().remove(&id);
        }
        outcome
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Value>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the process with SIGKILL and waits for it. True where that signal is what ended it.
    pub fn kill(&self) -> bool {
        let killed = self.process().kill();
        self.gone.cancel();
        killed
    }

    /// The end of what it wrote to stderr.
    pub fn log_tail(&self) -> String {
        self.process().stderr_tail(LOG_SHOWN).trim().to_owned()
    }
}

/// All processes of the fleet. They end with it, however the demo ends.
#[derive(Default)]
pub(super) struct Fleet {
    pub proxies: Vec<Arc<Member>>,
    pub backends: Vec<Arc<Member>>,
}

impl Fleet {
    pub fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.proxies.iter().chain(&self.backends)
    }

    /// What the processes wrote to stderr, for people to read when something failed.
    pub fn logs(&self) -> String {
        let tails = self.members().map(|member| (&member.id, member.log_tail())).filter(|(_, tail)| !tail.is_empty());
        tails.map(|(id, tail)| format!("--- {id} ---\n{tail}\n")).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for member in self.members() {
            member.kill();
        }
    }
}

/// The reading end of a member.
struct Hearing {
    id: String,
    pending: Arc<Pending>,
    ready: CancellationToken,
    gone: CancellationToken,
    ears: Arc<dyn Hears>,
}

impl Hearing {
    async fn read(self, mut lines: mpsc::UnboundedReceiver<String>) {
        while let Some(line) = lines.recv().await {
            match serde_json::from_str::<Value>(&line) {
                Ok(value) => self.take(value),
                Err(_) => self.ears.odd(format!("{} said what is no JSON: {line}", self.id)),
            }
        }
        self.gone.cancel();
    }

    fn take(&self, value: Value) {
        if let Some(event) = value.get("event").and_then(Value::as_str) {
            if event == "ready" {
                self.ready.cancel();
            }
            self.ears.event(&self.id, event, &value);
            return;
        }
        let Some(id) = value.get("id").and_then(Value::as_str) else {
            self.ears.odd(format!("{} answered nobody: {value}", self.id));
            return;
        };
        let waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        // Nobody waits any more for an answer that came too late.
        if let Some(waiting) = waiting {
            let _ = waiting.send(value);
        }
    }
}
