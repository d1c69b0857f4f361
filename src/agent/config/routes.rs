//! `routes`: the times of objects and of what is known about them.

use crate::route::{CacheTimes, KeepTimes, RouteTimes};

/// Least lock timeout, in ms.
pub(crate) const LOCK_TIMEOUT_MIN_MS: u64 = 10_000;
/// Least time that a free record stays, in ms.
pub(crate) const FREE_MIN_MS: u64 = 5_000;
/// Longest of all these times, in ms.
pub(super) const TIME_MAX_MS: u64 = 86_400_000;

/// `routes`: for [`Agent::routes`](crate::agent::Agent::routes), which reads it once. All in ms, at most 86,400,000.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutesConfig {
    /// How long an owner that saves nothing keeps an object: at least 10,000, the same in the whole fleet.
    pub lock_timeout_ms: u64,
    /// How long the record of an object that nobody owns stays: at least 5,000.
    pub free_ms: u64,
    /// How long a route that was read is valid: at least 1,000.
    pub cache_update_ms: u64,
    /// How long a route that nobody asks for stays in memory: at least 1,000.
    pub cache_free_ms: u64,
    /// Time between two saves of an object that changed, where its kind says nothing: at least 100.
    pub save_ms: u64,
    /// How long an object stays that nobody uses, where its kind says nothing: at least 1,000.
    pub downgrade_ms: u64,
}

impl RoutesConfig {
    /// The times of records.
    pub fn times(&self) -> RouteTimes {
        RouteTimes { lock_timeout_ms: self.lock_timeout_ms, free_ms: self.free_ms }
    }

    /// The times of what is known of records.
    pub fn cache(&self) -> CacheTimes {
        CacheTimes { update_ms: self.cache_update_ms, free_ms: self.cache_free_ms }
    }

    /// The times of objects in memory.
    pub fn keep(&self) -> KeepTimes {
        KeepTimes { save_ms: self.save_ms, idle_ms: self.downgrade_ms }
    }
}

impl Default for RoutesConfig {
    fn default() -> Self {
        let (times, cache, keep) = (RouteTimes::default(), CacheTimes::default(), KeepTimes::default());
        Self {
            lock_timeout_ms: times.lock_timeout_ms,
            free_ms: times.free_ms,
            cache_update_ms: cache.update_ms,
            cache_free_ms: cache.free_ms,
            save_ms: keep.save_ms,
            downgrade_ms: keep.idle_ms,
        }
    }
}
