//! Taking over the reservation of a player who has one already: what a router proxy does, and a participant for a player
//! who comes back through it.

use crate::agent::config::TextsConfig;
use crate::agent::model::{Reason, Refusal, Request, Transfer};
use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, OperationId, Player};
use crate::node::NodeRecord;
use crate::node::roster::address_of;
use crate::store::{Store, Verifier};
use crate::token::{Book, ClaimOutcome, Token, TokenState};

use super::claiming::Claiming;

/// Finds the player's live token and claims it under `op`: one read of the token, one of its backend's row,
/// `token/claim`. A token that another proxy claimed is `Lost`, unless its backend is gone. Left alone are a token of another server than `asked` wants, and one of `asked` itself: its backend
/// never said that it knows of it. `claiming` keeps the claim in mind: whoever is handed the transfer settles it.
#[expect(clippy::too_many_arguments, reason = "a router has none of what would hold them together")]
pub(in crate::agent) async fn take(
    book: &Book,
    verifier: &Verifier,
    claimant: &NodeEpoch,
    player: &Player,
    asked: Option<&Request>,
    op: &OperationId,
    texts: &TextsConfig,
    mut claiming: Option<&mut Claiming>,
) -> Result<Box<Transfer>, Refusal> {
    let refuse = |reason: Reason, detail: String| Err(Refusal::new(reason, texts, detail));
    let failed = |error: &Error| refuse(Reason::of(error), error.to_string());
    let store = book.store();
    let row = match book.find(player).await {
        Ok(row) => row.filter(|row| row.is_live(store.clock().now_ms())),
        Err(error) => return failed(&error),
    };
    let Some(row) = row else {
        return refuse(Reason::NoToken, "the player has no live token".to_owned());
    };
    let token = row.token;
    if row.state == TokenState::Claimed {
        return match stands(store, verifier, &token).await {
            Ok(true) => refuse(Reason::Lost, "another proxy moves the player".to_owned()),
            // Nobody can be moved there any more, so the player may have, or wait for, a place elsewhere.
            Ok(false) => refuse(Reason::NoToken, format!("{} is gone", token.server)),
            Err(error) => failed(&error),
        };
    }
    if asked.is_some_and(|asked| asked.id == token.request) {
        return refuse(Reason::NoToken, format!("{} did not say that it has the place", token.server));
    }
    let only = asked.and_then(|asked| asked.ask.server.as_ref());
    if only.is_some_and(|only| *only != token.server) {
        return refuse(Reason::Lost, format!("another request of the player has a place at {}", token.server));
    }
    let addr = match address_of(store, verifier, &token.server).await {
        Ok(Some(addr)) => addr,
        Ok(None) => return refuse(Reason::Refused, format!("{} is gone", token.server)),
        Err(error) => return failed(&error),
    };
    if let Some(claiming) = &mut claiming {
        claiming.begin(&token);
    }
    let claimed = book.claim(&token, claimant, op).await;
    if let (Some(claiming), Ok(other)) = (claiming, &claimed)
        && !matches!(other, ClaimOutcome::Claimed(_))
    {
        claiming.settled();
    }
    match claimed {
        Ok(ClaimOutcome::Claimed(_)) => {
            let request = asked.map_or_else(|| token.request.clone(), |asked| asked.id.clone());
            Ok(Box::new(Transfer::claimed(store, request, token, addr, op.clone())))
        }
        Ok(ClaimOutcome::Lost) => refuse(Reason::Lost, "another proxy was faster".to_owned()),
        Ok(other) => refuse(Reason::NoToken, format!("the token could not be claimed: {other:?}")),
        Err(error) => failed(&error),
    }
}

/// The process that issued a token is still there.
async fn stands(store: &Store, verifier: &Verifier, token: &Token) -> Result<bool> {
    let row = store.row(store.keys().node(&token.server)).await?;
    Ok(!row.is_empty() && NodeRecord::from_row(verifier, &token.server, &row)?.epoch == token.server_epoch)
}
