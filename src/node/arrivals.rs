use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::boot_ms;

/// Most arrivals that one heartbeat names.
pub const ARRIVALS_MAX: usize = 256;
/// Most arrivals that are remembered. Those beyond stay held until their time is over: counted twice, never zero times.
const REMEMBERED_MAX: usize = 65_536;
/// Over how long new players are counted, in ms.
const SECOND_MS: u64 = 1_000;

/// The players who came to this node and stand in `held:<id>` until a heartbeat counts them. Cheap to clone.
///
/// An arrival is named by the second heartbeat after it was noted: the load in that one was asked for when the player
/// was there, also where the application counts a player a moment later than it hears of the arrival.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    noted: VecDeque<String>,
    ripe: VecDeque<String>,
    /// When those of the last second came, oldest first.
    recent: VecDeque<u64>,
    held: u64,
}

impl Arrivals {
    /// A player came whose place is held as `claim`, as the script that took the place has named it.
    pub fn note(&self, claim: &str) {
        let mut state = self.state();
        state.forget(boot_ms());
        if state.recent.len() < REMEMBERED_MAX {
            state.recent.push_back(boot_ms());
        }
        if state.noted.len() + state.ripe.len() < REMEMBERED_MAX {
            state.noted.push_back(claim.to_owned());
        }
    }

    /// How many came in the last second.
    pub fn per_second(&self) -> f64 {
        let mut state = self.state();
        state.forget(boot_ms());
        u32::try_from(state.recent.len()).map_or(f64::MAX, f64::from)
    }

    /// What the next heartbeat names; what was noted until now is for those after it.
    pub(super) fn take(&self) -> Vec<String> {
        let mut state = self.state();
        let named = state.ripe.iter().take(ARRIVALS_MAX).cloned().collect();
        let noted = std::mem::take(&mut state.noted);
        state.ripe.extend(noted);
        named
    }

    /// Places of this node that are promised or taken and that its own count did not include at the last heartbeat.
    pub fn held(&self) -> u64 {
        self.state().held
    }

    /// That heartbeat was acknowledged, and left so many held.
    pub(super) fn named(&self, count: usize, held: Option<u64>) {
        let mut state = self.state();
        state.held = held.unwrap_or(state.held);
        let count = count.min(state.ripe.len());
        state.ripe.drain(..count);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self, now_ms: u64) {
        while self.recent.front().is_some_and(|came_ms| now_ms.saturating_sub(*came_ms) >= SECOND_MS) {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // a place that is counted nowhere for a moment is sold twice in that moment.
    #[test]
    fn r_25_an_arrival_is_named_by_the_second_beat_and_until_one_is_acknowledged() {
        let arrivals = Arrivals::default();
        arrivals.note("alice t1 60000");
        assert!(arrivals.take().is_empty());
        assert_eq!(arrivals.take(), ["alice t1 60000"]);
        assert_eq!(arrivals.take(), ["alice t1 60000"], "the beat was lost");
        arrivals.named(1, Some(4));
        assert_eq!(arrivals.held(), 4);
        assert!(arrivals.take().is_empty());
        for n in 0..300 {
            arrivals.note(&format!("p{n} t{n} 60000"));
        }
        arrivals.take();
        assert_eq!(arrivals.take().len(), ARRIVALS_MAX);
        arrivals.named(ARRIVALS_MAX, None);
        assert_eq!(arrivals.take().len(), 300 - ARRIVALS_MAX);
    }

    // QUE-5: who came longer ago is not new, and nobody counts twice as new.
    #[test]
    fn que_5_who_came_in_the_last_second_is_new() {
        let arrivals = Arrivals::default();
        for n in 0..3 {
            arrivals.note(&format!("p{n} t{n} 60000"));
        }
        assert!(arrivals.per_second() <= 3.0);
        let mut state = arrivals.state();
        state.recent = [1_000, 1_500, 2_100].into();
        state.forget(2_200);
        assert_eq!(state.recent, [1_500, 2_100]);
    }
}
