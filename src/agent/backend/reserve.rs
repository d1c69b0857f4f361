//! The promise: `places.reserve` takes a place out of the inventory and issues a token for it (`token/issue`).

use std::sync::Arc;

use futures_util::{StreamExt, stream};

use crate::agent::model::{NoPlaceCode, PLACES, PlaceAnswer, PlaceRequest, RESERVE};
use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeEpoch, Player, TokenId};
use crate::message::{CallError, Incoming, ServiceRegistration, json_handler};
use crate::node::NodeState;
use crate::token::{IssueOrder, IssueOutcome};

use super::inventory::{BackendEvent, Inventory, Offer};
use super::state::{Backend, Unknown};

/// Tokens released at the same time by a shutdown.
const RELEASES_MAX: usize = 64;

impl<I: Inventory> Backend<I> {
    /// Answers `places.reserve` from now on, for as long as the registration is kept.
    pub fn register(self: &Arc<Self>) -> Result<ServiceRegistration> {
        let backend = Arc::clone(self);
        let handler = json_handler(move |request: PlaceRequest, call: Incoming| {
            let backend = Arc::clone(&backend);
            async move {
                if call.method != RESERVE {
                    return Err(CallError::unknown_method(&call));
                }
                backend.reserve(request).await
            }
        });
        self.core.services.register(PLACES, handler)
    }

    /// Whether a switch stops this backend. Who asks for a place knows of none, maybe because its end was heard there first:
    /// the entries decide.
    async fn is_killed(&self) -> bool {
        let (core, own) = (&self.core, &self.core.identity.id);
        if core.control.is_killed(own) {
            core.refresh_control().await;
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
        self.notify(BackendEvent::PlacePromised { player: order.player.clone(), token: order.id.clone() });
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
        let guard = Unknown::new(self, &order.id);
        let outcome = self.book_for_places().issue(server, &mut order).await;
        let (code, why, reason) = match outcome {
            Ok(IssueOutcome::Issued(token)) => {
                let hinted = self.ledger().issued(&token);
                guard.settled();
                if hinted {
                    self.check_row(token.id.clone(), token.player.clone()).await;
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
            Ok(IssueOutcome::NoPlace) => {
                (NoPlaceCode::NoPlace, "lines have promised its places".to_owned(), "promised_to_lines")
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
        Error::Refused { .. } | Error::Contended { .. } => NoPlaceCode::StoreDown,
        _ => NoPlaceCode::Failed,
    }
}
