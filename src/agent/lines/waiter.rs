//! A player who waits, and what the visit is told.

use tokio::sync::watch;

use super::visit::VisitState;

/// Whoever waits, as was last heard of the place.
#[derive(Debug)]
pub(super) struct Waiter {
    pub seq: u64,
    /// Players before this one, when they were last counted or guessed.
    pub ahead: u64,
    /// When that was, in store ms.
    pub at_ms: u64,
    /// When it was entered, in store ms.
    pub entered_ms: u64,
    /// How often the connection to the store had broken when the place was last known to be there.
    pub breaks: u64,
    pub told: watch::Sender<VisitState>,
}

impl Waiter {
    /// How many are before it by now, at this pace.
    pub fn moved_up(&self, per_second: f64, now_ms: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "a time between two looks")]
        let seconds = now_ms.saturating_sub(self.at_ms) as f64 / 1_000.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; no NaN, no sign")]
        let passed = (per_second * seconds) as u64;
        self.ahead.saturating_sub(passed)
    }

    /// Tells whoever listens where the player stands.
    pub fn tell(&mut self, position: Option<u64>, ahead: u64, at_ms: u64, estimate_ms: Option<u64>) {
        (self.ahead, self.at_ms) = (ahead, at_ms);
        self.told.send_if_modified(|state| {
            let changed = (state.position, state.estimate_ms) != (position, estimate_ms);
            (state.position, state.estimate_ms) = (position, estimate_ms);
            changed
        });
    }
}
