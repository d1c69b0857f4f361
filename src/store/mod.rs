//! The store: the only place that knows the redis client.
//!
//! - [`StoreUrl`] and [`StoreOptions`]: where the store is and how long anything may take.
//! - [`Store`]: one shared connection that pipelines by itself for scripts and single reads, a small pool for bulk reads.
//! - [`scripts`]: every mutation of shared state, one Lua script each, pinned by its SHA-1.
//! - [`Invocation`] and [`Answer`]: one call of a script, repeated under the same operation until its outcome is known.
//! - `Conversation`: an operation that is asked again with what its script asks for, a bounded number of times.
//! - [`Keys`]: every key and channel of a zone.
//! - [`StoreClock`]: this process's estimate of the store's time, the only clock decisions are made by.
//! - [`Feed`]: pub/sub on a connection of its own, which says when something may have been missed.

mod call;
mod clock;
mod connect;
mod conversation;
mod exact;
mod fault;
mod feed;
mod inspect;
mod invocation;
mod keys;
mod link;
mod measure;
mod read;
mod scores;
pub mod scripts;
mod shared;
mod url;
mod verifier;
mod walk;

pub(crate) use clock::{SKEW_MS, is_over};
pub use clock::{StoreClock, boot_ms};
pub use connect::{ServerInfo, Store, StoreOptions};
pub(crate) use conversation::Conversation;
pub use feed::{Feed, FeedChannel, FeedItem};
pub use invocation::{Answer, Invocation, ScriptArg};
pub use keys::{Key, Keys};
#[doc(hidden)]
pub use measure::BareCall;
pub use read::Row;
pub use scripts::Script;
pub use url::StoreUrl;
pub use verifier::Verifier;
pub use walk::ScoreCursor;
