use crate::error::{Error, Result};
use crate::ids::{LineName, Role};

/// Most lanes that one line is configured with.
pub const LANES_MAX: usize = 16;
/// Largest weight of a lane.
pub const WEIGHT_MAX: u32 = 1_000;

/// How fast a line is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateOptions {
    /// Admissions per second whatever the fleet looks like; `None`: by the number of live backends.
    pub fixed_per_second: Option<u32>,
    /// Admissions per second for each live backend (`maxOnlineNew`). Default 100.
    pub per_backend: u32,
    /// Whose roster is counted: `backend`, or `link` where only links are picked.
    pub counted: Role,
    /// Admissions at once after a quiet time; `None`: a quarter of a second's worth, at least one.
    pub burst: Option<u32>,
}

impl Default for GateOptions {
    fn default() -> Self {
        Self { fixed_per_second: None, per_backend: 100, counted: Role::backend(), burst: None }
    }
}

/// Everything that a line is told by the config. The same on every node: scripts take these as arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineOptions {
    /// Its name.
    pub name: LineName,
    /// Most players with a place, those that dropped included. Default 100,000.
    pub max_waiting: u64,
    /// The ratio in which the lanes are served, one number a lane. Default one lane.
    pub lanes: Vec<u32>,
    /// The gate.
    pub gate: GateOptions,
    /// How long a dropped player keeps the sequence, in ms. Default 30,000.
    pub reconnect_grace_ms: u64,
    /// How long a promised place is held for a player who does not come, in ms. Default 60,000.
    pub arrive_ms: u64,
    /// How long a login pass is good, in ms. Default 1,800,000.
    pub pass_ms: u64,
    /// The transfer that fails for this time puts the player out. Default 3.
    pub max_failures: u32,
    /// The gate stays in the store although nobody waits. False for wait lines, which have no gate to keep.
    pub configured: bool,
}

impl LineOptions {
    /// The defaults, under this name.
    pub fn new(name: LineName) -> Self {
        Self {
            name,
            max_waiting: 100_000,
            lanes: vec![1],
            gate: GateOptions::default(),
            reconnect_grace_ms: 30_000,
            arrive_ms: 60_000,
            pass_ms: 1_800_000,
            max_failures: 3,
            configured: true,
        }
    }

    /// A wait line: `wait`, or `wait.<server>`. No gate applies to it; its tickets become tokens.
    pub fn wait_line(name: LineName) -> Self {
        // An estimate out of a rate that nobody keeps to would be worse than none.
        let gate = GateOptions { per_backend: 0, ..GateOptions::default() };
        Self { configured: false, gate, ..Self::new(name) }
    }

    /// Errors with [`Error::OutOfBounds`] where the lanes are not 1 to 16 weights of 1 to 1,000.
    pub fn check(&self) -> Result<()> {
        let lanes = self.lanes.len();
        if lanes == 0 || lanes > LANES_MAX || self.lanes.iter().any(|weight| *weight == 0 || *weight > WEIGHT_MAX) {
            return Err(Error::OutOfBounds {
                what: "lanes",
                problem: format!(
                    "line {} has {:?}; allowed are 1 to {LANES_MAX} weights of 1 to {WEIGHT_MAX}",
                    self.name, self.lanes
                ),
            });
        }
        Ok(())
    }

    /// The weights as scripts take them.
    pub(super) fn lanes_text(&self) -> String {
        self.lanes.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
    }
}
