use crate::envelope::{Audit, AuditReason, Keyring, Kind, SCHEMA_VERSION, SCHEMA_VERSION_TEXT, Wire};
use crate::error::{Error, Result};

use super::Row;

/// What is believed and what happens to the rest: the fleet's keys and the audit of what did not verify. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Trust {
    keyring: Keyring,
    audit: Audit,
}

impl Trust {
    /// With these keys, and an audit of its own.
    pub fn new(keyring: Keyring) -> Self {
        Self { keyring, audit: Audit::new() }
    }

    /// The keys.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// The audit.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Drops something: counts it, logs it, and gives the error that says so.
    pub fn refuse(&self, reason: AuditReason, source: &str, what: &str) -> Error {
        self.audit.drop(reason, source, what);
        Error::Untrusted { what: what.to_owned(), reason: reason.as_str() }
    }

    /// The signed fields of a row of the store, in the order of [`Kind::fields`], whose names are the row's own.
    /// `key` is where it was read from; comparing the ids inside with it is the caller's.
    ///
    /// Errors with [`Error::SchemaVersion`] or [`Error::Untrusted`], counted and audited.
    pub fn row<'a>(&self, kind: Kind, row: &'a Row, key: &str) -> Result<Vec<&'a str>> {
        let names = kind.fields();
        let version = if names.last() == Some(&"v") { row.text("v") } else { SCHEMA_VERSION_TEXT };
        let other_version = || {
            self.audit.drop(AuditReason::SchemaVersion, key, key);
            Error::SchemaVersion {
                what: key.to_owned(),
                version: version.chars().take(20).collect(),
                known: SCHEMA_VERSION,
            }
        };
        // What has no version is first of all not signed; a member that signed none wrote a row of no version of ours.
        if version != SCHEMA_VERSION_TEXT && !version.is_empty() {
            return Err(other_version());
        }
        let fields: Vec<&str> = names.iter().map(|name| row.text(name)).collect();
        match self.keyring.verify(kind, &fields, row.text("sig")) {
            Ok(()) if version.is_empty() => Err(other_version()),
            Ok(()) => Ok(fields),
            Err(failure) => Err(self.refuse(AuditReason::from(failure), key, key)),
        }
    }

    /// A message or event in wire form. `source` is the channel. Refusals are counted and audited.
    pub fn wire<'a>(&self, bytes: &'a [u8], max_bytes: usize, source: &str) -> Result<Wire<'a>> {
        self.keyring.from_wire(bytes, max_bytes).map_err(|failure| {
            let reason = AuditReason::from(&failure);
            self.refuse(reason, source, &failure.to_string())
        })
    }
}
