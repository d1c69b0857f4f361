use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, Player, Region, RequestId};
use crate::select::Ask;

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
