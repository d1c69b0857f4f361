//! Node processes that are started again and again under one name, and the lines of many players to them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use crate::fixtures::agents::LIMIT;
use maitred_testkit::fleet::{Node, NodeOptions};

/// Answers that are waited for; gone with the connection.
type Waiting = Arc<Mutex<Option<HashMap<String, oneshot::Sender<Value>>>>>;

/// One process.
pub struct Process {
    node: Node,
    lines: mpsc::UnboundedSender<String>,
    waiting: Waiting,
}

/// The secrets of a process.
#[derive(Debug, Clone, Copy)]
pub struct Secrets {
    pub signs: &'static str,
    pub also: Option<&'static str>,
}

impl Process {
    pub async fn start(id: &str, role: &str, store: &str, config: PathBuf, secrets: Secrets) -> Self {
        let mut options = NodeOptions::new(id, role, store, "eu").env("MAITRED_SECRET", secrets.signs);
        options.addr = format!("{id}.example:25565");
        options.config = Some(config);
        options.args = ["--listen", "127.0.0.1:0"].map(str::to_owned).to_vec();
        options.env.push(("MAITRED_SECRET_ALSO".to_owned(), secrets.also.unwrap_or_default().to_owned()));
        let mut node = Node::spawn(&options);
        let ready = node.wait_for(|line| line["event"] == "ready", LIMIT).await;
        let stream = TcpStream::connect(ready["listen"].as_str().expect("an address")).await.expect("a connection");
        let (read, mut write) = stream.into_split();
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn({
            let waiting = Arc::clone(&waiting);
            async move {
                let mut lines = BufReader::new(read).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                    let id = answer["id"].as_str().unwrap_or_default().to_owned();
                    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(asker) = waiting.as_mut().and_then(|waiting| waiting.remove(&id)) {
                        let _ = asker.send(answer);
                    }
                }
                // Whoever still waits learns that nobody answers.
                *waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
        });
        let (lines, mut to_write) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            while let Some(line) = to_write.recv().await {
                if write.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        Self { node, lines, waiting }
    }

    /// Ends the process the polite way. Answers what it logged.
    pub async fn end(mut self) -> String {
        tokio::task::block_in_place(|| {
            let status = self.node.sigterm();
            assert!(status.success(), "it ended with {status}: {}", self.node.stderr());
        });
        self.node.stderr()
    }

    pub fn stderr(&self) -> String {
        self.node.stderr()
    }

    /// A way to talk to it that outlives it.
    pub fn talk(&self) -> Talk {
        Talk { lines: self.lines.clone(), waiting: Arc::clone(&self.waiting) }
    }
}

#[derive(Clone)]
pub struct Talk {
    lines: mpsc::UnboundedSender<String>,
    waiting: Waiting,
}

impl Talk {
    /// Sends a line and waits for its answer; `None` where the process ended without one.
    pub async fn ask(&self, mut line: Value) -> Option<Value> {
        let id = maitred::ids::RequestId::fresh().to_string();
        line["id"] = json!(id);
        let (asker, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.insert(id, asker);
        self.lines.send(format!("{line}\n")).ok()?;
        answer.await.ok()
    }
}
