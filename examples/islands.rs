//! Three processes, and an island that moves between them while a client keeps digging on it: no shovelful is lost, and none
//! counts twice.
//!
//! ```text
//! export MAITRED_SECRET=$(head -c 32 /dev/urandom | base64)
//! cargo run --example islands                # the client; it starts the three hosts itself
//! ```
//!
//! It needs a store at 127.0.0.1:6379, or where `MAITRED_STORE` says.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use maitred::agent::config::{Config, SecretUrl};
use maitred::agent::{Agent, Setup};
use maitred::error::{Error, Result};
use maitred::ids::{NodeId, ObjectId, ObjectKey, ObjectKind, Role, ServiceName};
use maitred::message::{CallError, json_handler};
use maitred::node::LoadSample;
use maitred::route::{Ack, Handled, KindOptions, ObjectCall, ObjectType, Removal};

const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];
const MOVES: usize = 9;
const PATIENCE: Duration = Duration::from_secs(20);

/// What the application says about islands.
struct Islands {
    host: String,
}

impl ObjectType for Islands {
    /// How deep somebody has dug.
    type Object = u64;

    fn options(&self) -> KindOptions {
        // A shovelful that was answered outlives a crash.
        KindOptions { ack: Ack::Saved, ..KindOptions::default() }
    }

    async fn handle(&self, _key: &ObjectKey, depth: &mut u64, call: ObjectCall) -> Result<Handled, CallError> {
        match call.method.as_str() {
            "dig" => {
                *depth += 1;
                Handled::changed(depth)
            }
            "look" => Handled::unchanged(depth),
            _ => Err(call.unknown_method()),
        }
    }

    fn create(&self, _key: &ObjectKey) -> Option<u64> {
        Some(0)
    }

    fn encode(&self, depth: &u64) -> Result<String> {
        Ok(depth.to_string())
    }

    fn decode(&self, key: &ObjectKey, text: &str) -> Result<u64> {
        text.parse().map_err(|_| Error::Protocol {
            during: "loading an island",
            detail: format!("{key} is no number: {text:?}"),
        })
    }

    async fn promoted(&self, key: &ObjectKey, depth: &mut u64) {
        println!("  {}: {key} is here, {depth} deep", self.host);
    }

    async fn removed(&self, key: &ObjectKey, depth: u64, why: &Removal) {
        println!("  {}: {key} is gone, {depth} deep ({why:?})", self.host);
    }
}

fn agent(id: &str) -> Result<Agent> {
    let mut config = Config { enabled: true, ..Config::default() };
    config.node.id = Some(NodeId::new(id)?);
    config.node.role = Role::new("island-host")?;
    config.store.url = SecretUrl::new("redis://127.0.0.1:6379");
    config.directory.refresh_ms = 500;
    // One host's id differs from the next one's, so the environment's would be in the way.
    config.apply_env(|name| (name != "MAITRED_NODE_ID").then(|| std::env::var(name).ok()).flatten())?;
    Setup::from_env(config)?.node(LoadSample::default)
}

/// One host: islands, and a service by which the client asks it to hand one over. Ends with its stdin.
async fn host(id: &str) -> Result<()> {
    let agent = agent(id)?;
    let routes = agent.routes()?;
    let islands = routes.host(ObjectKind::new("island")?, Islands { host: id.to_owned() })?;
    let keeper = islands.clone();
    let handing = json_handler(move |(key, target): (ObjectKey, NodeId), _call| {
        let keeper = keeper.clone();
        async move {
            let moved = keeper.transfer(&key, &target, true).await;
            moved.map(|moved| moved.route.version).map_err(|error| CallError::new("not_moved", error.to_string()))
        }
    });
    let _handing = agent.services().register("hand-over", handing)?;
    agent.joined().await?;
    agent.beat_now();
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(std::result::Result::ok).for_each(drop);
        let _ = ended.send(());
    });
    let _ = end.await;
    let report = islands.flush(Duration::from_secs(10), |_| ()).await;
    println!("  {id}: {} saved and given up, {} not", report.done, report.unsaved.len());
    routes.stop(Duration::from_secs(2)).await;
    agent.leave().await;
    Ok(())
}

/// A host process; ends when its stdin is closed.
fn start(id: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(id).stdin(Stdio::piped()).spawn()
}

async fn client() -> Result<()> {
    let agent = agent("client")?;
    let routes = Arc::new(agent.routes()?);
    let kind = ObjectKind::new("island")?;
    routes.sends_to(&kind, true);
    agent.joined().await?;
    let service = ServiceName::new("hand-over")?;
    let begin = Instant::now();
    for id in HOSTS {
        while agent.directory().query(&NodeId::new(id)?, &service).await.is_err() {
            if begin.elapsed() > PATIENCE {
                return Err(Error::NodeNotFound(NodeId::new(id)?));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    let island = ObjectKey::new(&kind, &ObjectId::new(format!("atoll-{}", std::process::id()))?);
    let (dug, unanswered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let digging = {
        let (routes, island) = (Arc::clone(&routes), island.clone());
        let (dug, unanswered) = (Arc::clone(&dug), Arc::clone(&unanswered));
        tokio::spawn(async move {
            loop {
                match routes.call_json::<u64, _>(&island, "dig", &(), Duration::from_secs(5)).await {
                    Ok(_) => drop(dug.fetch_add(1, Ordering::SeqCst)),
                    Err(error) => {
                        println!("client: {error}");
                        unanswered.fetch_add(1, Ordering::SeqCst);
                        // A lease that lapsed is there again after the next beat.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        })
    };
    for number in 0..MOVES {
        let before = dug.load(Ordering::SeqCst);
        while dug.load(Ordering::SeqCst) < before + 200 && begin.elapsed() < PATIENCE * 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let owner = routes.book().read(&island).await?.and_then(|route| route.owner);
        let Some(owner) = owner else { continue };
        let at = HOSTS.iter().position(|id| *id == owner.id.as_str()).unwrap_or(0);
        let target = NodeId::new(HOSTS[(at + 1) % HOSTS.len()])?;
        println!("client: {} dug; move {} from {} to {target}", dug.load(Ordering::SeqCst), number + 1, owner.id);
        let asked = (&island, &target);
        agent.post().call(&format!("{}:{service}", owner.id), "hand-over", &asked, PATIENCE).await?;
    }
    digging.abort();
    let _ = digging.await;
    let depth: u64 = routes.call_json(&island, "look", &(), Duration::from_secs(5)).await?;
    // One may have been under way at the end.
    let (dug, unanswered) = (dug.load(Ordering::SeqCst), unanswered.load(Ordering::SeqCst) + 1);
    println!("client: {dug} answered, the island is {depth} deep");
    // Of what was not answered nobody knows whether it counts.
    assert!((dug..=dug + unanswered).contains(&depth), "a shovelful was lost, or counted twice");
    routes.stop(Duration::from_secs(2)).await;
    agent.leave().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    if let Some(id) = std::env::args().nth(1) {
        return host(&id).await;
    }
    let mut hosts = Vec::new();
    for id in HOSTS {
        match start(id) {
            Ok(child) => hosts.push(child),
            Err(error) => println!("could not start {id}: {error}"),
        }
    }
    let outcome = client().await;
    for mut child in hosts {
        drop(child.stdin.take());
        let _ = child.wait();
    }
    outcome
}
