//! One node process: questions with their answers, and events that nobody has looked at yet.

use std::collections::VecDeque;
use std::time::Duration;

use maitred_testkit::fleet::Node;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

/// Longest wait for anything that has to come.
pub const LIMIT: Duration = Duration::from_secs(20);

pub struct Peer {
    pub id: String,
    node: Node,
    asked: u64,
    events: VecDeque<Value>,
}

impl Peer {
    pub fn new(id: String, node: Node) -> Self {
        Self { id, node, asked: 0, events: VecDeque::new() }
    }

    /// Asks, with an id of its own where the question has none, and keeps the events that come before the answer.
    pub async fn ask(&mut self, mut question: Value) -> Value {
        if question["id"].is_null() {
            question["id"] = json!(format!("q{}", self.fresh()));
        }
        self.node.send(&question);
        loop {
            let line = self.node.next_line(LIMIT).await;
            if line["id"] == question["id"] && line["outcome"].is_string() {
                return line;
            }
            self.events.push_back(line);
        }
    }

    /// Asks, and panics unless the outcome is that one.
    pub async fn must(&mut self, question: Value, outcome: &str) -> Value {
        let answer = self.ask(question.clone()).await;
        assert_eq!(answer["outcome"], outcome, "{} to {question}: {answer}", self.id);
        answer
    }

    /// The first event that fits, of those that came already or come within the limit.
    pub async fn event(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let found = self.event_within(LIMIT, fits).await;
        found.unwrap_or_else(|| panic!("{} did not tell within {LIMIT:?}: {what}\n{}", self.id, self.node.stderr()))
    }

    /// As [`event`](Self::event), or `None` where none fits within `time`.
    pub async fn event_within(&mut self, time: Duration, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        if let Some(at) = self.events.iter().position(&fits) {
            return self.events.remove(at);
        }
        let end = Instant::now() + time;
        loop {
            let line = timeout_at(end, self.node.line()).await.ok()??;
            let line: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{}: {error}: {line}", self.id));
            if fits(&line) {
                return Some(line);
            }
            self.events.push_back(line);
        }
    }

    /// A number that was not handed out before.
    pub fn fresh(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// Ends the process with SIGKILL.
    pub fn kill(mut self) {
        self.node.sigkill();
    }
}
