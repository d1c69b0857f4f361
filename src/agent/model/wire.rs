//! What a proxy asks a backend and what it is answered: the bodies of the service `places`.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, Player, Region, RequestId};
use crate::token::Token;

/// The service of a backend that gives places.
pub const PLACES: &str = "places";
/// Its method.
pub const RESERVE: &str = "reserve";

/// A proxy's wish for a place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlaceRequest {
    /// For whom.
    pub player: Player,
    /// The request.
    pub request: RequestId,
    /// Its attempt, from 1.
    pub attempt: u32,
    /// In which region; none for any.
    #[serde(default)]
    pub region: Option<Region>,
    /// When the proxy gives this attempt up, in store ms.
    pub deadline_ms: u64,
    /// The servers that earlier attempts asked.
    #[serde(default)]
    pub earlier: Vec<NodeId>,
    /// The player may have a place that others wait for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bypass: bool,
}

/// A backend's answer where the player has a token now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlaceAnswer {
    /// The token: the one that was issued, or the live one the player had already.
    pub token: Token,
    /// True where it is the one the player had already.
    pub taken: bool,
}

/// Why a backend gives no place: the code of its error, as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoPlaceCode {
    /// Its inventory is empty for this wish.
    NoPlace,
    /// Others wait for its places, and come first.
    Line,
    /// It takes no new players.
    NotAccepting,
    /// An operator drains it.
    Draining,
    /// It is on its way out.
    ShuttingDown,
    /// A kill switch is on.
    KillSwitch,
    /// It holds no lease now.
    LeaseLost,
    /// The store did not answer it.
    StoreDown,
    /// The request was cancelled.
    Cancelled,
    /// The request is at this attempt or beyond.
    Attempt,
    /// The attempt's deadline was over.
    Late,
    /// Anything else.
    Failed,
}

impl NoPlaceCode {
    const ALL: [Self; 12] = [
        Self::NoPlace,
        Self::Line,
        Self::NotAccepting,
        Self::Draining,
        Self::ShuttingDown,
        Self::KillSwitch,
        Self::LeaseLost,
        Self::StoreDown,
        Self::Cancelled,
        Self::Attempt,
        Self::Late,
        Self::Failed,
    ];

    /// The code as it travels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoPlace => "no_place",
            Self::Line => "line",
            Self::NotAccepting => "not_accepting",
            Self::Draining => "draining",
            Self::ShuttingDown => "shutting_down",
            Self::KillSwitch => "kill_switch",
            Self::LeaseLost => "lease_lost",
            Self::StoreDown => "store_down",
            Self::Cancelled => "cancelled",
            Self::Attempt => "attempt",
            Self::Late => "late",
            Self::Failed => "failed",
        }
    }

    /// Reads a code; one of a newer build is [`Failed`](Self::Failed).
    pub fn read(code: &str) -> Self {
        Self::ALL.into_iter().find(|known| known.as_str() == code).unwrap_or(Self::Failed)
    }
}
