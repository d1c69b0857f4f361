//! Messages between nodes: one-way sends and calls with an answer, to a service at a node, signed, at most once.
//!
//! Channel: `inbox:<node>`, one for each node. What travels on it are the wire forms of [`Message`] and [`Reply`].
//!
//! ```text
//!  caller                                store                       callee
//!  Post::call("b1:places", …)
//!    name of this node? ──► its handler, no store
//!    state of b1, its services (view)
//!    enter the pending call
//!    PUBLISH inbox:b1 ──────────────────► │ ───────► Inbox::take
//!    0 listeners: NodeOffline             │            signature, addressee, replay
//!                                         │            sender and its epoch (view, else one read)
//!                                         │            one handler more, else Busy; deadline
//!    Inbox::take ◄─────────────────────── │ ◄───────── PUBLISH inbox:<caller>: the handler's answer
//!    settles the pending call
//! ```
//!
//! - [`Services`]: the names this node answers to, each with its [`Handler`].
//! - [`Post`]: sends and calls. [`Target`] is a local name, `node:service`, or a reference of one epoch.
//! - [`RoutedCall`] and [`RoutedHandler`]: messages to whoever owns an object, which a node that does not may pass on.
//! - [`Inbox`]: what arrives on this node's channel, checked and given to handlers or to the calls that wait.
//! - [`Message`], [`Reply`]: the two records and their wire forms.
//!
//! Invariants: a message is published once and never again, whatever became of the first time; an inbox hands it to a
//! handler at most once, and only before its deadline; a name of this node always wins over `node:service`, and no name
//! of another node enters [`Services`]; an answer counts only from the node and epoch that were asked, where
//! the message names one; everything that
//! waits has a bound ([`MessageOptions`] and the constants of `inbox` and `pending`).

mod counts;
mod exchange;
mod failure;
mod handler;
mod inbox;
mod pending;
mod post;
mod record;
mod resolve;
mod routed;
mod services;

pub use counts::MessageCounts;
pub use failure::{CANCELLED, INTERNAL, REPLY_TOO_LARGE};
pub use handler::{CallError, Handler, Incoming, RoutedHandler, Taken, handler_fn, json_handler};
pub(crate) use post::Bound;
pub(crate) use post::CALL_MAX_MS;
pub use post::Post;
pub use resolve::Target;
pub use routed::RoutedCall;
pub use services::{ServiceRegistration, Services};

// For the command and the tests of this repository: see the library's first page.
#[doc(hidden)]
pub use exchange::MessageOptions;
#[doc(hidden)]
pub use inbox::Inbox;
#[doc(hidden)]
pub use record::{MESSAGE_LIFE_MS, Message, Reply};
#[doc(hidden)]
pub use services::SERVICE_MAX_BYTES;
