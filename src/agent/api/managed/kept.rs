//! What [`Managed`](crate::agent::Managed) has to know of an agent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::agent::api::agent::Agent;
use crate::agent::api::backend::BackendAgent;
use crate::agent::api::proxy::ProxyAgent;
use crate::agent::api::router::RouterAgent;
use crate::agent::backend::Inventory;
use crate::agent::config::Config;
use crate::agent::core::{AgentStatus, Live};
use crate::error::{Error, Result};
use crate::ids::Epoch;
use crate::node::ControlEntry;

use super::state::ManagedState;

/// Time between two tries of a router to reach the store.
const ROUTER_RETRY: Duration = Duration::from_millis(500);

/// Takes what an agent says of itself.
pub type Tell<'a> = &'a (dyn Fn(ManagedState) + Send + Sync);

/// How an agent is followed, changed and ended.
pub trait Keep: Send + Sync + 'static {
    /// Tells how it is, for as long as it is polled. Ends only where the agent can never work, with the reason.
    fn follow(&self, tell: Tell<'_>) -> impl Future<Output = Error> + Send;

    /// Its config.
    fn live(&self) -> &Live;

    /// Takes the sections of a config that can change while it runs.
    fn set_file(&self, config: &Config) -> Result<()> {
        self.live().set_file(config)
    }

    /// The push in force.
    fn push(&self) -> Option<ControlEntry> {
        self.live().in_force()
    }

    /// Takes over the push that was in force in the agent before it.
    fn carry(&self, push: &ControlEntry) {
        self.live().carry(push);
    }

    /// Leaves; bounded.
    fn end(&self) -> impl Future<Output = ()> + Send;

    /// What is left to do after it left, for as long as that takes.
    fn wind_down(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

impl Keep for Agent {
    async fn follow(&self, tell: Tell<'_>) -> Error {
        let mut status = self.status();
        loop {
            let state = match &*status.borrow_and_update() {
                AgentStatus::Connecting { error: None } => Some(ManagedState::Starting),
                AgentStatus::Connecting { error: Some(why) } => Some(ManagedState::Disabled { why: why.clone() }),
                AgentStatus::Duplicate { addr, lease_left_ms } => Some(ManagedState::Disabled {
                    why: format!(
                        "the node id is in use by a live process at {addr}; its lease ends in {lease_left_ms} ms if it stops"
                    ),
                }),
                AgentStatus::Member { epoch } => Some(ManagedState::Enabled { epoch: *epoch }),
                AgentStatus::LeaseLost { error } => {
                    let why = error.as_deref().unwrap_or("no heartbeat got through");
                    Some(ManagedState::Disabled { why: format!("the lease ran out: {why}") })
                }
                AgentStatus::Refused { error } => {
                    return Error::Protocol { during: "starting the agent", detail: error.clone() };
                }
                AgentStatus::Stopped => None,
            };
            if let Some(state) = state {
                tell(state);
            }
            if status.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn live(&self) -> &Live {
        &self.core().live
    }

    async fn end(&self) {
        self.leave().await;
    }
}

impl<I: Inventory> Keep for BackendAgent<I> {
    async fn follow(&self, tell: Tell<'_>) -> Error {
        self.agent().follow(tell).await
    }

    fn live(&self) -> &Live {
        self.agent().live()
    }

    async fn end(&self) {
        self.leave().await;
    }

    async fn wind_down(self: Arc<Self>) {
        self.backend().wind_down().await;
    }
}

impl Keep for ProxyAgent {
    async fn follow(&self, tell: Tell<'_>) -> Error {
        self.agent().follow(tell).await
    }

    fn live(&self) -> &Live {
        self.agent().live()
    }

    async fn end(&self) {
        self.leave().await;
    }
}

impl Keep for RouterAgent {
    async fn follow(&self, tell: Tell<'_>) -> Error {
        loop {
            match self.prepare().await {
                Ok(()) => break,
                Err(error @ Error::PinMismatch { .. }) => return error,
                Err(error) => tell(ManagedState::Disabled { why: error.to_string() }),
            }
            sleep(ROUTER_RETRY).await;
        }
        tell(ManagedState::Enabled { epoch: Epoch::NONE });
        std::future::pending().await
    }

    fn live(&self) -> &Live {
        &self.live
    }

    async fn end(&self) {}
}
