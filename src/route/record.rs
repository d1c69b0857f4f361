use std::fmt;

use serde::{Deserialize, Serialize};

use crate::envelope::{AuditReason, Kind, SCHEMA_VERSION_TEXT, plain_number};
use crate::error::Result;
use crate::ids::{Epoch, NodeEpoch, NodeId, ObjectKey};
use crate::store::{Row, Verifier};

/// Which of two records of one object is newer. It follows the store's clock in ms and grows with every change of owner.
/// It says nothing about the object's bytes: those have a [`Cas`], and the two cannot be compared.
///
/// ```compile_fail
/// use maitred::route::{Cas, RouteVersion};
/// assert!(RouteVersion(7) > Cas(6));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct RouteVersion(pub u64);

impl RouteVersion {
    /// Of whoever knows no record.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for RouteVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number of an object's bytes: one more with every write. It guards the bytes and says nothing about who owns the
/// object.
///
/// ```compile_fail
/// use maitred::route::{Cas, RouteVersion};
/// assert_eq!(Cas(7), RouteVersion(7));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Cas(pub u64);

impl Cas {
    /// Of an object that was never written.
    pub const NONE: Self = Self(0);

    /// The number of the next write.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Cas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Where a record stands. Not signed, and for people only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteState {
    /// Its owner took it or has confirmed it.
    Owned,
    /// Handed to its owner, who has not confirmed it yet.
    Moved,
    /// Nobody owns the object.
    Free,
}

/// Who owns an object, as it was signed, and when it was last saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The object.
    pub key: ObjectKey,
    /// Its owner; `None` for nobody.
    pub owner: Option<NodeEpoch>,
    /// Grows with every change of owner.
    pub version: RouteVersion,
    /// When the object was last saved or its record renewed, in store ms as its owner estimated it. Not signed.
    pub saved_at_ms: u64,
    /// Where it stands. Not signed.
    pub state: RouteState,
}

impl Route {
    /// A record of the store, verified, and compared with the key that it was read from. `None` where there is none.
    pub fn from_row(verifier: &Verifier, key: &ObjectKey, row: &Row) -> Result<Option<Self>> {
        if row.is_empty() {
            return Ok(None);
        }
        let place = format!("route:{key}");
        // Kind and object stand in the key and not in the row: a row copied to another key does not verify there.
        let fields = [key.kind(), key.object(), row.text("owner"), row.text("owner_epoch"), row.text("version")];
        verify(verifier, Kind::Route, &fields, row, &place)?;
        let malformed = || verifier.refuse(AuditReason::Malformed, &place, &place);
        let owner = match row.text("owner") {
            "" => None,
            node => Some(NodeEpoch {
                id: NodeId::new(node).map_err(|_| malformed())?,
                epoch: Epoch(row.number("owner_epoch").ok_or_else(malformed)?),
            }),
        };
        let version = RouteVersion(row.number("version").ok_or_else(malformed)?);
        let state = match (&owner, row.text("state")) {
            (None, _) => RouteState::Free,
            (Some(_), "MOVED") => RouteState::Moved,
            _ => RouteState::Owned,
        };
        let saved_at_ms = row.number("saved_at").unwrap_or(0);
        Ok(Some(Self { key: key.clone(), owner, version, saved_at_ms, state }))
    }

    /// True where `node` owns it in `epoch`.
    pub fn is_of(&self, node: &NodeId, epoch: Epoch) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.id == *node && owner.epoch == epoch)
    }
}

/// What this node owns, as it stands in the store: the fence of every later write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The object.
    pub key: ObjectKey,
    /// This node, in the epoch that took it.
    pub owner: NodeEpoch,
    /// The version that was taken.
    pub version: RouteVersion,
    /// The record's signature.
    pub(super) sig: String,
}

impl Held {
    /// The record of `owner` in `version`, signed.
    #[doc(hidden)]
    pub fn new(verifier: &Verifier, key: &ObjectKey, owner: NodeEpoch, version: RouteVersion) -> Self {
        let sig = sign_route(verifier, key, Some(&owner), version);
        Self { key: key.clone(), owner, version, sig }
    }
}

/// The signature of a record.
pub(super) fn sign_route(
    verifier: &Verifier,
    key: &ObjectKey,
    owner: Option<&NodeEpoch>,
    version: RouteVersion,
) -> String {
    let (node, epoch) = match owner {
        Some(owner) => (owner.id.as_str(), owner.epoch.to_string()),
        None => ("", "0".to_owned()),
    };
    let fields = [key.kind(), key.object(), node, &epoch, &version.to_string(), SCHEMA_VERSION_TEXT];
    verifier.keyring().sign(Kind::Route, &fields).into()
}

/// An object's bytes in the built-in store, verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredObject {
    /// The number of these bytes.
    pub cas: Cas,
    /// The route under which they were written.
    pub route_version: RouteVersion,
    /// The bytes, a text.
    pub data: String,
}

impl StoredObject {
    /// A row of the store, verified, and compared with the key that it was read from. `None` where there is none.
    pub fn from_row(verifier: &Verifier, key: &ObjectKey, row: &Row) -> Result<Option<Self>> {
        if row.is_empty() {
            return Ok(None);
        }
        let place = format!("object:{key}");
        let fields = [key.kind(), key.object(), row.text("cas"), row.text("route_version"), row.text("data")];
        verify(verifier, Kind::Object, &fields, row, &place)?;
        let number = |name| row.number(name).ok_or_else(|| verifier.refuse(AuditReason::Malformed, &place, &place));
        Ok(Some(Self {
            cas: Cas(number("cas")?),
            route_version: RouteVersion(number("route_version")?),
            data: row.text("data").to_owned(),
        }))
    }
}

/// The signature of an object's bytes.
pub(super) fn sign_object(verifier: &Verifier, key: &ObjectKey, cas: Cas, version: RouteVersion, data: &str) -> String {
    let fields = [key.kind(), key.object(), &cas.to_string(), &version.to_string(), data, SCHEMA_VERSION_TEXT];
    verifier.keyring().sign(Kind::Object, &fields).into()
}

/// Checks `fields` and the schema version of the row; what does not verify is audited.
fn verify(verifier: &Verifier, kind: Kind, fields: &[&str; 5], row: &Row, place: &str) -> Result<()> {
    let [a, b, c, d, e] = *fields;
    verifier.check_version(row, place)?;
    verifier
        .keyring()
        .verify(kind, &[a, b, c, d, e, SCHEMA_VERSION_TEXT], row.text("sig"))
        .map_err(|failure| verifier.refuse(AuditReason::from(failure), place, place))
}

/// The route of a message: the object, and the version that its sender knows ([`RouteVersion::NONE`] for none).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The object.
    pub key: ObjectKey,
    /// What the sender knows.
    pub version: RouteVersion,
}

impl Header {
    /// `<version>:<kind>:<object>`.
    pub fn text(&self) -> String {
        format!("{}:{}", self.version, self.key)
    }

    /// Reads [`text`](Self::text); `None` for anything else.
    pub fn read(text: &str) -> Option<Self> {
        let (version, key) = text.split_once(':')?;
        Some(Self { key: ObjectKey::read(key).ok()?, version: RouteVersion(plain_number(version)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Keyring, Secret};
    use crate::ids::Zone;

    fn verifier() -> Verifier {
        let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let secret = Secret::from_base64("MAITRED_SECRET", secret).expect("a secret");
        Verifier::new(Keyring::new(Zone::new("eu").expect("a zone"), secret, Vec::new()))
    }

    fn key(text: &str) -> ObjectKey {
        ObjectKey::read(text).expect("a key")
    }

    fn row(verifier: &Verifier, key: &ObjectKey, node: &str, epoch: &str) -> Row {
        let owner =
            NodeId::new(node).ok().map(|node| NodeEpoch { id: node, epoch: Epoch(epoch.parse().expect("a number")) });
        let sig = sign_route(verifier, key, owner.as_ref(), RouteVersion(7));
        let fields = [("owner", node), ("owner_epoch", epoch), ("version", "7"), ("saved_at", "5"), ("state", "OWNED")];
        fields.into_iter().chain([("v", "1"), ("sig", sig.as_str())]).collect()
    }

    // R-5, R-6: with the store's password alone nobody can send an object's messages to another node.
    #[test]
    fn r_5_a_record_is_believed_only_as_it_was_signed_and_under_its_own_key() {
        let verifier = verifier();
        let (one, two) = (key("island:a"), key("island:b"));
        let good = row(&verifier, &one, "b1", "3");
        let route = Route::from_row(&verifier, &one, &good).expect("verified").expect("there");
        assert!(route.is_of(&NodeId::new("b1").expect("an id"), Epoch(3)) && route.version == RouteVersion(7));
        assert!(Route::from_row(&verifier, &two, &good).is_err(), "copied to another key");
        for (field, value) in [("owner", "b2"), ("owner_epoch", "4"), ("version", "8"), ("sig", ""), ("v", "2")] {
            let changed: Row =
                good.fields().map(|(name, old)| (name, if name == field { value } else { old })).collect();
            assert!(Route::from_row(&verifier, &one, &changed).is_err(), "{field}");
        }
        let free = Route::from_row(&verifier, &one, &row(&verifier, &one, "", "0")).expect("verified").expect("there");
        assert_eq!((free.owner, free.state), (None, RouteState::Free));
        assert_eq!(Route::from_row(&verifier, &one, &Row::default()).expect("no record"), None);
    }

    #[test]
    fn r_17_the_bytes_of_an_object_are_believed_only_as_they_were_signed() {
        let verifier = verifier();
        let one = key("island:a");
        let sig = sign_object(&verifier, &one, Cas(2), RouteVersion(7), "{}");
        let good: Row =
            [("cas", "2"), ("route_version", "7"), ("data", "{}"), ("v", "1"), ("sig", &sig)].into_iter().collect();
        assert_eq!(StoredObject::from_row(&verifier, &one, &good).expect("verified").expect("there").cas, Cas(2));
        assert!(StoredObject::from_row(&verifier, &key("island:b"), &good).is_err());
        for (field, value) in [("cas", "1"), ("route_version", "8"), ("data", "[]"), ("sig", "x")] {
            let changed: Row =
                good.fields().map(|(name, old)| (name, if name == field { value } else { old })).collect();
            assert!(StoredObject::from_row(&verifier, &one, &changed).is_err(), "{field}");
        }
    }

    #[test]
    fn rte_7_the_header_of_a_message_carries_key_and_version() {
        let header = Header { key: key("island:a:b"), version: RouteVersion(7) };
        assert_eq!(header.text(), "7:island:a:b");
        assert_eq!(Header::read("7:island:a:b"), Some(header));
        for bad in ["", "7", "7:island", "x:island:a", "-1:island:a", "7:is land:a"] {
            assert_eq!(Header::read(bad), None, "{bad}");
        }
    }
}
