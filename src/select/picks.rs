//! Counts that halve every half-life. Times are in ms of any one clock that only goes forward.

/// Below this a base is so old that its counts are written anew: far above where numbers lose their last digits.
const FACTOR_MIN: f64 = 1e-9;

/// What is left of `count` after `age_ms`.
pub fn decayed(count: f64, age_ms: u64, halflife_ms: u64) -> f64 {
    count * (-(real(age_ms) / real(halflife_ms.max(1)))).exp2()
}

fn real(ms: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a time so long that it does not fit leaves nothing of a count")]
    let real = ms as f64;
    real
}

/// How the counts of a table decay. All do so alike, so they are kept as of one moment, and one factor says what they are
/// worth now: a choice among thousands needs one power of two and not thousands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decay {
    base_ms: u64,
    halflife_ms: u64,
}

impl Decay {
    pub(super) fn new(base_ms: u64, halflife_ms: u64) -> Self {
        Self { base_ms, halflife_ms }
    }

    pub(super) fn halflife_ms(self) -> u64 {
        self.halflife_ms
    }

    /// What a count of 1 that is kept is worth at `now_ms`.
    pub(super) fn factor(self, now_ms: u64) -> f64 {
        decayed(1.0, now_ms.saturating_sub(self.base_ms), self.halflife_ms)
    }

    /// What `count` is kept as at `now_ms`; no number where the base [is over](Self::is_over) for long.
    pub(super) fn kept(self, count: f64, now_ms: u64) -> f64 {
        count / self.factor(now_ms)
    }

    /// True where the counts have to be written anew before one is added.
    pub(super) fn is_over(self, now_ms: u64, halflife_ms: u64) -> bool {
        self.halflife_ms != halflife_ms || self.factor(now_ms) < FACTOR_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sel_3_a_count_halves_every_halflife() {
        assert!((decayed(2.0, 0, 10_000) - 2.0).abs() < f64::EPSILON);
        assert!((decayed(2.0, 10_000, 10_000) - 1.0).abs() < 1e-12);
        assert!((decayed(2.0, 30_000, 10_000) - 0.25).abs() < 1e-12);
        assert!(decayed(2.0, u64::MAX, 1) < 1e-300);
        let decay = Decay::new(5_000, 10_000);
        let kept = decay.kept(3.0, 15_000);
        assert!((kept * decay.factor(15_000) - 3.0).abs() < 1e-12);
        assert!((kept * decay.factor(25_000) - 1.5).abs() < 1e-12);
        assert!((decay.factor(0) - 1.0).abs() < f64::EPSILON, "a clock that seems to go back changes nothing");
        assert!(!decay.is_over(15_000, 10_000) && decay.is_over(15_000, 9_000) && decay.is_over(400_000, 10_000));
    }
}
