//! The replay window of one receiver: each signed message is taken once, and only while it is young.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// How far a message's sent time may be from the receiver's idea of the store's time, either way, in ms.
pub const REPLAY_WINDOW_MS: u64 = 30_000;

/// Why a message is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayRefusal {
    /// Sent longer ago than the window.
    #[error("it was sent too long ago")]
    TooOld,
    /// Sent further in the future than the window.
    #[error("its sent time lies in the future")]
    FromTheFuture,
    /// Taken before.
    #[error("it was received before")]
    Seen,
    /// Sent at a time of which this receiver has forgotten messages: it can no longer tell.
    #[error("it was sent before the oldest message that is remembered")]
    Forgotten,
}

/// Two keyed 64-bit hashes of sender and nonce. The keys are random and stay in the process, so nobody can aim for a
/// collision, and 128 bits do not collide by chance.
type Fingerprint = (u64, u64);

/// Remembers which messages were taken: at most `capacity`, under 100 bytes each, and none that is older than the window.
///
/// What holds at any time: a message that was taken is either remembered, or it was sent before the oldest time that is
/// still acceptable and is refused for that. Forgetting always raises that time, so neither a full memory nor a clock
/// that steps back opens a door; too small a capacity costs late messages ([`ReplayRefusal::Forgotten`]), never safety.
/// A window starts empty with the process: what was meant for an earlier incarnation names its epoch and is refused there.
pub struct ReplayWindow {
    window_ms: u64,
    capacity: usize,
    floor_ms: u64,
    seen: HashSet<Fingerprint>,
    by_sent: BinaryHeap<Reverse<(u64, Fingerprint)>>,
    hashers: (RandomState, RandomState),
}

impl ReplayWindow {
    /// A window of `window_ms` either way ([`REPLAY_WINDOW_MS`] in a fleet) that remembers at most `capacity` messages.
    pub fn new(window_ms: u64, capacity: usize) -> Self {
        Self {
            window_ms,
            capacity,
            floor_ms: 0,
            seen: HashSet::new(),
            by_sent: BinaryHeap::new(),
            hashers: (RandomState::new(), RandomState::new()),
        }
    }

    /// Takes the message that `from` sent at `sent_at_ms` under `nonce`, or says why not; a refused one changes nothing
    /// that a later message could notice. Call it for verified messages only. `now_ms` is the receiver's estimate of the
    /// store's time. A forwarded message counts anew at each hop: its nonce is handed in together with the hops.
    /// O(log n) amortised.
    pub fn check(&mut self, from: &str, nonce: &str, sent_at_ms: u64, now_ms: u64) -> Result<(), ReplayRefusal> {
        let oldest_ms = now_ms.saturating_sub(self.window_ms);
        while self.by_sent.peek().is_some_and(|Reverse((sent_ms, _))| *sent_ms < oldest_ms) {
            self.forget_oldest();
        }
        if sent_at_ms < oldest_ms {
            return Err(ReplayRefusal::TooOld);
        }
        if sent_at_ms > now_ms.saturating_add(self.window_ms) {
            return Err(ReplayRefusal::FromTheFuture);
        }
        let fingerprint = (self.hashers.0.hash_one((from, nonce)), self.hashers.1.hash_one((from, nonce)));
        if self.seen.contains(&fingerprint) {
            return Err(ReplayRefusal::Seen);
        }
        if sent_at_ms < self.floor_ms {
            return Err(ReplayRefusal::Forgotten);
        }
        self.seen.insert(fingerprint);
        self.by_sent.push(Reverse((sent_at_ms, fingerprint)));
        if self.by_sent.len() > self.capacity {
            self.forget_oldest();
        }
        Ok(())
    }

    /// How many messages are remembered now.
    pub fn len(&self) -> usize {
        self.by_sent.len()
    }

    /// True where none is remembered.
    pub fn is_empty(&self) -> bool {
        self.by_sent.is_empty()
    }

    /// Forgets the message with the oldest sent time and from now on refuses all that were sent then or before.
    fn forget_oldest(&mut self) {
        if let Some(Reverse((sent_ms, fingerprint))) = self.by_sent.pop() {
            self.seen.remove(&fingerprint);
            self.floor_ms = self.floor_ms.max(sent_ms.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ReplayRefusal::{Forgotten, FromTheFuture, Seen, TooOld};
    use super::*;

    const NOW: u64 = 1_796_000_000_000;

    // ENV-7: without the window a recorded order to reserve a place works again tomorrow.
    #[test]
    fn env_7_only_young_and_new_messages_are_taken() {
        let mut window = ReplayWindow::new(REPLAY_WINDOW_MS, 100);
        let table = [
            ("a", "n1", NOW, NOW, Ok(())),
            ("a", "n1", NOW, NOW, Err(Seen)),
            ("a", "n1", NOW + 5, NOW + 5, Err(Seen)),
            ("b", "n1", NOW, NOW, Ok(())),
            ("an", "1", NOW, NOW, Ok(())),
            ("a", "n2", NOW - 30_000, NOW, Ok(())),
            ("a", "n3", NOW - 30_001, NOW, Err(TooOld)),
            ("a", "n4", NOW + 30_000, NOW, Ok(())),
            ("a", "n5", NOW + 30_001, NOW, Err(FromTheFuture)),
            ("a", "n1", NOW, NOW + 30_000, Err(Seen)),
            ("a", "n1", NOW, NOW + 30_001, Err(TooOld)),
            ("a", "n4", NOW + 30_000, NOW + 60_000, Err(Seen)),
            ("a", "n6", u64::MAX, NOW, Err(FromTheFuture)),
            ("a", "n7", 0, NOW, Err(TooOld)),
        ];
        for (row, (from, nonce, sent, now, expected)) in table.into_iter().enumerate() {
            assert_eq!(window.check(from, nonce, sent, now), expected, "row {row}");
        }
        assert_eq!(window.len(), 1, "what left the window is forgotten");
    }

    // a flood must not buy the replay of what it pushed out.
    #[test]
    fn r_27_a_full_memory_raises_the_oldest_time_that_is_taken() {
        let mut window = ReplayWindow::new(REPLAY_WINDOW_MS, 3);
        for (nonce, sent) in [("n1", NOW), ("n2", NOW + 2), ("n3", NOW + 3), ("n4", NOW + 4)] {
            assert_eq!(window.check("a", nonce, sent, NOW), Ok(()));
        }
        assert_eq!(window.len(), 3);
        assert_eq!(window.check("a", "n1", NOW, NOW), Err(Forgotten));
        assert_eq!(window.check("a", "late", NOW, NOW), Err(Forgotten));
        assert_eq!(window.check("a", "n2", NOW + 2, NOW), Err(Seen));
        // The oldest of all comes last and is the one that is forgotten at once.
        assert_eq!(window.check("a", "n5", NOW + 1, NOW), Ok(()));
        assert_eq!(window.check("a", "n5", NOW + 1, NOW), Err(Forgotten));
        assert_eq!(window.check("a", "n6", NOW + 9, NOW), Ok(()));
    }

    // after a suspension the clock is estimated anew and may step back.
    #[test]
    fn r_27_a_clock_that_steps_back_does_not_bring_messages_back() {
        let mut window = ReplayWindow::new(REPLAY_WINDOW_MS, 100);
        assert_eq!(window.check("a", "n1", NOW, NOW), Ok(()));
        assert_eq!(window.check("a", "n2", NOW + 3_600_000, NOW + 3_600_000), Ok(()));
        assert_eq!(window.check("a", "n1", NOW, NOW), Err(Forgotten));
        assert_eq!(
            window.check("a", "n3", NOW + 1, NOW),
            Ok(()),
            "a wrong clock for a moment must not deafen the node"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        // R-27, with a memory that forgets nothing as the oracle: whatever the order, times, steps of the clock and
        // capacity, no message is taken twice, and what is refused without need is refused as forgotten.
        #[test]
        fn r_27_no_message_is_ever_taken_twice(
            capacity in 0_usize..6,
            steps in prop::collection::vec((0_u8..12, 0_u64..40, 0_u64..60), 1..80)
        ) {
            let mut window = ReplayWindow::new(20, capacity);
            let mut taken = HashSet::new();
            for (nonce, sent, now) in steps {
                let (sent, now) = (NOW + sent, NOW + now);
                let outcome = window.check("a", &format!("{nonce}.{sent}"), sent, now);
                let young = sent.abs_diff(now) <= 20;
                let new = !taken.contains(&(nonce, sent));
                match outcome {
                    Ok(()) => prop_assert!(young && new),
                    Err(Seen) => prop_assert!(young && !new),
                    Err(Forgotten) => prop_assert!(young),
                    Err(TooOld | FromTheFuture) => prop_assert!(!young),
                }
                if outcome.is_ok() {
                    taken.insert((nonce, sent));
                }
                prop_assert!(window.len() <= capacity && window.seen.len() == window.len());
            }
        }
    }
}
