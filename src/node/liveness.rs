//! How the age of a node's last beat is read. Pure.

use serde::Serialize;

use crate::error::{Error, Result};

/// What the age of a node's last beat says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// Expected by the config and not seen yet.
    Connecting,
    /// Beats as it should.
    Online,
    /// Late.
    Suspect,
    /// Silent for longer than a lease, or left.
    Offline,
    /// Silent for so long that it is taken off the roster.
    Removed,
}

impl Liveness {
    /// The text in tables and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Online => "online",
            Self::Suspect => "suspect",
            Self::Offline => "offline",
            Self::Removed => "removed",
        }
    }
}

/// Ages in ms at which a node stops being online, suspect and offline. Two beats < suspect < offline < removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivenessLimits {
    /// From here on it is suspect. Default 2,500.
    pub suspect_ms: u64,
    /// From here on it is offline. Default 3,500, the length of a lease.
    pub offline_ms: u64,
    /// From here on it is removed. Default 600,000.
    pub removed_ms: u64,
}

impl Default for LivenessLimits {
    fn default() -> Self {
        Self { suspect_ms: 2_500, offline_ms: 3_500, removed_ms: 600_000 }
    }
}

impl LivenessLimits {
    /// Checks the order of the limits against the beat interval.
    pub fn check(&self, interval_ms: u64) -> Result<()> {
        let ordered = interval_ms.saturating_mul(2) < self.suspect_ms
            && self.suspect_ms < self.offline_ms
            && self.offline_ms < self.removed_ms;
        if ordered && interval_ms >= 50 {
            return Ok(());
        }
        Err(Error::OutOfBounds {
            what: "liveness limits",
            problem: format!(
                "two beats ({} ms) < suspect ({} ms) < offline ({} ms) < removed ({} ms) must hold, and a beat interval is at least 50 ms",
                interval_ms.saturating_mul(2),
                self.suspect_ms,
                self.offline_ms,
                self.removed_ms
            ),
        })
    }

    /// The state of a node whose last beat is `age_ms` old: any but [`Liveness::Connecting`].
    pub fn judge(&self, age_ms: u64) -> Liveness {
        if age_ms < self.suspect_ms {
            Liveness::Online
        } else if age_ms < self.offline_ms {
            Liveness::Suspect
        } else if age_ms < self.removed_ms {
            Liveness::Offline
        } else {
            Liveness::Removed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nod_7_states_by_the_age_of_the_last_beat() {
        let limits = LivenessLimits::default();
        for (age, want) in [
            (0, Liveness::Online),
            (2_499, Liveness::Online),
            (2_500, Liveness::Suspect),
            (3_499, Liveness::Suspect),
            (3_500, Liveness::Offline),
            (599_999, Liveness::Offline),
            (600_000, Liveness::Removed),
        ] {
            assert_eq!(limits.judge(age), want, "{age}");
        }
    }

    #[test]
    fn nod_7_limits_out_of_order_are_refused_with_the_rule() {
        let good = LivenessLimits::default();
        assert!(good.check(1_000).is_ok());
        for bad in [
            LivenessLimits { suspect_ms: 2_000, ..good },
            LivenessLimits { offline_ms: 2_500, ..good },
            LivenessLimits { removed_ms: 3_500, ..good },
        ] {
            let text = bad.check(1_000).expect_err("out of order").to_string();
            assert!(text.contains("two beats (2000 ms) < suspect"), "{text}");
        }
        assert!(good.check(49).is_err());
    }
}
