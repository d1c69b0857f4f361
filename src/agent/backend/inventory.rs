//! What the application has to give, and what it hears of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::agent::core::LoadSource;
use crate::agent::model::PlaceRequest;
use crate::ids::{Player, Region, TokenId};
use crate::node::LoadSample;

/// A place that an inventory promised.
#[derive(Debug, Clone)]
pub struct Offer<P> {
    /// The place, as the application knows it. It comes back exactly once: handed over at the join, or given back.
    pub place: P,
    /// What to hand over at the join: JSON, at most 4 KiB.
    pub payload: Box<RawValue>,
}

/// What a backend has to give: places, each promised to one player at a time.
pub trait Inventory: Send + Sync + 'static {
    /// A place.
    type Place: Send + 'static;

    /// Reserves a place for a request, or answers `None`. Coordinates are resolved here, before the player moves. May
    /// take a while; a place that comes after the request's deadline goes straight back. Not cancelled by the library.
    fn reserve(&self, request: &PlaceRequest) -> impl Future<Output = Option<Offer<Self::Place>>> + Send;

    /// Takes a place back that nobody will use. Called exactly once for each place that was not handed over. Must not
    /// block.
    fn give_back(&self, place: Self::Place);

    /// The regions it serves, each with the number of places kept ready, where it has one. Published with each beat.
    fn regions(&self) -> BTreeMap<Region, Option<u64>>;
}

/// What happened on a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BackendEvent {
    /// A place was promised to a player.
    PlacePromised {
        /// For whom.
        player: Player,
        /// The token.
        token: TokenId,
    },
    /// A promised place went back to the inventory.
    PlaceReturned {
        /// For whom it was promised.
        player: Player,
        /// The token.
        token: TokenId,
        /// Why.
        reason: String,
    },
    /// An operator drains the node: it gets no new players and keeps those it has. Also told at the start of a process
    /// whose node is drained.
    Draining {
        /// Who.
        by: String,
        /// Since when, in store ms.
        #[serde(rename = "at")]
        at_ms: u64,
    },
    /// The drain is over.
    Undrained,
}

/// The application's load with the inventory's regions in it.
pub(in crate::agent) struct WithRegions<I> {
    pub load: Box<dyn LoadSource>,
    pub inventory: Arc<I>,
}

impl<I: Inventory> LoadSource for WithRegions<I> {
    fn sample(&self) -> LoadSample {
        let mut sample = self.load.sample();
        sample.load.regions = self.inventory.regions();
        sample
    }
}
