//! Players who go, also where nobody waits for the answer: each request to leave is repeated until it is definite, else a
//! place without a player stands in the line.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::ids::{NodeEpoch, Player, SessionId};

use super::line_handle::LineHandle;
use super::waiter::Waiter;

/// Most of them that are remembered. Those beyond are served one day, and their places are free again after `arriveMs`, or
/// when the token expires.
const REMEMBERED_MAX: usize = 100_000;

/// In which way a player goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveKind {
    /// The connection dropped: the sequence is kept for the grace.
    Keep,
    /// For good: neither a ticket stays nor a place that somebody had for it.
    Quit,
}

/// Somebody who goes.
#[derive(Clone)]
pub(super) enum LeaveRequest {
    /// A player whose wait is over here.
    Waiter(Arc<Waiter>, LeaveKind),
    /// A ticket alone: nobody waits for it here.
    Ticket { line: Arc<LineHandle>, player: Player, holder: NodeEpoch, session: SessionId, kind: LeaveKind },
}

impl LeaveRequest {
    pub fn player(&self) -> &Player {
        match self {
            Self::Waiter(waiter, _) => &waiter.player,
            Self::Ticket { player, .. } => player,
        }
    }

    fn line(&self) -> &LineHandle {
        match self {
            Self::Waiter(waiter, _) => &waiter.line,
            Self::Ticket { line, .. } => line,
        }
    }
}

/// Those who go without anybody waiting for it.
#[derive(Default)]
pub(super) struct Leaves {
    waiting: Mutex<VecDeque<LeaveRequest>>,
    pub more: Notify,
}

impl Leaves {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<LeaveRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves it to the background. Needs no runtime.
    pub fn leave_behind(&self, request: LeaveRequest) {
        let mut waiting = self.waiting();
        if waiting.len() < REMEMBERED_MAX {
            waiting.push_back(request);
        } else {
            let (line, player) = (request.line().name(), request.player());
            tracing::warn!(%line, %player, "too many players who left; one is forgotten");
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// All of them, once.
    pub fn take(&self) -> VecDeque<LeaveRequest> {
        std::mem::take(&mut *self.waiting())
    }
}
