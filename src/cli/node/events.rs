use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, BackendEvent};
use crate::node::{KILL, LeaseEvent, kill_name};

use super::session::Outputs;
use super::{Duty, ready};

/// Tells every client what happens to the node, until `stop`.
pub(super) async fn forward(duty: Arc<Duty>, outputs: Outputs, listen: Option<SocketAddr>, stop: CancellationToken) {
    let Some(agent) = duty.agent() else {
        if let Duty::Router(router) = &*duty {
            router.forward(&outputs, listen, &stop).await;
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
    let mut switches = Switches::default();
    let mut is_ready = agent.lease().is_valid();
    if is_ready {
        outputs.tell(&ready(agent.lease().id(), agent.lease().epoch(), listen));
        switches.tell(agent, &outputs);
    }
    loop {
        // In this order, so that what happened before a stop is told before it.
        tokio::select! {
            biased;
            event = lease.recv() => match event {
                Ok(LeaseEvent::Joined { .. }) => {
                    if !std::mem::replace(&mut is_ready, true) {
                        outputs.tell(&ready(agent.lease().id(), agent.lease().epoch(), listen));
                        switches.tell(agent, &outputs);
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
            // A switch that is on already comes after the line that says ready.
            changed = control.changed(), if is_ready => {
                if changed.is_err() {
                    return;
                }
                switches.tell(agent, &outputs);
            }
            () = stop.cancelled() => return,
        }
    }
}

/// The kill switches as they were last told.
#[derive(Default)]
struct Switches {
    fleet: bool,
    own: bool,
}

impl Switches {
    fn tell(&mut self, agent: &Agent, outputs: &Outputs) {
        let id = agent.lease().id();
        let fleet = agent.control().is_on(KILL);
        if std::mem::replace(&mut self.fleet, fleet) != fleet {
            outputs.tell(&json!({ "event": "kill", "scope": "fleet", "on": fleet }));
        }
        let own = agent.control().is_on(&kill_name(id));
        if std::mem::replace(&mut self.own, own) != own {
            outputs.tell(&json!({ "event": "kill", "scope": id, "on": own }));
        }
    }
}

fn text(event: &impl Serialize) -> Value {
    serde_json::to_value(event).unwrap_or_else(|error| json!({ "event": "error", "error": error.to_string() }))
}
