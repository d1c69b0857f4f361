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

mod api;
mod backend;
pub mod config;
mod core;
mod loops;
mod model;
mod proxy;
mod queue;
mod start;

pub use api::{
    Agent, BackendAgent, ConfigSource, Managed, ManagedState, Mover, Outcome, ProxyAgent, Reloaded, RouterAgent, Setup,
    Waiting,
};
pub use backend::{BackendEvent, Inventory, Offer, RedeemRefusal, Redeemed};
pub use core::{AgentStatus, LoadSource};
pub use model::{Balanced, PlaceRequest, Reason, Refusal, Request, Source, Transfer};
pub use queue::{Admitted, Departure, Entering, Entry, Failure, OutReason, Update, Visit, WaitUpdate};

// What these are made of.
pub use crate::envelope::{Keyring, Secret};
pub use crate::limit::Verdict;
pub use crate::queue::{Admission, Attributes, Left, LoginPass, PassRefusal};
pub use crate::select::Ask;
pub use crate::token::{ReleaseOutcome, Token};

// For the command and the tests of this repository: see the library's first page.
#[doc(hidden)]
pub use api::Kept;
#[doc(hidden)]
pub use model::{NoPlaceCode, PLACES, PlaceAnswer, RESERVE};
