//! The way of one request over the backends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::config::Config;
use crate::agent::core::Charge;
use crate::agent::model::{
    Balanced, NoPlaceCode, PLACES, PlaceAnswer, PlaceRequest, RESERVE, Reason, Refusal, Request, Transfer,
};
use crate::agent::queue::{Progress, RequestKey, Waiter, line_for};
use crate::error::{Error, Result};
use crate::ids::{LineName, NodeEpoch, NodeId, OperationId};
use crate::select::Pick;
use crate::token::{ClaimOutcome, Token};

use super::claiming::Claiming;
use super::nobody::{drained_by, gives_no_places, is_stopped_unheard, nobody};
use super::state::Proxy;
use super::take::take;
use super::verdict::{Verdict, verdict};

/// How one attempt ended.
enum Step {
    /// The token is claimed.
    Done(Box<Transfer>),
    /// This backend has no place for the player: ask the next.
    Next {
        /// Leave it out for a while.
        cool: bool,
        why: String,
    },
    /// No backend can help.
    Stop(Reason, String),
}

/// How a request goes on that was not refused.
pub(in crate::agent) enum Answer {
    /// The player has a place and this proxy moves them.
    Transfer(Box<Transfer>),
    /// The player has no place, and a backend to connect to.
    Balanced(Balanced),
    /// No place now: the player waits for one.
    Waiting(Arc<Waiter>),
}

/// One request on its way. Dropped before its end, it cancels in the background.
pub(in crate::agent) struct Dispatch {
    proxy: Arc<Proxy>,
    request: Request,
    /// As it was in force when the request began.
    config: Arc<Config>,
    asked: Vec<NodeId>,
    /// The operation of every claim of this dispatch: what tells its claims from those of another dispatch of this proxy.
    claim_op: OperationId,
    claiming: Claiming,
    charge: Charge,
    /// After a denial of its limit: when to come again.
    retry_after_ms: Option<u64>,
    cancelled: CancellationToken,
    /// A token of the request may exist or may still be issued.
    exposed: bool,
}

impl Dispatch {
    pub async fn run(proxy: &Arc<Proxy>, request: Request) -> Result<Answer, Refusal> {
        let core = &proxy.core;
        let config = core.config();
        match verdict(&request, &config.triggers, &config.routing, proxy.is_lobby) {
            Verdict::Place => {}
            Verdict::Balance => return balance(proxy, request).map(Answer::Balanced),
            Verdict::Refuse(Reason::SourceOff) => {
                return Err(proxy.refusal(Reason::SourceOff, "its source is off in the config (triggers)"));
            }
            Verdict::Refuse(reason) => return Err(proxy.refusal(reason, "the application says so")),
        }
        let cancelled = core.stop.child_token();
        let claim_op = OperationId::fresh();
        proxy.queue.requests.begin((request.player.clone(), request.id.clone()), &cancelled, &claim_op);
        let mut dispatch = Self {
            proxy: Arc::clone(proxy),
            request,
            config,
            asked: Vec::new(),
            claiming: Claiming::new(proxy, &claim_op),
            charge: Charge::new(core),
            retry_after_ms: None,
            claim_op,
            cancelled: cancelled.clone(),
            exposed: false,
        };
        let (reason, detail) = tokio::select! {
            biased;
            () = cancelled.cancelled() => (Reason::Cancelled, "the player went away".to_owned()),
            outcome = dispatch.walk() => match outcome {
                // Cancelled at the last moment: it is given up like one that was cancelled before.
                Ok(transfer) if !dispatch.remember(&transfer) => {
                    (Reason::Cancelled, "the player went away".to_owned())
                }
                Ok(transfer) => {
                    dispatch.exposed = false;
                    dispatch.claiming.settled();
                    dispatch.charge.served();
                    return Ok(Answer::Transfer(transfer));
                }
                Err(end) => end,
            },
        };
        let settled = dispatch.give_up().await;
        // Nobody is told that the servers are full where they could not be asked.
        let reason = if reason == Reason::Refused && !settled { Reason::StoreDown } else { reason };
        let line = if settled { line_for(core, &dispatch.config, &dispatch.request, reason) } else { Ok(None) };
        let (reason, detail) = match line {
            Err(error) => (reason, format!("{detail}; it cannot wait for that: {error}")),
            Ok(Some(line)) => match dispatch.wait(line).await {
                Ok(waiter) => return Ok(Answer::Waiting(waiter)),
                Err(end) => end,
            },
            Ok(None) => (reason, detail),
        };
        if reason != Reason::StoreDown {
            dispatch.charge.refund().await;
        }
        Err(proxy.refusal(reason, detail).retry_after(dispatch.retry_after_ms))
    }

    fn key(&self) -> RequestKey {
        (self.request.player.clone(), self.request.id.clone())
    }

    /// Known as a transfer from here on, for a cancel. False where the request was cancelled.
    fn remember(&self, transfer: &Transfer) -> bool {
        self.proxy.queue.requests.advance(&self.key(), Progress::Moving(Box::new(transfer.clone())))
    }

    /// Into the line. A player who goes away meanwhile leaves it again in the background.
    async fn wait(&mut self, line: LineName) -> Result<Arc<Waiter>, (Reason, String)> {
        let Self { proxy, request, config, charge, cancelled, .. } = self;
        let waiting = async {
            charge.refund().await;
            proxy.queue.wait_for_place(line, request, config).await
        };
        tokio::select! {
            biased;
            () = cancelled.cancelled() => Err((Reason::Cancelled, "the player went away".to_owned())),
            waiter = Box::pin(waiting) => waiter,
        }
    }

    /// The whole way: the limit of its source, the backends, then the place that the player may have already.
    async fn walk(&mut self) -> Result<Box<Transfer>, (Reason, String)> {
        let core = Arc::clone(&self.proxy.core);
        if core.control.is_killed(&core.identity.id) {
            return Err((Reason::KillSwitch, "a kill switch is on".to_owned()));
        }
        let claimant = core.acting().map_err(|error| (Reason::LeaseLost, error.to_string()))?;
        match self.charge.take(&self.request).await {
            Ok(None) => {}
            Ok(Some(denied)) => {
                self.retry_after_ms = Some(denied.retry_after_ms);
                return Err((Reason::Limited, denied.detail));
            }
            Err(error) => return Err((Reason::of(&error), error.to_string())),
        }
        let end = match self.ask_around(&claimant).await {
            Err((reason @ (Reason::NoCandidate | Reason::Refused | Reason::Draining), detail)) => (reason, detail),
            other => return other,
        };
        // A token of this request may stand although its backend does not know it yet: nobody could redeem it.
        self.give_up().await;
        if self.exposed {
            return Err(end);
        }
        // A reopened token keeps its place although no backend has a free one to answer a request with.
        let asked = Some(&self.request);
        let (player, op, texts) = (&self.request.player, &self.claim_op, &self.config.texts);
        let claiming = Some(&mut self.claiming);
        match take(&core.book, &core.verifier, &claimant, player, asked, op, texts, claiming).await {
            Ok(transfer) => Ok(transfer),
            Err(refusal) if refusal.reason == Reason::Lost => Err((Reason::Lost, refusal.detail)),
            Err(_) => Err(end),
        }
    }

    /// Asks one backend after the other.
    async fn ask_around(&mut self, claimant: &NodeEpoch) -> Result<Box<Transfer>, (Reason, String)> {
        let proxy = Arc::clone(&self.proxy);
        let core = &proxy.core;
        let most = self.config.dispatch.max_retries.saturating_add(1);
        let mut ranking = proxy.choose(&self.request.ask, most);
        if ranking.picks.is_empty() && is_stopped_unheard(core, &ranking) {
            // Their rows say so before anybody told this proxy.
            core.refresh_control().await;
            if core.control.is_killed(&core.identity.id) {
                return Err((Reason::KillSwitch, "a kill switch is on".to_owned()));
            }
            ranking = proxy.choose(&self.request.ask, most);
        }
        if ranking.picks.is_empty() {
            if let Some(why) = gives_no_places(core, &self.request.ask) {
                return Err((Reason::NoCandidate, why));
            }
            if let Some(by) = drained_by(core, &self.request.ask, &ranking) {
                return Err((Reason::Draining, format!("the server is drained by {by}")));
            }
            return Err((Reason::NoCandidate, nobody(&ranking)));
        }
        let mut said = Vec::new();
        for (pick, attempt) in ranking.picks.iter().zip(1_u32..) {
            if attempt > 1 {
                proxy.picked(&pick.node.id);
            }
            match self.attempt(pick, attempt, claimant).await {
                Step::Done(transfer) => return Ok(transfer),
                Step::Stop(reason, why) => return Err((reason, why)),
                Step::Next { cool, why } => {
                    tracing::debug!(player = %self.request.player, server = %pick.node.id, %why, "next backend");
                    said.push(format!("{}: {why}", pick.node.id));
                    if cool {
                        proxy.cool(&pick.node.id);
                    }
                }
            }
        }
        Err((Reason::Refused, said.join("; ")))
    }

    async fn attempt(&mut self, pick: &Pick, attempt: u32, claimant: &NodeEpoch) -> Step {
        let answer = match self.ask(pick, attempt).await {
            Ok(answer) => answer,
            Err(step) => return step,
        };
        let core = &self.proxy.core;
        let source = format!("places at {}", pick.node.id);
        if let Err(error) = answer.token.verify(&core.verifier, &source) {
            return Step::Next { cool: true, why: error.to_string() };
        }
        if answer.token.player != self.request.player || (!answer.taken && answer.token.server != pick.node.id) {
            return Step::Next { cool: true, why: "it answered with a token for somebody else".to_owned() };
        }
        if self.request.ask.server.as_ref().is_some_and(|wanted| *wanted != answer.token.server) {
            let why = format!("another request of the player has a place at {}", answer.token.server);
            return Step::Stop(Reason::Lost, why);
        }
        let addr = match self.address(pick, &answer.token).await {
            Ok(addr) => addr,
            Err(error) => return Step::Next { cool: false, why: error.to_string() },
        };
        if answer.token.request != self.request.id {
            self.claiming.begin(&answer.token);
        }
        let claimed = core.book.claim(&answer.token, claimant, &self.claim_op).await;
        if claimed.as_ref().is_ok_and(|outcome| !matches!(outcome, ClaimOutcome::Claimed(_))) {
            self.claiming.settled();
        }
        match claimed {
            Ok(ClaimOutcome::Claimed(_)) => Step::Done(Box::new(self.transfer(answer.token, addr))),
            Ok(ClaimOutcome::Lost) => {
                Step::Stop(Reason::Lost, format!("another proxy moves them to {}", answer.token.server))
            }
            Ok(other) => Step::Next { cool: false, why: format!("its token could not be claimed: {other:?}") },
            Err(error) => Step::Stop(Reason::of(&error), error.to_string()),
        }
    }

    /// The question to one backend, and its answer.
    async fn ask(&mut self, pick: &Pick, attempt: u32) -> Result<PlaceAnswer, Step> {
        let proxy = Arc::clone(&self.proxy);
        let core = &proxy.core;
        let timeout_ms = self.config.dispatch.attempt_timeout_ms;
        let body = PlaceRequest {
            player: self.request.player.clone(),
            request: self.request.id.clone(),
            attempt,
            region: pick.region.clone(),
            deadline_ms: core.store.clock().now_ms().saturating_add(timeout_ms),
            earlier: self.asked.clone(),
            bypass: self.request.bypass,
        };
        self.asked.push(pick.node.id.clone());
        self.exposed = true;
        let target = format!("{}:{PLACES}", pick.node.id);
        let asked = Instant::now();
        let answer = core.post.call_json(&target, RESERVE, &body, Duration::from_millis(timeout_ms)).await;
        if matches!(&answer, Ok(_) | Err(Error::Callee { .. })) {
            proxy.candidates().answered(&pick.node.id, asked.elapsed().as_secs_f64() * 1_000.0);
        }
        if let Err(Error::Callee { code, .. }) = &answer
            && matches!(NoPlaceCode::read(code), NoPlaceCode::KillSwitch | NoPlaceCode::Draining)
        {
            // The backend heard of the switch, or of its drain, first.
            core.refresh_control().await;
        }
        answer.map_err(|error| {
            let Error::Callee { code, message, .. } = &error else {
                return match error {
                    Error::LeaseLost { .. } => Step::Stop(Reason::LeaseLost, error.to_string()),
                    _ => Step::Next { cool: true, why: error.to_string() },
                };
            };
            match NoPlaceCode::read(code) {
                NoPlaceCode::Cancelled => Step::Stop(Reason::Cancelled, message.clone()),
                NoPlaceCode::KillSwitch if core.control.is_killed(&core.identity.id) => {
                    Step::Stop(Reason::KillSwitch, message.clone())
                }
                NoPlaceCode::Draining if self.request.ask.server.is_some() => {
                    Step::Stop(Reason::Draining, message.clone())
                }
                // A switch ends all at once, and whom it stops is left out as long as it is on. Or the request is further on
                // at another backend, by a message that came late.
                // Or others wait there, which is no fault of its.
                NoPlaceCode::KillSwitch | NoPlaceCode::Draining | NoPlaceCode::Attempt | NoPlaceCode::Line => {
                    Step::Next { cool: false, why: message.clone() }
                }
                _ => Step::Next { cool: true, why: format!("{code}: {message}") },
            }
        })
    }

    /// The address of the backend behind a token: the snapshot's, or that of the row where the token is of another one.
    async fn address(&self, pick: &Pick, token: &Token) -> Result<String> {
        if token.server == pick.node.id {
            return Ok(pick.node.addr.clone());
        }
        Ok(self.proxy.core.directory.resolve(&token.server).await?.addr.clone())
    }

    fn transfer(&self, token: Token, addr: String) -> Transfer {
        Transfer::claimed(&self.proxy.core.store, self.request.id.clone(), token, addr, self.claim_op.clone())
    }

    /// Giving up cancels, so that no late issue leaves a token behind. What the store does not answer at once goes on in
    /// the background, and the answer is false.
    async fn give_up(&mut self) -> bool {
        if !self.exposed {
            return true;
        }
        let (player, request) = (&self.request.player, &self.request.id);
        let claimant = self.proxy.core.releasing();
        match self.proxy.core.book.cancel(player, request, &claimant, Some(&self.claim_op), &self.asked).await {
            Ok(_) => self.exposed = false,
            Err(error) => tracing::debug!(%player, %error, "cancelling goes on in the background"),
        }
        !self.exposed
    }
}

/// A backend for a player who gets no place. Asks nobody.
fn balance(proxy: &Proxy, request: Request) -> Result<Balanced, Refusal> {
    if proxy.core.control.is_killed(&proxy.core.identity.id) {
        return Err(proxy.refusal(Reason::KillSwitch, "a kill switch is on"));
    }
    let ranking = proxy.choose(&request.ask, 1);
    let Some(pick) = ranking.picks.first() else {
        return Err(proxy.refusal(Reason::NoCandidate, nobody(&ranking)));
    };
    let (server, addr) = (pick.node.id.clone(), pick.node.addr.clone());
    Ok(Balanced { player: request.player, request: request.id, server, addr })
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        self.proxy.queue.requests.forget_under_way(&self.key());
        self.cancelled.cancel();
        if self.exposed {
            let (player, request) = (self.request.player.clone(), self.request.id.clone());
            let (op, asked) = (self.claim_op.clone(), std::mem::take(&mut self.asked));
            self.proxy.cancel_until_definite(player, request, op, asked);
        }
    }
}
