use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::error::{Error, RouteRefusal};
use crate::ids::NodeId;

use super::handler::CallError;

/// Code of [`Error::Callee`] where the handler panicked. It may have done a part of its work.
pub const INTERNAL: &str = "internal";
/// Code of [`Error::Callee`] where the handler ran and its answer was larger than a body may be.
pub const REPLY_TOO_LARGE: &str = "reply_too_large";
/// Code of [`Error::Callee`] where the callee shut down while the handler ran.
pub const CANCELLED: &str = "cancelled";

/// Statuses of replies. The callee's own errors have one of their own, so that no code of an application can pass for
/// a word of this crate.
const OK: &str = "ok";
const ERROR: &str = "error";
const BUSY: &str = "busy";
const SERVICE_NOT_FOUND: &str = "service_not_found";
const SHUTTING_DOWN: &str = "shutting_down";
const OLD_EPOCH: &str = "old_epoch";

/// What became of a message at its handler.
pub(super) type Outcome = Result<Box<RawValue>, Failure>;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The handler's own error.
    Callee(CallError),
    /// No handler was free; the handler was not started.
    Busy,
    /// Nobody answers to that name here.
    ServiceNotFound,
    /// The node takes no messages any more; the handler was not started.
    ShuttingDown,
    /// The message was for an epoch of this node that is over; the handler was not started here.
    OldEpoch,
    /// The handler was not started before the deadline.
    Expired,
    /// A message by a route was not handled, or not to its end.
    Routed(RouteRefusal, String),
    /// Another node answers.
    PassedOn,
    /// The handler ran to no good end: one of the codes above, and a text.
    Ended(&'static str, String),
}

/// The body of a reply that is not `ok`.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    code: String,
    message: String,
}

impl Failure {
    pub(super) fn panicked() -> Self {
        Self::Ended(INTERNAL, "the handler panicked".to_owned())
    }

    pub(super) fn cancelled() -> Self {
        Self::Ended(CANCELLED, "the node shut down while the handler ran".to_owned())
    }

    pub(super) fn too_large(bytes: usize, max_bytes: usize) -> Self {
        Self::Ended(REPLY_TOO_LARGE, format!("the answer has {bytes} bytes, allowed are {max_bytes}"))
    }

    /// The status of the reply that says so, and the reason under which it is counted.
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::Callee(_) => ERROR,
            Self::Busy => BUSY,
            Self::ServiceNotFound => SERVICE_NOT_FOUND,
            Self::ShuttingDown => SHUTTING_DOWN,
            Self::OldEpoch => OLD_EPOCH,
            Self::Expired => CANCELLED,
            Self::Routed(refusal, _) => refusal.as_str(),
            Self::PassedOn => "passed_on",
            Self::Ended(code, _) => code,
        }
    }

    fn body(&self) -> Body {
        let (code, message) = match self {
            Self::Callee(error) => (error.code.clone(), error.message.clone()),
            Self::Busy => (String::new(), "too many handlers run".to_owned()),
            Self::ServiceNotFound => (String::new(), "no such service here".to_owned()),
            Self::ShuttingDown => (String::new(), "the node is shutting down".to_owned()),
            Self::OldEpoch => (String::new(), "the epoch that was asked is over".to_owned()),
            Self::Expired => (String::new(), "the deadline was over".to_owned()),
            Self::Routed(_, message) | Self::Ended(_, message) => (String::new(), message.clone()),
            Self::PassedOn => (String::new(), "another node answers".to_owned()),
        };
        Body { code, message }
    }

    /// The failure in the caller's terms.
    pub(super) fn into_error(self, node: &NodeId, service: &str, timeout_ms: u64) -> Error {
        let target = format!("{node}:{service}");
        match self {
            Self::Callee(CallError { code, message }) => Error::Callee { target, code, message },
            Self::Busy => Error::Busy { target },
            Self::ServiceNotFound => Error::ServiceNotFound { service: service.to_owned(), at: node.to_string() },
            Self::ShuttingDown | Self::OldEpoch => Error::NodeOffline(node.clone()),
            // Nobody is told of a message that was passed on.
            Self::Expired | Self::PassedOn => Error::Timeout { target, timeout_ms },
            Self::Routed(refusal, detail) => Error::Routed { object: target, refusal, detail },
            Self::Ended(code, message) => Error::Callee { target, code: code.to_owned(), message },
        }
    }
}

/// Status and body of the reply that says `outcome`.
pub(super) fn to_reply(outcome: Outcome) -> (&'static str, Box<RawValue>) {
    match outcome {
        Ok(body) => (OK, body),
        Err(failure) => {
            let body = to_raw_value(&failure.body()).unwrap_or_else(|_| RawValue::NULL.to_owned());
            (failure.status(), body)
        }
    }
}

/// What a reply of `status` and `body` says. A status of a later build is passed on as the callee's code.
pub(super) fn from_reply(status: &str, body: &RawValue) -> Outcome {
    if status == OK {
        return Ok(body.to_owned());
    }
    let Body { code, message } =
        serde_json::from_str(body.get()).unwrap_or(Body { code: String::new(), message: String::new() });
    Err(match status {
        ERROR => Failure::Callee(CallError { code, message }),
        BUSY => Failure::Busy,
        SERVICE_NOT_FOUND => Failure::ServiceNotFound,
        SHUTTING_DOWN => Failure::ShuttingDown,
        OLD_EPOCH => Failure::OldEpoch,
        other => match RouteRefusal::read(other) {
            Some(refusal) => Failure::Routed(refusal, message),
            None => Failure::Callee(CallError { code: other.to_owned(), message }),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // MSG-3: an application's code that happens to be a word of this crate must not turn into another error.
    #[test]
    fn msg_3_a_callees_own_error_goes_through_unchanged_whatever_its_code() {
        for code in ["no_place", "ok", "busy", "error", "service_not_found", "", "Ä b"] {
            let own = CallError::new(code, "the \"world\" is full\n");
            let (status, body) = to_reply(Err(Failure::Callee(own.clone())));
            assert_eq!(from_reply(status, &body).expect_err("an error"), Failure::Callee(own));
        }
    }

    #[test]
    fn msg_3_each_failure_of_the_callee_becomes_a_typed_error_of_the_caller() {
        let node = NodeId::new("b1").expect("an id");
        let error = |failure: Failure| {
            let (status, body) = to_reply(Err(failure));
            from_reply(status, &body).expect_err("an error").into_error(&node, "places", 5)
        };
        assert!(matches!(error(Failure::Busy), Error::Busy { target } if target == "b1:places"));
        assert!(matches!(error(Failure::ServiceNotFound), Error::ServiceNotFound { at, .. } if at == "b1"));
        assert!(matches!(error(Failure::ShuttingDown), Error::NodeOffline(id) if id == node));
        for (failure, want) in [
            (Failure::panicked(), INTERNAL),
            (Failure::cancelled(), CANCELLED),
            (Failure::too_large(9, 8), REPLY_TOO_LARGE),
        ] {
            assert!(
                matches!(error(failure), Error::Callee { code, message, .. } if code == want && !message.is_empty())
            );
        }
        let body = RawValue::from_string("{\"message\":\"new\"}".to_owned()).expect("JSON");
        let later = from_reply("moved", &body).expect_err("an error");
        assert_eq!(later, Failure::Callee(CallError::new("moved", "new")));
    }
}
