use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::agent::backend::{Backend, BackendEvent, Inventory, Redeemed};
use crate::error::Result;
use crate::ids::Player;
use crate::message::ServiceRegistration;

use super::agent::Agent;

/// Places given back at once by a shutdown, at most this long.
const GIVE_UP_MAX: Duration = Duration::from_secs(3);

/// A backend's agent: gives places to proxies that ask, and redeems the players who come. Dropping it stops it without
/// leaving.
pub struct BackendAgent<I: Inventory> {
    agent: Agent,
    backend: Arc<Backend<I>>,
    _places: ServiceRegistration,
}

impl<I: Inventory> BackendAgent<I> {
    pub(super) fn new(agent: Agent, backend: Arc<Backend<I>>, places: ServiceRegistration) -> Self {
        Self { agent, backend, _places: places }
    }

    /// The membership and everything shared with other roles.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The inventory.
    pub fn inventory(&self) -> &I {
        &self.backend.inventory
    }

    /// Places promised and returned. A listener that falls 4,096 events behind misses the oldest.
    pub fn events(&self) -> broadcast::Receiver<BackendEvent> {
        self.backend.events.subscribe()
    }

    /// Places that are promised and neither handed over nor given back.
    pub fn promised(&self) -> usize {
        self.backend.ledger().promised()
    }

    /// Places that lines hold here for players on their way, or for players who have come and whom the published count does not
    /// include yet, as of the last heartbeat. For an inventory with a count of its own: tokens are issued within the soft cap
    /// only where these places are left.
    pub fn held_by_lines(&self) -> u64 {
        self.backend.core.arrivals.held()
    }

    /// The inventory has places that it did not have a moment ago: whoever waits for one is served at once instead of within
    /// a second. Places that go back to the inventory need no such word.
    pub fn restocked(&self) {
        self.backend.serving.restock();
    }

    pub(super) fn backend(&self) -> &Arc<Backend<I>> {
        &self.backend
    }

    /// A player joins. Held in the ledger: the token is consumed, without a read, and the place handed over. Runs
    /// `token/consume`.
    ///
    /// Errors: [`Error::LeaseLost`](crate::Error::LeaseLost), and those of the store; after [`Error::Unreachable`](crate::Error::Unreachable) the outcome is not known, and
    /// asking again gives it. Cancel safe: a future that is dropped leaves the token to the settling loop, and the next
    /// redeem of the player gets it.
    pub async fn redeem(&self, player: &Player) -> Result<Redeemed<I::Place>> {
        self.backend.redeem(player).await
    }

    /// Takes no more requests, gives back every place that is held, and leaves. Bounded by about 10 s.
    pub async fn leave(&self) {
        // A handler that is still at it may promise one more place, so they end first.
        self.backend.core.quiesce().await;
        let home = async {
            drop(self.backend.serving.busy.lock().await);
            self.backend.give_up().await;
            self.backend.settle_all().await;
            self.backend.give_up().await;
        };
        if tokio::time::timeout(GIVE_UP_MAX, home).await.is_err() {
            tracing::warn!("the store did not take all tokens back in time; they expire");
        }
        self.agent.leave().await;
    }
}

impl<I: Inventory> fmt::Debug for BackendAgent<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendAgent({:?})", self.agent)
    }
}
