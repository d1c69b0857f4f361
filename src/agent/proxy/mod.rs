//! A proxy: turns a request into a claimed place.
//!
//! In order of reading: [`verdict`] (whether anybody is asked at all), [`pick`] (where to), [`dispatch`] (the chain of attempts;
//! [`nobody`] says why there is none), [`take`] (a reservation that exists), [`claiming`] (a claim that nobody has taken over
//! yet), [`cancel`] (giving up), [`placement`] (a fresh login), and [`state`] (what they share).

mod cancel;
mod claiming;
mod dispatch;
mod nobody;
mod pick;
mod placement;
mod state;
mod take;
mod verdict;

pub(super) use claiming::Claiming;
pub(super) use dispatch::{Answer, Dispatch};
pub(super) use placement::Placement;
pub(super) use state::Proxy;
pub(super) use take::take;
