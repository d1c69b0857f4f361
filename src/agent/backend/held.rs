//! What becomes of the tokens that a backend holds places for.

use crate::error::Result;
use crate::ids::{Player, Role, TokenId};
use crate::store::Key;
use crate::token::{Book, ConsumeOutcome};

use super::inventory::Inventory;
use super::state::{Backend, Unknown};

impl<I: Inventory> Backend<I> {
    /// The book for issues and joins. Where lines lead here, an issue leaves them what they have promised, and the place of a
    /// token stays held until a heartbeat counts the arrival; without lines nobody reads what is held, and each player would
    /// pay for it.
    pub(super) fn book_for_places(&self) -> Book {
        let book = self.core.book.clone();
        match self.lines_hold_ms() {
            Some(arrive_ms) => book.counting(self.core.arrivals.clone(), arrive_ms),
            None => book,
        }
    }

    /// How long the lines that may pick this backend hold a place, by the config in force; `None` where there are none.
    pub(super) fn lines_hold_ms(&self) -> Option<u64> {
        if self.core.identity.role != Role::backend() {
            return None;
        }
        let config = self.core.config();
        config.lines.values().filter(|line| line.pick.picks().0).map(|line| line.arrive_ms).max()
    }

    /// Gives back the places of tokens that are over.
    pub(super) fn return_places(&self, places: Vec<(TokenId, I::Place)>, reason: &str) {
        for (id, place) in places {
            let player = self.ledger().player(&id).cloned();
            match player {
                Some(player) => self.give_back(&id, &player, place, reason),
                None => self.inventory.give_back(place),
            }
        }
    }

    /// Holds a token again that nobody had claimed, or that could not be consumed without the lease. An event about its end
    /// that came meanwhile is followed now.
    pub(super) async fn hold_again(&self, id: TokenId, player: &Player, guard: Unknown<'_, I>) {
        let hinted = self.ledger().hold_again(&id);
        guard.settled();
        if hinted {
            self.check_row(id, player.clone()).await;
        }
    }

    /// Gives the place of a token back that is certain not to have been consumed.
    pub(super) fn not_consumed(&self, id: &TokenId, player: &Player, outcome: &ConsumeOutcome) {
        let reason = match outcome {
            ConsumeOutcome::Expired => "expired",
            ConsumeOutcome::Ended(_) => "ended",
            ConsumeOutcome::NotYours => "old_epoch",
            ConsumeOutcome::Replay => "replay",
            _ => "gone",
        };
        let place = self.ledger().not_consumed(id);
        if let Some(place) = place {
            self.give_back(id, player, place, reason);
        }
    }

    /// Reads the row of a held token.
    pub async fn check_row(&self, id: TokenId, player: Player) {
        if let Err(error) = self.check_rows(&[(id, player)]).await {
            tracing::debug!(%error, "could not look at a token; its expiry brings the place home");
        }
    }

    /// A held token whose row is another one's, or says that it has ended, can never be consumed by this process again:
    /// the ledger refuses it from here on, so an unsigned state may decide.
    pub(super) async fn check_rows(&self, held: &[(TokenId, Player)]) -> Result<()> {
        let keys: Vec<Key<'_>> = held.iter().map(|(_, player)| self.core.store.keys().token(player)).collect();
        let rows = self.core.store.fields(&keys, &["id", "state"]).await?;
        for ((id, player), row) in held.iter().zip(rows) {
            let open = row.get("id") == Some(id.as_str()) && matches!(row.text("state"), "PENDING" | "CLAIMED");
            if !open {
                let place = self.ledger().ended(id);
                if let Some(place) = place {
                    self.give_back(id, player, place, "ended");
                }
            }
        }
        Ok(())
    }
}
