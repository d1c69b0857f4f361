//! Wait lines: requests that no backend has a place for, and what the application asks of one that waits.

use std::sync::Arc;

use crate::agent::config::{Config, OnNoCandidate};
use crate::agent::core::Charge;
use crate::agent::core::Core;
use crate::agent::model::{Reason, Request};
use crate::error::{Error, Result};
use crate::ids::{LineName, Player, RequestId, SessionId};
use crate::queue::{Attributes, Left};
use crate::token::CancelOutcome;

use super::client::{QueueClient, Why};
use super::enter::Entrance;
use super::leave::Leaving;
use super::leaves::{LeaveKind, LeaveRequest};
use super::line_handle::LineHandle;
use super::requests::{Progress, RequestKey, Requests};
use super::told::End;
use super::waiter::{Ending, Waiter};

/// The line that a request which ended for `reason` waits in; `None` where it does not wait. Errors where its wish does not
/// fit into a ticket.
pub(in crate::agent) fn line_for(
    core: &Core,
    config: &Config,
    request: &Request,
    reason: Reason,
) -> Result<Option<LineName>> {
    let queues = config.selector.on_no_candidate == OnNoCandidate::Queue;
    if !queues || request.bypass || !matches!(reason, Reason::NoCandidate | Reason::Refused) {
        return Ok(None);
    }
    let line = match &request.ask.server {
        // The line of a server that nobody knows would end at once, and nobody would serve that of a node without places.
        Some(server) => {
            let snapshot = core.directory.snapshot();
            let view = snapshot.get(server).filter(|view| view.record.role.gives_places());
            view.map(|_| LineName::wait_for(server))
        }
        None => Some(LineName::wait()),
    };
    // Whoever served it might not have what was asked for.
    let ask = &request.ask;
    Attributes::of_wish(&RequestId::short(), ask.region.as_ref(), ask.world.as_deref())?;
    Ok(line)
}

impl QueueClient {
    /// Puts the player of `request` into `line`. Dropped on its way it leaves the line in the background.
    pub async fn wait_for_place(
        &self,
        line: LineName,
        request: &Request,
        config: &Config,
    ) -> std::result::Result<Arc<Waiter>, (Reason, String)> {
        let failed = |error: Error| (Reason::of(&error), error.to_string());
        let key = (request.player.clone(), request.id.clone());
        let line = Arc::new(LineHandle::wait(&self.core, line, &config.wait).map_err(failed)?);
        let (session, ending) = (SessionId::fresh(), Ending::token(request.clone(), Charge::new(&self.core)));
        let waiter = Waiter::new(line, request.player.clone(), 0, session, ending, self.moment());
        if !self.requests.advance(&key, Progress::Waiting(waiter.line_name().clone())) {
            return Err((Reason::Cancelled, "the player went away".to_owned()));
        }
        let mut known = Forget { requests: &self.requests, key, waits: false };
        match self.enter(&waiter, None).await.map_err(failed)? {
            Entrance::Waits => {
                known.waits = true;
                Ok(Arc::clone(&waiter))
            }
            Entrance::Over => match waiter.end() {
                Some(End::Refused(refusal)) => Err((refusal.reason, refusal.detail)),
                _ => Err((Reason::Cancelled, "the agent stopped".to_owned())),
            },
            Entrance::Full => {
                let most = config.wait.max_waiting;
                Err((Reason::QueueFull, format!("the line {} holds {most} players", waiter.line_name())))
            }
            Entrance::Admitted(_) | Entrance::NoPass => {
                self.end(&waiter, End::Left);
                self.leaves.leave_behind(LeaveRequest::Waiter(Arc::clone(&waiter), LeaveKind::Quit));
                Err((Reason::Refused, format!("{} gives no passes", waiter.line_name())))
            }
        }
    }

    fn waiting(&self, player: &Player, request: &RequestId, line: &LineName) -> Option<Arc<Waiter>> {
        let waiter = self.table().get(&(line.clone(), player.clone()))?;
        waiter.request().is_some_and(|own| own.id == *request).then_some(waiter)
    }

    /// The player of a request that waits in `line` went away for good. `None` where it does not wait there any more. What the
    /// store does not answer goes on in the background.
    pub async fn cancel_wait(
        &self,
        player: &Player,
        request: &RequestId,
        line: &LineName,
    ) -> Option<Result<CancelOutcome>> {
        let waiter = self.waiting(player, request, line)?;
        let leaving = Leaving::new(self, &waiter, LeaveKind::Quit);
        self.refuse(&waiter, Why::Cancelled("the player went away"));
        let _turn = self.turns.lock(&waiter.key()).await;
        Some(leaving.send().await.map(|sent| sent.token.unwrap_or(CancelOutcome::Marked)))
    }

    /// See [`ProxyAgent::away`](crate::agent::ProxyAgent::away).
    pub async fn away(&self, player: &Player, request: &RequestId) -> Result<bool> {
        let key = (player.clone(), request.clone());
        let line = self.requests.line_of(&key);
        let Some(waiter) = line.and_then(|line| self.waiting(player, request, &line)) else { return Ok(false) };
        // Where it is over the player may have the place already, and a leave would take it away.
        if !self.refuse(&waiter, Why::Cancelled("the connection dropped; the place is kept for a while")) {
            return Ok(false);
        }
        let leaving = Leaving::new(self, &waiter, LeaveKind::Keep);
        let _turn = self.turns.lock(&waiter.key()).await;
        let sent = leaving.send().await?;
        Ok(sent.left == Left::Away || (sent.left == Left::None && !sent.is_definite))
    }
}

/// A request whose wait never began is not known as one that waits.
struct Forget<'a> {
    requests: &'a Requests,
    key: RequestKey,
    waits: bool,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if !self.waits {
            self.requests.forget_waiting(&self.key);
        }
    }
}
