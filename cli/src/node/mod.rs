//! `maitred node`: a reference process for either role, and a sidecar for applications in other languages. JSON lines
//! come in on stdin and, with `--listen`, over TCP; answers go back where the line came from, events go to everybody.

mod backend;
mod events;
mod inventory;
mod line;
mod member;
mod proxy;
mod queue;
mod router;
mod session;

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use maitred::agent::config::Stated;
use maitred::agent::{Agent, BackendAgent, ConfigSource, ManagedState, ProxyAgent, Reloaded, RouterAgent};
use maitred::error::Error;
use maitred::ids::{Epoch, NodeId, Role};

use super::Failure;
use super::context::Context;
use session::Outputs;

const HELP: &str = "\
SIGHUP reads the config file again, where --config names one. What can change while the node runs (dispatch, triggers, \
texts) is taken over at once; for anything else the node leaves and joins again. A file with problems changes nothing. \
The line is {\"event\":\"reloaded\",\"outcome\":\"swapped|restarted|started|switched_off|unchanged\",\"changed\":[…]} or \
{\"event\":\"reload_refused\",\"problems\":[…]}. A file that says enabled: true at the start can switch the node off with \
enabled: false, and on again; one that is empty, or says nothing of it then, is refused. Options go before the file at each reload. {\"event\":\"config\",\"version\":…} says which pushed config is in force \
from then on, null for the file alone; one that is in force at the start stands in the line that says ready.";

/// Options of `maitred node`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
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
    Router(router::Duty),
    Other(member::Duty),
}

/// Runs `$body` with `$managed` bound to the managed agent, whatever its role.
macro_rules! managed {
    ($duty:expr, $managed:ident => $body:expr) => {
        match $duty {
            Duty::Backend(duty) => {
                let $managed = duty.managed();
                $body
            }
            Duty::Proxy(duty) => {
                let $managed = duty.managed();
                $body
            }
            Duty::Router(duty) => {
                let $managed = duty.managed();
                $body
            }
            Duty::Other(duty) => {
                let $managed = duty.managed();
                $body
            }
        }
    };
}

impl Duty {
    fn state(&self) -> watch::Receiver<ManagedState> {
        managed!(self, managed => managed.state())
    }

    async fn reload(&self) -> Result<Reloaded, Error> {
        managed!(self, managed => managed.reload().await)
    }

    async fn stop(&self) {
        managed!(self, managed => managed.stop().await);
    }

    /// The agent that runs now.
    fn running(&self) -> Option<Running> {
        Some(match self {
            Self::Backend(duty) => Running::Backend(duty.managed().agent()?),
            Self::Proxy(duty) => Running::Proxy(duty.managed().agent()?),
            Self::Router(duty) => Running::Router(duty.managed().agent()?),
            Self::Other(duty) => Running::Other(duty.managed().agent()?),
        })
    }

    /// One line of a client; the answer goes back to it.
    async fn answer(&self, line: line::Line) -> Value {
        match self {
            Self::Backend(duty) => duty.answer(line).await,
            Self::Proxy(duty) => duty.answer(line).await,
            Self::Router(duty) => duty.answer(line).await,
            Self::Other(duty) => duty.answer(line).await,
        }
    }
}

/// One agent.
enum Running {
    Backend(Arc<BackendAgent<inventory::Counted>>),
    Proxy(Arc<ProxyAgent>),
    Router(Arc<RouterAgent>),
    Other(Arc<Agent>),
}

impl Running {
    /// The membership; a router has none.
    fn agent(&self) -> Option<&Agent> {
        match self {
            Self::Backend(backend) => Some(backend.agent()),
            Self::Proxy(proxy) => Some(proxy.agent()),
            Self::Router(_) => None,
            Self::Other(agent) => Some(agent),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Backend(one), Self::Backend(other)) => Arc::ptr_eq(one, other),
            (Self::Proxy(one), Self::Proxy(other)) => Arc::ptr_eq(one, other),
            (Self::Router(one), Self::Router(other)) => Arc::ptr_eq(one, other),
            (Self::Other(one), Self::Other(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let role = match &options.role {
        Some(role) => Role::new(role)?,
        None => context.config.node.role.clone(),
    };
    if options.router && role != Role::proxy() {
        return Err(Failure::Usage("--router goes with --role proxy".to_owned()));
    }
    let id = options.id.as_ref().map(NodeId::new).transpose()?;
    let listener = match &options.listen {
        Some(addr) => {
            Some(TcpListener::bind(addr).await.map_err(|error| Failure::io(&format!("listening on {addr}"), &error))?)
        }
        None => None,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::io("SIGTERM", &error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::io("SIGINT", &error))?;
    // Without a file there is nothing to read again, and the end of a terminal ends the process.
    let mut hangup = match context.globals.config {
        Some(_) => Some(signal(SignalKind::hangup()).map_err(|error| Failure::io("SIGHUP", &error))?),
        None => None,
    };

    let routes = options.router;
    let source = source(context, id, role.clone(), options.addr);
    let stop = CancellationToken::new();
    let (outputs, tasks) = (Outputs::default(), TaskTracker::new());
    let proxy = |source, is_lobby| {
        let queue = queue::Queue::new(outputs.clone(), tasks.clone(), stop.clone());
        proxy::Duty::start(source, is_lobby, outputs.clone(), tasks.clone(), queue)
    };
    let duty = Arc::new(match role.as_str() {
        "proxy" if routes => Duty::Router(router::Duty::start(source)),
        "backend" => Duty::Backend(backend::Duty::start(source)),
        "proxy" => Duty::Proxy(proxy(source, false)),
        "lobby" => Duty::Proxy(proxy(source, true)),
        _ => Duty::Other(member::Duty::start(source, &role)),
    });
    // Whoever starts a process with a config that cannot work wants to hear it from its exit.
    duty.reload().await?;
    let stdout = outputs.add(tokio::io::stdout(), &tasks);
    let listen = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    tasks.spawn(events::forward(Arc::clone(&duty), outputs.clone(), listen, stop.clone()));
    let sessions = session::Sessions {
        duty: Arc::clone(&duty),
        outputs: outputs.clone(),
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    sessions.read(tokio::io::stdin(), stdout);
    if let Some(listener) = listener {
        sessions.listen(listener);
    }

    let refused = refused(&duty);
    tokio::pin!(refused);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = hung_up(&mut hangup) => {
                // Leaving may take a while, and a SIGTERM meanwhile waits only for that.
                let (duty, outputs) = (Arc::clone(&duty), outputs.clone());
                tasks.spawn(async move { outputs.tell(&reloaded(duty.reload().await)) });
            }
            error = &mut refused => {
                duty.stop().await;
                return Err(error.into());
            }
        }
    }
    duty.stop().await;
    stop.cancel();
    sessions.end().await;
    Ok(())
}

/// The config of this process: the file, then the environment, then the options.
fn source(context: &Context, id: Option<NodeId>, role: Role, addr: Option<String>) -> ConfigSource {
    let globals = context.globals.clone();
    // The command itself says that it is wanted; a file that is switched on can be switched off later.
    let obeys = context.config.enabled;
    // A file that was empty from the start takes nothing away by staying so.
    let began_empty = globals.stated_config().is_ok_and(|(_, stated)| stated == Stated::Empty);
    ConfigSource::stating(move || {
        let (mut config, mut stated) = globals.stated_config().map_err(|failure| match failure {
            Failure::Error(error) => error,
            other => Error::Config { problems: vec![other.text().unwrap_or_default()] },
        })?;
        config.enabled |= !obeys;
        // A file that never said it need not say it at a reload; an empty one would still take zone and store away.
        if !obeys && (stated == Stated::NotEnabled || began_empty) {
            stated = Stated::Enabled;
        }
        config.node.role = role.clone();
        if let Some(id) = &id {
            config.node.id = Some(id.clone());
        }
        if let Some(addr) = &addr {
            config.node.addr.clone_from(addr);
        }
        Ok((config, stated))
    })
}

async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            if hangup.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}

/// The line that tells what a reload did.
fn reloaded(outcome: Result<Reloaded, Error>) -> Value {
    match outcome {
        Ok(done) => {
            let mut line = json!(done);
            line["event"] = "reloaded".into();
            line
        }
        Err(Error::Config { problems }) => json!({ "event": "reload_refused", "problems": problems }),
        Err(error) => json!({ "event": "reload_refused", "problems": [error.to_string()] }),
    }
}

/// Ends when the agent can never become a member.
async fn refused(duty: &Duty) -> Error {
    let mut state = duty.state();
    loop {
        if let ManagedState::Refused { why, for_good: true } = &*state.borrow_and_update() {
            return Error::Protocol { during: "starting the node", detail: why.clone() };
        }
        if state.changed().await.is_err() {
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
