/// A count that halves every half-life. Times are in ms of any one clock that only goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Decaying {
    value: f64,
    at_ms: u64,
}

impl Decaying {
    /// `value` as of `at_ms`.
    pub fn new(value: f64, at_ms: u64) -> Self {
        Self { value, at_ms }
    }

    /// What is left of it at `now_ms`.
    pub fn at(&self, now_ms: u64, halflife_ms: u64) -> f64 {
        let age_ms = now_ms.saturating_sub(self.at_ms);
        if age_ms == 0 || self.value <= 0.0 {
            return self.value;
        }
        self.value * (-(real(age_ms) / real(halflife_ms.max(1)))).exp2()
    }

    /// Adds to what is left of it.
    pub fn add(&mut self, more: f64, now_ms: u64, halflife_ms: u64) {
        *self = Self { value: self.at(now_ms, halflife_ms) + more, at_ms: self.at_ms.max(now_ms) };
    }
}

fn real(ms: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a time so long that it does not fit leaves nothing of a count")]
    let real = ms as f64;
    real
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sel_3_a_count_halves_every_halflife_and_grows_by_one_a_pick() {
        let mut count = Decaying::default();
        count.add(1.0, 1_000, 10_000);
        count.add(1.0, 1_000, 10_000);
        assert!((count.at(1_000, 10_000) - 2.0).abs() < f64::EPSILON);
        assert!((count.at(11_000, 10_000) - 1.0).abs() < 1e-12);
        assert!((count.at(31_000, 10_000) - 0.25).abs() < 1e-12);
        count.add(1.0, 11_000, 10_000);
        assert!((count.at(21_000, 10_000) - 1.0).abs() < 1e-12);
        assert!((count.at(0, 10_000) - 2.0).abs() < 1e-12, "a clock that seems to go back changes nothing");
        assert!(count.at(u64::MAX, 1) < 1e-300);
    }
}
