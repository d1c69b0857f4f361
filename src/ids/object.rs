//! What is more than a text: the key of an object, and one life of a node.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{InvalidId, NodeId, ObjectId, ObjectKind};

/// Which object: kind and id, written `<kind>:<object>`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectKey {
    text: Arc<str>,
    kind_bytes: u8,
}

impl ObjectKey {
    /// The object `id` of `kind`.
    pub fn new(kind: &ObjectKind, id: &ObjectId) -> Self {
        // A name has at most 64 bytes.
        let kind_bytes = u8::try_from(kind.as_str().len()).unwrap_or(u8::MAX);
        Self { text: Arc::from(format!("{kind}:{id}")), kind_bytes }
    }

    /// Reads `<kind>:<object>`. A kind holds no colon, so the first one ends it.
    pub fn read(text: &str) -> Result<Self, InvalidId> {
        let allowed = "<kind>:<object>";
        let (kind, id) = text.split_once(':').ok_or_else(|| InvalidId::new("object key", text, allowed))?;
        Ok(Self::new(&ObjectKind::new(kind)?, &ObjectId::new(id)?))
    }

    /// `<kind>:<object>`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        self.text.get(..usize::from(self.kind_bytes)).unwrap_or("")
    }

    /// The id among the objects of the kind.
    pub fn object(&self) -> &str {
        self.text.get(usize::from(self.kind_bytes) + 1..).unwrap_or("")
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl std::str::FromStr for ObjectKey {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::read(text)
    }
}

impl TryFrom<String> for ObjectKey {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::read(&text)
    }
}

impl From<ObjectKey> for String {
    fn from(key: ObjectKey) -> String {
        key.text.as_ref().to_owned()
    }
}

/// The fencing number of one incarnation of a node. It follows the store's clock in milliseconds, so it also grows over
/// the loss of the store's data. 0 stands for no member: a router proxy claims with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a process that is no member.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One life of a node id, from a join to the next: who claims, holds, owns or acts. What it did counts only as long as the
/// epoch is the node's present one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct NodeEpoch {
    /// The node.
    #[serde(rename = "node")]
    pub id: NodeId,
    /// Its epoch; [`Epoch::NONE`] for a router or an operator, who are no members.
    pub epoch: Epoch,
}

impl NodeEpoch {
    /// Reads `<id>:<epoch>`, as [`Display`](fmt::Display) writes it.
    pub fn read(text: &str) -> Option<Self> {
        let (id, epoch) = text.rsplit_once(':')?;
        Some(Self { id: NodeId::new(id).ok()?, epoch: Epoch(epoch.parse().ok()?) })
    }
}

impl fmt::Display for NodeEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rte_1_a_key_is_kind_and_object_whatever_colons_the_object_has() {
        let key = ObjectKey::read("island:a:b:{c}").expect("a key");
        assert_eq!((key.kind(), key.object(), key.as_str()), ("island", "a:b:{c}", "island:a:b:{c}"));
        for bad in ["", "island", ":a", "island:", "is land:a", "island:a b"] {
            assert!(ObjectKey::read(bad).is_err(), "{bad:?}");
        }
    }
}
