use serde::{Deserialize, Serialize};

use crate::envelope::{AuditReason, Kind, SCHEMA_VERSION, SCHEMA_VERSION_TEXT};
use crate::ids::NodeId;
use crate::store::Verifier;

/// The fleet-wide kill switch.
pub const KILL: &str = "kill";
/// The config that an operator pushed (POL-5): its value is a text of `agent::config`, empty where it was withdrawn.
pub const CONFIG: &str = "config";
/// What the name of each drain entry starts with.
pub const DRAIN_PREFIX: &str = "drain:";
/// The label of a node's own row by which it shows that it heard of its drain; its text is who drains it.
pub const DRAINING_LABEL: &str = "draining";
/// What the name of each node's own kill switch starts with.
const KILL_PREFIX: &str = "kill:";
/// Where entries come from, in the audit.
pub(super) const SOURCE: &str = "control";

/// One control entry as it stands in the store: JSON text in the hash `control`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlEntry {
    /// `on` or `off` for switches, a text for the config.
    pub value: String,
    /// Grows with every write.
    pub version: u64,
    /// Who wrote it.
    pub by: String,
    /// When, in store ms.
    pub at: u64,
    /// Schema version.
    pub v: u32,
    /// Signature over name, value, version, by, at and v.
    pub sig: String,
}

impl ControlEntry {
    /// True for a switch that is on.
    pub fn is_on(&self) -> bool {
        self.value == "on"
    }

    /// Reads the bytes of the entry `name`. `None` where they do not verify, which is counted and audited.
    pub fn from_bytes(verifier: &Verifier, name: &str, bytes: &[u8]) -> Option<Self> {
        let Ok(entry) = serde_json::from_slice::<Self>(bytes) else {
            verifier.audit().drop(AuditReason::ForgedControl, SOURCE, name);
            return None;
        };
        if entry.v != SCHEMA_VERSION {
            verifier.audit().drop(AuditReason::SchemaVersion, SOURCE, name);
            return None;
        }
        let (version, at, v) = (entry.version.to_string(), entry.at.to_string(), entry.v.to_string());
        let fields = [name, &entry.value, &version, &entry.by, &at, &v];
        if verifier.keyring().verify(Kind::Control, &fields, &entry.sig).is_err() {
            verifier.audit().drop(AuditReason::ForgedControl, SOURCE, name);
            return None;
        }
        Some(entry)
    }
}

/// The name of a node's own kill switch.
pub fn kill_name(id: &NodeId) -> String {
    format!("{KILL_PREFIX}{id}")
}

/// The name of a node's drain entry.
pub fn drain_name(id: &NodeId) -> String {
    format!("{DRAIN_PREFIX}{id}")
}

/// True for a name that an entry of ours can have: nobody asks for any other.
pub(super) fn is_entry_name(name: &str) -> bool {
    let node = name.strip_prefix(KILL_PREFIX).or_else(|| name.strip_prefix(DRAIN_PREFIX));
    name == KILL || name == CONFIG || node.is_some_and(|id| NodeId::new(id).is_ok())
}

pub(super) fn signed(verifier: &Verifier, name: &str, value: &str, version: u64, by: &str, at: u64) -> ControlEntry {
    let (version_text, at_text) = (version.to_string(), at.to_string());
    let fields = [name, value, &version_text, by, &at_text, SCHEMA_VERSION_TEXT];
    let sig = verifier.keyring().sign(Kind::Control, &fields).as_str().to_owned();
    ControlEntry { value: value.to_owned(), version, by: by.to_owned(), at, v: SCHEMA_VERSION, sig }
}
