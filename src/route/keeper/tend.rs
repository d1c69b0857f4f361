//! The timer: what changed is saved, what nobody uses is given up, and records are renewed in time.

use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use crate::ids::ObjectKey;
use crate::store::boot_ms;

use super::super::kind::{KeepTimes, ObjectType};
use super::{Inner, Keeper, Live};

/// Objects that are saved at the same time.
pub(super) const SIDE_BY_SIDE: usize = 64;

/// Wait after a try that failed; twice as long after each one more.
const PUT_OFF_MS: u64 = 250;
/// The longest such wait.
const PUT_OFF_MAX_MS: u64 = 10_000;

/// What the timer has to do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    Save,
    Release,
}

impl<K: ObjectType> Keeper<K> {
    /// One round of the timer.
    pub(super) async fn tend_all(&self) {
        self.inner.tidy();
        if !self.inner.hub.lease.is_valid() {
            return;
        }
        let now = boot_ms();
        let due: Vec<ObjectKey> = {
            let cells = self.inner.cells();
            let due = cells.iter().filter(|(_, cell)| {
                // Whoever is at it uses it, and the next round comes.
                let due = cell.peek(|live| self.inner.due(live, now)).unwrap_or(Due::Nothing);
                due != Due::Nothing
            });
            due.map(|(key, _)| key.clone()).collect()
        };
        metrics::gauge!("maitred_objects_due", "kind" => self.inner.name.to_string()).set(due.len() as f64);
        let round = stream::iter(due).for_each_concurrent(SIDE_BY_SIDE, |key| self.tend_one(key));
        // The next one comes although a save or a callback hangs.
        if timeout(self.inner.hub.round_max(), round).await.is_err() {
            // What runs goes on in its tasks; the next round leaves out what they are at.
            tracing::warn!(kind = %self.inner.name, "a round of saves did not end in time");
        }
    }

    async fn tend_one(&self, key: ObjectKey) {
        let object = key.clone();
        let turn = self.inner.turn(&key);
        let tended = self.run(object.clone(), move |inner| async move {
            let mut guard = turn.await;
            let due = guard.as_ref().map_or(Due::Nothing, |live| inner.due(live, boot_ms()));
            let tended = match due {
                Due::Nothing => return Ok(()),
                Due::Save => inner.save(&key, &mut guard).await,
                Due::Release => inner.release(&key, &mut guard, false).await,
            };
            if let Some(live) = guard.as_mut() {
                live.tended(tended.is_ok(), boot_ms(), inner.hub.book.times().lock_timeout_ms);
            }
            tended
        });
        if let Err(error) = tended.await {
            tracing::warn!(%object, %error, "could not save an object on its timer");
        }
        self.inner.tidy_one(&object);
    }
}

impl<K: ObjectType> Inner<K> {
    fn due(&self, live: &Live<K::Object>, now: u64) -> Due {
        live.due(now, self.keep, self.hub.book.times().lock_timeout_ms)
    }
}

impl<T> Live<T> {
    /// After a try of the timer. Storage that is down is asked again, less and less often, and in time for the record to be
    /// renewed.
    fn tended(&mut self, done: bool, now: u64, lock_timeout_ms: u64) {
        self.failures = if done { 0 } else { self.failures.saturating_add(1) };
        let wait_ms = PUT_OFF_MS << self.failures.clamp(1, 8);
        self.put_off_boot_ms = if done { 0 } else { now + wait_ms.min(PUT_OFF_MAX_MS).min(lock_timeout_ms / 16) };
    }

    fn due(&self, now: u64, keep: KeepTimes, lock_timeout_ms: u64) -> Due {
        if now < self.put_off_boot_ms {
            return Due::Nothing;
        }
        if now.saturating_sub(self.used_boot_ms) >= keep.idle_ms {
            return Due::Release;
        }
        let save_ms = keep.save_ms - keep.save_ms / 4 * self.spread / 64;
        let renew_ms = save_ms.min(lock_timeout_ms / 3);
        let (renewed, saved) = (now.saturating_sub(self.renewed_boot_ms), now.saturating_sub(self.saved_boot_ms));
        let changed = self.dirty || self.unsettled.is_some();
        if self.doubtful || (changed && saved >= save_ms) || renewed >= renew_ms { Due::Save } else { Due::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::tests::live;
    use super::*;

    // RTE-6. One row a rule: when it was used, renewed and saved last, whether it changed, whether it is doubted.
    #[test]
    fn rte_6_what_the_timer_has_to_do_with_an_object() {
        let keep = KeepTimes { save_ms: 6_400, idle_ms: 20_000 };
        for (used, renewed, saved, dirty, doubtful, due) in [
            (100_000, 100_000, 100_000, false, false, Due::Nothing),
            (100_000, 100_000, 100_000, true, false, Due::Nothing),
            // It changed, and the time is over.
            (100_000, 93_600, 93_600, true, false, Due::Save),
            (100_000, 93_601, 93_601, true, false, Due::Nothing),
            // To have asked whose it is has saved nothing: after many gaps of the lease it would be saved late.
            (100_000, 99_999, 93_600, true, false, Due::Save),
            (100_000, 99_999, 50_000, false, false, Due::Nothing),
            // Nothing to save, but the record has to be renewed before the lock timeout.
            (100_000, 93_600, 99_000, false, false, Due::Save),
            // It may be another's.
            (100_000, 100_000, 100_000, false, true, Due::Save),
            // Nobody uses it.
            (80_000, 100_000, 100_000, false, false, Due::Release),
            (80_000, 90_000, 90_000, true, true, Due::Release),
            (80_001, 100_000, 100_000, false, false, Due::Nothing),
        ] {
            let mut object = live(0);
            (object.used_boot_ms, object.renewed_boot_ms, object.saved_boot_ms) = (used, renewed, saved);
            (object.dirty, object.doubtful, object.spread) = (dirty, doubtful, 0);
            let row = (used, renewed, saved, dirty, doubtful);
            assert_eq!(object.due(100_000, keep, 30_000), due, "{row:?}");
            if due == Due::Nothing && renewed == 100_000 {
                object.renewed_boot_ms = 99_000;
                assert_eq!(object.due(100_000, keep, 3_000), Due::Save, "a third of the lock timeout: {row:?}");
            }
        }
    }

    // A database that is down would be asked for each object four times a second, with a line in the log for each.
    #[test]
    fn rte_6_what_could_not_be_saved_is_tried_less_and_less_often() {
        let keep = KeepTimes { save_ms: 6_400, idle_ms: 20_000 };
        let mut object = live(0);
        (object.dirty, object.spread, object.used_boot_ms) = (true, 0, 10_000);
        let (mut now, mut waits) = (10_000, Vec::new());
        for _ in 0..8 {
            assert_eq!(object.due(now, keep, 1_500_000), Due::Save);
            object.tended(false, now, 1_500_000);
            let begin = now;
            while object.due(now, keep, 1_500_000) == Due::Nothing {
                now += 50;
            }
            waits.push(now - begin);
            object.used_boot_ms = now;
        }
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]);
        object.tended(false, now, 4_000);
        assert_eq!(object.due(now + 250, keep, 4_000), Due::Save, "its record has to be renewed in time");
        object.tended(true, now, 1_500_000);
        assert_eq!(object.due(now, keep, 1_500_000), Due::Save);
    }

    // What was loaded together after a restart must not be saved together for ever.
    #[test]
    fn rte_6_saves_are_spread_over_the_last_quarter() {
        let keep = KeepTimes { save_ms: 6_400, idle_ms: 20_000 };
        let mut object = live(0);
        (object.dirty, object.used_boot_ms) = (true, 6_400);
        object.spread = 63;
        assert_eq!(object.due(4_825, keep, 1_500_000), Due::Save);
        object.spread = 0;
        assert_eq!(object.due(6_399, keep, 1_500_000), Due::Nothing);
        assert_eq!(object.due(6_400, keep, 1_500_000), Due::Save);
    }
}
