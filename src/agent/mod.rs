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
//! - [`Managed`]: keeps one of the agents below for an application that must not go down with it: starts it from a
//!   [`ConfigSource`], tries again, reloads. What an application that runs for long wants.
//! - [`Setup`]: a checked config and the fleet's keys; starts an agent.
//! - [`BackendAgent`]: gives places out of an [`Inventory`], redeems players.
//! - [`ProxyAgent`]: turns a [`Request`] into a [`Transfer`], lets it wait ([`Waiting`]), or says why not; connects fresh logins to a backend
//!   ([`place`](ProxyAgent::place)). A lobby is one too ([`Setup::lobby`]): it has no places itself.
//!   Players who wait for admission to the fleet [`enter`](ProxyAgent::enter) a line.
//! - [`RouterAgent`]: a proxy that is no member and only takes over reservations that exist.
//! - [`Agent::routes`]: objects that nodes own and hand to each other.
//! - [`Agent`]: the membership below both, with its loops. An agent waits for nothing at its start; a store that cannot
//!   be reached, a lease that lapsed and a node id in use show in [`AgentStatus`] and are retried in the background.

mod backend;
mod background;
mod charge;
pub mod config;
mod core;
mod definite;
mod dispatch;
mod drain;
mod kept;
mod lines;
mod live;
mod managed;
mod managed_state;
mod managed_turn;
mod pick;
mod placement;
mod proxy;
mod redeem;
mod request;
mod router;
mod routes;
mod settle;
mod setup;
mod share;
mod source;
mod take;
mod trigger;
mod wait;
mod wire;

pub use backend::{BackendAgent, BackendEvent, Inventory, Offer};
pub use core::{Agent, AgentStatus, LoadSource};
pub use lines::{Admitted, Departure, Entering, Entry, Failure, OutReason, Update, Visit};
pub use managed::{Kept, Managed};
pub use managed_state::{ManagedState, Reloaded};
pub use proxy::{Mover, ProxyAgent};
pub use redeem::{RedeemRefusal, Redeemed};
pub use request::{Balanced, Outcome, Reason, Refusal, Request, Source, Transfer};
pub use router::RouterAgent;
pub use setup::Setup;
pub use source::ConfigSource;
pub use wait::{WaitUpdate, Waiting};
pub use wire::{NoPlaceCode, PLACES, PlaceAnswer, PlaceRequest, RESERVE};
