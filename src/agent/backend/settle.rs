//! What a backend does not know is asked until it does, and places come home.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::agent::core::jitter;
use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeEpoch, Player, TokenId};
use crate::node::LeaseEvent;
use crate::store::{SKEW_MS, boot_ms};
use crate::token::{ConsumeOutcome, TokenEvent, Unsettled};

use super::inventory::Inventory;
use super::serve::Served;
use super::state::{Backend, BootList, Unknown};

/// Longest wait between two rounds of a backend that has left.
const WIND_DOWN_MAX: Duration = Duration::from_secs(1);
/// Between two looks at an issue that another task settles.
const SETTLED_EVERY: Duration = Duration::from_millis(10);

impl<I: Inventory> Backend<I> {
    /// Places whose time is over come home; what is not known is asked.
    pub async fn sweep(&self) {
        let now = self.core.store.clock().now_ms();
        let expired = self.ledger().expire(now);
        self.return_places(expired, "expired");
        self.settle_all().await;
        self.ledger().forget(now);
        let listed = {
            let (mut boot, now) = (self.boot(), boot_ms());
            boot.until.retain(|_, until| *until > now);
            boot.listed
        };
        let epoch = self.core.lease.epoch();
        if !listed && epoch != Epoch::NONE {
            self.list_old(epoch).await;
        }
    }

    /// Asks the store about everything whose outcome is not known.
    pub(in crate::agent) async fn settle_all(&self) {
        let unsettled = self.ledger().take_unsettled();
        for entry in unsettled {
            self.settle_one(entry).await;
        }
    }

    /// A player joins for whom a token may stand without this process having heard the answer: of an issue, or of a drain.
    /// False where there is no such one.
    pub(super) async fn settle_issues_of(&self, player: &Player) -> Result<bool> {
        let until = Instant::now() + self.core.store.options().operation_timeout;
        if !self.ledger().is_issuing(player) {
            return Ok(false);
        }
        loop {
            self.settle_all().await;
            if !self.ledger().is_issuing(player) {
                return Ok(true);
            }
            if Instant::now() >= until {
                let reason = "the store has not said yet whether the player has the place".to_owned();
                return Err(Error::Unreachable { during: "redeeming a token", store: None, reason });
            }
            sleep(SETTLED_EVERY).await;
        }
    }

    /// After it left: what is not known is asked until it is, and no place is kept beyond its token's time. Without an
    /// answer until then the place goes back all the same: nobody can use the token any more, and this process never hands
    /// the place over.
    pub(in crate::agent) async fn wind_down(&self) {
        let every = Duration::from_millis(self.core.config().tokens.reap_interval_ms).min(WIND_DOWN_MAX);
        loop {
            self.give_up().await;
            let now = self.core.store.clock().now_ms();
            let mut home = self.ledger().expire(now);
            home.extend(self.ledger().abandon(now.saturating_sub(SKEW_MS)));
            self.return_places(home, "expired");
            if self.ledger().places() == 0 {
                return;
            }
            self.settle_all().await;
            self.give_up().await;
            if self.ledger().places() == 0 {
                return;
            }
            sleep(jitter(every)).await;
        }
    }

    /// Tokens of other epochs than the present one cannot be consumed any more.
    fn end_old_epochs(&self, current: Epoch) {
        let places = self.ledger().rejoined(current);
        self.return_places(places, "old_epoch");
    }

    async fn settle_one(&self, entry: Unsettled) {
        let own = self.core.identity.id.clone();
        match entry {
            Unsettled::Issue { epoch, order } => {
                let (id, server) = (order.id.clone(), NodeEpoch { id: own, epoch });
                let issued = if self.serving.is_drain(&id) {
                    matches!(self.settle_drain(&server, &order, true).await, Ok(Served::Issued))
                } else {
                    self.settle_issue(&server, order, true).await.is_ok()
                };
                let current = self.core.lease.epoch();
                if issued && epoch != current {
                    self.end_old_epochs(current);
                }
                tracing::info!(token = %id, issued, "settled an issue");
            }
            Unsettled::Consume { id, player, epoch, op } => {
                let guard = Unknown::new(self, &id);
                match self.book_for_places().consume(&id, &player, &NodeEpoch { id: own, epoch }, &op).await {
                    Ok(ConsumeOutcome::Consumed) => self.ledger().consumed_unheard(&id),
                    Ok(ConsumeOutcome::NotClaimed) | Err(Error::LeaseLost { .. }) => {
                        tracing::info!(token = %id, "settled a consume");
                        return self.hold_again(id, &player, guard).await;
                    }
                    Ok(outcome) => self.not_consumed(&id, &player, &outcome),
                    Err(Error::Fenced { .. }) => self.not_consumed(&id, &player, &ConsumeOutcome::NotYours),
                    Err(error) => {
                        tracing::debug!(token = %id, %error, "could not settle a consume");
                        return;
                    }
                }
                guard.settled();
                tracing::info!(token = %id, "settled a consume");
            }
        }
    }

    /// A token channel's hint: the row decides.
    pub async fn on_token_event(&self, event: TokenEvent) {
        let TokenEvent::Ended { player, id, server } = event else { return };
        if server != self.core.identity.id || !self.ledger().hint(&id) {
            return;
        }
        self.check_row(id, player).await;
    }

    /// Reads the rows of all tokens that are held.
    pub async fn check_all_rows(&self) {
        let held: Vec<(TokenId, Player)> =
            self.ledger().held().map(|(id, player)| (id.clone(), player.clone())).collect();
        if let Err(error) = self.check_rows(&held).await {
            tracing::debug!(%error, "could not look at the tokens; their expiry brings the places home");
        }
    }

    /// The lease was lost, found again, or made anew.
    pub async fn on_lease_event(&self, event: Option<LeaseEvent>) {
        match event {
            Some(LeaseEvent::Joined { epoch }) => self.list_old(epoch).await,
            Some(LeaseEvent::Rejoined { new, .. }) => {
                self.end_old_epochs(new);
                self.list_old(new).await;
            }
            Some(LeaseEvent::Resumed { .. }) => self.check_all_rows().await,
            // Missed events: compare with the present epoch.
            None => self.end_old_epochs(self.core.lease.epoch()),
            Some(_) => {}
        }
    }

    /// Open tokens of earlier epochs: they cannot be consumed, and are aged out.
    async fn list_old(&self, current: Epoch) {
        self.boot().listed = false;
        match self.core.book.list(&self.core.identity.id).await {
            Ok(rows) => {
                let old = rows.into_iter().filter(|row| row.token.server_epoch != current);
                let until: BTreeMap<Player, u64> = old
                    .map(|row| (row.token.player, self.core.store.clock().boot_time_of(row.token.expires_at_ms)))
                    .collect();
                if !until.is_empty() {
                    tracing::info!(tokens = until.len(), "tokens of earlier epochs are aged out");
                }
                *self.boot() = BootList { listed: true, until };
            }
            Err(error) => {
                tracing::warn!(%error, "could not list the tokens of earlier epochs; the next sweep tries again")
            }
        }
    }
}
