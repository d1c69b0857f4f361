//! Nodes: who is on duty, and what each one says of itself.
//!
//! Keys: `node:<id>` (the row, its TTL is the lease), `nodes:<role>` (rosters), `roles`, `epochs` (the last epoch given
//! to an id), `control` (kill switch, drain and config entries), `held:<id>` (players whom the row's count does not include
//! yet).
//!
//! - [`NodeRecord`]: a heartbeat, signed. [`Load`] is what an application reports.
//! - [`Control`]: the kill switch, drain and config entries, as last verified.
//! - `MemberConversation`: how a member talks to a script that checks its lease and the control entries.
//! - [`Switches`]: kill and drain of all nodes at one moment.
//! - [`Lease`]: the right to act; ends by this node's own clock before the store would let anybody else in.
//! - [`Membership`]: join, beat, leave. [`Arrivals`]: who a beat counts for the first time.
//! - [`Directory`]: this node's view of the others, and [`Liveness`], the judgement of a beat's age.
//! - [`roster`]: the upkeep of rosters.
//!
//! Invariants: an epoch is given once; a beat never creates a row; a row is believed only under the key it was written
//! to; an unreachable store never turns anybody offline.

mod arrivals;
mod control;
mod conversation;
mod directory;
mod expected;
mod lease;
mod liveness;
mod membership;
mod record;
#[doc(hidden)]
pub mod roster;
mod snapshots;
mod switches;
mod view;

pub(crate) use conversation::MemberConversation;
pub use directory::Directory;
pub use lease::{Lease, LeaseEvent};
pub use liveness::Liveness;
pub use record::{Identity, Load, LoadSample, NodeRecord, NodeState};
pub use view::{DirectoryEvent, NodeView, ServiceRef, Snapshot};

// For the command and the tests of this repository: see the library's first page.
#[doc(hidden)]
pub use arrivals::Arrivals;
#[doc(hidden)]
pub use control::{CONFIG, Control, ControlEntry, DRAIN_PREFIX, DRAINING_LABEL, KILL, KillArg, drain_name, kill_name};
#[doc(hidden)]
pub use directory::DirectoryOptions;
#[doc(hidden)]
pub use liveness::LivenessLimits;
#[doc(hidden)]
pub use membership::{BeatOutcome, Membership};
#[doc(hidden)]
pub use record::{ADMITS_LABEL, NODE_WIRE_MAX_BYTES};
#[doc(hidden)]
pub use switches::Switches;
