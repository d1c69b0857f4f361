use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::fleet::Hears;

/// Oddities that are kept for people to read; the rest is only counted.
const ODD_KEPT: usize = 8;

/// A player's arrival, as the backend answered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Landing {
    pub server: String,
    pub token: String,
    /// Region and number of the place.
    pub place: (String, u64),
}

/// What the processes and the store's channel have said so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// `place_promised` events of each backend.
    pub promised: BTreeMap<String, u64>,
    /// `place_returned` events of each backend.
    pub returned: BTreeMap<String, u64>,
    /// The tokens whose places came home.
    pub home: BTreeSet<String>,
    /// Answers to redeem that say landed, by player.
    pub landed: BTreeMap<String, Vec<Landing>>,
    /// `reopened` events of the token channel: token ids.
    pub reopened: BTreeSet<String>,
    /// Refusals of dispatches, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Players whose move waits at the proxy that will be killed.
    pub holding: usize,
    /// Times that a player had to go to the other proxy.
    pub reconnects: u64,
    /// Players who had gone away without a word and saw their place come home.
    pub vanished: u64,
    /// Events that a process or the channel could not deliver.
    pub missed: u64,
    /// Lines that do not belong here.
    pub odd: u64,
    /// The first of them.
    pub odd_lines: Vec<String>,
}

impl Counts {
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Landings on one backend.
    pub fn landed_on(&self, server: &str) -> u64 {
        let landings = self.landed.values().flatten().filter(|landing| landing.server == server);
        u64::try_from(landings.count()).unwrap_or(u64::MAX)
    }
}

/// The counts, shared: written by whoever hears something, waited on by whoever needs it.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    counts: watch::Sender<Counts>,
}

impl Tally {
    pub fn new() -> Self {
        Self { counts: watch::Sender::new(Counts::default()) }
    }

    pub fn change(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    pub fn now(&self) -> Counts {
        self.counts.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    /// Waits until the counts fulfil `condition`, at most `limit`. False where they do not.
    pub async fn until(&self, limit: Duration, condition: impl FnMut(&Counts) -> bool) -> bool {
        let mut counts = self.counts.subscribe();
        timeout(limit, counts.wait_for(condition)).await.is_ok_and(|found| found.is_ok())
    }
}

impl Hears for Tally {
    fn event(&self, node: &str, event: &str, line: &Value) {
        match event {
            "place_promised" => self.change(|counts| *counts.promised.entry(node.to_owned()).or_default() += 1),
            "place_returned" => self.change(|counts| {
                *counts.returned.entry(node.to_owned()).or_default() += 1;
                if let Some(token) = line["token"].as_str() {
                    counts.home.insert(token.to_owned());
                }
            }),
            "missed" => self.change(|counts| counts.missed += line["events"].as_u64().unwrap_or(1)),
            "ready" | "resumed" | "lost" | "rejoined" => {}
            _ => self.odd(format!("{node}: {line}")),
        }
    }

    fn odd(&self, line: String) {
        self.change(|counts| {
            counts.odd += 1;
            if counts.odd_lines.len() < ODD_KEPT {
                counts.odd_lines.push(line);
            }
        });
    }
}
