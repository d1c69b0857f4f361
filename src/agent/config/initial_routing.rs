//! `initialRouting`: where fresh logins go (PLC-2).

use std::time::Duration;

use crate::ids::BackendName;

/// `initialRouting`: where fresh logins go that no placement handler decides about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialRoutingConfig {
    /// Backends in the order to try them, at most 16, each once. None refuses every such login.
    pub servers: Vec<BackendName>,
    /// Longest time of one placement in seconds, from the start of the selection, for the handler, the names and the
    /// connections of all candidates together: 1 to 120.
    pub timeout_seconds: u64,
}

impl InitialRoutingConfig {
    /// Longest time of one placement.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

impl Default for InitialRoutingConfig {
    fn default() -> Self {
        Self { servers: Vec::new(), timeout_seconds: 15 }
    }
}
