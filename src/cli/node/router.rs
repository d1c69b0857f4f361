use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::agent::{RouterAgent, Setup};
use crate::error::Result;
use crate::ids::Epoch;

use super::line::Line;
use super::proxy::told;
use super::ready;
use super::session::Outputs;

/// Time between two tries to reach the store.
const RETRY: Duration = Duration::from_millis(500);

/// A router proxy behind JSON lines.
pub(super) struct Duty {
    router: RouterAgent,
}

impl Duty {
    pub fn start(setup: Setup) -> Result<Self> {
        Ok(Self { router: setup.router()? })
    }

    pub async fn answer(&self, line: Line) -> Value {
        match line {
            Line::Take { id, player } => {
                let outcome = self.router.take(&player).await;
                told(&id, &player, &outcome)
            }
            Line::Status { id } => json!({ "id": id, "outcome": "ok", "node": self.router.id(), "router": true }),
            other => other.not_here("a router"),
        }
    }

    /// Says that it is ready once the store was reached.
    pub async fn forward(&self, outputs: &Outputs, listen: Option<SocketAddr>, stop: &CancellationToken) {
        loop {
            match self.router.prepare().await {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "the store cannot be used yet"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(RETRY) => {}
            }
        }
        let mut line = ready(self.router.id(), Epoch::NONE, listen);
        line["router"] = true.into();
        outputs.tell(&line);
    }
}
