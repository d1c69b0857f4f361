//! Lines: players who wait for admission, in an order that all proxies share.
//!
//! ```text
//!            enter               admit, or enter itself            redeem
//!   (none) ────────► waiting ─────────────────────────► admitted ─────────► in
//!                     │   ▲  ▲                             │
//!               away, │   │  └──────── failed ─────────────┤
//!     proxy is gone   ▼   │ enter                          └──► the pass expires
//!                    away
//!                     └──► out, when the grace is over
//! ```
//!
//! Keys: `line:<name>` (who waits, scored with lane × 2^42 + sequence), `tickets:<name>` (one text a player, signed by the
//! proxy that holds it), `away:<name>` (who dropped, with the sequence kept), `gate:<name>` (token bucket, last sequence,
//! last serial), `via:<name>:<proxy>:<epoch>` with `vias:<name>` (whose ticket an incarnation holds), `pass:<name>:<player>`
//! (the admission), `held:<node>` (places promised), `lines`.
//!
//! - [`LineOptions`]: what the config says of a line. [`Line`]: enter, leave, away, position, and what follows an admission:
//!   failed, arrived, redeem.
//! - [`Admitter`]: one node's share in the admission. [`targets`], `shortlist`, `assign`: the pick, pure.
//! - [`LoginPass`]: what lets a player in, sealed for the way through the client.
//! - [`Line::sweep`]: dead proxies, ended graces, orphans.
//! - [`Line::wishes`] and [`Line::drain`]: wait lines, whose tickets become tokens.
//! - [`LineEvent`]: what is heard of a line.
//!
//! Invariants: inside a lane the order of admission is the order of entering; a sequence is never given twice; the removal
//! from the line, the gate's count, the serial and the promised place are one script; capacity is players + held + live
//! tokens, counted in that script, so no number of admitters oversells it; whoever dropped or failed stands where they
//! stood.

mod admission;
mod after;
mod arguments;
mod estimate;
mod event;
mod heads;
mod leave;
mod line;
mod new_players;
mod options;
mod outcome;
mod pass;
mod read;
mod round;
mod sweep;
mod ticket;
mod wait;

pub use admission::{Choice, Destination, Places, TargetNode, targets};
pub use after::Failed;
pub use estimate::LineState;
pub use event::LineEvent;
pub use line::Line;
pub use options::{GateOptions, LineOptions};
pub(crate) use options::{LANES_MAX, WEIGHT_MAX};
pub use outcome::{Admission, Entered, Left, QueuedPlace, Round, Stop};
pub use pass::{LoginPass, PassRefusal, PassRow};
pub(crate) use read::POSITIONS_MAX;
pub use read::{LineView, Position, Standing};
pub use round::Admitter;
pub(crate) use round::ROUND_MAX;
pub use sweep::{LineSweepReport, lines};
pub use ticket::{Attributes, Ticket, TicketText};
pub use wait::{DRAINED_ATTEMPT, Drained, Page, Wish, pages};
