use serde_json::value::RawValue;

use crate::envelope::AuditReason;
use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, Player, TokenId};
use crate::store::boot_ms;
use crate::token::{ConsumeOutcome, LedgerState, Past, PastEnd, Redeem, TokenRow};

use super::inventory::Inventory;
use super::state::{Backend, Unknown};

/// Why a join is refused although a reservation is in sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RedeemRefusal {
    /// No proxy ever claimed the token: nobody sent this player.
    NotClaimed,
    /// The token was used or given back, and its row claims to be live.
    Replay,
    /// The token is of an epoch of this backend that is over, or its place went back before the store knew: by a shutdown, or
    /// because its issue seemed to have come to nothing.
    OldEpoch,
    /// The token's time is over.
    Expired,
    /// Another join of the player is being decided.
    InProgress,
}

impl RedeemRefusal {
    /// The text in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotClaimed => "not_claimed",
            Self::Replay => "replay",
            Self::OldEpoch => "old_epoch",
            Self::Expired => "expired",
            Self::InProgress => "in_progress",
        }
    }
}

/// What a join finds.
#[derive(Debug)]
pub enum Redeemed<P> {
    /// The player takes the reserved place.
    Landed {
        /// The token that was consumed.
        token: TokenId,
        /// The place, handed over.
        place: P,
        /// What the inventory wanted to know again.
        payload: Box<RawValue>,
    },
    /// Nothing was reserved: the normal join.
    None,
    /// Not with this token.
    Refused(RedeemRefusal),
}

impl<I: Inventory> Backend<I> {
    /// See [`BackendAgent::redeem`](crate::agent::BackendAgent::redeem).
    pub async fn redeem(&self, player: &Player) -> Result<Redeemed<I::Place>> {
        let mut last = None;
        loop {
            let now = self.core.store.clock().now_ms();
            let begun = self.ledger().begin_redeem(player, now);
            match begun {
                Redeem::Consume { id, epoch, op } => {
                    let server = NodeEpoch { id: self.core.identity.id.clone(), epoch };
                    let guard = Unknown::new(self, &id);
                    let outcome = self.book_for_places().consume(&id, player, &server, &op).await;
                    match outcome {
                        Ok(ConsumeOutcome::Consumed) => {
                            let delivered = self.ledger().deliver(&id);
                            guard.settled();
                            if let Some((place, payload)) = delivered {
                                return Ok(Redeemed::Landed { token: id, place, payload });
                            }
                        }
                        Ok(ConsumeOutcome::NotClaimed) => {
                            self.hold_again(id, player, guard).await;
                            return Ok(Redeemed::Refused(RedeemRefusal::NotClaimed));
                        }
                        Ok(other) => {
                            self.not_consumed(&id, player, &other);
                            guard.settled();
                            last = refusal(&other);
                        }
                        Err(error @ Error::LeaseLost { .. }) => {
                            self.hold_again(id, player, guard).await;
                            return Err(error);
                        }
                        Err(Error::Fenced { .. }) => {
                            // Definite: not consumed, and this epoch never will.
                            self.not_consumed(&id, player, &ConsumeOutcome::NotYours);
                            guard.settled();
                            last = Some(RedeemRefusal::OldEpoch);
                        }
                        // Also where the store refused: an earlier try under the same operation may have had its effect.
                        Err(error) => return Err(error),
                    }
                }
                Redeem::Deliver(id) => {
                    let delivered = self.ledger().deliver(&id);
                    if let Some((place, payload)) = delivered {
                        return Ok(Redeemed::Landed { token: id, place, payload });
                    }
                }
                Redeem::InProgress => return Ok(Redeemed::Refused(RedeemRefusal::InProgress)),
                Redeem::Past | Redeem::Nothing => {
                    if last.is_none() && Box::pin(self.settle_issues_of(player)).await? {
                        continue;
                    }
                    return match last {
                        Some(refusal) => Ok(Redeemed::Refused(refusal)),
                        None => self.past(player).await,
                    };
                }
            }
        }
    }

    /// Nothing is held. Where this process used or returned a token of the player, or found one at its start, that is
    /// not forgotten yet, one read tells whether somebody presents it again.
    async fn past(&self, player: &Player) -> Result<Redeemed<I::Place>> {
        // Before the row is read: what the store knew by now cannot be live in it.
        let past = self.ledger().past(player);
        if past.is_empty() && !self.is_boot_listed(player) {
            return Ok(Redeemed::None);
        }
        let row = match self.core.book.find(player).await {
            Ok(Some(row)) => row,
            // A row that does not verify was audited; nobody acts on it.
            Ok(None) | Err(Error::Untrusted { .. } | Error::SchemaVersion { .. }) => return Ok(Redeemed::None),
            Err(error) => return Err(error),
        };
        Ok(self.judge(player, &row, &past).map_or(Redeemed::None, Redeemed::Refused))
    }

    fn judge(&self, player: &Player, row: &TokenRow, past: &[Past]) -> Option<RedeemRefusal> {
        if row.token.server != self.core.identity.id || !row.is_live(self.core.store.clock().now_ms()) {
            return None;
        }
        // The place of an epoch that is over went back without anybody having used the token.
        let used = self.ledger().state(&row.token.id) == Some(LedgerState::Used);
        if !used && row.token.server_epoch != self.core.lease.epoch() {
            return Some(RedeemRefusal::OldEpoch);
        }
        match past.iter().find(|past| past.id == row.token.id)?.end {
            PastEnd::Known => {}
            PastEnd::GivenUp => return Some(RedeemRefusal::OldEpoch),
            PastEnd::TimedOut => return Some(RedeemRefusal::Expired),
        }
        self.core.verifier.audit().drop(AuditReason::TokenReplay, player.as_str(), row.token.id.as_str());
        Some(RedeemRefusal::Replay)
    }

    /// True while a token of an earlier epoch of this backend may still be open for the player.
    fn is_boot_listed(&self, player: &Player) -> bool {
        let boot = self.boot();
        !boot.listed || boot.until.get(player).is_some_and(|until| *until > boot_ms())
    }
}

fn refusal(outcome: &ConsumeOutcome) -> Option<RedeemRefusal> {
    match outcome {
        ConsumeOutcome::Replay => Some(RedeemRefusal::Replay),
        ConsumeOutcome::NotYours => Some(RedeemRefusal::OldEpoch),
        ConsumeOutcome::Expired => Some(RedeemRefusal::Expired),
        ConsumeOutcome::Ended(end) if end == "EXPIRED" => Some(RedeemRefusal::Expired),
        _ => None,
    }
}
