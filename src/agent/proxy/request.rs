use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::agent::config::TextsConfig;
use crate::agent::wait::Waiting;
use crate::ids::{NodeId, OperationId, Player, Region, RequestId};
use crate::select::Ask;
use crate::store::{Store, boot_ms};
use crate::token::Token;

/// Where a request comes from. Each source can be switched off in the config (`triggers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A player's command.
    #[default]
    Command,
    /// A player's connection.
    Join,
    /// An event of the application.
    Event,
    /// Anything else.
    Other,
}

impl Source {
    /// Its name in the config: of its trigger, and of the limit that its requests are charged against.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Join => "join",
            Self::Event => "event",
            Self::Other => "other",
        }
    }
}

/// A player's wish for a place somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Who.
    pub player: Player,
    /// The request's id: what [`cancel`](crate::agent::ProxyAgent::cancel) names. Fresh for each wish.
    pub id: RequestId,
    /// Where it comes from.
    pub source: Source,
    /// What is wanted.
    pub ask: Ask,
    /// The player's first connection to the network, as the application knows. Looked at for [`Source::Join`]: the trigger
    /// `firstJoin` is enough for it.
    pub first_join: bool,
    /// False for a player without the right to be placed: a connection to a fleet without lobbies is sent to a backend
    /// without a place, everything else is refused.
    pub may_be_placed: bool,
    /// True for a player with the right to pass by those who wait for a place: gets one that others wait for, or is refused
    /// at once instead of waiting.
    pub bypass: bool,
}

impl Request {
    /// A bare request: any backend, any region.
    pub fn new(player: Player) -> Self {
        Self {
            player,
            id: RequestId::fresh(),
            source: Source::default(),
            ask: Ask::default(),
            first_join: false,
            may_be_placed: true,
            bypass: false,
        }
    }

    /// For a place in `region`.
    #[must_use]
    pub fn in_region(mut self, region: Region) -> Self {
        self.ask.region = Some(region);
        self
    }

    /// For `server` and no other.
    #[must_use]
    pub fn on_server(mut self, server: NodeId) -> Self {
        self.ask.server = Some(server);
        self
    }

    /// From another source than a command.
    #[must_use]
    pub fn from_source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Rather on a backend that serves `region`, for example the one the player was in last.
    #[must_use]
    pub fn preferring(mut self, region: Region) -> Self {
        self.ask.prefer = Some(region);
        self
    }

    /// For a player's first connection to the network.
    #[must_use]
    pub fn first_join(mut self) -> Self {
        self.source = Source::Join;
        self.first_join = true;
        self
    }

    /// For a player with the right to pass by those who wait.
    #[must_use]
    pub fn bypassing(mut self) -> Self {
        self.bypass = true;
        self
    }

    /// For a player without the right to be placed.
    #[must_use]
    pub fn without_right(mut self) -> Self {
        self.may_be_placed = false;
        self
    }
}

/// A transfer has to start this long before its token ends.
const TRANSFER_MARGIN_MS: u64 = 250;

/// A player to be moved: the token is claimed by this proxy.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Who.
    pub player: Player,
    /// The request.
    pub request: RequestId,
    /// Where to.
    pub server: NodeId,
    /// Its address.
    pub addr: String,
    /// The reservation; its payload is what the backend put in.
    pub token: Token,
    pub(in crate::agent) claim_op: OperationId,
    pub(super) deadline_boot_ms: u64,
}

impl Transfer {
    /// For a token that was claimed with `claim_op`, on behalf of `request`.
    pub(in crate::agent) fn claimed(
        store: &Store,
        request: RequestId,
        token: Token,
        addr: String,
        claim_op: OperationId,
    ) -> Self {
        let ends = store.clock().boot_time_of(token.expires_at_ms);
        Self {
            player: token.player.clone(),
            request,
            server: token.server.clone(),
            addr,
            deadline_boot_ms: ends.saturating_sub(TRANSFER_MARGIN_MS),
            token,
            claim_op,
        }
    }

    /// How long the player may still be moved, in ms, on a clock that counts suspension. To be asked again right before
    /// the move; 0: too late.
    pub fn left_ms(&self) -> u64 {
        self.deadline_boot_ms.saturating_sub(boot_ms())
    }

    /// What the backend put into the token.
    pub fn payload(&self) -> &RawValue {
        &self.token.payload
    }

    /// The operation of the claim.
    pub fn claim_op(&self) -> &OperationId {
        &self.claim_op
    }
}

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

    /// The key of the player's text in the config (`texts`).
    pub fn message_key(self) -> &'static str {
        match self {
            Self::NoCandidate | Self::SourceOff => "noCandidate",
            Self::Refused | Self::NotMoved | Self::Cancelled | Self::NoToken => "refused",
            Self::NotAllowed => "notAllowed",
            Self::KillSwitch => "killSwitch",
            Self::Lost => "lost",
            Self::LeaseLost | Self::StoreDown => "storeDown",
            Self::Limited => "limited",
            Self::Draining => "draining",
            Self::QueueFull => "queueFull",
            Self::WaitEnded => "waitEnded",
            Self::WaitedTooLong => "waitedTooLong",
        }
    }

    fn text(self, texts: &TextsConfig) -> &str {
        match self.message_key() {
            "noCandidate" => &texts.no_candidate,
            "notAllowed" => &texts.not_allowed,
            "killSwitch" => &texts.kill_switch,
            "lost" => &texts.lost,
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

/// A player who connects to a fleet without lobbies and gets no place: a backend all the same, so that they are
/// somewhere. It was not asked; nothing is reserved and no token stands for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balanced {
    /// Who.
    pub player: Player,
    /// The request.
    pub request: RequestId,
    /// Where to.
    pub server: NodeId,
    /// Its address.
    pub addr: String,
}

/// How a request ends, or goes on.
#[derive(Debug)]
pub enum Outcome {
    /// The player has a place and this proxy moves them.
    Transfer(Box<Transfer>),
    /// The player has no place, and a backend to connect to.
    Balanced(Balanced),
    /// No place now: the player waits for one (`selector.onNoCandidate: queue`).
    Waiting(Waiting),
    /// No place, and why.
    Refused(Refusal),
}
