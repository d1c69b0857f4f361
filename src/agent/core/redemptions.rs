use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

use crate::ids::OperationId;
use crate::queue::LoginPass;

/// Most redemptions that are remembered because their outcome is not known. Of more, those whose pass ends first are
/// forgotten, and the next try of those may be told that the pass was redeemed before.
const UNSETTLED_MAX: usize = 16_384;

/// A pass, ordered by its end.
type PassKey = (u64, OperationId);
/// The operation of a redemption whose outcome is not known. Locked while it is in flight.
type Pending = Arc<Lock<Option<OperationId>>>;

/// Redemptions that are in flight or whose outcome is not known. One at a time for each pass: an operation belongs to one
/// caller, and only a try whose outcome nobody knows is repeated under the same one.
#[derive(Debug, Default)]
pub(in crate::agent) struct Redemptions {
    pending: Mutex<BTreeMap<PassKey, Pending>>,
}

/// One redemption in flight. Dropped before it is [`settled`](Self::settled), it leaves its operation to the next.
pub(in crate::agent) struct Redemption<'a> {
    redemptions: &'a Redemptions,
    key: PassKey,
    pub op: OperationId,
    /// Gone in the drop only, before it is counted who else waits.
    unsettled: Option<OwnedMutexGuard<Option<OperationId>>>,
}

impl Redemptions {
    fn pending(&self) -> MutexGuard<'_, BTreeMap<PassKey, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other caller redeems the pass. Cancel safe.
    pub async fn begin(&self, pass: &LoginPass) -> Redemption<'_> {
        let key = (pass.expires_at_ms, pass.op.clone());
        let lock = {
            let mut pending = self.pending();
            if pending.len() >= UNSETTLED_MAX && !pending.contains_key(&key) {
                let idle = pending.iter().find(|(_, lock)| Arc::strong_count(lock) == 1).map(|(key, _)| key.clone());
                idle.map(|key| pending.remove(&key));
            }
            Arc::clone(pending.entry(key.clone()).or_default())
        };
        let mut unsettled = lock.lock_owned().await;
        let op = unsettled.get_or_insert_with(OperationId::fresh).clone();
        Redemption { redemptions: self, key, op, unsettled: Some(unsettled) }
    }
}

impl Redemption<'_> {
    /// The store's answer is definite: no later try is a repeat of this one.
    pub fn settled(mut self) {
        if let Some(unsettled) = &mut self.unsettled {
            **unsettled = None;
        }
    }
}

impl Drop for Redemption<'_> {
    fn drop(&mut self) {
        let known = self.unsettled.take().is_some_and(|unsettled| unsettled.is_none());
        let mut pending = self.redemptions.pending();
        // Clones are made under the map's lock only, so a count of one stays one.
        if known && pending.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            pending.remove(&self.key);
        }
    }
}
