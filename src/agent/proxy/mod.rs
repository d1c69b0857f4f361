//! A proxy's agent: turns a request into a claimed place, and keeps it until the player is moved.
//!
//! In order of reading: [`request`] (what is asked, and every end it can have), [`trigger`] (whether anybody is asked at
//! all), [`charge`] (the limits of a player), [`pick`] and [`share`] (where to), [`dispatch`] (the chain of attempts),
//! [`take`] (a reservation that exists), [`placement`] (a fresh login), [`agent`] (what they share), and [`router`]: a
//! proxy that is no member.

mod agent;
mod charge;
mod dispatch;
mod pick;
mod placement;
mod request;
mod router;
mod share;
mod take;
mod trigger;

pub use agent::{Mover, ProxyAgent};
pub(super) use agent::{Proxy, reason_of};
pub(super) use charge::Charge;
pub use request::{Balanced, Outcome, Reason, Refusal, Request, Source, Transfer};
pub use router::RouterAgent;
pub(super) use take::address;
