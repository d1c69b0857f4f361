use serde_json::{Value, json};

use maitred::agent::{ConfigSource, Managed, RouterAgent};

use super::backend::absent;
use super::line::Line;
use super::proxy::told;

/// A router proxy behind JSON lines.
pub(super) struct Duty {
    managed: Managed<RouterAgent>,
}

impl Duty {
    pub fn start(source: ConfigSource) -> Self {
        Self { managed: Managed::start(source, maitred::agent::Setup::router) }
    }

    pub fn managed(&self) -> &Managed<RouterAgent> {
        &self.managed
    }

    pub async fn answer(&self, line: Line) -> Value {
        let Some(router) = self.managed.agent() else { return absent(line.id(), &self.managed) };
        match line {
            Line::Take { id, player } => {
                let outcome = router.take(&player).await;
                told(&id, &player, &outcome)
            }
            Line::Status { id } => json!({
                "id": id, "outcome": "ok", "node": router.id(), "router": true,
                "config": *router.config_version().borrow(),
            }),
            other => other.not_here("a router"),
        }
    }
}
