//! The timer: what changed is saved, what nobody uses is given up, and records are renewed in time.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use crate::ids::ObjectKey;
use crate::store::boot_ms;

use super::super::kind::ObjectType;
use super::{Inner, Keeper, Live};

/// Objects that are saved at the same time.
pub(super) const SIDE_BY_SIDE: usize = 64;

/// Longest time of one round: the next one comes although a save or a callback hangs.
const ROUND_MAX: Duration = Duration::from_secs(5);

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
            let slots = self.inner.slots();
            let due = slots.iter().filter(|(_, slot)| {
                // Whoever is at it uses it, and the next round comes.
                let due = slot.look(|live| self.inner.due(live, now)).unwrap_or(Due::Nothing);
                due != Due::Nothing
            });
            due.map(|(key, _)| key.clone()).collect()
        };
        metrics::gauge!("maitred_objects_due", "kind" => self.inner.name.to_string()).set(due.len() as f64);
        let round = stream::iter(due).for_each_concurrent(SIDE_BY_SIDE, |key| self.tend_one(key));
        if timeout(ROUND_MAX, round).await.is_err() {
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
            match due {
                Due::Nothing => Ok(()),
                Due::Save => inner.save(&key, &mut guard).await,
                Due::Release => inner.release(&key, &mut guard, false).await,
            }
        });
        if let Err(error) = tended.await {
            tracing::warn!(%object, %error, "could not save an object on its timer");
        }
        self.inner.tidy_one(&object);
    }
}

impl<K: ObjectType> Inner<K> {
    fn due(&self, live: &Live<K::Object>, now: u64) -> Due {
        if now.saturating_sub(live.used_boot_ms) >= self.keep.idle_ms {
            return Due::Release;
        }
        let save_ms = self.keep.save_ms - self.keep.save_ms / 4 * live.spread / 64;
        let renew_ms = save_ms.min(self.hub.book.times().lock_timeout_ms / 3);
        let (renewed, saved) = (now.saturating_sub(live.renewed_boot_ms), now.saturating_sub(live.saved_boot_ms));
        let changed = live.dirty || live.unsettled.is_some();
        if live.doubtful || (changed && saved >= save_ms) || renewed >= renew_ms { Due::Save } else { Due::Nothing }
    }
}
