use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ids::OperationId;
use crate::queue::LoginPass;

/// Most redemptions whose outcome is not known. Of more, those whose pass ends first are forgotten, and the next try of
/// those may be told that the pass was redeemed before.
const UNSETTLED_MAX: usize = 16_384;

/// The operations of redemptions whose outcome is not known, so that the next try is a repeat.
#[derive(Debug, Default)]
pub(in crate::agent) struct Redemptions {
    unsettled: Mutex<BTreeMap<(u64, OperationId), OperationId>>,
}

impl Redemptions {
    fn unsettled(&self) -> MutexGuard<'_, BTreeMap<(u64, OperationId), OperationId>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operation that redeems the pass.
    pub fn begin(&self, pass: &LoginPass) -> OperationId {
        let mut unsettled = self.unsettled();
        while unsettled.len() >= UNSETTLED_MAX {
            unsettled.pop_first();
        }
        unsettled.entry(key(pass)).or_insert_with(OperationId::fresh).clone()
    }

    pub fn settled(&self, pass: &LoginPass) {
        self.unsettled().remove(&key(pass));
    }
}

fn key(pass: &LoginPass) -> (u64, OperationId) {
    (pass.expires_at_ms, pass.op.clone())
}
