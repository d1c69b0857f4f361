//! maitred is the maître d' of a game fleet: it keeps the reservation book and the list of who is on duty. Proxies and
//! backends embed it; all shared state lives in a RESP store and changes only through Lua scripts pinned by their SHA-1.
//!
//! # A map of the house
//!
//! A module uses only those below it.
//!
//! | floor | what lives there |
//! |---|---|
//! | [`agent`] | what an application embeds: config, backend, proxy, and the way of a request |
//! | [`place`] | where a fresh login goes: registrations, the handler, the connection |
//! | `select` | choosing a backend, a pure function of one snapshot |
//! | `queue` | lines: who is admitted next, at which rate, to where |
//! | `limit` | cooldowns and limits a player, shared by all proxies |
//! | [`route`] | who owns an object, and how it moves |
//! | `token` | reservations: issue, claim, consume, release, reap |
//! | [`message`] | signed messages between nodes |
//! | [`node`] | heartbeats, leases, the view of the others, kill switch |
//! | `store` | the only place that knows the store: connections, scripts, keys, clock, subscriptions |
//! | `envelope` | what makes a record believable: keys, canonical bytes, signatures, replay window |
//! | [`error`], [`ids`] | one error, and newtypes that can only hold valid values |
//!
//! Only what these pages show is for applications. What they hide (the floors without a page, and names in the others) is
//! public for the command `maitred` and the tests of its repository, and may change with every release.
//!
//! # A backend and a proxy
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use maitred::agent::config::Config;
//! use maitred::agent::{Inventory, Offer, Outcome, PlaceRequest, Redeemed, Request, Setup};
//! use maitred::ids::{Player, Region};
//! use maitred::node::LoadSample;
//!
//! /// Places without end, each with the same coordinates.
//! struct Meadow;
//!
//! impl Inventory for Meadow {
//!     type Place = ();
//!     async fn reserve(&self, _request: &PlaceRequest) -> Option<Offer<()>> {
//!         let payload = serde_json::value::to_raw_value(&serde_json::json!({ "x": 0, "z": 0 })).ok()?;
//!         Some(Offer { place: (), payload })
//!     }
//!     fn give_back(&self, (): ()) {}
//!     fn regions(&self) -> BTreeMap<Region, Option<u64>> {
//!         Region::new("meadow").map(|region| BTreeMap::from([(region, Some(100))])).unwrap_or_default()
//!     }
//! }
//!
//! # async fn run(backend_config: Config, proxy_config: Config) -> maitred::Result<()> {
//! let backend = Setup::from_env(backend_config)?.backend(Meadow, LoadSample::default)?;
//! let proxy = Setup::from_env(proxy_config)?.proxy(LoadSample::default)?;
//! proxy.agent().joined().await?;
//!
//! let alice = Player::new("alice")?;
//! if let Outcome::Transfer(transfer) = proxy.dispatch(Request::new(alice.clone())).await {
//!     println!("move alice to {}", transfer.addr);
//! }
//! // On the backend, when she arrives:
//! if let Redeemed::Landed { payload, .. } = backend.redeem(&alice).await? {
//!     println!("she gets {payload}");
//! }
//! # Ok(()) }
//! ```
//!
//! # What to rely on
//!
//! - Nothing here panics into the application, blocks its threads, or waits without a bound.
//! - A future that is dropped may leave an operation done; repeating it is safe, and what it left is settled in the
//!   background.
//! - With `enabled: false` in the config nothing is started: no connection, no task, no thread.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agent;
pub mod error;
pub mod ids;
pub mod message;
pub mod node;
pub mod place;
pub mod route;

// The floors below are for the command and the tests of this repository, as is what other modules hide. What an application
// needs of them, the modules above hand on.
#[doc(hidden)]
pub mod envelope;
#[doc(hidden)]
pub mod limit;
#[doc(hidden)]
pub mod queue;
#[doc(hidden)]
pub mod select;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod token;

pub use error::{Error, Result};

/// The example of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
