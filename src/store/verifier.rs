use crate::envelope::{Audit, AuditReason, Keyring, Kind, SCHEMA_VERSION, SCHEMA_VERSION_TEXT, Wire};
use crate::error::{Error, Result};

use super::Row;

/// What is believed and what happens to the rest: the fleet's keys and the audit of what did not verify. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Verifier {
    keyring: Keyring,
    audit: Audit,
}

impl Verifier {
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
        if names.last() == Some(&"v") {
            self.check_version(row, key)?;
        }
        let fields: Vec<&str> = names.iter().map(|name| row.text(name)).collect();
        match self.keyring.verify(kind, &fields, row.text("sig")) {
            // A member that signed no version wrote a row of none of ours.
            Ok(()) if fields.last() == Some(&"") && names.last() == Some(&"v") => Err(self.other_version("", key)),
            Ok(()) => Ok(fields),
            Err(failure) => Err(self.refuse(AuditReason::from(failure), key, key)),
        }
    }

    /// Refuses a row of a schema version that this build does not know; one without a version is left to the signature.
    pub(crate) fn check_version(&self, row: &Row, key: &str) -> Result<()> {
        let version = row.text("v");
        if version == SCHEMA_VERSION_TEXT || version.is_empty() {
            return Ok(());
        }
        Err(self.other_version(version, key))
    }

    fn other_version(&self, version: &str, key: &str) -> Error {
        self.audit.drop(AuditReason::SchemaVersion, key, key);
        Error::SchemaVersion {
            what: key.to_owned(),
            version: version.chars().take(20).collect(),
            known: SCHEMA_VERSION,
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
