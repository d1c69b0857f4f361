use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use maitred::agent::{Agent, ConfigSource, Managed};
use maitred::ids::{Player, Role};
use maitred::node::LoadSample;

use super::backend::{absent, set_load, status};
use super::line::{Line, error};

/// A member of any other role behind JSON lines. Players come to a link through a login line, so a link takes them.
pub(super) struct Duty {
    managed: Managed<Agent>,
    load: Arc<Mutex<LoadSample>>,
}

impl Duty {
    pub fn start(source: ConfigSource, role: &Role) -> Self {
        let load = Arc::new(Mutex::new(LoadSample::default()));
        let sample = Arc::clone(&load);
        let takes_players = *role == Role::link();
        let managed = Managed::start(source, move |setup| {
            let sample = Arc::clone(&sample);
            let agent = setup.node(move || sample.lock().unwrap_or_else(PoisonError::into_inner).clone())?;
            agent.set_accepting(takes_players);
            Ok(agent)
        });
        Self { managed, load }
    }

    pub fn managed(&self) -> &Managed<Agent> {
        &self.managed
    }

    pub async fn answer(&self, line: Line) -> Value {
        let line = match line {
            Line::Load { id, players, soft_cap, load } => {
                set_load(&self.load, players, soft_cap, *load);
                return json!({ "id": id, "outcome": "ok" });
            }
            line => line,
        };
        let Some(agent) = self.managed.agent() else { return absent(line.id(), &self.managed) };
        match line {
            Line::Redeem { id, player, pass: Some(pass) } => redeem_pass(&agent, &id, &player, &pass, &self.load).await,
            Line::Status { id } => status(&agent, id.as_deref()),
            other => other.not_here("a node of this role"),
        }
    }
}

/// Lets in a player who brought a login pass, once, and counts them.
pub(super) async fn redeem_pass(
    agent: &Agent,
    id: &str,
    player: &Player,
    sealed: &str,
    load: &Mutex<LoadSample>,
) -> Value {
    let refused = |reason: maitred::queue::PassRefusal| {
        json!({
            "id": id, "outcome": "refused", "player": player, "reason": reason.as_str(), "detail": reason.to_string(),
        })
    };
    let pass = match agent.verify_pass(sealed, player) {
        Ok(pass) => pass,
        Err(reason) => return refused(reason),
    };
    match agent.redeem_pass(&pass).await {
        Ok(Ok(())) => {
            let mut load = load.lock().unwrap_or_else(PoisonError::into_inner);
            load.players = load.players.saturating_add(1);
            json!({ "id": id, "outcome": "redeemed", "player": player, "line": pass.line, "serial": pass.serial })
        }
        Ok(Err(reason)) => refused(reason),
        Err(why) => error(Some(id), &why),
    }
}
