//! Routes: which node owns an object, and how the object moves to another without losing a message.
//!
//! Keys: `route:<kind>:<object>` (who owns it), `object:<kind>:<object>` (its bytes, where the built-in store keeps them),
//! `owned:<node>` (what a node owns), `owned` (the nodes that have such a set).
//!
//! ```text
//!            acquire               renew, save
//!   (none) ─────────► OWNED by a ◄────────────┐
//!     ▲                 │  │  └───────────────┘
//!     │ its time        │  │ transfer to b               acquire by b
//!     │ runs out        │  └─────────────► MOVED to b ───────────────► OWNED by b
//!   FREE ◄──────────────┘
//!            release, sweep       acquire by b: a's lease is gone, or it saved nothing for the lock timeout
//! ```
//!
//! A message to an object goes to whoever owns it, as far as its sender knows; whoever gets it by mistake knows better, or
//! reads, and passes it on:
//!
//! ```text
//!  client ── object.island, route 7:island:i1 ──► a (was the owner)
//!                                                 │ decide: b owns it in version 9
//!                                                 ├── passed on, hops 1, route 9:island:i1 ──► b: handles it
//!            ◄── routes.update: b, version 9 ─────┘                                            │
//!            ◄── the answer ───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! - [`Route`], [`RouteVersion`], [`Cas`]: the record; which record is newer; which bytes are newer.
//! - [`RouteBook`]: acquire, renew, save, release, transfer. `sweep`: the upkeep. [`signed_before`]: what a change of the
//!   secret has not reached yet.
//! - [`RouteTable`]: what this node knows of records, refreshed on use, one read for all who wait.
//! - [`rendezvous`]: the default place of what nobody owns. [`forward`]: what to do with a message. Both pure.
//! - [`ObjectType`]: what an application says about a kind. [`Keeper`]: its objects that this node owns.
//! - [`ObjectRouter`]: all of it for one node.
//!
//! Invariants: every write compares owner, epoch and version with the record, so whoever lost an object changes nothing; a
//! version is given once; an object in memory is used only while its lease had no gap and the lock timeout is not near,
//! else the store is asked first; everything about one object is done one after the other; a message is sent again only
//! where it surely did not arrive.

mod book;
#[doc(hidden)]
pub mod forward;
mod handover;
mod hub;
mod keeper;
mod kind;
mod receive;
mod record;
#[doc(hidden)]
pub mod rendezvous;
mod rotation;
mod router;
mod send;
mod sign_again;
mod sweep;
mod table;

pub use book::RouteTimes;
pub use handover::Handover;
pub use keeper::{FlushProgress, FlushReport, Keeper, Unsaved};
pub use kind::{Ack, Handled, KeepTimes, KindOptions, ObjectCall, ObjectType, Removal, Storage};
pub use record::{Cas, Held, Route, RouteState, RouteVersion};
pub use router::ObjectRouter;
pub use table::{CacheTimes, RouteTable};

// For the command and the tests of this repository: see the library's first page.
#[doc(hidden)]
pub use book::{AcquireOutcome, RouteBook, RouteReleaseOutcome, TransferOutcome};
#[doc(hidden)]
pub use record::{Header, StoredObject};
#[doc(hidden)]
pub use sign_again::{SignedBefore, signed_before};
#[doc(hidden)]
pub use sweep::{RouteSweepReport, SweepOptions, sweep, sweep_owners};
