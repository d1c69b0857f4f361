//! The desk of a proxy: it knows the visits of its players, and nobody else's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::agent::core::Core;
use crate::error::{Error, Result};
use crate::ids::{LineName, NodeId, Player, SessionId};
use crate::queue::Admission;

use super::entry::Admitted;
use super::goodbye::Goodbyes;
use super::room::Room;
use super::turns::Turns;
use super::visits::Visits;

/// The visits of this node's players, and its part in the admission.
pub(crate) struct Desk {
    pub(super) core: Arc<Core>,
    visits: Mutex<Visits>,
    rooms: Mutex<BTreeMap<LineName, Arc<Room>>>,
    pub(super) turns: Turns,
    pub(super) goodbyes: Goodbyes,
    admits: watch::Sender<bool>,
}

impl Desk {
    pub fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            visits: Mutex::default(),
            rooms: Mutex::default(),
            turns: Turns::default(),
            goodbyes: Goodbyes::default(),
            admits: watch::channel(true).0,
        }
    }

    pub(super) fn visits(&self) -> MutexGuard<'_, Visits> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line under the config in force. Errors with [`Error::OutOfBounds`] where the config has none of this name.
    pub(super) fn room(&self, name: &LineName) -> Result<Arc<Room>> {
        let config = self.core.config();
        let Some(line) = config.lines.get(name) else {
            return Err(Error::OutOfBounds { what: "line", problem: format!("{name} is not in the config") });
        };
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(name).filter(|room| room.config == *line) {
            return Ok(Arc::clone(room));
        }
        let room = Arc::new(Room::new(&self.core, name, line)?);
        rooms.insert(name.clone(), Arc::clone(&room));
        Ok(room)
    }

    /// The same for players who are in it already: also a line that was taken out of the config, as it was last.
    pub(super) fn known_room(&self, name: &LineName) -> Result<Arc<Room>> {
        self.room(name).or_else(|error| {
            let rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
            rooms.get(name).cloned().ok_or(error)
        })
    }

    pub(in crate::agent) fn set_admits(&self, on: bool) {
        self.admits.send_replace(on);
    }

    pub(super) fn admits(&self) -> watch::Receiver<bool> {
        self.admits.subscribe()
    }

    /// What the application is handed for an admission.
    pub(super) async fn hand_out(&self, admission: Admission) -> Admitted {
        let pass = &admission.pass;
        let picked = [pass.server.as_ref(), pass.link.as_ref()];
        let is_unknown = |id: &NodeId| self.core.directory.view_of(id).is_none();
        if picked.into_iter().flatten().any(is_unknown) {
            // Whoever admitted knows a node that is new.
            if let Err(error) = self.core.directory.refresh().await {
                tracing::debug!(%error, "could not look for the address of an admission");
            }
        }
        let [addr, link_addr] = picked.map(|id| self.addr(id));
        Admitted {
            line: pass.line.clone(),
            player: pass.player.clone(),
            server: pass.server.clone(),
            addr,
            link: pass.link.clone(),
            link_addr,
            pass: pass.seal(&self.core.verifier),
            admission,
        }
    }

    fn addr(&self, id: Option<&NodeId>) -> Option<String> {
        self.core.directory.view_of(id?).map(|view| view.record.addr.clone())
    }

    /// The player of this session is in: whoever listens to the visit hears it.
    pub(super) fn admitted(&self, session: &SessionId, admitted: &Admitted) {
        let key = (admitted.line.clone(), admitted.player.clone());
        let since = self.visits().admit(&key, session, admitted);
        if let Some(since) = since {
            metrics::histogram!("maitred_line_wait_seconds", "line" => key.0.to_string())
                .record(since.elapsed().as_secs_f64());
        }
    }

    /// Takes the player's record out, where it is still of this session.
    pub(super) fn forget(&self, line: &LineName, player: &Player, session: &SessionId) {
        self.visits().take_session(&(line.clone(), player.clone()), session);
    }
}
