//! Taking over the reservation of a player who has one already: what a router proxy does, and a participant for a player
//! who comes back through it.

use crate::error::{Error, Result};
use crate::ids::{NodeId, OperationId, Player};
use crate::node::NodeRecord;
use crate::store::{Store, Trust};
use crate::token::{Book, ClaimOutcome, Claimant, TokenState};

use super::backend::boot_time_of;
use super::config::TextsConfig;
use super::proxy::reason_of;
use super::request::{Outcome, Reason, Refusal, TRANSFER_MARGIN_MS, Transfer};

/// Finds the player's live token and claims it under `op`: one read of the token, one of its backend's row, `token/claim`. A
/// token of another server than `only` is left alone.
pub(super) async fn take(
    book: &Book,
    trust: &Trust,
    claimant: &Claimant,
    player: &Player,
    only: Option<&NodeId>,
    op: &OperationId,
    texts: &TextsConfig,
) -> Outcome {
    let refuse = |reason: Reason, detail: String| Outcome::Refused(Refusal::new(reason, texts, detail));
    let failed = |error: &Error| refuse(reason_of(error), error.to_string());
    let store = book.store();
    let row = match book.find(player).await {
        Ok(row) => row.filter(|row| row.is_live(store.clock().now_ms())),
        Err(error) => return failed(&error),
    };
    let Some(row) = row else {
        return refuse(Reason::NoToken, "the player has no live token".to_owned());
    };
    if row.state == TokenState::Claimed {
        return refuse(Reason::Lost, "another proxy moves the player".to_owned());
    }
    let token = row.token;
    if only.is_some_and(|only| *only != token.server) {
        return refuse(Reason::Lost, format!("another request of the player has a place at {}", token.server));
    }
    let addr = match address(store, trust, &token.server).await {
        Ok(Some(addr)) => addr,
        Ok(None) => return refuse(Reason::Refused, format!("{} is gone", token.server)),
        Err(error) => return failed(&error),
    };
    match book.claim(&token, claimant, op).await {
        Ok(ClaimOutcome::Claimed(_)) => {
            let ends = boot_time_of(store, token.expires_at_ms);
            Outcome::Transfer(Box::new(Transfer {
                player: player.clone(),
                request: token.request.clone(),
                server: token.server.clone(),
                addr,
                deadline_boot_ms: ends.saturating_sub(TRANSFER_MARGIN_MS),
                token,
                claim_op: op.clone(),
            }))
        }
        Ok(ClaimOutcome::Lost) => refuse(Reason::Lost, "another proxy was faster".to_owned()),
        Ok(other) => refuse(Reason::NoToken, format!("the token could not be claimed: {other:?}")),
        Err(error) => failed(&error),
    }
}

async fn address(store: &Store, trust: &Trust, server: &NodeId) -> Result<Option<String>> {
    let row = store.row(store.keys().node(server)).await?;
    if row.is_empty() {
        return Ok(None);
    }
    Ok(Some(NodeRecord::from_row(trust, server, &row)?.addr))
}
