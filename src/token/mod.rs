//! Reservation tokens: one place on one backend for one player, promised once.
//!
//! ```text
//!            issue            claim              consume
//!   (none) ────────► PENDING ───────► CLAIMED ────────────► CONSUMED
//!                      │  ▲              │
//!                      │  └── reopened ──┤  its claimant's lease is over
//!                      │                 │
//!                      └────────┬────────┘
//!                               ├──► RELEASED   with a reason
//!                               └──► EXPIRED    its time is over
//! ```
//!
//! Keys: `token:<player>` (one hash a player, so one live token a player), `due:<server>` (when someone must look at a
//! token next), `due` (the servers that have such a set).
//!
//! - [`Token`] is what was signed when it was issued, [`TokenRow`] adds what happened to it since.
//! - [`Book`]: issue, claim, consume, release, cancel, find, list.
//! - [`reap`]: expiry and reopening, by anybody, each token by one.
//! - [`Ledger`]: a backend's own book of the places it promised. A token is consumed only by the process that issued
//!   it, and only while the ledger holds it.

mod book;
mod giving_up;
mod ledger;
mod outcome;
mod reaper;
mod record;

pub use book::{Book, BookOptions, IssueOrder, PAYLOAD_MAX_BYTES};
pub use ledger::{Ledger, LedgerState, Past, PastEnd, Redeem, Unsettled};
pub use outcome::{CancelOutcome, ClaimOutcome, ConsumeOutcome, IssueOutcome, ReleaseOutcome};
pub use reaper::{ReapOptions, ReapReport, reap, reap_servers};
pub use record::{Claim, Token, TokenEvent, TokenRow, TokenState};
