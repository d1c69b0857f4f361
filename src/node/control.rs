mod entry;
mod read;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, watch};

use crate::envelope::AuditReason;
use crate::error::{Error, Result};
use crate::ids::NodeId;
use crate::store::{Conversation, Invocation, Store, Verifier, scripts};

use super::switches::Switches;
pub use entry::{CONFIG, ControlEntry, DRAIN_PREFIX, DRAINING_LABEL, KILL, drain_name, kill_name};
use entry::{SOURCE, signed};
use read::{EntriesRead, read_entries};

/// How much of the end of the `config` entry tells a beat whether it changed: the signature stands there, and the whole
/// would make every beat as long as the config.
const CONFIG_TAIL_BYTES: usize = 64;
/// What an error shows of a value.
const SHOWN_CHARS: usize = 64;

/// An entry that was looked at: its exact bytes, and the last one that verified.
#[derive(Debug, Clone, Default)]
struct Seen {
    bytes: Vec<u8>,
    in_force: Option<ControlEntry>,
    /// Looked for by name although nothing may stand there.
    wanted: bool,
}

/// The control entries this process last looked at. A forged entry is remembered by its bytes, so that scripts pass,
/// and the last verified value stays in force: it neither stops nor starts anybody. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Control {
    seen: Arc<RwLock<HashMap<String, Seen>>>,
    switches: Arc<ArcSwap<Switches>>,
    changes: Arc<watch::Sender<u64>>,
    /// Reads that began.
    begun: Arc<AtomicU64>,
    /// Fields that were no entries, at the last read.
    strangers: Arc<AtomicU64>,
    /// One read at a time: of two at once the older could be looked at last, and would look like an old entry put back.
    last_read: Arc<Mutex<LastRead>>,
}

/// How the last read of all entries ended.
#[derive(Debug, Default)]
struct LastRead {
    /// Its number, from 1.
    number: u64,
    failed: Option<Error>,
}

/// What is passed to a script for one kill entry: the bytes last seen and what was made of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KillArg {
    /// The bytes, empty for no entry.
    pub bytes: Vec<u8>,
    /// True where the switch is on.
    pub on: bool,
}

impl KillArg {
    /// The verdict as scripts take it.
    pub fn verdict(&self) -> &'static str {
        if self.on { "on" } else { "off" }
    }
}

impl Invocation {
    /// Adds kill entries, each as its bytes and what was made of them.
    #[must_use]
    pub(crate) fn kills<const N: usize>(self, kills: [KillArg; N]) -> Self {
        kills.iter().fold(self, |call, kill| call.arg(&kill.bytes).arg(kill.verdict()))
    }
}

impl Control {
    /// Reads all entries and verifies those whose bytes changed. What does not verify is audited once for each change.
    /// Callers at the same time share a read that began after each of them called. Cancel safe.
    pub async fn refresh(&self, store: &Store, verifier: &Verifier) -> Result<()> {
        let begun = self.begun.load(Ordering::Acquire);
        let mut last = self.last_read.lock().await;
        if last.number > begun {
            return last.failed.clone().map_or(Ok(()), Err);
        }
        // A number of its own also after a read that was dropped half way.
        let number = self.begun.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        let outcome = self.read(store, verifier).await;
        *last = LastRead { number, failed: outcome.as_ref().err().cloned() };
        outcome
    }

    async fn read(&self, store: &Store, verifier: &Verifier) -> Result<()> {
        // Boxed: readers of all kinds wait for this deep in their own calls.
        let EntriesRead { entries, strangers } = Box::pin(read_entries(store, || self.names())).await?;
        self.strangers.store(strangers, Ordering::Release);
        let mut taken = 0;
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        for (name, bytes) in &entries {
            let known = seen.entry(name.clone()).or_default();
            if known.bytes != *bytes {
                known.bytes.clone_from(bytes);
                let Some(entry) = ControlEntry::from_bytes(verifier, name, bytes) else { continue };
                match known.in_force.as_ref().map(|last| last.version) {
                    Some(last) if entry.version < last => {
                        verifier.audit().drop(AuditReason::OlderControl, SOURCE, name);
                    }
                    // The one in force, back after it was taken away by hand.
                    Some(last) if entry.version == last => {}
                    _ => {
                        known.in_force = Some(entry);
                        taken += 1;
                    }
                }
            }
        }
        // An entry that was deleted by hand is no verified value: the last one stays in force.
        seen.retain(|name, known| {
            let there = entries.contains_key(name);
            if !there {
                known.bytes.clear();
            }
            there || known.in_force.is_some() || known.wanted
        });
        self.switches.store(Arc::new(switches(&seen)));
        drop(seen);
        if taken > 0 {
            self.changes.send_modify(|count| *count += taken);
        }
        Ok(())
    }

    /// The names that were looked at or are wanted.
    fn names(&self) -> BTreeSet<String> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// From the next read on the entry `name` is looked for whatever else stands in the store. Entries of the fleet and of
    /// nodes on a roster always are.
    pub fn want(&self, name: &str) {
        self.seen.write().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default().wanted = true;
    }

    /// Fields of the hash that were no entries when it was last read: nothing of ours writes them. Where it is filled up,
    /// entries of nodes that are on no roster count among them.
    pub fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::Acquire)
    }

    /// Counts the entries that came into force; a change can be awaited.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What a script is told about the entry `name`.
    pub fn kill_arg(&self, name: &str) -> KillArg {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        match seen.get(name) {
            Some(known) => KillArg { bytes: known.bytes.clone(), on: is_on(known) },
            None => KillArg { bytes: Vec::new(), on: false },
        }
    }

    /// What a script is told about the switch of the fleet.
    pub fn kill_of_fleet(&self) -> KillArg {
        self.kill_arg(KILL)
    }

    /// What a script is told about the switch of the node `id`; of nobody, that there is none.
    pub fn kill_of<'a>(&self, id: impl Into<Option<&'a NodeId>>) -> KillArg {
        id.into().map_or(KillArg { bytes: Vec::new(), on: false }, |id| self.kill_arg(&kill_name(id)))
    }

    /// The end of the `config` entry as it was last seen: what a beat compares.
    pub(super) fn config_tail(&self) -> Vec<u8> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        let bytes = seen.get(CONFIG).map_or(&[][..], |known| &known.bytes);
        bytes.get(bytes.len().saturating_sub(CONFIG_TAIL_BYTES)..).unwrap_or_default().to_vec()
    }

    /// True where the switch `name` is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).get(name).is_some_and(is_on)
    }

    /// True where the fleet or `id` is switched off.
    pub fn is_killed(&self, id: &NodeId) -> bool {
        self.is_on(KILL) || self.is_on(&kill_name(id))
    }

    /// True where an operator drains `id`.
    pub fn is_draining(&self, id: &NodeId) -> bool {
        self.is_on(&drain_name(id))
    }

    /// The entry by which an operator drains `id`: who, and since when.
    pub fn drain(&self, id: &NodeId) -> Option<ControlEntry> {
        self.entry(&drain_name(id)).filter(ControlEntry::is_on)
    }

    /// Who is switched off and who is drained now; the same until entries are read again.
    pub fn switches(&self) -> Arc<Switches> {
        self.switches.load_full()
    }

    /// Every entry in force, by name.
    pub fn entries(&self) -> Vec<(String, ControlEntry)> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        let mut entries: Vec<(String, ControlEntry)> =
            seen.iter().filter_map(|(name, known)| Some((name.clone(), known.in_force.clone()?))).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries
    }

    /// The entry in force.
    pub fn entry(&self, name: &str) -> Option<ControlEntry> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).get(name)?.in_force.clone()
    }

    /// Writes the entry `name` over the one that stands there now, with a version above the last verified one. A forged
    /// entry is written over. Runs `control/put`.
    ///
    /// Errors with [`Error::Overtaken`] where another member wrote the entry meanwhile: its value stands, also where this
    /// write had its effect before that. After [`Error::Unreachable`] the outcome is not known.
    pub async fn put(
        &self,
        store: &Store,
        verifier: &Verifier,
        name: &str,
        value: &str,
        by: &str,
    ) -> Result<ControlEntry> {
        // `at` is signed, and no script looks at it.
        store.sync_clock().await?;
        self.want(name);
        self.refresh(store, verifier).await?;
        let last = self.entry(name).map_or(0, |entry| entry.version);
        self.put_over(store, verifier, name, last, value, by).await
    }

    async fn put_over(
        &self,
        store: &Store,
        verifier: &Verifier,
        name: &str,
        last: u64,
        value: &str,
        by: &str,
    ) -> Result<ControlEntry> {
        let mut version = store.clock().past_ms().max(last.saturating_add(1));
        let (keys, mut asked) = (store.keys(), Conversation::new(store, "writing control", |_| ()));
        loop {
            let entry = signed(verifier, name, value, version, by, store.clock().now_ms());
            let text = serde_json::to_string(&entry)
                .map_err(|error| Error::Protocol { during: "writing control", detail: error.to_string() })?;
            let call = || {
                Invocation::new(&scripts::CONTROL_PUT, &[keys.control()])
                    .arg(name)
                    .arg(&text)
                    .arg(version)
                    .arg(last)
                    .arg(&self.kill_arg(name).bytes)
                    .arg(keys.control_events())
            };
            let answer = asked.ask(call).await?;
            match answer.word() {
                "PUT" => {
                    self.refresh(store, verifier).await?;
                    return Ok(entry);
                }
                "CHANGED" => self.refresh(store, verifier).await?,
                "VERSION" => version = answer.number(0)?,
                _ => return Err(answer.unexpected()),
            }
            if let Some(standing) = self.entry(name).filter(|standing| standing.version > last) {
                let value = standing.value.chars().take(SHOWN_CHARS).collect();
                return Err(Error::Overtaken { name: name.to_owned(), value, by: standing.by });
            }
        }
    }

    /// The entries in force that were signed with another secret than the present one: what has to be signed again before
    /// the old secret is dropped.
    pub fn signed_before(&self, verifier: &Verifier) -> Vec<String> {
        let kid = verifier.keyring().kid().as_str();
        let old = |(name, entry): (String, ControlEntry)| (!entry.sig.starts_with(kid)).then_some(name);
        self.entries().into_iter().filter_map(old).collect()
    }

    /// Signs those entries again, each by compare-and-set, so that a value written meanwhile stands. Answers how many were
    /// signed. Any number of agents may do it at once.
    pub async fn sign_again(&self, store: &Store, verifier: &Verifier) -> Result<usize> {
        self.refresh(store, verifier).await?;
        let mut signed = 0;
        for name in self.signed_before(verifier) {
            let Some(entry) = self.entry(&name) else { continue };
            match self.put_over(store, verifier, &name, entry.version, &entry.value, &entry.by).await {
                Ok(_) => signed += 1,
                // Somebody else did, or wrote another value.
                Err(Error::Overtaken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(signed)
    }
}

fn switches(seen: &HashMap<String, Seen>) -> Switches {
    let mut switches = Switches::default();
    for (name, known) in seen.iter().filter(|(_, known)| known.in_force.is_some()) {
        let on = is_on(known);
        match name.split_once(':') {
            Some(("kill", id)) => {
                let id = NodeId::new(id).ok();
                switches.killed.extend(id.clone().filter(|_| on));
                switches.known.extend(id);
            }
            Some(("drain", id)) => switches.draining.extend(NodeId::new(id).ok().filter(|_| on)),
            _ if name == KILL => (switches.fleet, switches.fleet_known) = (on, true),
            _ => {}
        }
    }
    switches
}

fn is_on(seen: &Seen) -> bool {
    seen.in_force.as_ref().is_some_and(ControlEntry::is_on)
}
