//! Rows that were read and are not believed: counted and named, never dropped in silence.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use maitred::error::{Error, StoreRefusal};
use maitred::ids::Role;

/// Rows named in a line for people; JSON has them all.
const NAMED_MAX: usize = 5;

/// What did not verify.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    rows: Vec<Doubt>,
    /// What to do about a roster that cannot be read.
    hidden: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Doubt {
    key: String,
    reason: String,
}

impl Doubts {
    /// Notes that the row behind `key` (as the contract names it, `node:<id>`) failed with `error`.
    pub fn add(&mut self, key: String, error: &Error) {
        let reason = match error {
            Error::Untrusted { reason, .. } => (*reason).to_owned(),
            Error::SchemaVersion { .. } => "schema_version".to_owned(),
            Error::Refused { refusal: StoreRefusal::WrongType, .. } => "wrong_type".to_owned(),
            other => other.to_string(),
        };
        self.rows.push(Doubt { key, reason });
    }

    /// Notes that the roster of `role` cannot be read: its nodes are not shown at all.
    pub fn add_roster(&mut self, role: &Role, error: &Error) {
        self.add(format!("nodes:{role}"), error);
        self.hidden = Some(StoreRefusal::WrongType.advice());
    }

    /// True where nodes may be there that nobody sees.
    pub fn hide_nodes(&self) -> bool {
        self.hidden.is_some()
    }

    /// The lines for people; none where everything was believed.
    pub fn lines(&self) -> Vec<String> {
        let hidden =
            self.hidden.map(|advice| format!("the nodes of a roster that cannot be read are not shown: {advice}"));
        self.line().into_iter().chain(hidden).collect()
    }

    fn reasons(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for row in &self.rows {
            *reasons.entry(row.reason.as_str()).or_insert(0) += 1;
        }
        reasons
    }

    /// The line for people; none where everything was believed.
    pub fn line(&self) -> Option<String> {
        if self.rows.is_empty() {
            return None;
        }
        let reasons: Vec<String> = self.reasons().iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let mut named: Vec<&str> = self.rows.iter().take(NAMED_MAX).map(|row| row.key.as_str()).collect();
        if self.rows.len() > NAMED_MAX {
            named.push("…");
        }
        Some(format!("not believed: {} ({}): {}", self.rows.len(), reasons.join(", "), named.join(" ")))
    }
}

impl Serialize for Doubts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            count: usize,
            reasons: BTreeMap<&'a str, usize>,
            rows: &'a [Doubt],
        }
        Shown { count: self.rows.len(), reasons: self.reasons(), rows: &self.rows }.serialize(serializer)
    }
}
