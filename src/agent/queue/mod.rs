//! Players who wait through a proxy: for a pass in a login line, for a token in a wait line (QUE-9).
//!
//! ```text
//!  proxy                                               any proxy's admitter       a backend
//!    │── queue/enter ──► login │ wait │ wait.<server>          │                     │ places come in
//!    │     a waiter: position, estimate                        │                     │── reserve
//!    │◄── admitted (an event; lost: the next poll) ────── queue/admit            queue/drain
//!    │◄── drained (the same) ─────────────────────────────────────────────────────────┘
//!    │ the pass is handed out │ token/claim, and the transfer is
//! ```
//!
//! From the bottom:
//! - [`entry`], [`update`], [`told`], [`visit`]: what goes in and what is told. [`line_handle`]: one line under one config.
//!   [`requests`]: how far each request is, for who cancels it.
//! - [`waiter`]: a player who waits, whatever for. [`table`]: all of them. [`leaves`]: those who go.
//! - [`client`]: holds these, and ends a wait. [`leave`]: the one way out. [`turn`]: whether a turn has come, and taking it; here
//!   the two kinds of line differ. [`re_enroll`]: entering again with the old sequence. [`reconcile`]: the one verdict over a ticket.
//! - [`enter`]: the way in. [`login`], [`wait`]: what an application asks, by either kind of line.
//! - Loops, each until the agent stops: [`poll`], [`leave`], [`admit`] (the admitters, one a line), [`sweep`].
//!
//! What a player's row says is changed in the player's turn only ([`keyed_mutex`]), in the order of asking. A wait ends once;
//! whoever ends it without its verdict sees to what is left of it. A ticket is read before the pass or token that it becomes.
//! What the store and the proxy do not agree on, a lost event, a ticket put away during a lapse that nobody noticed, a ticket
//! without a player, is put right within a few seconds.

mod admit;
mod client;
mod enter;
mod entry;
mod keyed_mutex;
mod leave;
mod leaves;
mod line_handle;
mod login;
mod pace;
mod poll;
mod re_enroll;
mod reconcile;
mod redeem;
mod requests;
mod sweep;
mod table;
mod told;
mod turn;
mod update;
mod visit;
mod wait;
mod waiter;

pub(super) use admit::admit_lines;
pub(super) use client::QueueClient;
pub use entry::{Admitted, Departure, Entry, OutReason};
pub(super) use leave::send_leaves;
pub(super) use poll::poll_lines;
pub(super) use redeem::redeem;
pub(super) use requests::{Progress, RequestKey};
pub(super) use sweep::{end_removed, sweep_lines};
pub(super) use told::{End, Listener, News};
pub use update::WaitUpdate;
pub use visit::{Entering, Failure, Update, Visit};
pub(super) use wait::line_for;
pub(super) use waiter::Waiter;
