//! One caller at a time for each player of a line, in the order of asking: else the later of two visits may be the one that
//! the store has seen first, and what one of them finds out is not true any more when it acts on it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

use crate::ids::{LineName, Player};

/// A player of a line.
pub(in crate::agent) type Key = (LineName, Player);

#[derive(Debug, Default)]
pub(super) struct KeyedMutex {
    locks: Mutex<HashMap<Key, Arc<Lock<()>>>>,
}

/// A key that is locked, or a place in the row of those who wait for it.
#[derive(Debug)]
pub(super) struct KeyGuard<'a> {
    mutex: &'a KeyedMutex,
    key: Key,
    lock: Option<Arc<Lock<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyedMutex {
    /// Waits until the key is free. Cancel safe.
    pub async fn lock(&self, key: &Key) -> KeyGuard<'_> {
        let lock = Arc::clone(self.locks().entry(key.clone()).or_default());
        let mut guard = KeyGuard { mutex: self, key: key.clone(), lock: Some(Arc::clone(&lock)), guard: None };
        guard.guard = Some(lock.lock_owned().await);
        guard
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<Key, Arc<Lock<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.mutex.locks();
        self.lock = None;
        // Clones are made under the map's lock only, so a count of one stays one.
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn key(player: &str) -> Key {
        (LineName::new("login").expect("a name"), Player::new(player).expect("a player"))
    }

    // two visits of one player at once leave a ticket of the first and a record of the second.
    #[tokio::test]
    async fn r_21_one_player_has_one_turn_at_a_time_and_nothing_stays_behind() {
        let mutex = KeyedMutex::default();
        let (alice, bob) = (key("alice"), key("bob"));
        let first = mutex.lock(&alice).await;
        assert!(mutex.lock(&bob).now_or_never().is_some(), "others do not wait");
        assert!(mutex.lock(&alice).now_or_never().is_none(), "and gives up its place in the row");
        let second = mutex.lock(&alice);
        drop(first);
        drop(second.await);
        assert!(mutex.locks().is_empty());
    }
}
