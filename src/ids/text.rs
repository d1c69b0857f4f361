//! Texts: names, players and what else is one word.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// Longest name of a zone, role, service, line, kind or limit, in bytes.
pub const NAME_MAX_BYTES: usize = 64;
/// Longest node id, in bytes: `wait.<id>` has to fit a name.
pub const NODE_ID_MAX_BYTES: usize = 59;
/// Longest player, in bytes.
pub const PLAYER_MAX_BYTES: usize = 128;
/// Longest name of a backend in the initial placement, in characters.
pub const BACKEND_NAME_MAX_CHARS: usize = 128;

/// A value that does not fit its type: which type, the (shortened) value, and what would be allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: allowed are {allowed}")]
pub struct InvalidId {
    /// The type that refused, for example `node id`.
    pub what: &'static str,
    /// The value, cut to 80 characters.
    pub value: String,
    /// What the type accepts.
    pub allowed: &'static str,
}

impl InvalidId {
    pub(super) fn new(what: &'static str, value: &str, allowed: &'static str) -> Self {
        Self { what, value: value.chars().take(80).collect(), allowed }
    }
}

/// True for 1 to `max` bytes of `[A-Za-z0-9._-]`.
fn is_name(value: &str, max: usize) -> bool {
    !value.is_empty()
        && value.len() <= max
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn is_subject(value: &str) -> bool {
    !value.is_empty() && value.len() <= PLAYER_MAX_BYTES && !value.chars().any(|c| c.is_whitespace() || c.is_control())
}

fn is_backend_name(value: &str) -> bool {
    !value.is_empty() && value.trim() == value && value.chars().nth(BACKEND_NAME_MAX_CHARS).is_none()
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $allowed:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `value` and wraps it. Errors with [`InvalidId`], which names the allowed values.
            pub fn new(value: impl AsRef<str>) -> Result<Self, InvalidId> {
                let value = value.as_ref();
                let valid: fn(&str) -> bool = $valid;
                if valid(value) { Ok(Self(Arc::from(value))) } else { Err(InvalidId::new($what, value, $allowed)) }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(value: &str) -> Result<Self, InvalidId> {
                Self::new(value)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(value: String) -> Result<Self, InvalidId> {
                Self::new(&value)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(
    /// What shares one slot of a cluster: one book of its own.
    Zone, "zone", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// A process that joined. Unique in its zone; the fencing number of one incarnation is its [`Epoch`](crate::ids::Epoch).
    NodeId, "node id", "1 to 59 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NODE_ID_MAX_BYTES)
);
text_id!(
    /// What a node is for: `proxy`, `backend`, `lobby`, `link`, `service`, or a name of the operator's own.
    Role, "role", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// A name under which a node answers messages.
    ServiceName, "service", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// A part of a backend that places come from (a world, an arena, a shard).
    Region, "region", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// A limit on what one player may do.
    LimitName, "limit", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// The subject of a token or ticket: an opaque text, usually a UUID.
    Player, "player", "1 to 128 bytes without blanks or control characters", is_subject
);
text_id!(
    /// The name of a backend in the initial placement: a static or registered entry, or the id of a node.
    BackendName, "backend name", "1 to 128 characters, not blank, no blanks around", is_backend_name
);
text_id!(
    /// A kind of objects, such as `island`: what an application registers once for all objects of the kind.
    ObjectKind, "object kind", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// One object among those of its kind: an opaque text.
    ObjectId, "object id", "1 to 128 bytes without blanks or control characters", is_subject
);
text_id!(
    /// One wish of one player to be placed. Its attempts are numbered from 1.
    RequestId, "request id", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// One reservation.
    TokenId, "token id", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// One mutation of shared state: repeating it under the same id has no second effect.
    OperationId, "operation id", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// One run of one process, random: tells two processes with one node id apart.
    Incarnation, "incarnation", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);

text_id!(
    /// A line that players wait in. `wait` and `wait.<server>` are those of the dispatch.
    LineName, "line", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);
text_id!(
    /// One visit of a player to a line: a late call of an earlier one is told apart from a call of the present one.
    SessionId, "session", "1 to 64 characters of A-Z a-z 0-9 . _ -", |v| is_name(v, NAME_MAX_BYTES)
);

macro_rules! fresh_id {
    ($($name:ident),+) => {$(
        impl $name {
            /// A new one that no other process makes: a version 7 UUID, 32 hexadecimal digits, sorted by time.
            pub fn fresh() -> Self {
                Self(Arc::from(uuid::Uuid::now_v7().simple().to_string()))
            }
        }
    )+};
}

fresh_id!(RequestId, TokenId, OperationId, Incarnation);

impl RequestId {
    /// A new random one in 16 characters, for a request that stands in a ticket: that has little room.
    pub fn short() -> Self {
        Self(Arc::from(SessionId::fresh().as_str()))
    }
}

impl SessionId {
    /// A new random one: 16 characters, because a million tickets hold one each.
    pub fn fresh() -> Self {
        Self(Arc::from(URL_SAFE_NO_PAD.encode(rand::random::<[u8; 12]>())))
    }
}

impl LineName {
    /// The line of requests that any backend may serve.
    pub fn wait() -> Self {
        Self(Arc::from("wait"))
    }

    /// The line of requests for one backend.
    pub fn wait_for(server: &NodeId) -> Self {
        Self(Arc::from(format!("wait.{server}")))
    }
}

impl From<&NodeId> for BackendName {
    /// Every node id is a backend name.
    fn from(id: &NodeId) -> Self {
        Self(Arc::clone(&id.0))
    }
}

impl Default for Zone {
    /// `default`.
    fn default() -> Self {
        Self(Arc::from("default"))
    }
}

impl Role {
    /// The role of processes that players connect through.
    pub fn proxy() -> Self {
        Self(Arc::from("proxy"))
    }

    /// The role of processes between players and backends that have a capacity of their own.
    pub fn link() -> Self {
        Self(Arc::from("link"))
    }

    /// The role of processes that players land on.
    pub fn backend() -> Self {
        Self(Arc::from("backend"))
    }

    /// The role of processes where players wait for a place and get none.
    pub fn lobby() -> Self {
        Self(Arc::from("lobby"))
    }

    /// True for roles that give places: all but `proxy`, `lobby`, `link` and `service`.
    pub fn gives_places(&self) -> bool {
        self.takes_players() && &*self.0 != "lobby"
    }

    /// True for roles that players land on: all but `proxy`, `link` and `service`.
    pub fn takes_players(&self) -> bool {
        !matches!(&*self.0, "proxy" | "link" | "service")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rel_3_names_take_only_what_they_say() {
        for good in ["a", "proxy-1", "A.b_c-9", &"x".repeat(59)] {
            assert!(NodeId::new(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a b", "{eu}", "a:b", "ä", "a\n", &"x".repeat(60)] {
            let error = NodeId::new(bad).expect_err(bad);
            assert!(error.to_string().contains("1 to 59"), "{error}");
        }
        assert!(Zone::new("x".repeat(64)).is_ok() && Zone::new("x".repeat(65)).is_err());
        for good in ["alice", "ä:ö{}", &"p".repeat(128)] {
            assert!(Player::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a\tb", "a\u{a0}b", "a\u{7f}", &"p".repeat(129)] {
            assert!(Player::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn plc_2_a_backend_name_has_up_to_128_characters_and_no_blanks_around() {
        for good in ["lobby-a", "Lobby A", "ä:ö", &"ä".repeat(128), &"x".repeat(128)] {
            assert!(BackendName::new(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "\t\u{a0}", " lobby", "lobby ", "lobby\n", "\u{2003}lobby", &"x".repeat(129)] {
            let error = BackendName::new(bad).expect_err(bad);
            assert!(error.to_string().contains("1 to 128"), "{error}");
        }
        let id = NodeId::new("x".repeat(59)).expect("valid");
        assert_eq!(BackendName::from(&id).as_str(), id.as_str());
    }

    #[test]
    fn serde_refuses_what_new_refuses() {
        assert!(serde_json::from_str::<Zone>("\"eu\"").is_ok());
        assert!(serde_json::from_str::<Zone>("\"e u\"").is_err());
    }

    #[test]
    fn fresh_ids_are_short_names_and_differ() {
        let (a, b) = (TokenId::fresh(), TokenId::fresh());
        assert_ne!(a, b);
        assert_eq!(a.as_str().len(), 32);
        assert!(TokenId::new(a.as_str()).is_ok());
    }
}
