//! One node id and the processes that have it, one after the other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::record::Record;
use super::world::{ANSWER_MAX, places};
use maitred_testkit::fleet::{Node, NodeOptions};

/// A process has this long to become a member: the lease of its predecessor, and a busy machine.
const READY_MAX: Duration = Duration::from_secs(20);

/// The process ended before it answered.
#[derive(Debug)]
pub struct Gone;

enum Order {
    Ask(String, Value, oneshot::Sender<Value>),
    Kill,
    Restart,
    Freeze(bool),
    /// SIGTERM; the answer is whether it ended well.
    End(oneshot::Sender<bool>),
}

/// How many processes the id has had, and whether the present one is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stage {
    number: u64,
    ready: bool,
}

pub struct Member {
    pub id: String,
    orders: mpsc::UnboundedSender<Order>,
    stage: watch::Receiver<Stage>,
    busy: AtomicBool,
    slowest_ms: Arc<AtomicU64>,
    waiting: Arc<AtomicU64>,
}

impl Member {
    pub fn start(options: NodeOptions, record: &Arc<Record>) -> Arc<Self> {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (stage, seen) = watch::channel(Stage { number: 0, ready: false });
        let (slowest_ms, waiting) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let id = options.id.clone();
        let mut actor = Actor {
            options,
            record: Arc::clone(record),
            stage,
            node: None,
            number: 0,
            doomed: false,
            frozen: None,
            was_frozen: Duration::ZERO,
            pending: HashMap::new(),
            answered: HashSet::new(),
            slowest_ms: Arc::clone(&slowest_ms),
            waiting: Arc::clone(&waiting),
        };
        actor.spawn();
        tokio::spawn(actor.run(inbox));
        Arc::new(Self { id, orders, stage: seen, busy: AtomicBool::new(false), slowest_ms, waiting })
    }

    /// The name of the present process.
    pub fn process(&self) -> String {
        name(&self.id, self.stage.borrow().number)
    }

    /// Sends a line under `id` and waits for its answer. A future that is dropped leaves the line under way.
    pub async fn ask(&self, id: &str, mut line: Value) -> Result<Value, Gone> {
        line["id"] = id.into();
        let (answer, waits) = oneshot::channel();
        self.order(Order::Ask(id.to_owned(), line, answer));
        waits.await.map_err(|_| Gone)
    }

    pub fn kill(&self) {
        self.order(Order::Kill);
    }

    /// Starts the id again once its process is gone.
    pub fn restart(&self) {
        self.order(Order::Restart);
    }

    pub fn freeze(&self, on: bool) {
        self.order(Order::Freeze(on));
    }

    pub async fn end(&self) -> bool {
        let (ended, waits) = oneshot::channel();
        self.order(Order::End(ended));
        waits.await.unwrap_or(false)
    }

    fn order(&self, order: Order) {
        // The runtime is on its way out where nobody listens.
        let _ = self.orders.send(order);
    }

    /// Waits until the present process has become a member.
    pub async fn is_ready(&self) {
        let ready = async { self.stage.clone().wait_for(|stage| stage.ready).await.map(|_| ()) };
        match tokio::time::timeout(READY_MAX, ready).await {
            Ok(Ok(())) => {}
            _ => panic!("{} did not become a member within {READY_MAX:?}", self.process()),
        }
    }

    /// True for whoever gets to do something to the member; [`leave_alone`](Self::leave_alone) ends it.
    pub fn take_on(&self) -> bool {
        !self.busy.swap(true, Ordering::SeqCst)
    }

    pub fn leave_alone(&self) {
        self.busy.store(false, Ordering::SeqCst);
    }

    /// The longest that an answer took, in ms.
    pub fn slowest_ms(&self) -> u64 {
        self.slowest_ms.load(Ordering::SeqCst)
    }

    /// Lines without an answer yet.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }
}

fn name(id: &str, number: u64) -> String {
    format!("{id}#{number}")
}

struct Asked {
    line: String,
    at: Instant,
    was_frozen: Duration,
    answer: Option<oneshot::Sender<Value>>,
    late: bool,
}

struct Actor {
    options: NodeOptions,
    record: Arc<Record>,
    stage: watch::Sender<Stage>,
    node: Option<Node>,
    number: u64,
    /// Killed or told to end: nothing more is sent, and its end is no surprise.
    doomed: bool,
    frozen: Option<Instant>,
    was_frozen: Duration,
    pending: HashMap<String, Asked>,
    answered: HashSet<String>,
    slowest_ms: Arc<AtomicU64>,
    waiting: Arc<AtomicU64>,
}

impl Actor {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        let mut look = tokio::time::interval(Duration::from_millis(500));
        loop {
            tokio::select! {
                order = inbox.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return self.bury(),
                },
                line = next(&mut self.node) => match line {
                    Some(line) => self.hear(&line),
                    None => self.ended(),
                },
                _ = look.tick() => self.look(),
            }
            self.waiting.store(u64::try_from(self.pending.len()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }

    fn name(&self) -> String {
        name(&self.options.id, self.number)
    }

    fn spawn(&mut self) {
        self.number += 1;
        self.doomed = false;
        self.stage.send_replace(Stage { number: self.number, ready: false });
        let node = Node::spawn(&self.options);
        self.record.note(&format!("{} starts", self.name()));
        self.node = Some(node);
        if self.options.role == "backend" {
            for (n, mut line) in places().into_iter().enumerate() {
                let id = format!("places-{}-{n}", self.name());
                line["id"] = id.as_str().into();
                self.say(id, &line, None);
            }
        }
    }

    fn say(&mut self, id: String, line: &Value, answer: Option<oneshot::Sender<Value>>) {
        let Some(node) = running(&mut self.node, self.doomed) else { return };
        self.record.note(&format!("{} < {line}", name(&self.options.id, self.number)));
        node.send(line);
        let (at, was_frozen) = (Instant::now(), self.frozen_for());
        self.pending.insert(id, Asked { line: line.to_string(), at, was_frozen, answer, late: false });
    }

    fn frozen_for(&self) -> Duration {
        self.was_frozen + self.frozen.map_or(Duration::ZERO, |since| since.elapsed())
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Ask(id, line, answer) => self.say(id, &line, Some(answer)),
            Order::Kill => {
                self.record.note(&format!("{} SIGKILL", self.name()));
                self.doomed = true;
                if let Some(node) = &mut self.node {
                    node.sigkill();
                }
            }
            Order::Restart => {
                // What it wrote before its end counts.
                while self.node.is_some()
                    && let Some(line) = next(&mut self.node).await
                {
                    self.hear(&line);
                }
                self.ended();
                self.spawn();
            }
            Order::Freeze(on) => {
                let name = self.name();
                let Some(node) = running(&mut self.node, self.doomed) else { return };
                self.record.note(&format!("{name} {}", if on { "SIGSTOP" } else { "SIGCONT" }));
                if on {
                    node.sigstop();
                    self.frozen = Some(Instant::now());
                } else {
                    node.sigcont();
                    self.was_frozen = self.frozen_for();
                    self.frozen = None;
                }
            }
            Order::End(ended) => {
                self.doomed = true;
                let Some(mut node) = self.node.take() else { return };
                let ending = tokio::task::spawn_blocking(move || {
                    let well = node.sigterm().success();
                    (node, well)
                });
                let Ok((mut node, well)) = ending.await else { return };
                while let Some(line) = node.line().await {
                    self.hear(&line);
                }
                self.node = Some(node);
                self.ended();
                let _ = ended.send(well);
            }
        }
    }

    fn hear(&mut self, line: &str) {
        let name = self.name();
        self.record.note(&format!("{name} > {line}"));
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            self.record.broken(&format!("{name} said what is no JSON: {line}"));
            return;
        };
        if value["event"] == "ready" {
            self.stage.send_modify(|stage| stage.ready = true);
        }
        if value.get("event").is_some() {
            self.record.event(&name, &value);
            return;
        }
        if value["outcome"] == "landed" && self.options.role == "backend" {
            self.record.landed(&name, &value);
        }
        let id = value["id"].as_str().unwrap_or_default().to_owned();
        let Some(asked) = self.pending.remove(&id) else {
            let what = if self.answered.contains(&id) { "a second time" } else { "what nobody asked" };
            self.record.broken(&format!("{name} answered {what}: {line}"));
            return;
        };
        let took = self.took(&asked);
        self.slowest_ms.fetch_max(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.answered.insert(id);
        if let Some(answer) = asked.answer {
            // Whoever asked may have gone elsewhere.
            let _ = answer.send(value);
        }
    }

    /// The time of an answer, without the time that the process was frozen.
    fn took(&self, asked: &Asked) -> Duration {
        asked.at.elapsed().saturating_sub(self.frozen_for().saturating_sub(asked.was_frozen))
    }

    fn look(&mut self) {
        let frozen = self.frozen_for();
        let name = name(&self.options.id, self.number);
        for asked in self.pending.values_mut().filter(|asked| !asked.late) {
            let took = asked.at.elapsed().saturating_sub(frozen.saturating_sub(asked.was_frozen));
            if took > ANSWER_MAX {
                asked.late = true;
                self.record.broken(&format!("{name} did not answer within {ANSWER_MAX:?}: {}", asked.line));
            }
        }
    }

    /// The process is gone, and all it wrote was heard.
    fn ended(&mut self) {
        if self.node.is_none() {
            return;
        }
        if !self.doomed {
            self.record.broken(&format!("{} ended by itself", self.name()));
        }
        self.bury();
    }

    fn bury(&mut self) {
        if let Some(node) = self.node.take() {
            self.record.note(&format!("{} is gone", self.name()));
            self.record.keep_stderr(&self.name(), node.stderr());
        }
        self.frozen = None;
        self.was_frozen = Duration::ZERO;
        // Whoever waits learns that nobody will answer.
        self.pending.clear();
        self.stage.send_modify(|stage| stage.ready = false);
    }
}

/// The process, if it can be spoken to.
fn running(node: &mut Option<Node>, doomed: bool) -> Option<&mut Node> {
    let node = node.as_mut().filter(|_| !doomed)?;
    node.is_running().then_some(node)
}

async fn next(node: &mut Option<Node>) -> Option<String> {
    match node {
        Some(node) => node.line().await,
        None => std::future::pending().await,
    }
}
