use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{NodeId, Region};
use crate::node::{Liveness, NodeRecord, NodeState, NodeView, Switches};

use super::score::Costs;

/// Regions that have a bit of their own.
const REGIONS_MAX: u32 = 64;

/// What one proxy knows of one backend by itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// Left out until then.
    pub cooling_until_ms: u64,
    /// Recent picks, as the table keeps them: this proxy's own, or with shared picks all proxies'.
    pub picks: f64,
    /// Smoothed round trip.
    pub rtt_ms: Option<f64>,
    /// Picks of this proxy that the others were not told of yet.
    pub unshared: u32,
    /// Picks that they are being told of.
    pub in_flight: u32,
}

/// One node with all that a choice looks at side by side: a walk over thousands of rows touches nothing else.
#[derive(Debug)]
pub(super) struct Row {
    pub node: Arc<NodeRecord>,
    pub known: Known,
    /// Cost of what the node publishes.
    pub published: f64,
    /// Cost of its round trip; `None` where none was measured.
    pub far: Option<f64>,
    /// Its own weight.
    pub weight: f64,
    /// Age of its last beat.
    pub age_ms: u64,
    /// The regions that it serves, by their bits.
    pub regions: u64,
    /// The most kept places of a region of it.
    pub kept: Option<u64>,
    /// Of a role that is picked, and not the chooser itself.
    pub is_backend: bool,
    pub is_online: bool,
    pub is_ready: bool,
    pub is_accepting: bool,
    pub is_killed: bool,
    pub is_draining: bool,
}

impl Row {
    /// A row of which only the node is known.
    pub(super) fn new(view: &NodeView, known: Known) -> Self {
        Self {
            node: Arc::clone(&view.record),
            known,
            published: 0.0,
            far: None,
            weight: 1.0,
            age_ms: view.age_ms,
            regions: 0,
            kept: None,
            is_backend: false,
            is_online: view.liveness == Liveness::Online,
            is_ready: false,
            is_accepting: false,
            is_killed: false,
            is_draining: false,
        }
    }

    /// Takes in a judgement of the same record.
    pub(super) fn judge(&mut self, view: &NodeView) {
        self.age_ms = view.age_ms;
        self.is_online = view.liveness == Liveness::Online;
    }

    /// Works out what hangs on the record alone.
    pub(super) fn read(&mut self, costs: &Costs, regions: &mut Regions, locality: Option<&str>, own: &NodeId) {
        let record = &*self.node;
        self.published = costs.published(record, locality);
        self.regions = record.load.regions.keys().fold(0, |bits, region| bits | regions.bit_for(region));
        self.kept = record.load.regions.values().filter_map(|kept| *kept).max();
        let is_other = !record.role.gives_places();
        self.is_backend = !is_other && record.id != *own;
        self.is_ready = matches!(record.state, NodeState::Ready | NodeState::Degraded);
        self.is_accepting = record.accepting;
    }

    /// Works out what hangs on the switches, and on what the record says of them.
    pub(super) fn switch(&mut self, switches: &Switches) {
        self.is_killed = switches.stops(&self.node);
        self.is_draining = switches.is_draining(&self.node.id);
    }

    /// The first region by name with the most kept places.
    pub(super) fn most_kept(&self) -> Option<&Region> {
        let most = self.kept?;
        self.node.load.regions.iter().find(|(_, kept)| **kept == Some(most)).map(|(region, _)| region)
    }
}

/// A bit for each region that some node serves, so that a row holds its regions in a number.
#[derive(Debug, Default)]
pub(super) struct Regions {
    bits: BTreeMap<Region, u32>,
}

/// How to tell whether a row serves one region.
#[derive(Debug, Clone, Copy)]
pub(super) enum Serving<'a> {
    Bit(u64),
    Nobody,
    /// There are too many regions for each to have a bit.
    Look(&'a Region),
}

impl Regions {
    pub(super) fn is_full(&self) -> bool {
        self.bits.len() >= REGIONS_MAX.try_into().unwrap_or(usize::MAX)
    }

    /// The bit of a region, 0 where it gets none.
    fn bit_for(&mut self, region: &Region) -> u64 {
        if let Some(number) = self.bits.get(region) {
            return 1 << number;
        }
        let number = u32::try_from(self.bits.len()).unwrap_or(u32::MAX);
        if number >= REGIONS_MAX {
            return 0;
        }
        self.bits.insert(region.clone(), number);
        1 << number
    }

    pub(super) fn serving<'a>(&self, region: &'a Region) -> Serving<'a> {
        match self.bits.get(region) {
            Some(number) => Serving::Bit(1 << number),
            None if self.is_full() => Serving::Look(region),
            None => Serving::Nobody,
        }
    }
}

impl Serving<'_> {
    pub(super) fn is_served_by(self, row: &Row) -> bool {
        match self {
            Self::Bit(bit) => row.regions & bit != 0,
            Self::Nobody => false,
            Self::Look(region) => row.node.load.regions.contains_key(region),
        }
    }
}
