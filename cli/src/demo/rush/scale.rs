use std::time::Duration;

/// The line that everybody comes to.
pub(super) const LINE: &str = "login";
/// The lease of a node: 3.5 beats.
pub(super) const LEASE_MS: u64 = 3_500;
/// How long a promised place is held.
pub(super) const ARRIVE_MS: u64 = 6_000;
/// How long a pass is good.
pub(super) const PASS_MS: u64 = 10_000;
/// Shortest time that the whole line takes at the gate's rate, in ms.
const LENGTH_MIN_MS: u64 = 5_000;
/// What each player adds to that, in µs.
const LENGTH_EACH_US: u64 = 1_500;
/// How long a place is away for one player: inside, and counted twice until a beat has named the arrival, in ms.
const PLACE_TAKEN_MS: u64 = 4_800;
/// How the places are spread over the backends.
const SHARES: [u64; 3] = [2, 3, 4];

/// How large everything is for so many players.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scale {
    pub players: usize,
    /// Admissions a second.
    pub rate: u64,
    pub burst: u64,
    /// Places of each backend: in all about as many as the rate fills, so that places that come back are needed.
    pub places: Vec<u64>,
}

impl Scale {
    pub fn of(players: usize) -> Self {
        let count = u64::try_from(players).unwrap_or(u64::MAX);
        let length_ms = LENGTH_MIN_MS + count * LENGTH_EACH_US / 1_000;
        let rate = (count * 1_000 / length_ms).max(5);
        let places = (rate * PLACE_TAKEN_MS / 1_000).max(9);
        let shares: u64 = SHARES.iter().sum();
        Self {
            players,
            rate,
            burst: (rate / 10).max(1),
            places: SHARES.iter().map(|share| (places * share).div_ceil(shares)).collect(),
        }
    }

    /// How long the whole line takes at the gate's rate.
    pub fn length(&self) -> Duration {
        let players = u64::try_from(self.players).unwrap_or(u64::MAX);
        Duration::from_millis(players.saturating_mul(1_000) / self.rate.max(1))
    }

    /// The config of every node: times are short, so that what is left over is gone in seconds. A store that shares the
    /// machine with all of them may take a while, and nobody's connection is given up for that.
    pub fn network(&self) -> String {
        let (rate, burst, most) = (self.rate, self.burst, self.players.saturating_mul(2));
        format!(
            "zone: rush\n\
             store: {{ commandTimeoutMs: 2000, connectTimeoutMs: 2000, operationTimeoutMs: 10000 }}\n\
             heartbeat: {{ intervalMs: 1000 }}\n\
             directory: {{ refreshMs: 1000, suspectMs: 2500, offlineMs: {LEASE_MS} }}\n\
             tokens: {{ reapIntervalMs: 500 }}\n\
             lines:\n  {LINE}: {{ pick: backend, lanes: [3, 1], maxWaiting: {most}, maxOnlineNew: 100000, \
             fixedPerSecond: {rate}, burst: {burst}, reconnectGraceMs: 8000, arriveMs: {ARRIVE_MS}, passMs: {PASS_MS}, \
             maxFailures: 3, tickMs: 1000 }}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-2: the default and the largest rush end within a minute.
    #[test]
    fn cli_2_a_rush_of_any_size_takes_seconds() {
        for players in [50, 600, 2_000, 10_000, 20_000] {
            let scale = Scale::of(players);
            assert!(scale.length() <= Duration::from_secs(36), "{scale:?}");
            assert!(scale.length() >= Duration::from_secs(5), "{scale:?}");
            let fullest = scale.places.iter().max().expect("backends");
            // A beat names at most 256 arrivals, and there is one a second.
            assert!(fullest * scale.rate <= 256 * scale.places.iter().sum::<u64>(), "{scale:?}");
        }
        assert_eq!(Scale::of(10_000).rate, 500);
    }
}
