use crate::ids::{LineName, Role};
use crate::queue::{Choice, GateOptions, LineOptions};

/// One login line. The same on every node, else its gate depends on who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineConfig {
    /// What an admission is for. `link` (`LinkOnly`) sends players to a node of the role `link`, and the gate then counts
    /// those.
    pub pick: Choice,
    /// Most players with a place, those that dropped included: 1 to 10,000,000.
    pub max_waiting: u64,
    /// The ratio in which the lanes are served, one number a lane: 1 to 16 of 1 to 1,000. Players in a lane that is taken
    /// away are served with the last one that is left.
    pub lanes: Vec<u32>,
    /// Admissions per second for each live backend (link), and the most new players that one takes in a second, with some
    /// slack: 1 to 100,000. The agent counts them where the application does not.
    pub max_online_new: u32,
    /// Admissions per second whatever the fleet looks like, instead: 1 to 100,000.
    pub fixed_per_second: Option<u32>,
    /// Admissions at once after a quiet time: 1 to 100,000. `None`: a quarter of a second's worth, at least one.
    pub burst: Option<u32>,
    /// How long a dropped player keeps the place, in ms: 100 to 3,600,000.
    pub reconnect_grace_ms: u64,
    /// How long a promised place is held for a player who does not come, in ms: 100 to 3,600,000, more than two beats.
    pub arrive_ms: u64,
    /// How long a login pass is good, in ms: 1,000 to 86,400,000, not less than `arrive_ms`.
    pub pass_ms: u64,
    /// The transfer that fails for this time puts the player out: 1 to 100.
    pub max_failures: u32,
    /// Longest time between two rounds of an admitter, in ms: 100 to 60,000. Positions are told every third tick.
    pub tick_ms: u64,
}

impl Default for LineConfig {
    fn default() -> Self {
        Self {
            pick: Choice::Backend,
            max_waiting: 100_000,
            lanes: vec![1],
            max_online_new: 100,
            fixed_per_second: None,
            burst: None,
            reconnect_grace_ms: 30_000,
            arrive_ms: 60_000,
            pass_ms: 1_800_000,
            max_failures: 3,
            tick_ms: 1_000,
        }
    }
}

impl LineConfig {
    /// What its operations are told.
    pub fn options(&self, name: &LineName) -> LineOptions {
        let counted = if self.pick == Choice::LinkOnly { Role::link() } else { Role::backend() };
        LineOptions {
            name: name.clone(),
            max_waiting: self.max_waiting,
            lanes: self.lanes.clone(),
            gate: GateOptions {
                fixed_per_second: self.fixed_per_second,
                per_backend: self.max_online_new,
                counted,
                burst: self.burst,
            },
            reconnect_grace_ms: self.reconnect_grace_ms,
            arrive_ms: self.arrive_ms,
            pass_ms: self.pass_ms,
            max_failures: self.max_failures,
            configured: true,
        }
    }

    /// What an admission is for.
    pub fn choice(&self) -> Choice {
        self.pick
    }
}
