use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::envelope::{AuditReason, Keyring, Kind, SCHEMA_VERSION_TEXT, plain_number};
use crate::error::Result;
use crate::ids::{Epoch, Incarnation, NodeId, Region, Role, ServiceName};
use crate::store::{Row, Verifier};

/// Longest node row taken off the wire, in bytes.
pub const NODE_WIRE_MAX_BYTES: usize = 65_536;

/// The label of a node's row that names the lines whose players it admits, blanks between.
pub const ADMITS_LABEL: &str = "admits";

/// What a node says of its own condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Joined, not ready for players.
    #[default]
    Starting,
    /// Ready.
    Ready,
    /// Works, with less than it should have.
    Degraded,
    /// On its way out: no new players.
    ShuttingDown,
}

impl NodeState {
    /// The text in the row.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

impl FromStr for NodeState {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Starting, Self::Ready, Self::Degraded, Self::ShuttingDown]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or(())
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A node's load: a snapshot, not a difference. Everything is optional; what a node does not know it leaves out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Ticks per second over the last minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps_1m: Option<f64>,
    /// Ticks per second over the last 5 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps_5m: Option<f64>,
    /// Ticks per second over the last 15 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps_15m: Option<f64>,
    /// Milliseconds a tick takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mspt: Option<f64>,
    /// Requests that wait for a place here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u64>,
    /// Players on their way here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_transfers: Option<u64>,
    /// Average time to make a place, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_pipeline_ms: Option<f64>,
    /// Chunks that wait to be loaded or generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_backlog: Option<u64>,
    /// Entries of the application's own memory tracker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_entries: Option<u64>,
    /// Heap in use, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_used: Option<u64>,
    /// Largest heap, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_max: Option<u64>,
    /// Round trip to the store, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_latency_ms: Option<f64>,
    /// New players per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_players_per_second: Option<f64>,
    /// The node asks for no more load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overloaded: Option<bool>,
    /// Regions it serves, each with the number of places kept ready, where it publishes one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub regions: BTreeMap<Region, Option<u64>>,
    /// Worlds it has loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worlds: Vec<String>,
}

/// What an application tells of itself at each heartbeat.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadSample {
    /// Players on the node now.
    pub players: u64,
    /// Players it wants at most; 0 where it has no such number.
    pub soft_cap: u64,
    /// The rest.
    pub load: Load,
}

/// What a node is, apart from what changes from beat to beat.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its id.
    pub id: NodeId,
    /// Its role.
    pub role: Role,
    /// Where players are sent to, `host:port`.
    pub addr: String,
}

/// One node as it described itself in its last heartbeat.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRecord {
    /// Its id.
    pub id: NodeId,
    /// Its role.
    pub role: Role,
    /// Where players are sent to.
    pub addr: String,
    /// The fencing number of its present incarnation.
    pub epoch: Epoch,
    /// Its run.
    pub incarnation: Incarnation,
    /// Number of the heartbeat; grows over a run of the process.
    pub seq: u64,
    /// When it was signed, in store ms.
    pub sent_at_ms: u64,
    /// Its condition.
    pub state: NodeState,
    /// True where it takes new players.
    pub accepting: bool,
    /// True where it obeys a kill switch.
    pub kill: bool,
    /// Players on it.
    pub players: u64,
    /// Players it wants at most; 0 for no such number.
    pub soft_cap: u64,
    /// Its load.
    pub load: Load,
    /// Names under which it answers messages.
    pub services: Vec<ServiceName>,
    /// Labels: `build`, `platform`, `locality`, and the operator's own.
    pub labels: BTreeMap<String, String>,
}

/// A record's texts as they are signed and stored.
#[derive(Debug, Clone)]
pub(crate) struct NodeTexts {
    pub epoch: String,
    pub seq: String,
    pub sent_at: String,
    pub players: String,
    pub soft_cap: String,
    pub load: String,
    pub services: String,
    pub labels: String,
    pub sig: String,
    pub wire: Vec<u8>,
}

fn flag(value: bool) -> &'static str {
    if value { "1" } else { "0" }
}

impl NodeRecord {
    /// A node that says nothing of itself yet; epoch, run, number and time are filled in when it joins and beats.
    pub fn blank(identity: &Identity) -> Self {
        Self {
            id: identity.id.clone(),
            role: identity.role.clone(),
            addr: identity.addr.clone(),
            epoch: Epoch::NONE,
            incarnation: Incarnation::fresh(),
            seq: 0,
            sent_at_ms: 0,
            state: NodeState::Starting,
            accepting: false,
            kill: false,
            players: 0,
            soft_cap: 0,
            load: Load::default(),
            services: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    /// Signs the record: the texts of its row and its wire form.
    pub(crate) fn texts(&self, keyring: &Keyring) -> NodeTexts {
        let json = |value: serde_json::Result<String>, empty: &str| value.unwrap_or_else(|_| empty.to_owned());
        let mut texts = NodeTexts {
            epoch: self.epoch.to_string(),
            seq: self.seq.to_string(),
            sent_at: self.sent_at_ms.to_string(),
            players: self.players.to_string(),
            soft_cap: self.soft_cap.to_string(),
            load: json(serde_json::to_string(&self.load), "{}"),
            services: json(serde_json::to_string(&self.services), "[]"),
            labels: json(serde_json::to_string(&self.labels), "{}"),
            sig: String::new(),
            wire: Vec::new(),
        };
        let fields = [
            self.id.as_str(),
            self.role.as_str(),
            &self.addr,
            &texts.epoch,
            self.incarnation.as_str(),
            &texts.seq,
            &texts.sent_at,
            self.state.as_str(),
            flag(self.accepting),
            flag(self.kill),
            &texts.players,
            &texts.soft_cap,
            &texts.load,
            &texts.services,
            &texts.labels,
            SCHEMA_VERSION_TEXT,
        ];
        let sig = keyring.sign(Kind::Node, &fields).as_str().to_owned();
        let wire = keyring.to_wire(Kind::Node, &fields);
        texts.sig = sig;
        texts.wire = wire;
        texts
    }

    /// A row of the store, verified, and compared with the id whose key it was read from.
    pub fn from_row(verifier: &Verifier, id: &NodeId, row: &Row) -> Result<Self> {
        let key = format!("node:{id}");
        let fields = verifier.row(Kind::Node, row, &key)?;
        let record = Self::from_fields(&fields).ok_or_else(|| verifier.refuse(AuditReason::Malformed, &key, &key))?;
        if record.id != *id {
            return Err(verifier.refuse(AuditReason::WrongKey, &key, &key));
        }
        Ok(record)
    }

    /// A heartbeat off the node channel, verified.
    pub fn from_wire(verifier: &Verifier, bytes: &[u8]) -> Result<Self> {
        const SOURCE: &str = "events:node";
        let wire = verifier.wire(bytes, NODE_WIRE_MAX_BYTES, SOURCE)?;
        let record = if wire.kind == Kind::Node { Self::from_fields(&wire.fields) } else { None };
        record.ok_or_else(|| verifier.refuse(AuditReason::Malformed, SOURCE, "not a node row"))
    }

    /// `fields` in the order of [`Kind::fields`].
    fn from_fields(fields: &[&str]) -> Option<Self> {
        let &[
            id,
            role,
            addr,
            epoch,
            incarnation,
            seq,
            sent_at,
            state,
            accepting,
            kill,
            players,
            soft_cap,
            load,
            services,
            labels,
            _version,
        ] = fields
        else {
            return None;
        };
        Some(Self {
            id: NodeId::new(id).ok()?,
            role: Role::new(role).ok()?,
            addr: addr.to_owned(),
            epoch: Epoch(plain_number(epoch)?),
            incarnation: Incarnation::new(incarnation).ok()?,
            seq: plain_number(seq)?,
            sent_at_ms: plain_number(sent_at)?,
            state: state.parse().ok()?,
            accepting: accepting == "1",
            kill: kill == "1",
            players: plain_number(players)?,
            soft_cap: plain_number(soft_cap)?,
            load: serde_json::from_str(load).ok()?,
            services: serde_json::from_str(services).ok()?,
            labels: serde_json::from_str(labels).ok()?,
        })
    }

    /// Newer than `other`: a later epoch, or a later beat of the same one.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        (self.epoch, self.seq) > (other.epoch, other.seq)
    }

    /// True where it answers messages to `service`.
    pub fn offers(&self, service: &str) -> bool {
        self.services.iter().any(|offered| offered.as_str() == service)
    }

    /// The region's kept places: `None` where it does not serve it, `Some(None)` where it publishes no count.
    pub fn kept(&self, region: &Region) -> Option<Option<u64>> {
        self.load.regions.get(region).copied()
    }
}
