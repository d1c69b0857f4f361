//! What the parts of a backend share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use crate::agent::core::Core;
use crate::ids::{Player, TokenId};
use crate::token::Ledger;

use super::inventory::{BackendEvent, Inventory};
use super::serving::Serving;

/// Backend events that may wait for a slow listener.
const EVENTS: usize = 4_096;

/// The players with a token of an earlier epoch that was open when this process got its epoch.
#[derive(Debug, Default)]
pub(in crate::agent) struct BootList {
    /// The store was asked. Until then any player may have one.
    pub listed: bool,
    /// The token's expiry on this machine's clock.
    pub until: BTreeMap<Player, u64>,
}

/// What the parts of a backend share.
pub(in crate::agent) struct Backend<I: Inventory> {
    pub core: Arc<Core>,
    pub inventory: Arc<I>,
    pub ledger: Mutex<Ledger<I::Place>>,
    pub boot: Mutex<BootList>,
    pub events: broadcast::Sender<BackendEvent>,
    pub serving: Serving,
}

impl<I: Inventory> Backend<I> {
    pub fn new(core: &Arc<Core>, inventory: Arc<I>) -> Self {
        Self {
            core: Arc::clone(core),
            inventory,
            ledger: Mutex::new(Ledger::default()),
            boot: Mutex::default(),
            events: broadcast::channel(EVENTS).0,
            serving: Serving::default(),
        }
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger<I::Place>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn boot(&self) -> MutexGuard<'_, BootList> {
        self.boot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn notify(&self, event: BackendEvent) {
        // Nobody listening is fine.
        let _ = self.events.send(event);
    }

    /// Gives a place back, says so, and lets whoever waits have it.
    pub fn give_back(&self, token: &TokenId, player: &Player, place: I::Place, reason: &str) {
        self.return_place(token, player, place, reason);
        self.serving.restock();
    }

    /// Gives a place back and says so.
    pub fn return_place(&self, token: &TokenId, player: &Player, place: I::Place, reason: &str) {
        self.inventory.give_back(place);
        metrics::counter!("maitred_places_returned_total").increment(1);
        self.notify(BackendEvent::PlaceReturned {
            player: player.clone(),
            token: token.clone(),
            reason: reason.to_owned(),
        });
    }
}

/// While a task asks the store about an entry of the ledger. Dropped before the answer is definite, the entry is left
/// to the settling loop.
pub(in crate::agent) struct Unknown<'a, I: Inventory> {
    backend: &'a Backend<I>,
    id: Option<TokenId>,
}

impl<'a, I: Inventory> Unknown<'a, I> {
    pub fn new(backend: &'a Backend<I>, id: &TokenId) -> Self {
        Self { backend, id: Some(id.clone()) }
    }

    /// The answer was definite and is in the ledger.
    pub fn settled(mut self) {
        self.id = None;
    }
}

impl<I: Inventory> Drop for Unknown<'_, I> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.backend.ledger().unknown(&id);
        }
    }
}
