use crate::error::{Error, Result};

/// Most operations that a limit counts.
pub const COUNT_MAX: u64 = 10_000;
/// Longest time that a limit counts over, and longest time until all of its burst is free again, in ms: 30 days.
pub const PER_MAX_MS: u64 = 2_592_000_000;
/// Most operations that a limit lets through at once.
pub const BURST_MAX: u64 = 64;
/// Shortest time that one operation may stand for, in ms. It bounds how many are charged while one is still repeated.
pub const INTERVAL_MIN_MS: u64 = 500;

/// How much one player may do: `count` operations each `per_ms` in the long run, `burst` of them at once.
///
/// It is a leaky bucket (GCRA): each operation fills it by one, it drains by `count` each `per_ms`, and what would fill it
/// beyond `burst` is denied. So over any time `t` at most `burst + t × count / per_ms` operations pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    count: u64,
    per_ms: u64,
    burst: u64,
}

impl Limit {
    /// `count` is 1 to 10,000, `burst` 1 to 64, `per_ms` 1 to 30 days. One operation stands for
    /// `per_ms / count`, which is at least 500; the whole burst drains within 30 days.
    ///
    /// Errors with [`Error::OutOfBounds`].
    pub fn new(count: u64, per_ms: u64, burst: u64) -> Result<Self> {
        let bounded = |name: &str, value: u64, max: u64| {
            let fits = (1..=max).contains(&value);
            if fits { Ok(()) } else { Err(out_of_bounds(format!("{name} {value} is not 1 to {max}"))) }
        };
        bounded("count", count, COUNT_MAX)?;
        bounded("per_ms", per_ms, PER_MAX_MS)?;
        bounded("burst", burst, BURST_MAX)?;
        if per_ms < count.saturating_mul(INTERVAL_MIN_MS) {
            return Err(out_of_bounds(format!(
                "{count} in {per_ms} ms is more than one each {INTERVAL_MIN_MS} ms in the long run"
            )));
        }
        if per_ms.saturating_mul(burst) > count.saturating_mul(PER_MAX_MS) {
            return Err(out_of_bounds(format!(
                "a burst of {burst} at {count} each {per_ms} ms takes over 30 days to drain"
            )));
        }
        Ok(Self { count, per_ms, burst })
    }

    /// One operation, and the next one `cooldown_ms` later: 500 ms to 30 days.
    ///
    /// Errors with [`Error::OutOfBounds`].
    pub fn cooldown(cooldown_ms: u64) -> Result<Self> {
        Self::new(1, cooldown_ms, 1)
    }

    /// Operations each [`per_ms`](Self::per_ms) in the long run.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that [`count`](Self::count) goes by, in ms.
    pub fn per_ms(&self) -> u64 {
        self.per_ms
    }

    /// Operations at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// What one operation costs, in µs; rounded up, so that no more pass than the limit says.
    pub(super) fn interval_us(&self) -> u64 {
        self.per_ms.saturating_mul(1_000).div_ceil(self.count)
    }
}

fn out_of_bounds(problem: String) -> Error {
    Error::OutOfBounds { what: "limit", problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    // POL-6: beyond these bounds the script's whole numbers or its list of operations would be too small.
    #[test]
    fn pol_6_a_limit_that_cannot_be_kept_is_refused_with_the_reason() {
        for (count, per_ms, burst, why) in [
            (0, 1_000, 1, "count 0"),
            (10_001, 86_400_000, 1, "count 10001"),
            (1, 0, 1, "per_ms 0"),
            (1, PER_MAX_MS + 1, 1, "per_ms"),
            (1, 1_000, 0, "burst 0"),
            (1, 1_000, 65, "burst 65"),
            (6, 2_999, 1, "more than one each 500 ms"),
            (1, PER_MAX_MS, 2, "30 days"),
        ] {
            let text = Limit::new(count, per_ms, burst).expect_err(why).to_string();
            assert!(text.contains(why), "{text}");
        }
        for (count, per_ms, burst) in [(6, 3_000, 64), (1, PER_MAX_MS, 1), (10_000, 5_000_000, 64)] {
            assert!(Limit::new(count, per_ms, burst).is_ok(), "{count} {per_ms} {burst}");
        }
        assert!(Limit::cooldown(499).is_err() && Limit::cooldown(500).is_ok());
    }

    #[test]
    fn pol_6_an_interval_is_rounded_up_so_that_nobody_gets_more() {
        assert_eq!(Limit::new(3, 10_000, 3).expect("valid").interval_us(), 3_333_334);
        assert_eq!(Limit::cooldown(1_000).expect("valid").interval_us(), 1_000_000);
    }
}
