//! What the parts of a proxy share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::core::Core;
use crate::agent::model::{Reason, Refusal, Transfer};
use crate::agent::wait::Waits;
use crate::ids::{NodeEpoch, NodeId, OperationId, Player, RequestId, Role};
use crate::select::Candidates;
use crate::token::Token;

/// What the parts of a proxy share.
pub(in crate::agent) struct Proxy {
    pub core: Arc<Core>,
    /// Whom it can choose from, with what it knows of them by itself.
    pub candidates: Mutex<Candidates>,
    /// This node is a lobby.
    pub is_lobby: bool,
    /// Requests under way, for a cancel.
    pub under_way: Mutex<HashMap<(Player, RequestId), CancellationToken>>,
    /// Transfers that were handed out and whose tokens may still live, by request.
    pub transfers: Mutex<HashMap<RequestId, Transfer>>,
    /// Requests that wait for a place.
    pub waits: Waits,
}

impl Proxy {
    pub fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            candidates: Mutex::default(),
            is_lobby: core.identity.role == Role::lobby(),
            under_way: Mutex::default(),
            transfers: Mutex::default(),
            waits: Waits::default(),
        }
    }

    pub fn candidates(&self) -> MutexGuard<'_, Candidates> {
        self.candidates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn under_way(&self) -> MutexGuard<'_, HashMap<(Player, RequestId), CancellationToken>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn transfers(&self) -> MutexGuard<'_, HashMap<RequestId, Transfer>> {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a transfer for as long as its token can live, for a cancel.
    pub fn remember(&self, request: RequestId, transfer: &Transfer) {
        let mut transfers = self.transfers();
        if transfers.len() >= transfers.capacity() {
            transfers.retain(|_, transfer| transfer.left_ms() > 0);
        }
        transfers.insert(request, transfer.clone());
    }

    pub fn refusal(&self, reason: Reason, detail: impl Into<String>) -> Refusal {
        Refusal::new(reason, &self.core.config().texts, detail)
    }

    /// This node as whoever cancels or releases, lease or not: those compare the epoch and need no lease.
    pub fn claimant(&self) -> NodeEpoch {
        NodeEpoch { id: self.core.identity.id.clone(), epoch: self.core.lease.epoch() }
    }

    /// Releases the claim `op` in the background until the answer is definite, for as long as the token could live.
    pub fn release_until_definite(self: &Arc<Self>, token: Token, op: OperationId) {
        let proxy = Arc::clone(self);
        let releasing = async move {
            let (core, player) = (&proxy.core, &token.player);
            while core.store.clock().now_ms() < token.expires_at_ms
                && let Err(error) = core.book.release_claim(&token, &proxy.claimant(), Some(&op), "given_up").await
                && core.again("release of a claim", player, &error, None).await
            {}
        };
        // A future can be dropped outside of every runtime.
        self.core.tasks.spawn_on(releasing, &self.core.runtime);
    }

    /// Cancels in the background until the answer is definite, for as long as a token could live.
    pub fn cancel_until_definite(
        self: &Arc<Self>,
        player: Player,
        request: RequestId,
        op: OperationId,
        servers: Vec<NodeId>,
    ) {
        let proxy = Arc::clone(self);
        let cancelling = async move {
            let core = &proxy.core;
            let give_up = Instant::now() + Duration::from_millis(core.config().tokens.ttl_ms);
            while let Err(error) = core.book.cancel(&player, &request, &proxy.claimant(), Some(&op), &servers).await
                && core.again("cancel of a request", &player, &error, Some(give_up)).await
            {}
        };
        // A future can be dropped outside of every runtime.
        self.core.tasks.spawn_on(cancelling, &self.core.runtime);
    }
}
