use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use crate::agent::BackendEvent;
use crate::node::{KILL, LeaseEvent, kill_name};

use super::session::Outputs;
use super::{Duty, ready};

/// Tells every client what happens to the node, until `stop`.
pub(super) async fn forward(duty: Arc<Duty>, outputs: Outputs, stop: CancellationToken) {
    let Some(agent) = duty.agent() else {
        if let Duty::Router(router) = &*duty {
            router.forward(&outputs, &stop).await;
        }
        return;
    };
    let mut lease = agent.lease().events();
    let mut control = agent.control().changes();
    let (_none, mut places) = match &*duty {
        Duty::Backend(backend) => (None, backend.events()),
        _ => {
            let (sender, receiver) = broadcast::channel::<BackendEvent>(1);
            (Some(sender), receiver)
        }
    };
    let mut is_ready = false;
    let mut killed = (false, false);
    if agent.lease().is_valid() {
        is_ready = true;
        outputs.tell(&ready(agent));
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            event = lease.recv() => match event {
                Ok(LeaseEvent::Joined { .. }) => {
                    if !std::mem::replace(&mut is_ready, true) {
                        outputs.tell(&ready(agent));
                    }
                }
                Ok(event) => outputs.tell(&text(&event)),
                Err(RecvError::Lagged(missed)) => outputs.tell(&json!({ "event": "missed", "events": missed })),
                Err(RecvError::Closed) => return,
            },
            event = places.recv() => match event {
                Ok(event) => outputs.tell(&text(&event)),
                Err(RecvError::Lagged(missed)) => outputs.tell(&json!({ "event": "missed", "events": missed })),
                Err(RecvError::Closed) => return,
            },
            changed = control.changed() => {
                if changed.is_err() {
                    return;
                }
                let own = kill_name(agent.lease().id());
                let now = (agent.control().is_on(KILL), agent.control().is_on(&own));
                if now.0 != killed.0 {
                    outputs.tell(&json!({ "event": "kill", "scope": "fleet", "on": now.0 }));
                }
                if now.1 != killed.1 {
                    outputs.tell(&json!({ "event": "kill", "scope": agent.lease().id(), "on": now.1 }));
                }
                killed = now;
            }
        }
    }
}

fn text(event: &impl Serialize) -> Value {
    serde_json::to_value(event).unwrap_or_else(|error| json!({ "event": "error", "error": error.to_string() }))
}
