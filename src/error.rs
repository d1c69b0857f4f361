//! One error for the whole crate. Each variant says who is at fault ([`Error::class`]), whether trying again can help
//! ([`Error::is_retryable`]) and whether shared state may have changed ([`Error::may_have_changed`]).
//!
//! Texts are lower case and complete "could not …". No text holds a secret, a password or a payload.

mod refusal;

pub use refusal::{RouteRefusal, StoreRefusal};
use refusal::{at_keys, in_front};

use crate::ids::{Epoch, InvalidId, NodeId, ObjectKey, ServiceName};

/// `Result` with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who has to act for the error to go away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The caller's input, config or environment.
    Caller,
    /// The store or the network to it.
    Store,
    /// The state of the fleet: another node, a lease, the kill switch.
    Fleet,
    /// Data that no member of the fleet wrote, or that another version wrote.
    Trust,
    /// The build or this library.
    Defect,
}

/// Everything that can go wrong.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name, id or player that does not fit its type. Nothing was sent.
    #[error(transparent)]
    InvalidId(#[from] InvalidId),

    /// The config is not usable; one line a problem, each with its path and the allowed values. Nothing was started.
    #[error("the config is not valid:\n{}", .problems.join("\n"))]
    Config {
        /// `path: what is wrong; allowed: …`, in the order of the file.
        problems: Vec<String>,
    },

    /// The secret is missing, short or malformed. Nothing was started. The text never holds the secret.
    #[error("the secret in {variable} is not usable: {problem}")]
    Secret {
        /// The environment variable that was read.
        variable: String,
        /// What is wrong and what is needed.
        problem: &'static str,
    },

    /// The store URL is not usable. The text holds no password.
    #[error("the store URL is not usable: {problem}")]
    StoreUrl {
        /// What is wrong and which forms are allowed.
        problem: String,
    },

    /// A script does not match its checked-in pin: a defect of the build. The library refuses to enable.
    #[error("script {script} does not match its pin: pinned {pinned}, {found_by} {found}")]
    PinMismatch {
        /// `system/verb`.
        script: &'static str,
        /// The SHA-1 in `sha1/<system>/<verb>.lua.sha1`.
        pinned: String,
        /// Who computed the other hash: `computed` (this process) or `the store answered`.
        found_by: &'static str,
        /// The other hash.
        found: String,
    },

    /// The store could not be reached, or did not answer inside the time. If a mutation was under way its outcome is
    /// unknown; repeating the same operation is safe.
    #[error("the store did not answer while {during}: {}{reason}", in_front(.store.as_deref()))]
    Unreachable {
        /// What was under way.
        during: &'static str,
        /// The URL of the store that was asked, without a password; `None` where nothing was sent.
        store: Option<String>,
        /// The client's reason; holds no password.
        reason: String,
    },

    /// Others changed the same state at every try: each try was refused and the last one changed nothing. The same operation
    /// may be asked for again.
    #[error("gave up {during}: the store's state changed at every try")]
    Contended {
        /// What was under way.
        during: &'static str,
    },

    /// The store answered with an error.
    #[error("the store refused while {during}{}: {detail} ({})", at_keys(.keys), .refusal.advice())]
    Refused {
        /// What was under way: a script by its name, or a read in words.
        during: &'static str,
        /// The kind of refusal.
        refusal: StoreRefusal,
        /// The store's own message.
        detail: String,
        /// Keys and channels of the refused command, where one of them may be the reason and this process knows them: at
        /// most [`REFUSED_KEYS_MAX`](Self::REFUSED_KEYS_MAX).
        keys: Vec<String>,
    },

    /// A script or row holds something this build does not understand.
    #[error("the store's answer to {during} makes no sense to this build: {detail}")]
    Protocol {
        /// What was under way.
        during: &'static str,
        /// What was found instead.
        detail: String,
    },

    /// A live process holds this node id.
    #[error("node id {id} is in use by a live process at {addr}; its lease ends in {lease_left_ms} ms if it stops")]
    DuplicateNode {
        /// The id both want.
        id: NodeId,
        /// The holder's address.
        addr: String,
        /// Rest of the holder's lease in ms.
        lease_left_ms: u64,
    },

    /// A newer incarnation holds this node's id: this process must stop acting.
    #[error("node {id} was fenced: epoch {epoch} is no longer current")]
    Fenced {
        /// The node.
        id: NodeId,
        /// The epoch that is over.
        epoch: Epoch,
    },

    /// This process holds no valid lease now. The agent is getting a new one.
    #[error("node {id} holds no valid lease")]
    LeaseLost {
        /// The node.
        id: NodeId,
    },

    /// The kill switch is on.
    #[error("the kill switch is on ({scope})")]
    KillSwitch {
        /// `fleet`, or the id of the node that is switched off.
        scope: String,
    },

    /// A row or message did not verify. It was dropped, counted and audited.
    #[error("{what} did not verify: {reason}")]
    Untrusted {
        /// The kind of row or message and its key.
        what: String,
        /// The audit reason, for example `bad_signature`.
        reason: &'static str,
    },

    /// A row or message of a schema version that this build does not know.
    #[error("{what} has schema version {version}, this build knows {known}")]
    SchemaVersion {
        /// The kind of row or message and its key.
        what: String,
        /// The version found.
        version: String,
        /// The version this build knows.
        known: u32,
    },

    /// A signed time is off by more than the store allows, even after the clock was read again.
    #[error("the store's clock and this node's estimate of it differ by more than 5 s (store {store_ms} ms)")]
    Skew {
        /// The store's time in ms.
        store_ms: u64,
    },

    /// No node of this id is known.
    #[error("node {0} is not known")]
    NodeNotFound(NodeId),
    /// The node's last beat is too old to rely on, not old enough to give it up.
    #[error("node {0} is suspect: its last beat is late")]
    NodeSuspect(NodeId),
    /// The node is offline, or nobody listens on its inbox.
    #[error("node {0} is offline")]
    NodeOffline(NodeId),
    /// The node was removed after being offline for long.
    #[error("node {0} was removed")]
    NodeRemoved(NodeId),
    /// The node does not answer to this service name.
    #[error("service {service} is not known at {at}")]
    ServiceNotFound {
        /// The service.
        service: String,
        /// The node asked, or `this node`.
        at: String,
    },
    /// The service reference names an epoch that is over.
    #[error("the reference to {service} at {node} is of epoch {epoch}, which is over")]
    StaleReference {
        /// The node.
        node: NodeId,
        /// The service.
        service: ServiceName,
        /// The epoch of the reference.
        epoch: Epoch,
    },
    /// No answer inside the time. Whether the callee ran is not known.
    #[error("no answer from {target} within {timeout_ms} ms")]
    Timeout {
        /// `node:service`.
        target: String,
        /// The timeout in ms.
        timeout_ms: u64,
    },
    /// The callee runs as many handlers as it may; this one was not started.
    #[error("{target} is busy")]
    Busy {
        /// `node:service`.
        target: String,
    },
    /// The body is larger than a message may be. Nothing was sent.
    #[error("the body has {bytes} bytes, allowed are {max_bytes}")]
    BodyTooLarge {
        /// Size of the body.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The callee's own error, passed on unchanged.
    #[error("{target} answered {code}: {message}")]
    Callee {
        /// `node:service`.
        target: String,
        /// The callee's error code.
        code: String,
        /// The callee's text.
        message: String,
    },

    /// A message to an object was not handled, or not to its end.
    #[error("{object} did not take the message ({}): {detail}", .refusal.as_str())]
    Routed {
        /// `<kind>:<object>`.
        object: String,
        /// Why.
        refusal: RouteRefusal,
        /// A sentence for people.
        detail: String,
    },
    /// This node does not own the object any more. Nothing was written.
    #[error("{object} is owned by {}", .owner.as_ref().map_or("nobody", NodeId::as_str))]
    NotOwner {
        /// The object.
        object: ObjectKey,
        /// Who owns it now; `None` for nobody.
        owner: Option<NodeId>,
    },
    /// The object's bytes changed since they were read. Nothing was written.
    #[error("{object} was written by somebody else meanwhile: its number is {found}")]
    CasMismatch {
        /// The object.
        object: ObjectKey,
        /// The number that stands in the store.
        found: u64,
    },

    /// Another member wrote the control entry meanwhile; its value stands.
    #[error("control entry {name} was changed meanwhile: it is {value} by {by}")]
    Overtaken {
        /// The entry.
        name: String,
        /// What it says now.
        value: String,
        /// Who wrote that.
        by: String,
    },

    /// A value handed in is outside its bounds. Nothing was sent.
    #[error("{what}: {problem}")]
    OutOfBounds {
        /// The argument.
        what: &'static str,
        /// What is wrong and what is allowed.
        problem: String,
    },

    /// The library is switched off (`enabled: false`).
    #[error("maitred is disabled in the config (enabled: false)")]
    Disabled,

    /// The agent is shutting down.
    #[error("the agent is shutting down")]
    ShuttingDown,
}

impl Error {
    /// Most keys that a refusal of the store names.
    pub const REFUSED_KEYS_MAX: usize = 8;

    /// Who has to act.
    pub fn class(&self) -> Class {
        match self {
            Self::InvalidId(_)
            | Self::Config { .. }
            | Self::Secret { .. }
            | Self::StoreUrl { .. }
            | Self::BodyTooLarge { .. }
            | Self::OutOfBounds { .. }
            | Self::Disabled => Class::Caller,
            Self::PinMismatch { .. } | Self::Protocol { .. } => Class::Defect,
            Self::Unreachable { .. } | Self::Refused { .. } => Class::Store,
            Self::Untrusted { .. } | Self::SchemaVersion { .. } => Class::Trust,
            Self::DuplicateNode { .. }
            | Self::Fenced { .. }
            | Self::LeaseLost { .. }
            | Self::KillSwitch { .. }
            | Self::Skew { .. }
            | Self::Contended { .. }
            | Self::NodeNotFound(_)
            | Self::NodeSuspect(_)
            | Self::NodeOffline(_)
            | Self::NodeRemoved(_)
            | Self::ServiceNotFound { .. }
            | Self::StaleReference { .. }
            | Self::Timeout { .. }
            | Self::Busy { .. }
            | Self::Callee { .. }
            | Self::Overtaken { .. }
            | Self::Routed { .. }
            | Self::NotOwner { .. }
            | Self::CasMismatch { .. }
            | Self::ShuttingDown => Class::Fleet,
        }
    }

    /// True where the same call may succeed later without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { refusal, .. } => refusal.is_retryable(),
            Self::Routed { refusal, .. } => *refusal == RouteRefusal::Again,
            Self::Unreachable { .. }
            | Self::DuplicateNode { .. }
            | Self::LeaseLost { .. }
            | Self::KillSwitch { .. }
            | Self::Skew { .. }
            | Self::Contended { .. }
            | Self::NodeSuspect(_)
            | Self::NodeOffline(_)
            | Self::Timeout { .. }
            | Self::Busy { .. } => true,
            _ => false,
        }
    }

    /// True where the operation may have had its effect although it ended with this error. Repeating the same
    /// operation is safe and gives the definite answer.
    pub fn may_have_changed(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Timeout { .. }
                | Self::Protocol { .. }
                | Self::Routed { refusal: RouteRefusal::NotSaved, .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn msg_2_suspect_and_offline_are_retryable_unknown_and_removed_are_not() {
        let id = NodeId::new("b1").expect("valid");
        assert!(Error::NodeSuspect(id.clone()).is_retryable());
        assert!(Error::NodeOffline(id.clone()).is_retryable());
        assert!(!Error::NodeNotFound(id.clone()).is_retryable());
        assert!(!Error::NodeRemoved(id).is_retryable());
    }

    // one who takes a definite refusal for an unknown outcome keeps a place that nobody will ever take.
    #[test]
    fn r_2_what_was_contended_changed_nothing_and_may_be_asked_for_again() {
        let error = Error::Contended { during: "issuing a token" };
        assert!(error.is_retryable() && !error.may_have_changed() && error.class() == Class::Fleet);
        assert!(error.to_string().contains("issuing a token"));
    }
}
