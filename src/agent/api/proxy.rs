use std::fmt;
use std::sync::Arc;

use tracing::Span;
use tracing::field::Empty;

use crate::agent::model::{Reason, Request, Transfer};
use crate::agent::proxy::{Answer, Claiming, Dispatch, Placement, Proxy, take};
use crate::agent::queue::{QueueClient, WaitUpdate};
use crate::error::Result;
use crate::ids::{OperationId, Player, RequestId};
use crate::token::{CancelOutcome, ReleaseOutcome, TokenRow};

use super::agent::Agent;
use super::outcome::Outcome;
use super::waiting::Waiting;

/// How an application moves a player.
pub trait Mover: Send + Sync {
    /// Moves the player, or says why it could not. [`Transfer::left_ms`] has to be asked again right before the move.
    fn move_player(&self, transfer: &Transfer) -> impl Future<Output = std::result::Result<(), String>> + Send;
}

/// A proxy's agent: turns requests into places. Cheap to share behind an `Arc`. Dropping it stops it without leaving.
pub struct ProxyAgent {
    agent: Agent,
    proxy: Arc<Proxy>,
    placement: Placement,
}

impl ProxyAgent {
    pub(super) fn new(agent: Agent, proxy: Arc<Proxy>) -> Self {
        let core = agent.core();
        tracing::info!(
            node = %core.identity.id, zone = %core.config().zone, store = %core.store.options().url,
            "proxy as a participant: it joins, beats, selects and dispatches"
        );
        let placement = Placement::new(core);
        Self { agent, proxy, placement }
    }

    pub(super) fn queue(&self) -> &QueueClient {
        &self.proxy.queue
    }

    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The membership and everything shared with other roles.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Finds a place for a player: ranks one snapshot, asks the best backend, claims the token it issued; then the next
    /// one, at most `dispatch.maxRetries` more. Every end is typed; an error of the store is a refusal too. Where nothing
    /// is asked for and the fleet has lobbies (`routing.lobbyMode`), or this is one, the backend with the most kept places
    /// comes first, else the one with the lowest score.
    ///
    /// Who connects to a fleet without lobbies and is not to be placed is [`Balanced`](Outcome::Balanced): that asks nobody
    /// and needs neither the store nor a lease.
    ///
    /// Where no backend comes into question, or none that was asked has a place, and the config says
    /// `selector.onNoCandidate: queue`, the player enters a wait line (QUE-9): [`Waiting`](Outcome::Waiting), unless the
    /// request is [`bypassing`](Request::bypassing). That costs EVALSHA cancel where a backend was asked, and EVALSHA enter.
    ///
    /// The store's bill without failures: PUBLISH twice (question and answer), EVALSHA issue, EVALSHA claim; before them
    /// EVALSHA limit/take where the config has a limit of the request's source, and EVALSHA limit/refund where such a
    /// request ends without a place.
    ///
    /// Cancel safe: a future that is dropped cancels the request in the background.
    #[tracing::instrument(skip_all, fields(player = %request.player, request = %request.id, outcome = Empty))]
    pub async fn dispatch(&self, request: Request) -> Outcome {
        // Boxed: the future of an application that awaits it stays small and shallow.
        let outcome = match Box::pin(Dispatch::run(&self.proxy, request)).await {
            Ok(Answer::Transfer(transfer)) => Outcome::Transfer(transfer),
            Ok(Answer::Balanced(balanced)) => Outcome::Balanced(balanced),
            Ok(Answer::Waiting(waiter)) => Outcome::Waiting(Waiting::new(&self.proxy.queue, waiter)),
            Err(refusal) => Outcome::Refused(refusal),
        };
        let word = match &outcome {
            Outcome::Transfer(_) => "transfer",
            Outcome::Balanced(_) => "balanced",
            Outcome::Waiting(_) => "waiting",
            Outcome::Refused(refusal) => refusal.reason.as_str(),
        };
        Span::current().record("outcome", word);
        metrics::counter!("maitred_dispatches_total", "outcome" => word).increment(1);
        outcome
    }

    /// [`dispatch`](Self::dispatch), waits for the end of a request that waits, then moves a player who has a place with
    /// `mover`. Where that fails the token is released, so that its place is free at once.
    pub async fn send(&self, request: Request, mover: &impl Mover) -> Outcome {
        let transfer = match self.dispatch(request).await {
            Outcome::Transfer(transfer) => transfer,
            Outcome::Waiting(mut waiting) => match waiting.end().await {
                Some(WaitUpdate::Transfer(transfer)) => transfer,
                Some(WaitUpdate::Refused(refusal)) => return Outcome::Refused(refusal),
                _ => return Outcome::Refused(self.proxy.refusal(Reason::Cancelled, "the agent stopped")),
            },
            other => return other,
        };
        let why = if transfer.left_ms() == 0 {
            "the token was about to expire".to_owned()
        } else {
            match mover.move_player(&transfer).await {
                Ok(()) => return Outcome::Transfer(transfer),
                Err(why) => why,
            }
        };
        if let Err(error) = self.failed(&transfer, "not_moved").await {
            tracing::warn!(player = %transfer.player, %error, "could not release; the token expires");
        }
        Outcome::Refused(self.proxy.refusal(Reason::NotMoved, why))
    }

    /// The player could not be moved: releases the claimed token. `reason` is a word. Answers
    /// [`ReleaseOutcome::Landed`] where the player arrived all the same.
    pub async fn failed(&self, transfer: &Transfer, reason: &str) -> Result<ReleaseOutcome> {
        self.proxy.release(transfer, reason).await
    }

    /// The player went away: ends the request at whatever step it is. Its live token is released and its place goes
    /// back, also where the issue arrives later. One who waits leaves the line.
    pub async fn cancel(&self, player: &Player, request: &RequestId) -> Result<CancelOutcome> {
        Box::pin(self.proxy.cancel(player, request)).await
    }

    /// A player connects who may have a token already: it is claimed, and they are to be moved. Runs `token/claim`.
    pub async fn take(&self, player: &Player) -> Outcome {
        let core = &self.proxy.core;
        match core.acting() {
            Ok(claimant) => {
                let op = OperationId::fresh();
                let mut claiming = Claiming::new(&self.proxy, &op);
                let config = core.config();
                let (book, texts) = (&core.book, &config.texts);
                let taken = take(book, &core.verifier, &claimant, player, None, &op, texts, Some(&mut claiming)).await;
                if let Ok(transfer) = &taken {
                    self.proxy.queue.requests.begin_moving(transfer);
                    claiming.settled();
                }
                taken.into()
            }
            Err(error) => Outcome::Refused(self.proxy.refusal(Reason::LeaseLost, error.to_string())),
        }
    }

    /// The player's token, if there is a live one.
    pub async fn find(&self, player: &Player) -> Result<Option<TokenRow>> {
        let now = self.agent.store().clock().now_ms();
        Ok(self.agent.book().find(player).await?.filter(|row| row.is_live(now)))
    }

    /// The connection of a player whose request waits dropped. The wait ends as cancelled, and the place is kept for
    /// `wait.reconnectGraceMs` without holding up those behind: a dispatch of the same kind through any proxy takes it up
    /// again. So it is while the request is still entering the line. False where the request does not wait here, or had its
    /// turn a moment before. Runs `queue/leave`; while the store does not answer it is repeated in the background.
    ///
    /// Cancel safe: a future that is dropped goes on in the background.
    pub async fn away(&self, player: &Player, request: &RequestId) -> Result<bool> {
        Box::pin(self.proxy.queue.away(player, request)).await
    }

    /// Leaves the fleet. Requests under way end as cancelled; so do those that wait, whose places are kept for the grace.
    pub async fn leave(&self) {
        self.proxy.queue.requests.stop_asking();
        self.agent.leave().await;
    }
}

impl fmt::Debug for ProxyAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyAgent({:?})", self.agent)
    }
}
