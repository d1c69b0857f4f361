//! What the parts of a proxy share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::core::Core;
use crate::agent::model::{Reason, Refusal};
use crate::agent::queue::QueueClient;
use crate::ids::{NodeId, OperationId, Player, RequestId, Role};
use crate::select::Candidates;
use crate::token::Token;

/// What the parts of a proxy share.
pub(in crate::agent) struct Proxy {
    pub core: Arc<Core>,
    /// Whom it can choose from, with what it knows of them by itself.
    pub candidates: Mutex<Candidates>,
    /// This node is a lobby.
    pub is_lobby: bool,
    /// Those who wait through it, and how far each request is.
    pub queue: Arc<QueueClient>,
}

impl Proxy {
    pub fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            candidates: Mutex::default(),
            is_lobby: core.identity.role == Role::lobby(),
            queue: Arc::new(QueueClient::new(core)),
        }
    }

    pub fn candidates(&self) -> MutexGuard<'_, Candidates> {
        self.candidates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn refusal(&self, reason: Reason, detail: impl Into<String>) -> Refusal {
        Refusal::new(reason, &self.core.config().texts, detail)
    }

    /// Releases the claim `op` in the background until the answer is definite, for as long as the token could live.
    pub fn release_until_definite(self: &Arc<Self>, token: Token, op: OperationId) {
        let proxy = Arc::clone(self);
        let releasing = async move {
            let (core, player) = (&proxy.core, &token.player);
            while core.store.clock().now_ms() < token.expires_at_ms
                && let Err(error) =
                    core.book.release_claim(&token, &proxy.core.releasing(), Some(&op), "given_up").await
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
            while let Err(error) =
                core.book.cancel(&player, &request, &proxy.core.releasing(), Some(&op), &servers).await
                && core.again("cancel of a request", &player, &error, Some(give_up)).await
            {}
        };
        // A future can be dropped outside of every runtime.
        self.core.tasks.spawn_on(cancelling, &self.core.runtime);
    }
}
