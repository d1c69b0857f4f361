use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::agent::{Agent, BackendAgent, Redeemed, Setup};
use crate::error::Result;
use crate::ids::Player;
use crate::node::LoadSample;

use super::inventory::Counted;
use super::line::{Line, error};

/// A backend behind JSON lines, with an inventory of plain numbers.
pub(super) struct Duty {
    backend: BackendAgent<Counted>,
    load: Arc<Mutex<LoadSample>>,
}

impl Duty {
    pub fn start(setup: Setup) -> Result<Self> {
        let load = Arc::new(Mutex::new(LoadSample::default()));
        let sample = Arc::clone(&load);
        let backend =
            setup.backend(Counted::default(), move || sample.lock().unwrap_or_else(PoisonError::into_inner).clone())?;
        Ok(Self { backend, load })
    }

    pub fn agent(&self) -> &Agent {
        self.backend.agent()
    }

    pub fn events(&self) -> tokio::sync::broadcast::Receiver<crate::agent::BackendEvent> {
        self.backend.events()
    }

    pub async fn leave(&self) {
        self.backend.leave().await;
    }

    pub async fn answer(&self, line: Line) -> Value {
        match line {
            Line::Places { id, count, region } => match self.backend.inventory().set(region, count) {
                Ok(()) => {
                    self.agent().beat_now();
                    json!({ "id": id, "outcome": "ok", "free": self.backend.inventory().free() })
                }
                Err(problem) => json!({ "id": id, "outcome": "error", "error": problem }),
            },
            Line::Redeem { id, player } => self.redeem(&id, &player).await,
            Line::Load { id, players, soft_cap, load } => {
                set_load(&self.load, players, soft_cap, *load);
                json!({ "id": id, "outcome": "ok" })
            }
            Line::Status { id } => {
                let mut status = status(self.agent(), id.as_deref());
                status["free"] = self.backend.inventory().free().into();
                status["promised"] = self.backend.promised().into();
                status
            }
            other => other.not_here("a backend"),
        }
    }

    async fn redeem(&self, id: &str, player: &Player) -> Value {
        match self.backend.redeem(player).await {
            Ok(Redeemed::Landed { token, place, payload }) => {
                let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
                load.players += 1;
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

/// Takes over a load line.
pub(super) fn set_load(load: &Mutex<LoadSample>, players: Option<u64>, soft_cap: Option<u64>, more: crate::node::Load) {
    let mut load = load.lock().unwrap_or_else(PoisonError::into_inner);
    load.players = players.unwrap_or(load.players);
    load.soft_cap = soft_cap.unwrap_or(load.soft_cap);
    load.load = more;
}

/// What every role says of itself.
pub(super) fn status(agent: &Agent, id: Option<&str>) -> Value {
    let snapshot = agent.directory().snapshot();
    let online = snapshot.nodes.iter().filter(|view| view.liveness == crate::node::Liveness::Online).count();
    let drops: serde_json::Map<String, Value> = agent
        .trust()
        .audit()
        .counts()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| (reason.to_owned(), count.into()))
        .collect();
    json!({
        "id": id, "outcome": "ok", "node": agent.lease().id(), "epoch": agent.lease().epoch(),
        "agent": *agent.status().borrow(), "lease_left_ms": agent.lease().left_ms(),
        "online": online, "stale": snapshot.stale, "audit": drops,
    })
}
