//! A backend's agent: places promised out of its inventory, and players who come for them.
//!
//! [`agent`] has the agent and the promise (`places.reserve` → `token/issue`), [`redeem`] the join (`token/consume`),
//! [`settle`] the loop that finds out what is not known and brings places home, [`drain`] the operator's word.

mod agent;
mod drain;
mod redeem;
mod settle;

pub(super) use agent::Backend;
pub use agent::{BackendAgent, BackendEvent, Inventory, Offer};
pub use redeem::{RedeemRefusal, Redeemed};
pub(super) use settle::Unknown;
