//! What this proxy knows of the players who wait through it, and of nobody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::agent::core::Core;
use crate::agent::model::{Reason, Refusal, Request};
use crate::error::{Error, Result};
use crate::ids::{LineName, NodeEpoch};
use crate::node::NodeRecord;
use crate::store::boot_ms;

use super::entry::OutReason;
use super::keyed_mutex::KeyedMutex;
use super::leaves::Leaves;
use super::line_handle::LineHandle;
use super::requests::Requests;
use super::table::Table;
use super::told::End;
use super::waiter::{Ending, Held, Moment, Waiter};

/// Why a wait ends without a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    /// The place is gone: left, emptied by an operator, or away for longer than the grace.
    Gone,
    /// A newer visit or request of the player waits at this place.
    Replaced(&'static str),
    /// The player is, or goes, elsewhere by another visit or request.
    Elsewhere(String),
    /// The turn came, and the limit of the request's source lets the player through in so many ms only.
    Limited(u64, String),
    /// It was lost, and the line had become full before the player could enter again.
    Full,
    /// It took longer than `wait.maxWaitMs`.
    TooLong,
    /// The player went away, or the agent stops.
    Cancelled(&'static str),
    /// Of a request only.
    Failed(Reason, String),
}

/// The players who wait through this node, and its part in the admission.
pub(in crate::agent) struct QueueClient {
    pub core: Arc<Core>,
    pub requests: Requests,
    table: Mutex<Table>,
    /// The login lines that this node knows, each under the last config that had it.
    lines: Mutex<BTreeMap<LineName, Arc<LineHandle>>>,
    pub(super) turns: KeyedMutex,
    pub(super) leaves: Leaves,
    admits: watch::Sender<bool>,
}

impl QueueClient {
    pub fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            requests: Requests::default(),
            table: Mutex::default(),
            lines: Mutex::default(),
            turns: KeyedMutex::default(),
            leaves: Leaves::default(),
            admits: watch::channel(true).0,
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<LineName, Arc<LineHandle>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The login line under the config in force. Errors with [`Error::OutOfBounds`] where that has none of this name.
    pub(super) fn line(&self, name: &LineName) -> Result<Arc<LineHandle>> {
        let config = self.core.config();
        let Some(line) = config.lines.get(name) else {
            return Err(Error::OutOfBounds { what: "line", problem: format!("{name} is not in the config") });
        };
        let mut lines = self.lines();
        if let Some(known) = lines.get(name).filter(|known| known.config() == Some(line)) {
            return Ok(Arc::clone(known));
        }
        let handle = Arc::new(LineHandle::login(&self.core, name, line)?);
        lines.insert(name.clone(), Arc::clone(&handle));
        Ok(handle)
    }

    /// The same for players who are in it already: also a line that was taken out of the config, as it was last.
    pub(super) fn known_line(&self, name: &LineName) -> Result<Arc<LineHandle>> {
        self.line(name).or_else(|error| self.lines().get(name).cloned().ok_or(error))
    }

    /// The login lines that this node knows: those of the config, and those that were in it and may not be empty yet.
    pub(super) fn known_lines(&self) -> Vec<LineName> {
        let mut names: Vec<LineName> = self.core.config().lines.keys().cloned().collect();
        names.extend(self.lines().keys().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
        names
    }

    /// The line was seen empty. Where it is not in the config any more, it is forgotten, unless somebody of this node waits there
    /// or is on the way: whoever fails to arrive is back in front.
    pub(super) fn forget_line(&self, name: &LineName) -> bool {
        let is_over = !self.core.config().lines.contains_key(name) && self.table().count(name) == 0;
        if is_over {
            self.lines().remove(name);
        }
        is_over
    }

    pub fn set_admits(&self, on: bool) {
        self.admits.send_replace(on);
    }

    pub(super) fn admits(&self) -> watch::Receiver<bool> {
        self.admits.subscribe()
    }

    /// What a place that the store is asked of from now on is known as of.
    pub(super) fn moment(&self) -> Moment {
        let lease = &self.core.lease;
        Moment {
            epoch: lease.epoch(),
            lease_generation: lease.generation(),
            connection_generation: self.core.store.connection_generation(),
        }
    }

    /// The lease was over since the ticket was last known to be there, or it was never entered under this visit.
    pub(super) fn is_outdated(&self, held: &Held) -> bool {
        let now = self.moment();
        (held.known.epoch, held.known.lease_generation) != (now.epoch, now.lease_generation)
    }

    /// Who held the ticket when it was signed.
    pub(super) fn holder(&self, held: &Held) -> NodeEpoch {
        NodeEpoch { id: self.core.identity.id.clone(), epoch: held.known.epoch }
    }

    /// Some node of the fleet, as far as it is in view, serves what the request asks for.
    fn is_served(&self, request: &Request) -> bool {
        let ask = &request.ask;
        let suits = |record: &NodeRecord| {
            record.role.gives_places()
                && ask.server.as_ref().is_none_or(|server| *server == record.id)
                && ask.region.as_ref().is_none_or(|region| record.load.regions.contains_key(region))
                && ask.world.as_ref().is_none_or(|world| record.load.worlds.contains(world))
        };
        let is_bare = ask.server.is_none() && ask.region.is_none() && ask.world.is_none();
        is_bare || self.core.directory.recent_snapshot().nodes.iter().any(|view| suits(&view.record))
    }

    /// Tells a waiter where it stands: positions of a wait line come with an estimate of their own. The line moves past a
    /// wish that no node serves, so its pace says nothing of that one.
    pub(super) fn tell_place(&self, waiter: &Waiter, position: Option<u64>, estimate_ms: Option<u64>) {
        let estimate_ms = match (&waiter.ending, position) {
            (Ending::Token(wish), Some(_)) if !self.is_served(&wish.request) => None,
            (Ending::Token(_), Some(position)) => self.table().estimate_ms(waiter.line_name(), position, boot_ms()),
            _ => estimate_ms,
        };
        waiter.tell(position, estimate_ms);
    }

    /// Ends a wait, once; false where it was over already. It is known here until then.
    pub(super) fn end(&self, waiter: &Arc<Waiter>, end: End) -> bool {
        let word = match &end {
            End::Transfer(_) => Some("transfer"),
            End::Refused(refusal) => Some(refusal.reason.as_str()),
            End::Admitted(_) | End::Out(_) | End::Left => None,
        };
        let keeps = matches!(end, End::Admitted(_));
        let closed = waiter.close(end);
        if !keeps {
            self.table().remove(waiter);
        }
        if closed && let Some(word) = word {
            metrics::counter!("maitred_waits_total", "outcome" => word).increment(1);
        }
        closed
    }

    /// Ends a wait without a place.
    pub(super) fn refuse(&self, waiter: &Arc<Waiter>, why: Why) -> bool {
        let end = match &waiter.ending {
            Ending::Pass(_) => match why {
                Why::Cancelled(_) => End::Left,
                Why::Replaced(_) | Why::Elsewhere(_) => End::Out(OutReason::Elsewhere),
                Why::Full => End::Out(OutReason::Full),
                Why::Gone | Why::TooLong | Why::Limited(..) | Why::Failed(..) => End::Out(OutReason::Gone),
            },
            Ending::Token(_) => {
                let line = waiter.line_name();
                let retry_after_ms = if let Why::Limited(wait_ms, _) = &why { Some(*wait_ms) } else { None };
                let (reason, detail) = match why {
                    Why::Gone => (Reason::WaitEnded, format!("the place in {line} is gone")),
                    Why::Replaced(detail) => (Reason::Replaced, detail.to_owned()),
                    Why::Elsewhere(detail) => (Reason::Lost, detail),
                    Why::Limited(_, detail) => (Reason::Limited, detail),
                    Why::Full => (Reason::QueueFull, "the line was full when it was entered again".to_owned()),
                    Why::TooLong => (Reason::WaitedTooLong, "no place came in within wait.maxWaitMs".to_owned()),
                    Why::Cancelled(detail) => (Reason::Cancelled, detail.to_owned()),
                    Why::Failed(reason, detail) => (reason, detail),
                };
                End::Refused(Refusal::new(reason, &self.core.config().texts, detail).retry_after(retry_after_ms))
            }
        };
        let closed = self.end(waiter, end);
        if closed && let Some(request) = waiter.request() {
            self.requests.forget(&(waiter.player.clone(), request.id.clone()));
        }
        closed
    }
}
