//! An edge proxy for Minecraft (Java edition, 1.8 and later) in front of a fleet.
//!
//! It reads the handshake and the start of the login, finds the backend with maitred (a place that waits for the player,
//! else the initial placement), connects, hands on exactly the bytes it read, and from then on passes everything both
//! ways. It never sees a password or a key: encryption, if any, is between client and backend, which has to be in offline
//! mode or do without the client's address. Players are known to the fleet by their names.
//!
//! ```sh
//! cat > network.yml <<'YML'
//! initialRouting: { servers: [lobby-a, lobby-b] }
//! YML
//! export MAITRED_SECRET=$(head -c 32 /dev/urandom | base64)
//! cargo run -- node --id lobby-a --role backend --addr 127.0.0.1:25566 &   # beside each Minecraft server
//! cargo run --example minecraft_proxy -- --id edge-1 --config network.yml --listen 127.0.0.1:25565
//! ```
//!
//! - `frame`: lengths, numbers, texts, and the bytes as they came.
//! - `hello`: what a client wants.
//! - `status`: the server list.
//! - `login`: a backend for a player, or the words of a refusal.
//! - `pass`: everything both ways.
//! - `slots`: how many connections there may be.

mod frame;
mod hello;
mod login;
mod pass;
mod slots;
mod status;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use maitred::agent::config::Config;
use maitred::agent::{ProxyAgent, Setup};
use maitred::ids::{BackendName, NodeId};
use maitred::node::LoadSample;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use frame::{Fault, Inlet};
use hello::Hello;
use slots::Slots;

/// Most connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 4_096;
/// Longest time in which a client has to say what it wants, and one that only asks to ask.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// How long the end waits for connections, so that those who are refused read why.
const EXIT_MAX: Duration = Duration::from_secs(2);

/// An edge proxy for Minecraft in front of a fleet.
#[derive(Debug, Parser)]
struct Options {
    /// Where players connect
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:25565")]
    listen: String,
    /// Config of the fleet; store, zone and id may also come from MAITRED_STORE, MAITRED_ZONE and MAITRED_NODE_ID
    #[arg(long, value_name = "FILE", default_value = "network.yml")]
    config: PathBuf,
    /// Node id of this proxy
    #[arg(long, value_name = "ID")]
    id: Option<NodeId>,
    /// A backend that the fleet does not know; may be given several times
    #[arg(long = "static", value_name = "NAME=HOST:PORT")]
    fixed: Vec<String>,
    /// Spread fresh logins over initialRouting.servers by the players' names, instead of trying them in their order
    #[arg(long)]
    spread: bool,
    /// Most connections from one address (of IPv6: from one /64 network) at a time; more are closed at once. Where players
    /// come through a load balancer, they share its address
    #[arg(long, value_name = "COUNT", default_value = "64")]
    per_address: NonZeroUsize,
    /// What the server list says
    #[arg(long, value_name = "TEXT", default_value = "A maitred fleet")]
    motd: String,
}

/// What all connections share.
struct Edge {
    proxy: ProxyAgent,
    motd: String,
    players: Arc<AtomicU64>,
    /// Ends connections that wait for nothing but their client, and those of players.
    stop: CancellationToken,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let mut config = Config::load(&options.config)?;
    config.enabled = true;
    config.apply_env(|name| std::env::var(name).ok())?;
    if options.id.is_some() {
        config.node.id = options.id;
    }
    let servers = config.initial_routing.servers.iter().map(|name| name.as_str().to_owned()).collect();
    let mut fixed = Vec::new();
    for entry in &options.fixed {
        let (name, addr) = entry.split_once('=').ok_or_else(|| format!("--static {entry}: no NAME=HOST:PORT"))?;
        fixed.push((BackendName::new(name)?, addr.to_owned()));
    }

    let listener = TcpListener::bind(&options.listen).await?;
    let players = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&players);
    let load = move || LoadSample { players: counted.load(Ordering::Relaxed), ..LoadSample::default() };
    // Nothing waits for the store here: static entries serve without it.
    let proxy = Setup::from_env(config)?.proxy(load)?;
    for (name, addr) in fixed {
        proxy.registry().add_static(name, addr);
    }
    if options.spread {
        proxy.set_placement_handler(login::Spread { servers })?;
    }
    // Port 0 asks for a free one, so say which it is.
    println!("{}", serde_json::json!({ "event": "listening", "addr": listener.local_addr()?.to_string() }));

    let edge = Arc::new(Edge { proxy, motd: options.motd, players, stop: CancellationToken::new() });
    let (tasks, slots) = (TaskTracker::new(), Slots::new(CONNECTIONS_MAX, options.per_address.get()));
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        let client = tokio::select! {
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            client = listener.accept() => client,
        };
        let Ok((client, from)) = client else {
            // No more file descriptors, most likely: those who leave make room.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Some(slot) = slots.take(from.ip()) else { continue };
        let edge = Arc::clone(&edge);
        tasks.spawn(async move {
            if let Err(fault) = serve(&edge, client).await {
                tracing::debug!(%from, %fault, "a connection ended");
            }
            drop(slot);
        });
    }
    drop(listener);
    // Ends the placements under way; their clients read why.
    edge.proxy.leave().await;
    edge.stop.cancel();
    tasks.close();
    let _ = timeout(EXIT_MAX, tasks.wait()).await;
    Ok(())
}

/// Serves one connection to its end.
async fn serve(edge: &Edge, mut client: TcpStream) -> Result<(), Fault> {
    client.set_nodelay(true).map_err(Fault::Io)?;
    let mut inlet = Inlet::default();
    let late = |_| Fault::Malformed("it took too long to say what it wants");
    let hello = tokio::select! {
        // Who has said it already is told why it is refused.
        biased;
        hello = timeout(HELLO_MAX, hello::read(&mut inlet, &mut client)) => hello.map_err(late)??,
        () = edge.stop.cancelled() => return Ok(()),
    };
    match hello {
        Hello::Status { protocol } => {
            let serving = status::serve(&edge.proxy, &edge.motd, protocol, &mut inlet, &mut client);
            tokio::select! {
                served = timeout(HELLO_MAX, serving) => served.map_err(late)?,
                () = edge.stop.cancelled() => Ok(()),
            }
        }
        Hello::OldPing { detailed } => {
            let serving = status::serve_old(&edge.proxy, &edge.motd, detailed, &mut client);
            timeout(HELLO_MAX, serving).await.map_err(late)?.map_err(Fault::Io)
        }
        Hello::Login { name } => {
            edge.players.fetch_add(1, Ordering::Relaxed);
            let served = login::serve(&edge.proxy, &name, inlet, client, &edge.stop).await;
            edge.players.fetch_sub(1, Ordering::Relaxed);
            served.map_err(Fault::Io)
        }
    }
}
