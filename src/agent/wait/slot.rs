use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::model::{Refusal, Request};
use crate::agent::proxy::Charge;
use crate::error::Result;
use crate::ids::{Epoch, OperationId, RequestId, SessionId};
use crate::queue::{Attributes, Line, POSITIONS_MAX, Waiting as Place};

use super::update::WaitUpdate;

/// An enter may be repeated for so long, in ms: the script refuses what was signed before.
const JUST_MS: u64 = 6_000;

/// What the line knows of a request. Another one each time it stands there anew.
#[derive(Debug, Clone)]
pub(in crate::agent) struct Visit {
    pub session: SessionId,
    /// The request as the ticket and the token name it. Not the request's own id: that one is marked as cancelled on the way
    /// into the line, so that no backend that was asked before issues late.
    pub wish: RequestId,
    /// The operation of the claim.
    pub op: OperationId,
    pub seq: u64,
    pub lane: u16,
    /// The store answered that the ticket is there.
    pub entered: bool,
    /// Of this node when the ticket was signed.
    pub epoch: Epoch,
    /// How often this node had got its lease again by then.
    pub gaps: u64,
    /// The ticket has to be signed anew, or may be gone with the store's data: enter again.
    pub stale: bool,
    /// It may have been entered more than once.
    pub again: bool,
    /// A token may stand although the ticket does.
    pub doubtful: bool,
}

impl Visit {
    pub fn fresh(epoch: Epoch) -> Self {
        Self {
            session: SessionId::fresh(),
            wish: RequestId::short(),
            op: OperationId::fresh(),
            seq: 0,
            lane: 0,
            entered: false,
            epoch,
            gaps: 0,
            stale: false,
            again: false,
            doubtful: false,
        }
    }

    /// It may have been entered once more at the time of a turn, given in store ms: only just entered, or again.
    pub fn may_stand_twice(&self, turn_ms: u64) -> bool {
        self.entered && (self.again || self.seq.saturating_add(JUST_MS) >= turn_ms)
    }

    /// Another visit for the place of this one.
    pub fn again(&self) -> Self {
        Self { seq: self.seq, lane: self.lane, entered: self.entered, stale: true, ..Self::fresh(self.epoch) }
    }
}

/// What the application's handle looks at.
#[derive(Debug, Clone, Default)]
pub(in crate::agent) struct SlotState {
    pub position: Option<u64>,
    pub estimate_ms: Option<u64>,
    pub end: Option<WaitUpdate>,
    /// The handle is gone before the end.
    pub abandoned: bool,
}

impl SlotState {
    pub fn place(&self) -> (Option<u64>, Option<u64>) {
        (self.position, self.estimate_ms)
    }
}

/// One request that waits.
pub(in crate::agent) struct Slot {
    pub line: Line,
    pub request: Request,
    pub since: Instant,
    /// Held by whoever finds out what became of the ticket.
    pub deciding: tokio::sync::Mutex<()>,
    /// Held while it enters the line.
    pub entering: tokio::sync::Mutex<()>,
    /// Earlier requests of the player whose place it takes over, until they are retired.
    replaced: Mutex<Vec<Arc<Slot>>>,
    taken_over: AtomicBool,
    /// The connection dropped: the place is kept.
    kept: AtomicBool,
    /// It was told to leave because the wait took too long.
    outstayed: AtomicBool,
    pub(in crate::agent) state: watch::Sender<SlotState>,
    visit: Mutex<Visit>,
    charge: Mutex<Option<Charge>>,
}

impl Slot {
    pub(super) fn new(line: Line, request: Request, visit: Visit, charge: Charge) -> Self {
        Self {
            line,
            request,
            since: Instant::now(),
            deciding: tokio::sync::Mutex::default(),
            entering: tokio::sync::Mutex::default(),
            replaced: Mutex::default(),
            taken_over: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            outstayed: AtomicBool::new(false),
            state: watch::Sender::default(),
            visit: Mutex::new(visit),
            charge: Mutex::new(Some(charge)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Visit> {
        self.visit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::agent) fn visit(&self) -> Visit {
        self.lock().clone()
    }

    pub(super) fn set_visit(&self, visit: Visit) {
        *self.lock() = visit;
    }

    /// The line knows it under the session of `place`, held by `epoch`, by an enter that was sent after so many gaps of the
    /// lease: a gap meanwhile may have put the ticket away that the answer tells of.
    pub fn placed(&self, place: &Place, epoch: Epoch, gaps: u64) {
        let mut visit = self.lock();
        if visit.session == place.session {
            (visit.seq, visit.lane) = (place.seq, place.lane);
            (visit.entered, visit.epoch, visit.gaps, visit.stale) = (true, epoch, gaps, false);
        }
    }

    /// Takes the place of `other` over, and of those that it took over and has not retired. Answers them.
    pub fn take_over(&self, other: &Arc<Self>) -> Vec<Arc<Self>> {
        other.taken_over.store(true, Ordering::SeqCst);
        let mut all = other.take_replaced();
        all.push(Arc::clone(other));
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&all);
        all
    }

    /// Those that it took over, once.
    pub fn take_replaced(&self) -> Vec<Arc<Self>> {
        std::mem::take(&mut *self.replaced.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another request of the player retires it.
    pub fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::SeqCst)
    }

    /// From now on it is not to be retired: its place is kept.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::SeqCst);
    }

    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::SeqCst)
    }

    /// An enter of its first visit may still reach the store, although nobody waits for the answer any more.
    pub fn may_enter_late(&self) -> bool {
        !self.lock().entered && self.since.elapsed() < Duration::from_millis(JUST_MS)
    }

    /// It waited too long, and leaves.
    pub fn outstay(&self) {
        self.outstayed.store(true, Ordering::SeqCst);
    }

    /// Its ticket may be gone because it waited too long.
    pub fn is_outstayed(&self) -> bool {
        self.outstayed.load(Ordering::SeqCst)
    }

    /// The turn may have come before the store answered that it waits.
    pub fn doubt(&self) {
        let mut visit = self.lock();
        (visit.again, visit.doubtful) = (true, true);
    }

    /// It has no token.
    pub fn settle_doubt(&self, session: &SessionId) {
        let mut visit = self.lock();
        visit.doubtful &= visit.session != *session;
    }

    /// What a ticket of `visit` says.
    pub(super) fn attributes(&self, visit: &Visit) -> Result<Attributes> {
        let ask = &self.request.ask;
        Attributes::of_wish(&visit.wish, ask.region.as_ref(), ask.world.as_deref())
    }

    /// The lease was over.
    pub fn make_stale(&self) {
        let mut visit = self.lock();
        visit.stale |= visit.entered;
    }

    pub fn is_over(&self) -> bool {
        let state = self.state.borrow();
        state.end.is_some() || state.abandoned
    }

    /// How it was refused.
    pub fn refusal(&self) -> Option<Refusal> {
        match &self.state.borrow().end {
            Some(WaitUpdate::Refused(refusal)) => Some(refusal.clone()),
            _ => None,
        }
    }

    /// Tells the handle where the player stands.
    pub fn tell(&self, position: Option<u64>, estimate_ms: Option<u64>) {
        let position = position.filter(|position| *position <= POSITIONS_MAX);
        self.state.send_if_modified(|state| {
            let changed = state.place() != (position, estimate_ms);
            (state.position, state.estimate_ms) = (position, estimate_ms);
            changed
        });
    }

    /// Ends it, once. False where it is over already, or nobody is there to hear it.
    pub fn close(&self, end: WaitUpdate) -> bool {
        let has_place = matches!(end, WaitUpdate::Transfer(_));
        let closed = self.state.send_if_modified(|state| {
            let open = state.end.is_none() && !state.abandoned;
            if open {
                state.end = Some(end);
            }
            open
        });
        if closed {
            self.settle_charge(has_place);
        }
        closed
    }

    /// The handle is gone. Answers the end that it did not read; `None` where there is none yet.
    pub fn abandon(&self) -> Option<WaitUpdate> {
        let mut end = None;
        self.state.send_modify(|state| {
            state.abandoned = true;
            end.clone_from(&state.end);
        });
        if end.is_none() {
            self.settle_charge(false);
        }
        end
    }

    /// The charge stands where the request has its place; else it is taken back in the background.
    fn settle_charge(&self, has_place: bool) {
        let charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut charge) = charge
            && has_place
        {
            charge.served();
        }
    }
}
