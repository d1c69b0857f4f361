use serde::Serialize;

use maitred::error::Error;
use maitred::ids::{NodeId, OperationId, Player};
use maitred::node::Control;
use maitred::token::{ReleaseOutcome, TokenRow, TokenState};

use super::super::Failure;
use super::super::context::Context;
use super::super::view;
use super::with_advice;

pub(super) const HELP: &str = "\
Ends a PENDING or CLAIMED token; a proxy that is moving the player finds it ended. Exit code 0 also where there is nothing \
to release, said plainly; 1 where it could not be released.

With --json one object: player, outcome (released, already_released, landed, ended, none), end, server, token, reason.";

/// How often a token that took the place of the one just read is looked at again.
const TRIES: usize = 4;
/// Who releases, in the script's arguments. No member: nothing is signed with it.
const OPERATOR: &str = "operator";

#[derive(Debug, Serialize)]
struct Done {
    player: Player,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// A reason is a word in the row, so it has the form of an operation's name.
pub(super) fn reason(text: &str) -> Result<String, String> {
    match OperationId::new(text) {
        Ok(word) => Ok(word.into()),
        Err(_) => Err("allowed are 1 to 64 characters of A-Z a-z 0-9 . _ -".to_owned()),
    }
}

/// Releases the open token of `player`, and says what happened.
pub(super) async fn run(context: &Context, player: &Player, reason: &str) -> Result<(), Failure> {
    let (store, verifier) = context.fleet().await?;
    let book = context.book_of(&store, &verifier, Control::default());
    let operator = NodeId::new(OPERATOR)?;
    for _ in 0..TRIES {
        let found = book.find(player).await.map_err(|error| with_advice(error, &store, player))?;
        let Some(row) = found else {
            Done::new(player, "none", None).show(context.json);
            return Ok(());
        };
        if let Some(done) = Done::before(&row) {
            done.show(context.json);
            return Ok(());
        }
        let outcome = book.release_any(&row.token, &operator, reason).await?;
        let done = match outcome {
            ReleaseOutcome::Released => {
                Done { reason: Some(reason.to_owned()), ..Done::new(player, "released", Some(&row)) }
            }
            ReleaseOutcome::Landed => Done::new(player, "landed", Some(&row)),
            ReleaseOutcome::Ended(end) => Done { end: Some(end), ..Done::new(player, "ended", Some(&row)) },
            // The row has gone or holds another token by now: look again.
            ReleaseOutcome::None => continue,
            ReleaseOutcome::Lost => {
                return Err(Failure::Error(Error::Protocol {
                    during: "token/release",
                    detail: format!("an operator was told that the token of {player} is not its own"),
                }));
            }
        };
        done.show(context.json);
        return Ok(());
    }
    Err(Failure::Io(format!("the token of {player} changed at every try; nothing was released")))
}

impl Done {
    fn new(player: &Player, outcome: &'static str, row: Option<&TokenRow>) -> Self {
        Self {
            player: player.clone(),
            outcome,
            end: None,
            server: row.map(|row| row.token.server.clone()),
            token: row.map(|row| row.token.id.to_string()),
            reason: None,
        }
    }

    /// What a row says that is no longer open.
    fn before(row: &TokenRow) -> Option<Self> {
        let player = &row.token.player;
        match row.state {
            TokenState::Pending | TokenState::Claimed => None,
            TokenState::Consumed => Some(Self::new(player, "landed", Some(row))),
            TokenState::Released => {
                Some(Self { reason: row.reason.clone(), ..Self::new(player, "already_released", Some(row)) })
            }
            TokenState::Expired => {
                Some(Self { end: Some(row.state.to_string()), ..Self::new(player, "ended", Some(row)) })
            }
        }
    }

    fn show(&self, as_json: bool) {
        if as_json {
            return view::json(self);
        }
        let player = &self.player;
        let server = self.server.as_ref().map_or("?", NodeId::as_str);
        let reason = view::plain(self.reason.as_deref().unwrap_or("none given"));
        let end = self.end.as_deref().unwrap_or("");
        view::line(&match self.outcome {
            "released" => {
                format!("released: the token of {player} on {server} (reason: {reason}); its place goes back")
            }
            "already_released" => {
                format!("nothing to release: the token of {player} on {server} was released before (reason: {reason})")
            }
            "landed" => format!("nothing to release: {player} landed on {server}"),
            "ended" => format!("nothing to release: the token of {player} on {server} has ended ({end})"),
            _ => format!("nothing to release: {player} has no token"),
        });
    }
}
