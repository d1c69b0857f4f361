//! What is asked for and what comes of it, without any state: [`request`], [`transfer`], [`refusal`], and [`wire`], the
//! bodies that proxies and backends send each other.

mod refusal;
mod request;
mod transfer;
mod wire;

pub use refusal::{Reason, Refusal};
pub use request::{Request, Source};
pub use transfer::{Balanced, Transfer};
pub use wire::{NoPlaceCode, PLACES, PlaceAnswer, PlaceRequest, RESERVE};
