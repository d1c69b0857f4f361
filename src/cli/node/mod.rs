//! `maitred node`: a reference process for either role, and a sidecar for applications in other languages. JSON lines
//! come in on stdin and, with `--listen`, over TCP; answers go back where the line came from, events go to everybody.

mod backend;
mod events;
mod inventory;
mod line;
mod proxy;
mod router;
mod session;

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Agent, AgentStatus, Setup};
use crate::error::Error;
use crate::ids::{Epoch, NodeId, Role};
use crate::node::LoadSample;

use super::Failure;
use super::context::Context;
use session::Outputs;

/// Options of `maitred node`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Node id [env: MAITRED_NODE_ID; then the config's]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Role: backend, proxy, lobby, or another one that only sends and answers messages [default: the config's]
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Address that players are sent to [default: the config's]
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<String>,
    /// A proxy that is no member: it claims the tokens of players who connect, and publishes nothing
    #[arg(long)]
    router: bool,
    /// Serve the same lines over TCP, a connection a client
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
}

/// The part of the process that knows its role.
enum Duty {
    Backend(backend::Duty),
    Proxy(proxy::Duty),
    Router(Box<router::Duty>),
    Other(Agent),
}

impl Duty {
    /// The membership; a router has none.
    fn agent(&self) -> Option<&Agent> {
        match self {
            Self::Backend(duty) => Some(duty.agent()),
            Self::Proxy(duty) => Some(duty.agent()),
            Self::Router(_) => None,
            Self::Other(agent) => Some(agent),
        }
    }

    async fn leave(&self) {
        match self {
            Self::Backend(duty) => duty.leave().await,
            Self::Proxy(duty) => duty.leave().await,
            Self::Router(_) => {}
            Self::Other(agent) => agent.leave().await,
        }
    }

    /// One line of a client; the answer goes back to it.
    async fn answer(&self, line: line::Line) -> Value {
        match self {
            Self::Backend(duty) => duty.answer(line).await,
            Self::Proxy(duty) => duty.answer(line).await,
            Self::Router(duty) => duty.answer(line).await,
            Self::Other(_) => line.not_here("a node of this role"),
        }
    }
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let mut config = context.config.clone();
    config.enabled = true;
    if let Some(id) = &options.id {
        config.node.id = Some(NodeId::new(id)?);
    }
    if let Some(role) = &options.role {
        config.node.role = Role::new(role)?;
    }
    if let Some(addr) = options.addr {
        config.node.addr = addr;
    }
    let listener = match &options.listen {
        Some(addr) => {
            Some(TcpListener::bind(addr).await.map_err(|error| Failure::io(&format!("listening on {addr}"), &error))?)
        }
        None => None,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::io("SIGTERM", &error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::io("SIGINT", &error))?;

    let setup = Setup::from_env(config)?;
    let role = setup.config().node.role.clone();
    let duty = Arc::new(match role.as_str() {
        "proxy" if options.router => Duty::Router(Box::new(router::Duty::start(setup)?)),
        _ if options.router => return Err(Failure::Usage("--router goes with --role proxy".to_owned())),
        "backend" => Duty::Backend(backend::Duty::start(setup)?),
        "proxy" => Duty::Proxy(proxy::Duty::start(setup, false)?),
        "lobby" => Duty::Proxy(proxy::Duty::start(setup, true)?),
        _ => Duty::Other(setup.node(LoadSample::default)?),
    });
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let outputs = Outputs::default();
    let stdout = outputs.add(tokio::io::stdout(), &tasks);
    let listen = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    tasks.spawn(events::forward(Arc::clone(&duty), outputs.clone(), listen, stop.clone()));
    let sessions = session::Sessions { duty: Arc::clone(&duty), outputs, tasks: tasks.clone(), stop: stop.clone() };
    sessions.read(tokio::io::stdin(), stdout);
    if let Some(listener) = listener {
        sessions.listen(listener);
    }

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        error = refused(duty.agent()) => {
            duty.leave().await;
            return Err(error.into());
        }
    }
    duty.leave().await;
    stop.cancel();
    sessions.end().await;
    Ok(())
}

/// Ends when the agent can never become a member.
async fn refused(agent: Option<&Agent>) -> Error {
    let Some(agent) = agent else { return std::future::pending().await };
    let mut status = agent.status();
    loop {
        if let AgentStatus::Refused { error } = &*status.borrow_and_update() {
            return Error::Protocol { during: "starting the node", detail: error.clone() };
        }
        if status.changed().await.is_err() {
            return Error::ShuttingDown;
        }
    }
}

/// The line that says a node is ready. `listen` is there with `--listen`, so that port 0 can be asked for.
fn ready(id: &NodeId, epoch: Epoch, listen: Option<SocketAddr>) -> Value {
    let mut line = json!({ "event": "ready", "id": id, "epoch": epoch });
    if let Some(addr) = listen {
        line["listen"] = addr.to_string().into();
    }
    line
}
