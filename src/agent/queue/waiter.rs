//! A player who waits through this proxy: what is known of the ticket, and what the application is told of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::core::Charge;
use crate::agent::model::Request;
use crate::error::Result;
use crate::ids::{Epoch, LineName, OperationId, Player, RequestId, SessionId};
use crate::queue::{Admission, Attributes, POSITIONS_MAX, QueuedPlace as Place};
use crate::token::Token;

use super::keyed_mutex::Key;
use super::line_handle::LineHandle;
use super::told::{End, Listener, Teller};

/// An enter may be repeated for so long, in ms: the script refuses what was signed before.
const REPEATED_FOR_MS: u64 = 6_000;

/// What a player waits for.
pub(super) enum Ending {
    /// A login pass.
    Pass(Attributes),
    /// A token, for this request.
    Token(Box<Wish>),
}

/// A request that waits.
pub(super) struct Wish {
    pub request: Request,
    /// What it is charged when its turn comes.
    pub charge: tokio::sync::Mutex<Charge>,
}

impl Ending {
    pub fn token(request: Request, charge: Charge) -> Self {
        Self::Token(Box::new(Wish { request, charge: tokio::sync::Mutex::new(charge) }))
    }
}

/// How far a player is.
#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// The store is being asked for a place in the line.
    Entering {
        /// Something was said of the player meanwhile: look when the answer is there.
        heard: bool,
    },
    /// The store answered that the ticket is there.
    Waiting,
    /// Has a pass, and has not arrived.
    Admitted {
        admission: Box<Admission>,
        /// The session of a report of failure whose outcome is not known.
        failing: Option<SessionId>,
    },
}

/// When a place was last known to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// This node's epoch.
    pub epoch: Epoch,
    /// How often this node had got its lease again.
    pub lease_generation: u64,
    /// How often the connection to the store had been made anew.
    pub connection_generation: u64,
}

/// What the line knows of a player, as far as this proxy knows that.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub session: SessionId,
    /// The request as the ticket and the token name it. Not the request's own id: that one is marked as cancelled on the way
    /// into the line, so that no backend that was asked before issues late.
    pub wish: RequestId,
    /// The operation of the claim.
    pub op: OperationId,
    pub stage: Stage,
    pub lane: u16,
    /// 0 where no answer has said it.
    pub seq: u64,
    pub known: Moment,
    /// When it was entered, in store ms.
    pub entered_ms: u64,
    /// Players before this one, when they were last counted or guessed.
    pub ahead: u64,
    /// When that was, in store ms.
    pub counted_ms: u64,
    /// It may have been entered more than once.
    pub again: bool,
    /// A token may stand although the ticket does.
    pub doubtful: bool,
    /// It was told to leave because the wait took too long.
    pub outstayed: bool,
    /// The token of another request of the player that is being claimed: giving up the wish does not reach it.
    pub claiming: Option<Token>,
    /// Goes up with each change: who found something out can tell whether it still holds.
    pub version: u64,
}

impl Held {
    fn fresh(session: SessionId, lane: u16, known: Moment) -> Self {
        Self {
            session,
            wish: RequestId::short(),
            op: OperationId::fresh(),
            stage: Stage::Entering { heard: false },
            lane,
            seq: 0,
            known,
            entered_ms: 0,
            ahead: 0,
            counted_ms: 0,
            again: false,
            doubtful: false,
            outstayed: false,
            claiming: None,
            version: 0,
        }
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting)
    }

    /// It may have been entered once more at the time of a turn, given in store ms: only just entered, or again.
    pub fn may_stand_twice(&self, turn_ms: u64) -> bool {
        self.is_waiting() && (self.again || self.seq.saturating_add(REPEATED_FOR_MS) >= turn_ms)
    }
}

/// One player who waits.
pub(in crate::agent) struct Waiter {
    pub line: Arc<LineHandle>,
    pub player: Player,
    pub(super) ending: Ending,
    since: Instant,
    held: Mutex<Held>,
    teller: Teller,
}

impl Waiter {
    pub(super) fn new(
        line: Arc<LineHandle>,
        player: Player,
        lane: u16,
        session: SessionId,
        ending: Ending,
        now: Moment,
    ) -> Arc<Self> {
        let held = Mutex::new(Held::fresh(session, lane, now));
        Arc::new(Self { line, player, ending, since: Instant::now(), held, teller: Teller::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn held(&self) -> Held {
        self.lock().clone()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        let mut held = self.lock();
        held.version += 1;
        change(&mut held)
    }

    pub fn session(&self) -> SessionId {
        self.lock().session.clone()
    }

    pub fn line_name(&self) -> &LineName {
        self.line.name()
    }

    /// The request that waits, where it is one.
    pub fn request(&self) -> Option<&Request> {
        match &self.ending {
            Ending::Token(wish) => Some(&wish.request),
            Ending::Pass(_) => None,
        }
    }

    pub(super) fn key(&self) -> Key {
        (self.line.name().clone(), self.player.clone())
    }

    pub(super) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// What a ticket of it says.
    pub(super) fn attributes(&self, held: &Held) -> Result<Attributes> {
        match &self.ending {
            Ending::Pass(attributes) => Ok(attributes.clone()),
            Ending::Token(wish) => {
                let ask = &wish.request.ask;
                Attributes::of_wish(&held.wish, ask.region.as_ref(), ask.world.as_deref())
            }
        }
    }

    /// The line knows it under the session of `place`. True where something was said of the player before that.
    pub(super) fn placed(&self, place: &Place, known: Moment, now_ms: u64) -> bool {
        self.change(|held| {
            if held.session != place.session {
                return false;
            }
            let heard = matches!(held.stage, Stage::Entering { heard: true });
            (held.seq, held.lane, held.known, held.entered_ms) = (place.seq, place.lane, known, now_ms);
            held.stage = Stage::Waiting;
            heard
        })
    }

    /// As of this moment the player is among those who wait through this node.
    pub(super) fn is_listed(&self, now: Moment) {
        let mut held = self.lock();
        if held.known.epoch == now.epoch {
            held.known.lease_generation = now.lease_generation;
        }
    }

    /// As of this moment the ticket of this session is there. Only now is it known that the store lost nothing of it.
    pub(super) fn is_there(&self, session: &SessionId, now: Moment) {
        let mut held = self.lock();
        if held.known.epoch == now.epoch && held.session == *session {
            held.known = now;
        }
    }

    /// Something was said of the player: true where the store has already answered that the ticket is there, else it is
    /// looked at as soon as it has.
    pub(super) fn on_event(&self) -> bool {
        let mut held = self.lock();
        if let Stage::Entering { heard } = &mut held.stage {
            *heard = true;
        }
        held.is_waiting()
    }

    /// Another visit with the same sequence: its turn had come, and nothing came of it.
    pub(super) fn begin_again(&self) {
        self.change(|held| {
            let known = Moment { epoch: Epoch::NONE, ..held.known };
            let again =
                Held { seq: held.seq, stage: Stage::Waiting, ..Held::fresh(SessionId::fresh(), held.lane, known) };
            *held = Held { version: held.version, ..again };
        });
    }

    /// The turn may have come before the store answered that it waits.
    pub(super) fn doubt(&self) {
        self.change(|held| (held.again, held.doubtful) = (true, true));
    }

    /// It has no token.
    pub(super) fn settle_doubt(&self, session: &SessionId) {
        let mut held = self.lock();
        held.doubtful &= held.session != *session;
    }

    /// It waited too long, and leaves: from now on its ticket may be gone because of that.
    pub(super) fn outstay(&self) {
        self.change(|held| held.outstayed = true);
    }

    pub(super) fn is_outstayed(&self) -> bool {
        self.lock().outstayed
    }

    /// An enter may still reach the store, although nobody waits for the answer any more.
    pub(super) fn may_enter_late(&self) -> bool {
        matches!(self.lock().stage, Stage::Entering { .. }) && self.waited() < Duration::from_millis(REPEATED_FOR_MS)
    }

    /// When the pass of an admitted player expires.
    pub(super) fn pass_expires_at_ms(&self) -> Option<u64> {
        match &self.lock().stage {
            Stage::Admitted { admission, .. } => Some(admission.pass.expires_at_ms),
            Stage::Entering { .. } | Stage::Waiting => None,
        }
    }

    /// A report of failure begins under this session.
    pub(super) fn fails_under(&self, session: &SessionId) {
        self.change(|held| {
            if let Stage::Admitted { failing, .. } = &mut held.stage {
                *failing = Some(session.clone());
            }
        });
    }

    /// The player has a pass.
    pub(super) fn admitted(&self, admission: Admission) {
        self.change(|held| held.stage = Stage::Admitted { admission: Box::new(admission), failing: None });
    }

    /// Hears what is told from now on.
    pub fn listen(&self) -> Listener {
        self.teller.listen()
    }

    pub fn end(&self) -> Option<End> {
        self.teller.told().end.clone()
    }

    pub(super) fn is_over(&self) -> bool {
        self.teller.told().end.is_some()
    }

    /// Tells whoever listens where the player stands: the position for people, exact for the first 10,000.
    pub(super) fn tell(&self, position: Option<u64>, estimate_ms: Option<u64>) {
        self.teller.place(position.filter(|position| *position <= POSITIONS_MAX), estimate_ms);
    }

    /// As of `at_ms` there are so many before it.
    pub(super) fn counted(&self, ahead: u64, at_ms: u64) {
        let mut held = self.lock();
        (held.ahead, held.counted_ms) = (ahead, at_ms);
    }

    /// Ends it, once. False where it is over already.
    pub(super) fn close(&self, end: End) -> bool {
        self.teller.end(end)
    }
}
