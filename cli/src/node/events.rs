use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use maitred::agent::{Agent, AgentStatus, BackendEvent, ManagedState, RouterAgent};
use maitred::ids::Epoch;
use maitred::node::{KILL, LeaseEvent, kill_name};

use super::session::Outputs;
use super::{Duty, Running, ready};

/// Tells every client what happens to the node, until `stop`.
pub(super) async fn forward(duty: Arc<Duty>, outputs: Outputs, listen: Option<SocketAddr>, stop: CancellationToken) {
    let mut state = duty.state();
    let mut told: Option<Running> = None;
    loop {
        state.borrow_and_update();
        let fresh = duty.running().filter(|running| told.as_ref().is_none_or(|old| !old.is(running)));
        if let Some(running) = fresh {
            match &running {
                Running::Router(router) => tokio::select! {
                    () = told_router(router, state.clone(), &outputs, listen) => {}
                    () = stop.cancelled() => return,
                },
                _ => {
                    if one(&running, &outputs, listen, &stop).await.is_break() {
                        return;
                    }
                }
            }
            told = Some(running);
            continue;
        }
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Says that a router is ready once it reached the store.
async fn told_router(
    router: &RouterAgent,
    mut state: watch::Receiver<ManagedState>,
    outputs: &Outputs,
    listen: Option<SocketAddr>,
) {
    if state.wait_for(|state| matches!(state, ManagedState::Enabled { .. })).await.is_ok() {
        let mut line = ready(router.id(), Epoch::NONE, listen);
        line["router"] = true.into();
        outputs.tell(&line);
    }
}

/// Tells what happens to one agent, until it has left. Breaks where there is nothing to tell any more.
async fn one(
    running: &Running,
    outputs: &Outputs,
    listen: Option<SocketAddr>,
    stop: &CancellationToken,
) -> ControlFlow<()> {
    let Some(agent) = running.agent() else { return ControlFlow::Continue(()) };
    let mut lease = agent.lease().events();
    let mut control = agent.control().changes();
    let mut status = agent.status();
    let mut config = agent.config_version();
    let (_none, mut places) = match running {
        Running::Backend(backend) => (None, backend.events()),
        _ => {
            let (sender, receiver) = broadcast::channel::<BackendEvent>(1);
            (Some(sender), receiver)
        }
    };
    let mut switches = Switches::default();
    let greet = |switches: &mut Switches, version: Option<u64>| {
        let mut line = ready(agent.lease().id(), agent.lease().epoch(), listen);
        if let Some(version) = version {
            line["config"] = version.into();
        }
        outputs.tell(&line);
        switches.tell(agent, outputs);
    };
    let mut is_ready = agent.lease().is_valid();
    if is_ready {
        greet(&mut switches, *config.borrow_and_update());
    }
    loop {
        // In this order, so that what happened before a stop is told before it.
        tokio::select! {
            biased;
            event = lease.recv() => match event {
                Ok(LeaseEvent::Joined { .. }) => {
                    if !std::mem::replace(&mut is_ready, true) {
                        greet(&mut switches, *config.borrow_and_update());
                    }
                }
                Ok(event) => outputs.tell(&text(&event)),
                Err(RecvError::Lagged(missed)) => outputs.tell(&json!({ "event": "missed", "events": missed })),
                Err(RecvError::Closed) => return ControlFlow::Break(()),
            },
            event = places.recv() => match event {
                Ok(event) => outputs.tell(&text(&event)),
                Err(RecvError::Lagged(missed)) => outputs.tell(&json!({ "event": "missed", "events": missed })),
                Err(RecvError::Closed) => return ControlFlow::Break(()),
            },
            // What is in force already comes after the line that says ready.
            changed = control.changed(), if is_ready => {
                if changed.is_err() {
                    return ControlFlow::Break(());
                }
                switches.tell(agent, outputs);
            }
            changed = config.changed(), if is_ready => {
                if changed.is_err() {
                    return ControlFlow::Break(());
                }
                outputs.tell(&json!({ "event": "config", "version": *config.borrow_and_update() }));
            }
            ended = status.wait_for(|status| *status == AgentStatus::Stopped) => {
                return if ended.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
            }
            () = stop.cancelled() => return ControlFlow::Break(()),
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
