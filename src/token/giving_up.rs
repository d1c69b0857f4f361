//! The ways a token ends before the player arrives: released by whom it belongs to, or cancelled with its request.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::ids::{Epoch, NodeEpoch, NodeId, OperationId, Player, RequestId, TokenId};
use crate::store::{Invocation, Key, scripts};

use super::book::{Book, OTHERS_MAX};
use super::outcome::{CancelOutcome, ReleaseOutcome};
use super::record::Token;

impl Book {
    /// Releases a token that this proxy holds by the claim `op`; without one, by whichever claim of its own.
    pub async fn release_claim(
        &self,
        token: &Token,
        by: &NodeEpoch,
        op: Option<&OperationId>,
        reason: &str,
    ) -> Result<ReleaseOutcome> {
        self.release(&token.id, &token.player, &token.server, "claimant", by, op, reason).await
    }

    /// Releases a token that this backend issued.
    pub async fn release_own(
        &self,
        id: &TokenId,
        player: &Player,
        by: &NodeEpoch,
        reason: &str,
    ) -> Result<ReleaseOutcome> {
        self.release(id, player, &by.id, "server", by, None, reason).await
    }

    /// Releases any token, for an operator.
    pub async fn release_any(&self, token: &Token, operator: &NodeId, reason: &str) -> Result<ReleaseOutcome> {
        let by = NodeEpoch { id: operator.clone(), epoch: Epoch::NONE };
        self.release(&token.id, &token.player, &token.server, "operator", &by, None, reason).await
    }

    /// Runs `token/release`. `reason` is a word.
    #[expect(clippy::too_many_arguments, reason = "they are the script's")]
    async fn release(
        &self,
        id: &TokenId,
        player: &Player,
        server: &NodeId,
        role: &str,
        by: &NodeEpoch,
        op: Option<&OperationId>,
        reason: &str,
    ) -> Result<ReleaseOutcome> {
        let keys = self.store.keys();
        let key_list = [keys.token(player), keys.due(server), keys.due_servers()];
        let call = || {
            Invocation::new(&scripts::TOKEN_RELEASE, &key_list)
                .arg(id.as_str())
                .arg(player.as_str())
                .arg(server)
                .arg(role)
                .member(by)
                .arg(op.map_or("", OperationId::as_str))
                .arg(reason)
                .arg(self.options.audit_ms)
                .arg(keys.token_events())
        };
        let answer = self.conversation("releasing a token", "release").ask(call).await?;
        Ok(match answer.word() {
            "RELEASED" => ReleaseOutcome::Released,
            "LOST" => ReleaseOutcome::Lost,
            "LANDED" => ReleaseOutcome::Landed,
            "ENDED" => ReleaseOutcome::Ended(answer.text(0)?.to_owned()),
            "NONE" => ReleaseOutcome::None,
            "NEED" => return Err(self.forged(player)),
            _ => return Err(answer.unexpected()),
        })
    }

    /// Marks a request as cancelled, so that no later issue of it succeeds, and releases its live token: a PENDING one, or
    /// one that `by` holds by the claim `op` (without one, by whichever claim of its own). `servers` are those that were
    /// asked. Runs `token/cancel`.
    pub async fn cancel(
        &self,
        player: &Player,
        request: &RequestId,
        by: &NodeEpoch,
        op: Option<&OperationId>,
        servers: &[NodeId],
    ) -> Result<CancelOutcome> {
        let mut others: BTreeSet<NodeId> = servers.iter().take(OTHERS_MAX - 1).cloned().collect();
        let keys = self.store.keys();
        let mut asked = self.conversation("cancelling a request", "cancel");
        loop {
            let call = || {
                let mut key_list: Vec<Key<'_>> = vec![keys.token(player), keys.due_servers()];
                key_list.extend(others.iter().map(|server| keys.due(server)));
                let call = Invocation::new(&scripts::TOKEN_CANCEL, &key_list)
                    .arg(player.as_str())
                    .arg(request.as_str())
                    .member(by)
                    .arg(op.map_or("", OperationId::as_str))
                    .arg(self.options.audit_ms)
                    .arg(keys.token_events());
                others.iter().fold(call, Invocation::arg)
            };
            let answer = asked.ask(call).await?;
            match answer.word() {
                "CANCELLED" => return Ok(CancelOutcome::Marked),
                "RELEASED" => return Ok(CancelOutcome::Released),
                "LOST" => return Ok(CancelOutcome::Lost),
                "LANDED" => return Ok(CancelOutcome::Landed),
                "NEED" => self.needed(&answer, player, &mut others)?,
                _ => return Err(answer.unexpected()),
            }
        }
    }
}
