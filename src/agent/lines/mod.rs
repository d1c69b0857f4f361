//! Login lines on an agent.
//!
//! ```text
//!  proxy.enter(entry) ──► queue/enter ──► Admitted, or a Visit that waits
//!                                            ▲ position, estimate: every third tick
//!  any proxy's admitter ──► queue/admit ─────┘ admitted: the event, else the next look
//!        │ the application moves the player, who carries the sealed pass
//!        ▼
//!  backend.verify_pass, redeem_pass ──► proxy.arrived, or failed_admission: first again
//! ```
//!
//! - `desk`, `visits`, `waiter`: what a proxy knows of its players; `calls`: what the application asks of it.
//! - `look`: events and looks. Nothing depends on an event: who waits, who was admitted and who is out shows in the store,
//!   and each proxy looks there for its own players.
//! - `admit`: the admitters, one a line; `upkeep`: the sweep. `goodbye`: players who left without anybody waiting for it.
//! - `pass`: what a backend or link does with a pass.

mod admit;
mod calls;
mod desk;
mod entry;
mod goodbye;
mod look;
mod pass;
mod room;
mod turns;
mod upkeep;
mod visit;
mod visits;
mod waiter;

pub(super) use admit::supervise;
pub(super) use desk::Desk;
pub use entry::{Admitted, Departure, Entering, Entry, Failure};
pub(super) use goodbye::run as say_goodbyes;
pub(super) use look::run as watch;
pub(super) use pass::redeem;
pub(super) use upkeep::sweeper;
pub use visit::{OutReason, Update, Visit};
