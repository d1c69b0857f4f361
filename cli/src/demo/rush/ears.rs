use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::watch;

use super::super::fleet::Hears;
use super::story::Cut;

/// Oddities that are kept for people to read; the rest is only counted.
const ODD_KEPT: usize = 8;

/// The last thing that was told of a player.
#[derive(Debug, Clone)]
pub(super) struct Mail {
    /// The proxy that told it.
    pub from: String,
    pub line: Value,
}

/// Hears what the processes say, and hands it to the players.
pub(super) struct Ears {
    boxes: HashMap<String, watch::Sender<Option<Mail>>>,
    lease: Duration,
    state: Mutex<Noted>,
}

/// What was heard that no player waits for.
#[derive(Debug, Clone, Default)]
pub(super) struct Noted {
    /// Position lines.
    pub positions: u64,
    /// Events that a process could not deliver.
    pub missed: u64,
    /// Nodes whose lease ended though they run, and when it may have.
    pub lapses: Vec<Cut>,
    /// Lines that do not belong here.
    pub odd: u64,
    /// The first of them.
    pub odd_lines: Vec<String>,
}

impl Ears {
    pub fn new(players: impl Iterator<Item = String>, lease: Duration) -> Self {
        let boxes = players.map(|player| (player, watch::Sender::new(None))).collect();
        Self { boxes, lease, state: Mutex::default() }
    }

    /// What is told of a player from now on.
    pub fn mail(&self, player: &str) -> Option<watch::Receiver<Option<Mail>>> {
        self.boxes.get(player).map(watch::Sender::subscribe)
    }

    pub fn noted(&self) -> Noted {
        self.state().clone()
    }

    fn state(&self) -> MutexGuard<'_, Noted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hears for Ears {
    fn event(&self, node: &str, event: &str, line: &Value) {
        match event {
            "admitted" | "out" => match line["player"].as_str().and_then(|player| self.boxes.get(player)) {
                Some(mail) => {
                    mail.send_replace(Some(Mail { from: node.to_owned(), line: line.clone() }));
                }
                None => self.odd(format!("{node}: {line}")),
            },
            "position" => self.state().positions += 1,
            "missed" => self.state().missed += line["events"].as_u64().unwrap_or(1),
            "lost" => {
                let lease_us = u64::try_from(self.lease.as_micros()).unwrap_or(u64::MAX);
                // Twice that: the line may have waited to be read.
                let at_us = now_us().saturating_sub(lease_us.saturating_mul(2));
                self.state().lapses.push(Cut { node: node.to_owned(), at_us, for_good: false });
            }
            "ready" | "resumed" | "rejoined" => {}
            _ => self.odd(format!("{node}: {line}")),
        }
    }

    fn odd(&self, line: String) {
        let mut state = self.state();
        state.odd += 1;
        if state.odd_lines.len() < ODD_KEPT {
            state.odd_lines.push(line);
        }
    }
}

/// This machine's clock in µs, which is also the private store's.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
