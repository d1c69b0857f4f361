use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds on a clock of this machine that nobody sets and that goes on while the machine is suspended. Only
/// differences mean something.
pub fn boot_ms() -> u64 {
    #[cfg(target_os = "linux")]
    let time = clock_gettime(ClockId::Boottime);
    #[cfg(not(target_os = "linux"))]
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let millis = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
    seconds.saturating_mul(1000).saturating_add(millis)
}

/// What a clock may be off by where times are compared, in ms.
pub(crate) const SKEW_MS: u64 = 5_000;

/// True where a time in the store is over at `now_ms`: it has come, or it is further ahead than the `lasts_ms` that it may be,
/// because it was set before the store's clock stepped back.
pub(crate) fn is_over(at_ms: u64, now_ms: u64, lasts_ms: u64) -> bool {
    at_ms <= now_ms || at_ms > now_ms.saturating_add(lasts_ms).saturating_add(SKEW_MS)
}

/// What an estimate that is taken from round trips of a machine beside the store is ahead by at most, in ms.
const AHEAD_MS: u64 = 10;

/// An estimate of the store's clock: the machine's own monotonic clock plus an offset, taken anew from each answer that
/// carries the store's time. The wall clock of this machine is never read.
#[derive(Debug, Default)]
pub struct StoreClock {
    offset_ms: AtomicI64,
}

impl StoreClock {
    /// The store's time now, in ms since 1970, as far as this process knows. 0 or little before the first
    /// [`observe`](Self::observe).
    pub fn now_ms(&self) -> u64 {
        let boot = i64::try_from(boot_ms()).unwrap_or(i64::MAX);
        u64::try_from(boot.saturating_add(self.offset_ms.load(Ordering::Acquire))).unwrap_or(0)
    }

    /// A time of the store that is over, in ms since 1970: [`now_ms`](Self::now_ms) may be a moment ahead. For numbers that a
    /// script takes from the last second and refuses from the future, which costs another round.
    pub fn past_ms(&self) -> u64 {
        self.now_ms().saturating_sub(AHEAD_MS)
    }

    /// The store time `store_ms` on [`boot_ms`]'s clock, as far as this process knows; a time that is over is now.
    pub fn boot_time_of(&self, store_ms: u64) -> u64 {
        boot_ms().saturating_add(store_ms.saturating_sub(self.now_ms()))
    }

    /// Takes in a reading: the store said `store_ms`, asked at `sent_boot_ms` and answered at `received_boot_ms`. An
    /// estimate that the reading leaves possible stays; else the reading is taken to be from the middle of the round
    /// trip. So an answer that took long, or that came to a repeat, does not spoil a better estimate.
    pub fn observe(&self, store_ms: u64, sent_boot_ms: u64, received_boot_ms: u64) {
        let whole = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let trip = whole(received_boot_ms.saturating_sub(sent_boot_ms));
        let least = whole(store_ms).saturating_sub(whole(received_boot_ms));
        let estimate = self.offset_ms.load(Ordering::Acquire);
        if estimate < least || estimate > least.saturating_add(trip) {
            self.offset_ms.store(least.saturating_add(trip / 2), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sto_9_the_estimate_runs_with_the_monotonic_clock_from_the_middle_of_the_round_trip() {
        let clock = StoreClock::default();
        let boot = boot_ms();
        clock.observe(1_796_000_000_000, boot.saturating_sub(10), boot);
        let ahead = clock.now_ms() - 1_796_000_000_000;
        assert!(ahead < 1_000, "{ahead}");
        clock.observe(1_795_000_000_000, boot, boot);
        assert!(clock.now_ms() < 1_796_000_000_000, "a step of the store's clock is followed");
    }

    #[test]
    fn sto_9_an_answer_that_took_long_does_not_spoil_a_better_estimate() {
        let clock = StoreClock::default();
        let boot = boot_ms() + 10_000;
        clock.observe(1_796_000_000_000, boot, boot);
        let offset = clock.offset_ms.load(Ordering::Acquire);
        // Read at the end of a trip of 3 s: the middle would put the clock 1.5 s ahead, and live nodes would look late.
        clock.observe(1_796_000_003_000, boot, boot + 3_000);
        assert_eq!(clock.offset_ms.load(Ordering::Acquire), offset);
        clock.observe(1_796_000_010_000, boot, boot + 3_000);
        assert_eq!(clock.offset_ms.load(Ordering::Acquire), offset + 7_000 + 1_500, "what it rules out is given up");
    }
}
