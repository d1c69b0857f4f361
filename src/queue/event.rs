use crate::ids::{LineName, NodeId, Player, TokenId};

/// What the line channel says: a reason to look, never a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineEvent {
    /// `entered <line>`: somebody waits again.
    Entered {
        /// The line.
        line: LineName,
    },
    /// `admitted <line> <player>…`: look at their passes.
    Admitted {
        /// The line.
        line: LineName,
        /// Who.
        players: Vec<Player>,
    },
    /// `left <line> <player>`: the ticket is gone.
    Left {
        /// The line.
        line: LineName,
        /// Whose.
        player: Player,
    },
    /// `drained <line> <player> <id> <server>`: look at the player's token.
    Drained {
        /// The line.
        line: LineName,
        /// Whose.
        player: Player,
        /// The token.
        id: TokenId,
        /// Its backend.
        server: NodeId,
    },
    /// `paused <line>` or `resumed <line>`.
    Paused {
        /// The line.
        line: LineName,
        /// Nobody is admitted from now on.
        paused: bool,
    },
}

impl LineEvent {
    /// Reads an event; `None` for anything else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let kind = words.next()?;
        let line = LineName::new(words.next()?).ok()?;
        match kind {
            "entered" => Some(Self::Entered { line }),
            "admitted" => {
                let players = words.map(|word| Player::new(word).ok()).collect::<Option<_>>()?;
                Some(Self::Admitted { line, players })
            }
            "left" => Some(Self::Left { line, player: Player::new(words.next()?).ok()? }),
            "drained" => Some(Self::Drained {
                line,
                player: Player::new(words.next()?).ok()?,
                id: TokenId::new(words.next()?).ok()?,
                server: NodeId::new(words.next()?).ok()?,
            }),
            "paused" | "resumed" => Some(Self::Paused { line, paused: kind == "paused" }),
            _ => None,
        }
    }
}
