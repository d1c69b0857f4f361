//! Initial placement: where a player goes who has just logged in and has no place yet.
//!
//! ```text
//!  place(player, registry, route, deadline, gone)
//!      │ the handler, or else the configured list        one source; a handler's refusal, error, panic,
//!      │                                                  empty answer or timeout refuses the login
//!      │ for each name, in order:
//!      │   registry.resolve(name) ─ missing, draining, killed, shutting down ──► next
//!      │   resolve the host, connect by TCP ─ failure, or its share is over ───► next
//!      │   registry.resolve(name) again ─ not the same ─► close, no byte sent ─► next
//!      ▼
//!  Placed { stream, registration }                       the caller sends the first byte, and there is no retry
//! ```
//!
//! - [`Registry`]: who can be addressed by which name, with generations. [`RegisteredBackend`] is one of them.
//! - [`PlacementHandler`], [`Decision`], [`LoginSource`]: who says where a login goes.
//! - [`Resolver`]: names to addresses, `SystemResolver` unless another is given. [`LoginRoute`] is source, resolver and stop
//!   signal together.
//! - [`place`]: the whole way. [`Placed`] or [`Unplaced`], with what happened to each candidate.
//!
//! Invariants: nothing here writes a byte to a backend; a connection that is not handed over is closed; nothing goes on
//! after the deadline, after the player went away, or after the future was dropped. A registration says that a backend
//! can be addressed, not that it has room: load plays no part. Nothing here needs the store.
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use maitred::ids::{BackendName, Player};
//! use maitred::place::{LoginRoute, LoginSource, Registry, place};
//! use tokio::time::Instant;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lobby = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let registry = Registry::new();
//! registry.register(BackendName::new("lobby-a")?, lobby.local_addr()?.to_string());
//!
//! let names = vec![BackendName::new("not-there")?, BackendName::new("lobby-a")?];
//! let route = LoginRoute::new(LoginSource::list(names)?);
//! let deadline = Instant::now() + Duration::from_secs(15);
//! let placed = place(&Player::new("alice")?, &registry, &route, deadline, &CancellationToken::new()).await?;
//! assert_eq!(placed.registration.name.as_str(), "lobby-a");
//! # Ok(()) }
//! ```

mod connect;
mod decision;
mod outcome;
mod registry;
mod resolve;
mod walk;

pub use connect::Resolver;
pub(crate) use decision::SERVERS_MAX;
pub use decision::{Decision, PlacementHandler};
pub use outcome::{Attempt, AttemptEnd, Placed, Unplaced, Why};
pub use registry::{Absence, Origin, RegisteredBackend, RegistrationHandle, Registry, ServerView};

// For the command and the tests of this repository: see the library's first page.
#[doc(hidden)]
pub use decision::LoginSource;
#[doc(hidden)]
pub use walk::{LoginRoute, place};
