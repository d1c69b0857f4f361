use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use maitred::agent::{Agent, BackendAgent, ConfigSource, Kept, Managed, ManagedState, Redeemed};
use maitred::ids::Player;
use maitred::node::LoadSample;

use super::inventory::Counted;
use super::line::{Line, error};
use super::member::redeem_pass;

/// A backend behind JSON lines, with an inventory of plain numbers that outlives its agents.
pub(super) struct Duty {
    managed: Managed<BackendAgent<Counted>>,
    inventory: Arc<Counted>,
    load: Arc<Mutex<LoadSample>>,
}

impl Duty {
    pub fn start(source: ConfigSource) -> Self {
        let load = Arc::new(Mutex::new(LoadSample::default()));
        let inventory = Arc::new(Counted::default());
        let (shared, sample) = (Arc::clone(&inventory), Arc::clone(&load));
        let managed = Managed::start(source, move |setup| {
            let sample = Arc::clone(&sample);
            let load = move || sample.lock().unwrap_or_else(PoisonError::into_inner).clone();
            setup.backend_sharing(Arc::clone(&shared), load)
        });
        Self { managed, inventory, load }
    }

    pub fn managed(&self) -> &Managed<BackendAgent<Counted>> {
        &self.managed
    }

    pub async fn answer(&self, line: Line) -> Value {
        match line {
            Line::Places { id, count, region } => match self.inventory.set(region, count) {
                Ok(()) => {
                    if let Some(backend) = self.managed.agent() {
                        backend.restocked();
                        backend.agent().beat_now();
                    }
                    json!({ "id": id, "outcome": "ok", "free": self.inventory.free() })
                }
                Err(problem) => json!({ "id": id, "outcome": "error", "error": problem }),
            },
            Line::Redeem { id, player, pass: None } => self.redeem(&id, &player).await,
            Line::Redeem { id, player, pass: Some(pass) } => {
                let Some(backend) = self.managed.agent() else { return absent(Some(&id), &self.managed) };
                redeem_pass(backend.agent(), &id, &player, &pass, &self.load).await
            }
            Line::Load { id, players, soft_cap, load } => {
                set_load(&self.load, players, soft_cap, *load);
                json!({ "id": id, "outcome": "ok" })
            }
            Line::Status { id } => {
                let Some(backend) = self.managed.agent() else { return absent(id.as_deref(), &self.managed) };
                let mut status = status(backend.agent(), id.as_deref());
                status["free"] = self.inventory.free().into();
                status["promised"] = backend.promised().into();
                status
            }
            other => other.not_here("a backend"),
        }
    }

    async fn redeem(&self, id: &str, player: &Player) -> Value {
        let Some(backend) = self.managed.agent() else { return absent(Some(id), &self.managed) };
        match backend.redeem(player).await {
            Ok(Redeemed::Landed { token, place, payload }) => {
                let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
                load.players = load.players.saturating_add(1);
                json!({
                    "id": id, "outcome": "landed", "player": player, "token": token, "payload": payload,
                    "place": place.number, "region": place.region,
                })
            }
            Ok(Redeemed::None) => json!({ "id": id, "outcome": "none", "player": player }),
            Ok(Redeemed::Refused(reason)) => {
                json!({ "id": id, "outcome": "refused", "player": player, "reason": reason.as_str() })
            }
            Err(why) => error(Some(id), &why),
        }
    }
}

/// The answer while no agent runs.
pub(super) fn absent<A: Kept>(id: Option<&str>, managed: &Managed<A>) -> Value {
    let state = managed.state().borrow().clone();
    let retryable = matches!(state, ManagedState::Starting | ManagedState::Disabled { .. });
    json!({ "id": id, "outcome": "error", "error": "no agent runs now", "agent": state, "retryable": retryable })
}

/// Takes over a load line.
pub(super) fn set_load(
    load: &Mutex<LoadSample>,
    players: Option<u64>,
    soft_cap: Option<u64>,
    more: maitred::node::Load,
) {
    let mut load = load.lock().unwrap_or_else(PoisonError::into_inner);
    load.players = players.unwrap_or(load.players);
    load.soft_cap = soft_cap.unwrap_or(load.soft_cap);
    load.load = more;
}

/// What every role says of itself.
pub(super) fn status(agent: &Agent, id: Option<&str>) -> Value {
    let snapshot = agent.directory().snapshot();
    let online = snapshot.nodes.iter().filter(|view| view.liveness == maitred::node::Liveness::Online).count();
    let drops: serde_json::Map<String, Value> = agent
        .verifier()
        .audit()
        .counts()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| (reason.to_owned(), count.into()))
        .collect();
    json!({
        "id": id, "outcome": "ok", "node": agent.lease().id(), "epoch": agent.lease().epoch(),
        "agent": *agent.status().borrow(), "lease_left_ms": agent.lease().left_ms(),
        "config": *agent.config_version().borrow(), "online": online, "stale": snapshot.stale, "audit": drops,
    })
}
