use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::RedisResult;

use super::clock::boot_ms;

/// What is known of the shared connection, which mends itself: it is told when that breaks and when it is
/// heard again.
#[derive(Debug, Default)]
pub(super) struct Link {
    broken: AtomicBool,
    connection_generation: AtomicU64,
    replaced_ms: AtomicU64,
}

impl Link {
    /// Takes in how a command on it ended.
    pub(super) fn note<T>(&self, outcome: &RedisResult<T>) {
        match outcome {
            Ok(_) => self.heard(),
            Err(error) if error.is_io_error() => self.lost(error),
            Err(_) => {}
        }
    }

    /// It broke, with or without a command under way.
    pub(super) fn lost(&self, why: &dyn Display) {
        self.replaced();
        if !self.broken.swap(true, Ordering::Relaxed) {
            tracing::info!(%why, "the connection to the store is broken");
        }
    }

    /// What is heard from now on may come from another server, or from one that has started anew.
    pub(super) fn replaced(&self) {
        self.replaced_ms.store(boot_ms(), Ordering::Relaxed);
        self.connection_generation.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so; one break may count several times.
    pub(super) fn connection_generation(&self) -> u64 {
        self.connection_generation.load(Ordering::Relaxed)
    }

    /// Since when the present one is heard, on [`boot_ms`]'s clock; 0 for the first.
    pub(super) fn replaced_ms(&self) -> u64 {
        self.replaced_ms.load(Ordering::Relaxed)
    }

    fn heard(&self) {
        // The common case costs a read and no write.
        if self.broken.load(Ordering::Relaxed) && self.broken.swap(false, Ordering::Relaxed) {
            self.replaced_ms.store(boot_ms(), Ordering::Relaxed);
            metrics::counter!("maitred_store_reconnects_total").increment(1);
            tracing::info!("the store answers again");
        }
    }
}
