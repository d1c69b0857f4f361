//! A backend: places promised out of its inventory, players who come for them, and the wait lines that it serves.
//!
//! [`inventory`] is what the application brings, [`state`] what the parts share. [`reserve`] promises
//! (`places.reserve` → `token/issue`), [`redeem`] is the join (`token/consume`), [`serve`] turns tickets of the wait lines
//! into tokens (`queue/drain`); [`serving`], [`scan_cursor`] and [`unmet_demand`] are what it remembers of the lines.
//! [`settle`] asks until everything is known, and [`held`] is what becomes of a token that is held.

mod held;
mod inventory;
mod redeem;
mod reserve;
mod scan_cursor;
mod serve;
mod serving;
mod settle;
mod state;
mod unmet_demand;

pub(super) use inventory::WithRegions;
pub use inventory::{BackendEvent, Inventory, Offer};
pub use redeem::{RedeemRefusal, Redeemed};
pub(super) use state::Backend;
