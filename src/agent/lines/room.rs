//! One line as this node serves it, under one config.

use std::sync::{Mutex, PoisonError};

use rand::RngExt;

use crate::agent::config::LineConfig;
use crate::agent::core::Core;
use crate::error::Result;
use crate::ids::LineName;
use crate::node::Snapshot;
use crate::queue::{Admitter, Destination, Line, LineOptions};

pub(super) struct Room {
    pub config: LineConfig,
    pub line: Line,
    /// Makes the offers of those who enter.
    offers: Mutex<Admitter>,
}

impl Room {
    pub fn new(core: &Core, name: &LineName, config: &LineConfig) -> Result<Self> {
        let line = line(core, config.options(name))?;
        let offers = Mutex::new(Admitter::new(line.clone(), config.choice(), rand::rng().random()));
        Ok(Self { config: config.clone(), line, offers })
    }

    /// Where a player who enters now could go at once.
    pub fn offer(&self, snapshot: &Snapshot) -> Option<Destination> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner).offer(snapshot)
    }

    /// An admitter that knows what the offers know of free places, and teaches them.
    pub fn admitter(&self) -> Admitter {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner).sharing(rand::rng().random())
    }
}

/// A line of the agent's zone.
pub(super) fn line(core: &Core, options: LineOptions) -> Result<Line> {
    Line::new(core.store.clone(), core.verifier.clone(), core.control.clone(), options)
}
