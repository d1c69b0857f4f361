//! An inventory of numbered places that knows where each of them is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maitred::agent::{Inventory, Offer, PlaceRequest};
use maitred::ids::Region;
use serde_json::value::to_raw_value;
use tokio::sync::watch;

use super::{LIMIT, region};
use crate::support::wait::eventually;

#[derive(Debug, Default)]
struct Places {
    all: u64,
    /// The number of the next place that comes in.
    next: u64,
    free: BTreeSet<u64>,
    used: BTreeSet<u64>,
    faults: Vec<String>,
    asked: Vec<PlaceRequest>,
}

#[derive(Debug)]
struct Inner {
    kept: u64,
    regions: Vec<Region>,
    places: Mutex<Places>,
    shut: watch::Sender<bool>,
}

/// Places of one backend; clones are one shelf. It publishes `kept` kept places whatever it has, so that a test says
/// which backend is picked first.
#[derive(Debug, Clone)]
pub struct Shelf(Arc<Inner>);

impl Shelf {
    /// `places` places in the region `main`.
    pub fn new(places: u64, kept: u64) -> Self {
        Self::in_regions(places, kept, &["main"])
    }

    pub fn in_regions(places: u64, kept: u64, regions: &[&str]) -> Self {
        let free = (0..places).collect();
        let places = Mutex::new(Places { all: places, next: places, free, ..Places::default() });
        let regions = regions.iter().map(|name| region(name)).collect();
        Self(Arc::new(Inner { kept, regions, places, shut: watch::Sender::new(false) }))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a reservation takes its place and hangs until the gate is opened.
    pub fn shut(&self) {
        self.0.shut.send_replace(true);
    }

    pub fn open(&self) {
        self.0.shut.send_replace(false);
    }

    /// The requests that came, oldest first.
    pub fn asked(&self) -> Vec<PlaceRequest> {
        self.places().asked.clone()
    }

    /// That many more places come in.
    pub fn restock(&self, count: u64) {
        let mut places = self.places();
        let first = places.next;
        places.next += count;
        places.all += count;
        places.free.extend(first..first + count);
    }

    /// The free places are there no more.
    pub fn withdraw(&self) {
        let mut places = self.places();
        places.all -= len(&places.free);
        places.free.clear();
    }

    /// Places that are neither free nor handed over.
    pub fn out(&self) -> u64 {
        let places = self.places();
        places.all - len(&places.free) - len(&places.used)
    }

    pub fn used(&self) -> u64 {
        len(&self.places().used)
    }

    /// A player took the place.
    pub fn hand_over(&self, place: u64) {
        let mut places = self.places();
        if places.free.contains(&place) || !places.used.insert(place) {
            places.faults.push(format!("place {place} was handed over and is somebody else's"));
        }
    }

    /// Waits until no place is out, and checks that none came home twice.
    pub async fn all_home(&self) {
        self.all_home_within(LIMIT).await;
    }

    pub async fn all_home_within(&self, limit: Duration) {
        eventually("every place that nobody took is home", limit, async || self.out() == 0).await;
        self.check();
    }

    /// Panics where a place was two places at once.
    pub fn check(&self) {
        let faults = self.places().faults.clone();
        assert!(faults.is_empty(), "{faults:?}");
    }
}

fn len(places: &BTreeSet<u64>) -> u64 {
    u64::try_from(places.len()).expect("few places")
}

impl Inventory for Shelf {
    type Place = u64;

    async fn reserve(&self, request: &PlaceRequest) -> Option<Offer<u64>> {
        let place = {
            let mut places = self.places();
            places.asked.push(request.clone());
            places.free.pop_first()?
        };
        let opened = self.0.shut.subscribe().wait_for(|shut| !shut).await.is_ok();
        assert!(opened, "the gate lives as long as the shelf");
        let payload = to_raw_value(&serde_json::json!({ "x": place, "region": request.region })).expect("JSON");
        Some(Offer { place, payload })
    }

    fn give_back(&self, place: u64) {
        let mut places = self.places();
        if places.used.contains(&place) || !places.free.insert(place) {
            places.faults.push(format!("place {place} came home and was not out"));
        }
    }

    fn regions(&self) -> BTreeMap<Region, Option<u64>> {
        self.0.regions.iter().map(|region| (region.clone(), Some(self.0.kept))).collect()
    }
}
