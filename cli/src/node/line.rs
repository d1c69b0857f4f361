use serde::Deserialize;
use serde_json::{Value, json};

use maitred::agent::Source;
use maitred::error::Error;
use maitred::ids::{LineName, NodeId, Player, Region, SessionId};
use maitred::node::Load;

/// What a client may ask, one JSON object a line. `id` comes back with the answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// A proxy: find a place for a player.
    Dispatch {
        id: String,
        player: Player,
        #[serde(default)]
        region: Option<Region>,
        #[serde(default)]
        server: Option<NodeId>,
        #[serde(default)]
        prefer: Option<Region>,
        #[serde(default)]
        source: Source,
        /// A join: the player's first connection to the network.
        #[serde(default)]
        first_join: bool,
        /// False for a player without the right to be placed.
        #[serde(default = "yes")]
        may_be_placed: bool,
        /// With the right to pass by those who wait.
        #[serde(default)]
        bypass: bool,
    },
    /// A proxy: the player went away; `request` is the dispatch's id.
    Cancel {
        #[serde(default)]
        id: Option<String>,
        player: Player,
        request: String,
        /// Only the connection dropped: a place in a wait line is kept for the grace.
        #[serde(default)]
        dropped: bool,
    },
    /// A proxy: the player could not be moved; `request` is the dispatch's id.
    Release {
        #[serde(default)]
        id: Option<String>,
        player: Player,
        request: String,
        #[serde(default)]
        reason: Option<String>,
    },
    /// A proxy: the player's live token.
    Find {
        #[serde(default)]
        id: Option<String>,
        player: Player,
    },
    /// A proxy: a player connects who may have a token already.
    Take { id: String, player: Player },
    /// A backend: the number of free places in a region from now on.
    Places {
        #[serde(default)]
        id: Option<String>,
        count: u64,
        #[serde(default)]
        region: Option<Region>,
    },
    /// A backend: a player joins. With `pass`, on any member but a proxy: a player comes with a login pass.
    Redeem {
        id: String,
        player: Player,
        #[serde(default)]
        pass: Option<String>,
    },
    /// A proxy: a player wants to be admitted through a login line.
    Enter {
        id: String,
        player: Player,
        line: LineName,
        #[serde(default)]
        lane: u16,
        #[serde(default)]
        attributes: String,
    },
    /// A proxy: the player's connection dropped, or the player gave up (`quit`). `session` is that of the visit.
    Left {
        #[serde(default)]
        id: Option<String>,
        player: Player,
        line: LineName,
        #[serde(default)]
        quit: bool,
        #[serde(default)]
        session: Option<SessionId>,
    },
    /// A proxy: the admitted player is on the server.
    Arrived {
        #[serde(default)]
        id: Option<String>,
        player: Player,
        line: LineName,
        #[serde(default)]
        serial: Option<u64>,
    },
    /// A proxy: the admitted player could not be moved; `gone` where the connection is lost too.
    Failed {
        #[serde(default)]
        id: Option<String>,
        player: Player,
        line: LineName,
        #[serde(default)]
        gone: bool,
        #[serde(default)]
        serial: Option<u64>,
    },
    /// A proxy: whether it takes part in the admission.
    Admits {
        #[serde(default)]
        id: Option<String>,
        on: bool,
    },
    /// Any member: its load.
    Load {
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        players: Option<u64>,
        #[serde(default)]
        soft_cap: Option<u64>,
        #[serde(default)]
        load: Box<Load>,
    },
    /// How the node is.
    Status {
        #[serde(default)]
        id: Option<String>,
    },
}

impl Line {
    /// Reads a line; the error is an answer that says what is wrong with it.
    pub fn read(text: &str) -> Result<Self, Value> {
        serde_json::from_str(text).map_err(|error| {
            let id = serde_json::from_str::<Value>(text).ok().and_then(|value| value.get("id").cloned());
            let shown: String = text.chars().take(120).collect();
            json!({ "id": id, "outcome": "error", "error": format!("the line is not valid: {error}"), "line": shown })
        })
    }

    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Dispatch { id, .. } | Self::Redeem { id, .. } | Self::Take { id, .. } | Self::Enter { id, .. } => {
                Some(id)
            }
            Self::Cancel { id, .. }
            | Self::Release { id, .. }
            | Self::Find { id, .. }
            | Self::Places { id, .. }
            | Self::Load { id, .. }
            | Self::Left { id, .. }
            | Self::Arrived { id, .. }
            | Self::Failed { id, .. }
            | Self::Admits { id, .. }
            | Self::Status { id } => id.as_deref(),
        }
    }

    /// The answer to an op of another role.
    pub fn not_here(&self, what: &str) -> Value {
        json!({ "id": self.id(), "outcome": "error", "error": format!("{what} has no such op") })
    }
}

fn yes() -> bool {
    true
}

/// The answer for an error.
pub(super) fn error(id: Option<&str>, error: &Error) -> Value {
    json!({ "id": id, "outcome": "error", "error": error.to_string(), "retryable": error.is_retryable() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cli_3_a_line_that_is_not_valid_is_answered_with_its_id_and_the_reason() {
        for (text, want) in [
            ("", "not valid"),
            ("{", "not valid"),
            ("{\"op\":\"fly\",\"id\":\"r1\"}", "unknown variant"),
            ("{\"op\":\"dispatch\",\"id\":\"r1\"}", "player"),
            ("{\"op\":\"dispatch\",\"id\":\"r1\",\"player\":\"a b\"}", "without blanks"),
            ("{\"op\":\"dispatch\",\"id\":\"r1\",\"player\":\"a\",\"regoin\":\"x\"}", "unknown field"),
            ("{\"op\":\"places\",\"count\":-1}", "not valid"),
            ("{\"op\":\"enter\",\"id\":\"r1\",\"player\":\"a\"}", "line"),
            ("{\"op\":\"enter\",\"id\":\"r1\",\"player\":\"a\",\"line\":\"l\",\"lanes\":1}", "unknown field"),
            ("{\"op\":\"enter\",\"id\":\"r1\",\"player\":\"a\",\"line\":\"l\",\"lane\":-1}", "not valid"),
            ("{\"op\":\"left\",\"player\":\"a\",\"line\":\"a b\"}", "1 to 64 characters"),
            ("{\"op\":\"failed\",\"player\":\"a\",\"line\":\"l\",\"serial\":\"7\"}", "not valid"),
            ("{\"op\":\"admits\",\"id\":\"r1\"}", "on"),
            ("{\"op\":\"redeem\",\"id\":\"r1\",\"player\":\"a\",\"pas\":\"x\"}", "unknown field"),
        ] {
            let answer = Line::read(text).expect_err(text);
            assert!(answer["error"].as_str().is_some_and(|error| error.contains(want)), "{text}: {answer}");
        }
        let answer = Line::read("{\"op\":\"fly\",\"id\":\"r1\"}").expect_err("no such op");
        assert_eq!(answer["id"], "r1");
        assert!(Line::read("{\"op\":\"dispatch\",\"id\":\"r1\",\"player\":\"alice\",\"region\":null}").is_ok());
    }
}
