//! How far each request of this proxy is. A request stands here from its first step until its token is over, always at one
//! step: whoever cancels it finds it at whatever moment that is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::agent::model::Transfer;
use crate::ids::{LineName, OperationId, Player, RequestId};

/// A request of a player.
pub(in crate::agent) type RequestKey = (Player, RequestId);

/// How far a request is.
#[derive(Debug, Clone)]
pub(in crate::agent) enum Progress {
    /// Backends are being asked; its claims are made under this operation.
    UnderWay(OperationId),
    /// It enters this line, or waits there.
    Waiting(LineName),
    /// It has a place, and its token may still live.
    Moving(Box<Transfer>),
}

#[derive(Debug)]
struct Tracked {
    progress: Progress,
    is_cancelled: bool,
    /// Ends whatever is being asked for it.
    stop: CancellationToken,
}

#[derive(Debug, Default)]
pub(in crate::agent) struct Requests {
    all: Mutex<HashMap<RequestKey, Tracked>>,
}

impl Requests {
    fn all(&self) -> MutexGuard<'_, HashMap<RequestKey, Tracked>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins, whose claims are made under `op`.
    pub fn begin(&self, key: RequestKey, stop: &CancellationToken, op: &OperationId) {
        self.insert(key, stop.clone(), Progress::UnderWay(op.clone()));
    }

    /// A place that was taken over for nobody's request: known by the one that it was issued for.
    pub fn begin_moving(&self, transfer: &Transfer) {
        let key = (transfer.player.clone(), transfer.request.clone());
        self.insert(key, CancellationToken::new(), Progress::Moving(Box::new(transfer.clone())));
    }

    fn insert(&self, key: RequestKey, stop: CancellationToken, progress: Progress) {
        let mut all = self.all();
        if all.len() >= all.capacity() {
            all.retain(|_, tracked| match &tracked.progress {
                Progress::Moving(transfer) => transfer.left_ms() > 0,
                Progress::UnderWay(_) | Progress::Waiting(_) => true,
            });
        }
        all.insert(key, Tracked { progress, is_cancelled: false, stop });
    }

    /// The request is at another step. False where it was cancelled: then the step is not made.
    pub fn advance(&self, key: &RequestKey, progress: Progress) -> bool {
        match self.all().get_mut(key) {
            Some(tracked) if !tracked.is_cancelled => {
                tracked.progress = progress;
                true
            }
            _ => false,
        }
    }

    /// Cancels the request, and answers how far it was: from here on it goes no further.
    pub fn cancel(&self, key: &RequestKey) -> Option<Progress> {
        let mut all = self.all();
        let tracked = all.get_mut(key)?;
        tracked.is_cancelled = true;
        tracked.stop.cancel();
        Some(tracked.progress.clone())
    }

    /// Ends all that backends are being asked for. One that enters a line goes on: its ticket there is kept.
    pub fn stop_asking(&self) {
        let all = self.all();
        let asking = all.values().filter(|tracked| matches!(tracked.progress, Progress::UnderWay(_)));
        asking.for_each(|tracked| tracked.stop.cancel());
    }

    /// The line in which the request waits.
    pub fn line_of(&self, key: &RequestKey) -> Option<LineName> {
        match &self.all().get(key)?.progress {
            Progress::Waiting(line) => Some(line.clone()),
            Progress::UnderWay(_) | Progress::Moving(_) => None,
        }
    }

    /// The request ended without a place, or its place was given up.
    pub fn forget(&self, key: &RequestKey) {
        self.all().remove(key);
    }

    /// The same where it is still at its first step.
    pub fn forget_under_way(&self, key: &RequestKey) {
        self.forget_if(key, |progress| matches!(progress, Progress::UnderWay(_)));
    }

    /// The same where it was to wait.
    pub fn forget_waiting(&self, key: &RequestKey) {
        self.forget_if(key, |progress| matches!(progress, Progress::Waiting(_)));
    }

    /// The same where it had its place.
    pub fn forget_moving(&self, key: &RequestKey) {
        self.forget_if(key, |progress| matches!(progress, Progress::Moving(_)));
    }

    fn forget_if(&self, key: &RequestKey, is_at: impl FnOnce(&Progress) -> bool) {
        let mut all = self.all();
        if all.get(key).is_some_and(|tracked| is_at(&tracked.progress)) {
            all.remove(key);
        }
    }
}
