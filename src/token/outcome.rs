//! How the operations of the book end, as far as they are definite. What is not definite is an error.

use super::record::{Claim, Token, TokenRow};

/// How an issue ended.
#[derive(Debug, Clone)]
pub enum IssueOutcome {
    /// The token stands.
    Issued(Token),
    /// The player has a live token already: this one. The caller's own place is not promised.
    Taken(Box<TokenRow>),
    /// This very token was issued before and has ended, as said.
    Ended(String),
    /// The request is at this attempt or beyond.
    Attempt,
    /// The request was cancelled.
    Cancelled,
    /// The attempt's deadline is over.
    Late,
    /// Lines and tokens have promised all places of the server.
    NoPlace,
}

/// How a claim ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The caller holds the token.
    Claimed(Claim),
    /// Another proxy holds it, or the caller's own claim was reopened since.
    Lost,
    /// Its time is over.
    Expired,
    /// It has ended, as said.
    Ended(String),
    /// There is no such token.
    None,
    /// The incarnation of the backend that issued it is gone.
    ServerGone,
}

/// How a consume ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumeOutcome {
    /// The place is the player's.
    Consumed,
    /// It was consumed by another operation.
    Replay,
    /// No proxy ever claimed it; it stays PENDING.
    NotClaimed,
    /// Its time is over.
    Expired,
    /// It has ended, as said.
    Ended(String),
    /// It is of another server or another epoch of this one.
    NotYours,
    /// There is no such token.
    None,
}

/// How a release ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It is RELEASED, by this call or before.
    Released,
    /// The caller does not hold it.
    Lost,
    /// It was consumed: the player landed.
    Landed,
    /// It has ended another way, as said.
    Ended(String),
    /// There is no such token.
    None,
}

/// How a cancel ended. In every case the request is marked, so that no later issue of it succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelOutcome {
    /// There was no live token of the request.
    Marked,
    /// Its live token was released.
    Released,
    /// Another proxy holds its token.
    Lost,
    /// Its token was consumed: the player landed.
    Landed,
}
