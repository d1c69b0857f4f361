//! What was said and seen, in order, and what is wrong with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

const SHOWN: usize = 200;

/// A place of one process: no other process has it, also not one with the same id.
type Place = (String, String, u64);

/// How a promise ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Open,
    Returned(String),
    Landed,
}

#[derive(Debug)]
struct Promise {
    process: String,
    player: String,
    end: End,
    /// The backend said that it promised; its answer to the join may be first.
    told: bool,
}

#[derive(Debug, Default)]
struct Seen {
    lines: Vec<String>,
    broken: Vec<String>,
    counts: BTreeMap<String, u64>,
    /// Token → what its backend said of it.
    promises: HashMap<String, Promise>,
    /// Token → region and place, from the payload that its proxy or backend handed over.
    offers: HashMap<String, (String, u64)>,
    /// Player → process and token of the landing.
    landed: HashMap<String, (String, String)>,
    /// Place → who landed on it.
    seats: HashMap<Place, String>,
    /// Process → landings that it answered.
    landings: HashMap<String, u64>,
    stderr: Vec<(String, String)>,
}

pub struct Record {
    seed: u64,
    begin: Instant,
    seen: Mutex<Seen>,
}

impl Record {
    pub fn new(seed: u64) -> Self {
        Self { seed, begin: Instant::now(), seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, seen: &mut Seen, text: &str) {
        seen.lines.push(format!("{:9.3} {text}", self.begin.elapsed().as_secs_f64()));
    }

    pub fn note(&self, text: &str) {
        self.write(&mut self.seen(), text);
    }

    pub fn count(&self, what: &str) {
        self.add(what, 1);
    }

    pub fn add(&self, what: &str, many: u64) {
        *self.seen().counts.entry(what.to_owned()).or_default() += many;
    }

    /// An invariant does not hold. The run goes on, so that everything that is wrong is told at once.
    pub fn broken(&self, text: &str) {
        let mut seen = self.seen();
        self.write(&mut seen, &format!("BROKEN {text}"));
        seen.broken.push(text.to_owned());
    }

    /// A backend's event.
    pub fn event(&self, process: &str, event: &Value) {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let (player, token) = (text("player"), text("token"));
        match event["event"].as_str() {
            Some("place_promised") => {
                let fresh = Promise { process: process.to_owned(), player, end: End::Open, told: false };
                let again = {
                    let mut seen = self.seen();
                    let promise = seen.promises.entry(token.clone()).or_insert(fresh);
                    std::mem::replace(&mut promise.told, true)
                };
                if again {
                    self.broken(&format!("{process} promised {token} a second time"));
                }
            }
            Some("place_returned") => {
                let reason = text("reason");
                self.ends(process, &player, &token, End::Returned(reason));
            }
            Some("missed") => self.broken(&format!("{process} says that events were missed: {event}")),
            _ => {}
        }
    }

    fn ends(&self, process: &str, player: &str, token: &str, end: End) {
        let wrong = {
            let mut seen = self.seen();
            match seen.promises.get_mut(token) {
                None if end == End::Landed => {
                    let (process, player) = (process.to_owned(), player.to_owned());
                    let promise = Promise { process, player, end, told: false };
                    seen.promises.insert(token.to_owned(), promise);
                    None
                }
                Some(promise) if promise.end == End::Open && promise.process == process && promise.player == player => {
                    promise.end = end;
                    None
                }
                found => Some(format!("{process}: {token} of {player} ends as {end:?}, but stands as {found:?}")),
            }
        };
        if let Some(wrong) = wrong {
            self.broken(&wrong);
        }
    }

    /// A proxy named a place.
    pub fn offered(&self, answer: &Value) {
        let (Some(token), Some(region), Some(place)) =
            (answer["token"].as_str(), answer["payload"]["region"].as_str(), answer["payload"]["place"].as_u64())
        else {
            self.broken(&format!("a transfer without token and place: {answer}"));
            return;
        };
        self.seen().offers.insert(token.to_owned(), (region.to_owned(), place));
    }

    /// A backend handed a place over.
    pub fn landed(&self, process: &str, answer: &Value) {
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        let (player, token, region) = (text("player"), text("token"), text("region"));
        let place = answer["place"].as_u64().unwrap_or(u64::MAX);
        if answer["payload"]["region"] != answer["region"] || answer["payload"]["place"] != answer["place"] {
            self.broken(&format!("{process} handed over another place than it had promised: {answer}"));
        }
        let (before, neighbour) = {
            let mut seen = self.seen();
            *seen.landings.entry(process.to_owned()).or_default() += 1;
            seen.offers.insert(token.clone(), (region.clone(), place));
            let before = seen.landed.insert(player.clone(), (process.to_owned(), token.clone()));
            (before, seen.seats.insert((process.to_owned(), region.clone(), place), player.clone()))
        };
        if let Some((server, old)) = before {
            self.broken(&format!("{player} landed twice: at {server} with {old}, then at {process} with {token}"));
        }
        if let Some(neighbour) = neighbour {
            self.broken(&format!("{player} and {neighbour} sit on place {region}/{place} of {process}"));
        }
        self.ends(process, &player, &token, End::Landed);
    }

    /// Places that were handed over by one process.
    pub fn landings(&self, process: &str) -> u64 {
        self.seen().landings.get(process).copied().unwrap_or(0)
    }

    pub fn players_landed(&self) -> usize {
        self.seen().landed.len()
    }

    pub fn keep_stderr(&self, process: &str, text: String) {
        if let Some(line) = text.lines().find(|line| line.contains("panicked at")) {
            self.broken(&format!("{process} panicked: {line}"));
        }
        self.seen().stderr.push((process.to_owned(), text));
    }

    /// What can only be judged when all is told: of the tokens that ever had a place, at most one kept it, and a process
    /// that lived to the end knows the end of each.
    pub fn judge(&self, living: &[String]) {
        let mut wrong = Vec::new();
        {
            let seen = self.seen();
            let mut kept: HashMap<(&str, &(String, u64)), Vec<&str>> = HashMap::new();
            for (token, promise) in &seen.promises {
                if promise.end == End::Open && living.contains(&promise.process) {
                    wrong.push(format!("{token} of {} at {} never ended", promise.player, promise.process));
                }
                if let Some(place) = seen.offers.get(token)
                    && !matches!(promise.end, End::Returned(_))
                {
                    kept.entry((&promise.process, place)).or_default().push(token);
                }
            }
            for (token, promise) in seen.promises.iter().filter(|(_, promise)| !promise.told) {
                if living.contains(&promise.process) {
                    wrong.push(format!("{token} landed at {}, which never promised it", promise.process));
                }
            }
            for ((process, place), tokens) in kept.iter().filter(|(_, tokens)| tokens.len() > 1) {
                // What a killed process had not written yet may include that a place came back.
                if living.iter().any(|living| living == process) {
                    wrong.push(format!("{process} promised {place:?} to {tokens:?} at the same time"));
                }
            }
        }
        for text in wrong {
            self.broken(&text);
        }
    }

    /// Prints the figures, and panics with all that is wrong.
    pub fn verdict(&self) {
        let seen = self.seen();
        let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
        for promise in seen.promises.values() {
            let end = match &promise.end {
                End::Open => "open",
                End::Returned(reason) => reason,
                End::Landed => "landed",
            };
            *ends.entry(end).or_default() += 1;
        }
        println!("chaos: seed {}: {:?}; promises {ends:?}", self.seed, seen.counts);
        if seen.broken.is_empty() {
            return;
        }
        let mut report = format!("seed {}: {} invariants broken\n", self.seed, seen.broken.len());
        let words: Vec<&str> = seen
            .broken
            .iter()
            .flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '-')))
            .filter(|word| word.starts_with("guest-") || word.len() == 36)
            .collect();
        report.push_str("--- all about those players and tokens ---\n");
        for line in seen.lines.iter().filter(|line| words.iter().any(|word| line.contains(word))) {
            report.push_str(&format!("{line}\n"));
        }
        report.push_str("--- the last lines ---\n");
        for line in &seen.lines[seen.lines.len().saturating_sub(SHOWN)..] {
            report.push_str(&format!("{line}\n"));
        }
        for (process, text) in &seen.stderr {
            let lines: Vec<&str> = text.lines().collect();
            report.push_str(&format!("--- stderr of {process} ---\n"));
            for line in &lines[lines.len().saturating_sub(SHOWN)..] {
                report.push_str(&format!("{line}\n"));
            }
        }
        report.push_str("--- broken ---\n");
        for text in &seen.broken {
            report.push_str(&format!("{text}\n"));
        }
        if let Ok(file) = std::env::var("MAITRED_CHAOS_LOG") {
            std::fs::write(&file, seen.lines.join("\n")).expect("the log can be written");
        }
        panic!("{report}");
    }
}
