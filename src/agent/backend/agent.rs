use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::broadcast;

use crate::agent::background::refresh_control;
use crate::agent::core::{Agent, Core, LoadSource};
use crate::agent::wait::{Serving, serve};
use crate::agent::wire::{NoPlaceCode, PLACES, PlaceAnswer, PlaceRequest, RESERVE};
use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeEpoch, Player, Region, TokenId};
use crate::message::{CallError, Incoming, Registration, json_handler};
use crate::node::{LoadSample, NodeState};
use crate::token::{IssueOrder, IssueOutcome, Ledger};

use super::drain;
use super::settle;

/// Backend events that may wait for a slow listener.
const EVENTS: usize = 4_096;
/// Places given back at once by a shutdown, at most this long.
const GIVE_UP_MAX: Duration = Duration::from_secs(3);
/// Tokens released at the same time by a shutdown.
const RELEASES_MAX: usize = 64;

/// A place that an inventory promised.
#[derive(Debug, Clone)]
pub struct Offer<P> {
    /// The place, as the application knows it. It comes back exactly once: handed over at the join, or given back.
    pub place: P,
    /// What to hand over at the join: JSON, at most 4 KiB.
    pub payload: Box<RawValue>,
}

/// What a backend has to give: places, each promised to one player at a time.
pub trait Inventory: Send + Sync + 'static {
    /// A place.
    type Place: Send + 'static;

    /// Reserves a place for a request, or answers `None`. Coordinates are resolved here, before the player moves. May
    /// take a while; a place that comes after the request's deadline goes straight back. Not cancelled by the library.
    fn reserve(&self, request: &PlaceRequest) -> impl Future<Output = Option<Offer<Self::Place>>> + Send;

    /// Takes a place back that nobody will use. Called exactly once for each place that was not handed over. Must not
    /// block.
    fn give_back(&self, place: Self::Place);

    /// The regions it serves, each with the number of places kept ready, where it has one. Published with each beat.
    fn regions(&self) -> BTreeMap<Region, Option<u64>>;
}

/// What happened on a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BackendEvent {
    /// A place was promised to a player.
    PlacePromised {
        /// For whom.
        player: Player,
        /// The token.
        token: TokenId,
    },
    /// A promised place went back to the inventory.
    PlaceReturned {
        /// For whom it was promised.
        player: Player,
        /// The token.
        token: TokenId,
        /// Why.
        reason: String,
    },
    /// An operator drains the node: it gets no new players and keeps those it has. Also told at the start of a process
    /// whose node is drained.
    Draining {
        /// Who.
        by: String,
        /// Since when, in store ms.
        #[serde(rename = "at")]
        at_ms: u64,
    },
    /// The drain is over.
    Undrained,
}

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
    pub fn ledger(&self) -> MutexGuard<'_, Ledger<I::Place>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn boot(&self) -> MutexGuard<'_, BootList> {
        self.boot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tell(&self, event: BackendEvent) {
        // Nobody listening is fine.
        let _ = self.events.send(event);
    }

    /// Gives a place back, says so, and lets whoever waits have it.
    pub fn give_back(&self, token: &TokenId, player: &Player, place: I::Place, reason: &str) {
        self.take_home(token, player, place, reason);
        self.serving.restocked.notify_one();
    }

    /// Gives a place back and says so.
    pub fn take_home(&self, token: &TokenId, player: &Player, place: I::Place, reason: &str) {
        self.inventory.give_back(place);
        metrics::counter!("maitred_places_returned_total").increment(1);
        self.tell(BackendEvent::PlaceReturned {
            player: player.clone(),
            token: token.clone(),
            reason: reason.to_owned(),
        });
    }

    /// Whether a switch stops this backend. Who asks for a place knows of none, maybe because its end was heard there first:
    /// the entries decide.
    async fn is_killed(&self) -> bool {
        let (core, own) = (&self.core, &self.core.identity.id);
        if core.control.is_killed(own) {
            refresh_control(core).await;
        }
        core.control.is_killed(own)
    }

    /// `places.reserve`: a place from the inventory, and a token for it.
    async fn reserve(&self, request: PlaceRequest) -> Result<PlaceAnswer, CallError> {
        let condition = self.core.condition();
        if condition.state == NodeState::ShuttingDown || self.core.stop.is_cancelled() {
            return Err(refuse(NoPlaceCode::ShuttingDown, "the backend is on its way out"));
        }
        if !condition.accepting {
            return Err(refuse(NoPlaceCode::NotAccepting, "the backend takes no new players"));
        }
        if self.is_killed().await {
            return Err(refuse(NoPlaceCode::KillSwitch, "the kill switch is on"));
        }
        if let Some(drain) = self.core.control.drain(&self.core.identity.id) {
            return Err(refuse(NoPlaceCode::Draining, &format!("the backend is drained by {}", drain.by)));
        }
        if !request.bypass && self.serving.is_awaited(request.region.as_ref()) {
            return Err(refuse(NoPlaceCode::Line, "others wait for the places here"));
        }
        let server = self.core.acting().map_err(|error| refuse(NoPlaceCode::LeaseLost, &error.to_string()))?;
        let Some(Offer { place, payload }) = self.inventory.reserve(&request).await else {
            return Err(refuse(NoPlaceCode::NoPlace, "no place is free"));
        };
        let now = self.core.store.clock().now_ms();
        if now >= request.deadline_ms {
            self.inventory.give_back(place);
            return Err(refuse(NoPlaceCode::Late, "the attempt was over before a place was found"));
        }
        let order = IssueOrder {
            id: TokenId::fresh(),
            player: request.player,
            request: request.request,
            attempt: request.attempt,
            payload,
            deadline_ms: request.deadline_ms,
            earlier: request.earlier,
            issued_at_ms: now,
        };
        self.issue(&server, order, place).await
    }

    async fn issue(&self, server: &NodeEpoch, order: IssueOrder, place: I::Place) -> Result<PlaceAnswer, CallError> {
        let expires_at_ms = order.issued_at_ms.saturating_add(self.core.config().tokens.ttl_ms);
        self.ledger().issuing(&order, server.epoch, place, expires_at_ms);
        self.tell(BackendEvent::PlacePromised { player: order.player.clone(), token: order.id.clone() });
        metrics::counter!("maitred_places_promised_total").increment(1);
        self.settle_issue(server, order, false).await
    }

    /// Asks the store until the issue's outcome is definite, or leaves it to be settled. Used by the request itself and
    /// by the settling loop.
    pub async fn settle_issue(
        &self,
        server: &NodeEpoch,
        mut order: IssueOrder,
        repeat: bool,
    ) -> Result<PlaceAnswer, CallError> {
        // A future that is dropped leaves the entry to the settling loop.
        let guard = settle::Unknown::new(self, &order.id);
        let outcome = self.core.book.issue(server, &mut order).await;
        let (code, why, reason) = match outcome {
            Ok(IssueOutcome::Issued(token)) => {
                let hinted = self.ledger().issued(&token);
                guard.settled();
                if hinted {
                    self.look(token.id.clone(), token.player.clone()).await;
                }
                return Ok(PlaceAnswer { token, taken: false });
            }
            Ok(IssueOutcome::Taken(row)) => {
                self.place_not_needed(&order, "taken");
                guard.settled();
                return Ok(PlaceAnswer { token: row.token, taken: true });
            }
            Ok(IssueOutcome::Ended(end)) => (NoPlaceCode::Failed, format!("the token has ended: {end}"), "ended"),
            Ok(IssueOutcome::Attempt) => (NoPlaceCode::Attempt, "the request is further already".to_owned(), "attempt"),
            Ok(IssueOutcome::Cancelled) => {
                (NoPlaceCode::Cancelled, "the request was cancelled".to_owned(), "cancelled")
            }
            Ok(IssueOutcome::Late) => (NoPlaceCode::Late, "the attempt's deadline is over".to_owned(), "late"),
            // The store's refusal of a repeat says nothing of the first try.
            Err(error) if error.may_have_changed() || (repeat && matches!(error, Error::Refused { .. })) => {
                return Err(refuse(NoPlaceCode::StoreDown, &error.to_string()));
            }
            Err(error) => (code_of(&error), error.to_string(), "refused"),
        };
        self.place_not_needed(&order, reason);
        guard.settled();
        Err(refuse(code, &why))
    }

    fn place_not_needed(&self, order: &IssueOrder, reason: &str) {
        let place = self.ledger().not_issued(&order.id);
        if let Some(place) = place {
            self.give_back(&order.id, &order.player, place, reason);
        }
    }

    /// Before leaving: every place that is held goes back, and its token is released.
    pub async fn give_up(&self) {
        let held = self.ledger().give_up();
        let mut tokens = Vec::with_capacity(held.len());
        for (id, player, epoch, place) in held {
            // The ledger refuses the token from here on, so the place can go whatever becomes of the release.
            self.give_back(&id, &player, place, "shutting_down");
            tokens.push((id, player, epoch));
        }
        let release = |(id, player, epoch): (TokenId, Player, Epoch)| async move {
            let by = NodeEpoch { id: self.core.identity.id.clone(), epoch };
            match self.core.book.release_own(&id, &player, &by, "shutting_down").await {
                Ok(_) => self.ledger().released(&id),
                Err(error) => tracing::warn!(%player, token = %id, %error, "could not release; it expires"),
            }
        };
        stream::iter(tokens).for_each_concurrent(RELEASES_MAX, release).await;
    }
}

fn refuse(code: NoPlaceCode, why: &str) -> CallError {
    CallError::new(code.as_str(), why)
}

fn code_of(error: &Error) -> NoPlaceCode {
    match error {
        Error::KillSwitch { .. } => NoPlaceCode::KillSwitch,
        Error::LeaseLost { .. } | Error::Fenced { .. } => NoPlaceCode::LeaseLost,
        Error::Refused { .. } => NoPlaceCode::StoreDown,
        _ => NoPlaceCode::Failed,
    }
}

/// A backend's agent: gives places to proxies that ask, and redeems the players who come. Dropping it stops it without
/// leaving.
pub struct BackendAgent<I: Inventory> {
    agent: Agent,
    backend: Arc<Backend<I>>,
    _places: Registration,
}

/// The application's load with the inventory's regions in it.
struct WithRegions<I> {
    load: Box<dyn LoadSource>,
    inventory: Arc<I>,
}

impl<I: Inventory> LoadSource for WithRegions<I> {
    fn sample(&self) -> LoadSample {
        let mut sample = self.load.sample();
        sample.load.regions = self.inventory.regions();
        sample
    }
}

impl<I: Inventory> BackendAgent<I> {
    pub(in crate::agent) fn start(
        agent: impl FnOnce(Box<dyn LoadSource>) -> Result<Agent>,
        inventory: Arc<I>,
        load: impl LoadSource,
    ) -> Result<Self> {
        let load = WithRegions { load: Box::new(load), inventory: Arc::clone(&inventory) };
        let agent = agent(Box::new(load))?;
        let backend = Arc::new(Backend {
            core: Arc::clone(agent.core()),
            inventory,
            ledger: Mutex::new(Ledger::default()),
            boot: Mutex::default(),
            events: broadcast::channel(EVENTS).0,
            serving: Serving::default(),
        });
        let places = {
            let backend = Arc::clone(&backend);
            let handler = json_handler(move |request: PlaceRequest, call: Incoming| {
                let backend = Arc::clone(&backend);
                async move {
                    if call.method != RESERVE {
                        return Err(CallError::unknown_method(&call));
                    }
                    backend.reserve(request).await
                }
            });
            agent.services().register(PLACES, handler)?
        };
        settle::spawn(&backend);
        drain::spawn(&backend);
        backend.core.tasks.spawn(serve(Arc::clone(&backend)));
        Ok(Self { agent, backend, _places: places })
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

    /// The inventory has places that it did not have a moment ago: whoever waits for one is served at once instead of within
    /// a second. Places that go back to the inventory need no such word.
    pub fn restocked(&self) {
        self.backend.serving.restocked.notify_one();
    }

    pub(in crate::agent) fn backend(&self) -> &Arc<Backend<I>> {
        &self.backend
    }

    /// Takes no more requests, gives back every place that is held, and leaves. Bounded by about 10 s.
    pub async fn leave(&self) {
        // A handler that is still at it may promise one more place, so they end first.
        self.agent.quiesce().await;
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
