use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::ids::{Region, TokenId};
use crate::queue::{Line, Wish};

use super::scan_cursor::ScanCursor;
use super::unmet_demand::UnmetDemand;

/// A backend's part in the wait lines.
#[derive(Default)]
pub(in crate::agent) struct Serving {
    restocked: Notify,
    /// How often places came in.
    restocks: AtomicU64,
    /// Held during a poll, so that whoever leaves can wait for its end.
    pub busy: tokio::sync::Mutex<()>,
    unmet: Mutex<UnmetDemand>,
    cursor: Mutex<ScanCursor>,
    /// Tickets that are being turned into tokens; also those of which the store has not said yet whether they were.
    drains: Mutex<HashMap<TokenId, (Line, Wish)>>,
}

impl Serving {
    /// Places may have come in: the lines are looked at.
    pub fn restock(&self) {
        self.restocks.fetch_add(1, Ordering::AcqRel);
        self.restocked.notify_one();
    }

    /// Waits until places may have come in.
    pub async fn restocked(&self) {
        self.restocked.notified().await;
    }

    /// How often places came in. Where that has changed, one that somebody was refused a moment ago may be there now.
    pub(super) fn restocks(&self) -> u64 {
        self.restocks.load(Ordering::Acquire)
    }

    pub(super) fn drains(&self) -> MutexGuard<'_, HashMap<TokenId, (Line, Wish)>> {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cursor(&self) -> MutexGuard<'_, ScanCursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody waits for what a fresh request in `region` would take.
    pub fn is_awaited(&self, region: Option<&Region>) -> bool {
        self.unmet.lock().unwrap_or_else(PoisonError::into_inner).comes_before(region)
    }

    /// What the last poll of the lines found.
    pub(super) fn set_unmet(&self, unmet: UnmetDemand) {
        *self.unmet.lock().unwrap_or_else(PoisonError::into_inner) = unmet;
    }

    /// The token comes out of a wait line.
    pub fn is_drain(&self, id: &TokenId) -> bool {
        self.drains().contains_key(id)
    }
}
