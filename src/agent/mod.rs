//! What an application embeds: a config, and an agent for its role.
//!
//! ```text
//!  proxy.dispatch(request)                          backend
//!      │ rank one snapshot of the directory            │
//!      │── places.reserve ────────(message)───────────►│ inventory.reserve → token/issue
//!      │◄─ the signed token ───────────────────────────│
//!      │ token/claim                                    │
//!      ▼                                                │
//!  the application moves the player ──(its own way)───►│ redeem(player) → token/consume
//! ```
//!
//! - [`config`] reads `network.yml`.
//! - [`Setup`]: a checked config and the fleet's keys; starts an agent.
//! - [`BackendAgent`]: gives places out of an [`Inventory`], redeems players.
//! - [`ProxyAgent`]: turns a [`Request`] into a [`Transfer`], or says why not.
//! - [`RouterAgent`]: a proxy that is no member and only takes over reservations that exist.
//! - [`Agent::routes`]: objects that nodes own and hand to each other.
//! - [`Agent`]: the membership below both, with its loops. An agent waits for nothing at its start; a store that cannot
//!   be reached, a lease that lapsed and a node id in use show in [`AgentStatus`] and are retried in the background.

mod backend;
mod background;
pub mod config;
mod core;
mod dispatch;
mod proxy;
mod redeem;
mod request;
mod router;
mod routes;
mod settle;
mod setup;
mod take;
mod wire;

pub use backend::{BackendAgent, BackendEvent, Inventory, Offer};
pub use core::{Agent, AgentStatus, LoadSource};
pub use proxy::{Mover, ProxyAgent};
pub use redeem::{RedeemRefusal, Redeemed};
pub use request::{Outcome, Reason, Refusal, Request, Source, Transfer};
pub use router::RouterAgent;
pub use setup::Setup;
pub use wire::{NoPlaceCode, PLACES, PlaceAnswer, PlaceRequest, RESERVE};
