/// How far a serial may be ahead of the clock, in µs: one script admits at most so many, each with a serial of its own.
const AHEAD_US: u64 = 64;
/// A µs of one admission a second.
const MICRO: i128 = 1_000_000;

/// How fast players were let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::demo::rush) struct Pace {
    /// Most admissions in any second.
    pub busiest_second: u64,
    /// Admissions that end a window with more in it than the gate allows.
    pub too_fast: u64,
}

/// Looks at every window that begins and ends with an admission: at most `rate` a second and `burst` more.
/// `serials` are µs of store time, in order.
pub(in crate::demo::rush) fn pace(serials: &[u64], rate: u64, burst: u64) -> Pace {
    let mut pace = Pace::default();
    let mut from = 0;
    // Of all windows that end here the fullest begins where what was used up before is least.
    let mut least: Option<i128> = None;
    for (at, end) in serials.iter().enumerate() {
        while serials.get(from).is_some_and(|begin| end.saturating_sub(*begin) >= 1_000_000) {
            from += 1;
        }
        pace.busiest_second = pace.busiest_second.max(count(at + 1 - from));
        let used = i128::from(count(at)) * MICRO - i128::from(rate) * i128::from(*end);
        let begin = *least.insert(least.map_or(used, |least| least.min(used)));
        let allowed = i128::from(burst) * MICRO + i128::from(rate) * i128::from(AHEAD_US);
        if used - begin + MICRO > allowed {
            pace.too_fast += 1;
        }
    }
    pace
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One admission every `step_us`, from `start_us` on.
    fn steady(count: u64, start_us: u64, step_us: u64) -> Vec<u64> {
        (0..count).map(|n| start_us + n * step_us).collect()
    }

    // QUE-4: a check that cannot fail would show nothing.
    #[test]
    fn que_4_what_goes_through_faster_than_the_gate_is_found() {
        let (rate, burst) = (100, 10);
        let even = steady(500, 1_000_000, 10_000);
        assert_eq!(pace(&even, rate, burst), Pace { busiest_second: 100, too_fast: 0 });
        // A full bucket at once, and the rate from there.
        let mut full: Vec<u64> = steady(10, 1_000_000, 1);
        full.extend(steady(300, 1_010_000, 10_000));
        assert_eq!(pace(&full, rate, burst).too_fast, 0);

        let mut one_more = steady(11, 1_000_000, 1);
        assert_eq!(pace(&one_more, rate, burst).too_fast, 1);
        // Late enough it is allowed.
        one_more[10] = 1_010_000;
        assert_eq!(pace(&one_more, rate, burst).too_fast, 0);

        // A little too fast shows once the burst is used up.
        let hasty = pace(&steady(500, 1_000_000, 9_000), rate, burst);
        assert!(hasty.too_fast > 300, "{hasty:?}");
        // A quiet time before does not make a second burst any larger.
        let mut twice = even;
        twice.extend(steady(12, 9_000_000, 1));
        assert_eq!(pace(&twice, rate, burst).too_fast, 2);
        assert_eq!(pace(&[], rate, burst), Pace::default());
    }
}
