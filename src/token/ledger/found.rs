//! What the ledger answers.

use crate::ids::{Epoch, OperationId, Player, TokenId};

use super::super::book::IssueOrder;

/// How far the store knows of the end of a token that this process has done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PastEnd {
    /// The store knew it when this was asked: a row that claims to be live afterwards was put there.
    #[default]
    Known,
    /// A shutdown gave it up and its release is not confirmed, or its issue came to nothing as far as was known: its row may
    /// rightly claim to be live.
    GivenUp,
    /// Its time was over by this machine's idea of the store's clock, which may have been ahead.
    TimedOut,
}

/// A token whose place this process handed over or gave back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// The token.
    pub id: TokenId,
    /// Whether the store knows.
    pub end: PastEnd,
}

/// What a join finds in the ledger.
#[derive(Debug, PartialEq, Eq)]
pub enum Redeem {
    /// Consume this token under this operation; the entry is `consuming` now.
    Consume {
        /// The token.
        id: TokenId,
        /// The epoch that issued it.
        epoch: Epoch,
        /// The operation.
        op: OperationId,
    },
    /// The token was consumed by an earlier join whose answer got lost: take it with [`Ledger::deliver`](super::Ledger::deliver).
    Deliver(TokenId),
    /// Another join of the player is being decided.
    InProgress,
    /// Nothing is held, but the player had places here that are not forgotten yet.
    Past,
    /// Nothing is known of the player.
    Nothing,
}

/// What the store has to be asked again.
#[derive(Debug)]
pub enum Unsettled {
    /// An issue whose outcome is not known.
    Issue {
        /// The epoch that issued it.
        epoch: Epoch,
        /// The same order.
        order: IssueOrder,
    },
    /// A consume whose outcome is not known.
    Consume {
        /// The token.
        id: TokenId,
        /// Whose.
        player: Player,
        /// The epoch that issued it.
        epoch: Epoch,
        /// The same operation.
        op: OperationId,
    },
}
