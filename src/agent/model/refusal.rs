use std::fmt;

use serde::Serialize;

use crate::agent::config::TextsConfig;
use crate::error::Error;

/// What a player reads whose newer request waits in the place of this one.
const REPLACED: &str = "You keep your place in the queue with your newer request.";

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its source is switched off. A player who connects stays with the lobby.
    SourceOff,
    /// The player has no right to be placed. One who connects stays with the lobby.
    NotAllowed,
    /// No backend came into question.
    NoCandidate,
    /// Every backend that was asked refused or did not answer.
    Refused,
    /// The kill switch is on.
    KillSwitch,
    /// Another proxy moves the player, or another request of the player holds a place elsewhere.
    Lost,
    /// Another request of the player waits at this one's place in the line, here or through another proxy.
    Replaced,
    /// The request was cancelled.
    Cancelled,
    /// This proxy holds no lease now.
    LeaseLost,
    /// The store did not answer.
    StoreDown,
    /// The application could not move the player.
    NotMoved,
    /// The player has no live token.
    NoToken,
    /// The player asked more often than the limit of the source lets through (POL-6).
    Limited,
    /// An operator drains the server that was asked for by name (NOD-13).
    Draining,
    /// The line that the player was to wait in holds as many as it may.
    QueueFull,
    /// The place in the line is gone: the server was removed, or an operator emptied the line.
    WaitEnded,
    /// No place came in within `wait.maxWaitMs`.
    WaitedTooLong,
}

impl Reason {
    /// The reason in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SourceOff => "source_off",
            Self::NotAllowed => "not_allowed",
            Self::NoCandidate => "no_candidate",
            Self::Refused => "refused",
            Self::KillSwitch => "kill_switch",
            Self::Lost => "lost",
            Self::Replaced => "replaced",
            Self::Cancelled => "cancelled",
            Self::LeaseLost => "lease_lost",
            Self::StoreDown => "store_down",
            Self::NotMoved => "not_moved",
            Self::NoToken => "no_token",
            Self::Limited => "limited",
            Self::Draining => "draining",
            Self::QueueFull => "queue_full",
            Self::WaitEnded => "wait_ended",
            Self::WaitedTooLong => "waited_too_long",
        }
    }

    /// The key of the player's text in the config (`texts`). For [`Replaced`](Self::Replaced) the config has none: its text is
    /// always the same.
    pub fn message_key(self) -> &'static str {
        match self {
            Self::NoCandidate | Self::SourceOff => "noCandidate",
            Self::Refused | Self::NotMoved | Self::Cancelled | Self::NoToken => "refused",
            Self::NotAllowed => "notAllowed",
            Self::KillSwitch => "killSwitch",
            Self::Lost => "lost",
            Self::Replaced => "replaced",
            Self::LeaseLost | Self::StoreDown => "storeDown",
            Self::Limited => "limited",
            Self::Draining => "draining",
            Self::QueueFull => "queueFull",
            Self::WaitEnded => "waitEnded",
            Self::WaitedTooLong => "waitedTooLong",
        }
    }

    /// The reason behind an error of the store or the lease.
    pub(in crate::agent) fn of(error: &Error) -> Self {
        match error {
            Error::KillSwitch { .. } => Self::KillSwitch,
            Error::LeaseLost { .. } | Error::Fenced { .. } => Self::LeaseLost,
            Error::Unreachable { .. } | Error::Contended { .. } | Error::Refused { .. } | Error::Skew { .. } => {
                Self::StoreDown
            }
            _ => Self::Refused,
        }
    }

    fn text(self, texts: &TextsConfig) -> &str {
        match self.message_key() {
            "noCandidate" => &texts.no_candidate,
            "notAllowed" => &texts.not_allowed,
            "killSwitch" => &texts.kill_switch,
            "lost" => &texts.lost,
            "replaced" => REPLACED,
            "storeDown" => &texts.store_down,
            "limited" => &texts.limited,
            "draining" => &texts.draining,
            "queueFull" => &texts.queue_full,
            "waitEnded" => &texts.wait_ended,
            "waitedTooLong" => &texts.waited_too_long,
            _ => &texts.refused,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A request that ends without a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// What the player reads, out of the config.
    pub message: String,
    /// For the operator: what each backend said, or the error.
    pub detail: String,
    /// For [`Reason::Limited`]: a request in so many ms is let through, if no other one comes before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    pub(in crate::agent) fn new(reason: Reason, texts: &TextsConfig, detail: impl Into<String>) -> Self {
        Self { reason, message: reason.text(texts).to_owned(), detail: detail.into(), retry_after_ms: None }
    }

    /// With the time after which to ask again, also in the text.
    pub(in crate::agent) fn retry_after(mut self, wait_ms: Option<u64>) -> Self {
        if let Some(wait_ms) = wait_ms {
            self.message = self.message.replace("{seconds}", &wait_ms.div_ceil(1_000).to_string());
            self.retry_after_ms = Some(wait_ms);
        }
        self
    }
}
