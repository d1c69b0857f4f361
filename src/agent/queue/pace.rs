//! How fast a wait line is served, as this proxy hears it. Pure: times come in.

use std::collections::VecDeque;

/// How far back it is measured, in ms.
const WINDOW_MS: u64 = 30_000;
/// Tokens that came out of a line within so many ms are counted together.
const SLOT_MS: u64 = 1_000;

/// The tokens that came out of a line a short while ago.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When each slot began and how many it has, oldest first.
    slots: VecDeque<(u64, u64)>,
}

impl Pace {
    /// One came out at `now_ms`.
    pub fn note(&mut self, now_ms: u64) {
        match self.slots.back_mut() {
            Some((begin, count)) if now_ms.saturating_sub(*begin) < SLOT_MS => *count += 1,
            _ => self.slots.push_back((now_ms, 1)),
        }
        self.forget(now_ms);
    }

    fn forget(&mut self, now_ms: u64) {
        while self.slots.front().is_some_and(|(begin, _)| now_ms.saturating_sub(*begin) > WINDOW_MS) {
            self.slots.pop_front();
        }
    }

    /// How long the one at `position` (from 1) waits at this pace, in ms; `None` where nobody was served for a while.
    pub fn wait_ms(&mut self, position: u64, now_ms: u64) -> Option<u64> {
        self.forget(now_ms);
        let (begin, _) = self.slots.front()?;
        let span = now_ms.saturating_sub(*begin).max(SLOT_MS);
        let served: u64 = self.slots.iter().map(|(_, count)| count).sum();
        Some(position.saturating_mul(span) / served.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // QUE-8: an estimate out of nothing would be a promise.
    #[test]
    fn que_8_the_wait_follows_what_came_out_of_the_line_in_the_last_half_minute() {
        let mut pace = Pace::default();
        assert_eq!(pace.wait_ms(5, 1_000), None);
        for n in 0..100_u64 {
            pace.note(n * 100);
        }
        let wait = pace.wait_ms(50, 10_000).expect("it moves");
        assert!((4_900..=5_100).contains(&wait), "ten a second: {wait}");
        let slower = pace.wait_ms(50, 20_000).expect("it moved");
        assert!(slower > wait, "it stands: {slower}");
        assert_eq!(pace.wait_ms(1, 60_000), None, "for too long");
    }
}
