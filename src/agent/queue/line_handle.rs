//! One line as this node serves it, under one config.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt;

use crate::agent::config::{LineConfig, WaitConfig};
use crate::agent::core::Core;
use crate::error::Result;
use crate::ids::LineName;
use crate::node::Snapshot;
use crate::queue::{Admitter, Destination, Line, LineOptions};

/// Longest time between two polls of a wait line.
const WAIT_TICK: Duration = Duration::from_secs(1);

pub(in crate::agent) struct LineHandle {
    pub line: Line,
    /// Longest time between two polls.
    pub tick: Duration,
    /// What only a login line has.
    login: Option<Login>,
}

struct Login {
    config: LineConfig,
    /// Makes the offers of those who enter.
    offers: Mutex<Admitter>,
}

impl LineHandle {
    pub fn login(core: &Core, name: &LineName, config: &LineConfig) -> Result<Self> {
        let line = line(core, config.options(name))?;
        let offers = Admitter::new(line.clone(), config.choice(), rand::rng().random());
        offers.believes_for(core.config().stale_after_ms());
        let offers = Mutex::new(offers);
        let tick = Duration::from_millis(config.tick_ms);
        Ok(Self { line, tick, login: Some(Login { config: config.clone(), offers }) })
    }

    pub fn wait(core: &Core, name: LineName, config: &WaitConfig) -> Result<Self> {
        Ok(Self { line: line(core, config.options(name))?, tick: WAIT_TICK, login: None })
    }

    pub fn name(&self) -> &LineName {
        self.line.name()
    }

    /// The config of a login line.
    pub fn config(&self) -> Option<&LineConfig> {
        self.login.as_ref().map(|login| &login.config)
    }

    /// The last lane that it has: whoever stands in one that was taken away is served with that.
    pub fn last_lane(&self) -> u16 {
        u16::try_from(self.line.options().lanes.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    /// Where a player who enters now could go at once.
    pub fn offer(&self, snapshot: &Snapshot) -> Option<Destination> {
        self.login.as_ref()?.offers.lock().unwrap_or_else(PoisonError::into_inner).offer(snapshot)
    }

    /// An admitter that knows what the offers know of free places, and teaches them; none for a wait line.
    pub fn admitter(&self) -> Option<Admitter> {
        let login = self.login.as_ref()?;
        Some(login.offers.lock().unwrap_or_else(PoisonError::into_inner).sharing(rand::rng().random()))
    }
}

/// A line of the agent's zone.
pub(in crate::agent) fn line(core: &Core, options: LineOptions) -> Result<Line> {
    Line::new(core.store.clone(), core.verifier.clone(), core.control.clone(), options)
}
