use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::value::to_raw_value;

use maitred::agent::{Inventory, Offer, PlaceRequest};
use maitred::ids::Region;

/// The region of places that were set without one.
const DEFAULT_REGION: &str = "default";

/// A place of the reference inventory: a number in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub region: Region,
    pub number: u64,
}

/// Places as plain numbers: each is free, promised to one player, or used.
#[derive(Debug, Default)]
pub(super) struct Counted {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: BTreeMap<Region, Vec<u64>>,
    next: u64,
}

impl Counted {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `count` places are free in `region`; those promised or used are not among them.
    pub fn set(&self, region: Option<Region>, count: u64) -> Result<(), String> {
        let region = match region {
            Some(region) => region,
            None => Region::new(DEFAULT_REGION).map_err(|error| error.to_string())?,
        };
        if count > PLACES_MAX {
            return Err(format!("count {count} is out of range; allowed: 0 to {PLACES_MAX}"));
        }
        let mut state = self.state();
        let first = state.next;
        state.next += count;
        state.free.insert(region, (first..first + count).rev().collect());
        Ok(())
    }

    /// Free places in all regions.
    pub fn free(&self) -> u64 {
        self.state().free.values().map(|free| count(free)).sum()
    }
}

/// Most places that a region can have.
const PLACES_MAX: u64 = 1_000_000;

fn count(free: &[u64]) -> u64 {
    u64::try_from(free.len()).unwrap_or(u64::MAX)
}

impl Inventory for Counted {
    type Place = Place;

    async fn reserve(&self, request: &PlaceRequest) -> Option<Offer<Place>> {
        let place = {
            let mut state = self.state();
            let region = match &request.region {
                Some(region) => region.clone(),
                None => state.free.iter().max_by_key(|(_, free)| free.len()).map(|(region, _)| region.clone())?,
            };
            let number = state.free.get_mut(&region)?.pop()?;
            Place { region, number }
        };
        match to_raw_value(&serde_json::json!({ "region": place.region, "place": place.number })) {
            Ok(payload) => Some(Offer { place, payload }),
            Err(error) => {
                tracing::error!(%error, "could not describe a place");
                self.give_back(place);
                None
            }
        }
    }

    fn give_back(&self, place: Place) {
        self.state().free.entry(place.region).or_default().push(place.number);
    }

    fn regions(&self) -> BTreeMap<Region, Option<u64>> {
        self.state().free.iter().map(|(region, free)| (region.clone(), Some(count(free)))).collect()
    }
}
