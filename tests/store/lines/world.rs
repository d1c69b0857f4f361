//! A store with proxies and backends of one line, `login`, with a tick of 150 ms and a gate that is never in the way
//! unless a test wants it to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use maitred::agent::config::{Config, LineConfig};
use maitred::agent::{Admitted, BackendAgent, Entering, Entry, ProxyAgent, Update, Visit};
use maitred::ids::{LineName, Role};
use maitred::node::{Control, LoadSample};
use maitred::queue::Line;
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, config, key, operator, player, proxy, setup};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

pub fn login() -> LineName {
    LineName::new("login").expect("a name")
}

pub fn line() -> LineConfig {
    LineConfig {
        fixed_per_second: Some(1_000),
        burst: Some(1_000),
        max_online_new: 100_000,
        tick_ms: 150,
        ..LineConfig::default()
    }
}

/// A node whose file has the line.
pub fn lined(name: &str, role: &str, url: &str, line: &LineConfig) -> Config {
    let mut config = config(name, role, url);
    config.lines.insert(login(), line.clone());
    config
}

/// A backend with a soft cap, and the number of its players.
pub struct Server {
    pub agent: BackendAgent<Stock>,
    pub players: Arc<AtomicU64>,
}

impl Server {
    pub async fn start(name: &str, url: &str, line: &LineConfig, soft_cap: u64) -> Self {
        let players = Arc::new(AtomicU64::new(0));
        let load = {
            let players = Arc::clone(&players);
            move || LoadSample { players: players.load(Ordering::Relaxed), soft_cap, ..LoadSample::default() }
        };
        let mut config = lined(name, "backend", url, line);
        config.node.role = Role::backend();
        let agent = setup(config).backend(Stock::new(0, 0), load).expect("a backend");
        eventually("the backend is a member", LIMIT, async || agent.agent().joined().await.ok()).await;
        Self { agent, players }
    }

    pub fn accepts(&self, on: bool) {
        self.agent.agent().set_accepting(on);
    }
}

pub struct World {
    pub store: TestStore,
    pub line: LineConfig,
}

impl World {
    pub fn new() -> Self {
        Self::with(line())
    }

    pub fn with(line: LineConfig) -> Self {
        Self { store: TestStore::start(), line }
    }

    pub async fn proxy(&self, name: &str) -> ProxyAgent {
        self.proxy_at(name, &self.store.url()).await
    }

    pub async fn proxy_at(&self, name: &str, url: &str) -> ProxyAgent {
        proxy(lined(name, "proxy", url, &self.line)).await
    }

    pub async fn server(&self, name: &str, soft_cap: u64) -> Server {
        Server::start(name, &self.store.url(), &self.line, soft_cap).await
    }

    /// The line as an operator sees it.
    pub async fn seen(&self) -> Line {
        let (store, verifier) = operator(&self.store).await;
        Line::new(store, verifier, Control::default(), self.line.options(&login())).expect("a line")
    }

    pub async fn conn(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.store.url()).expect("a URL");
        client.get_multiplexed_async_connection().await.expect("a connection")
    }

    /// Waits until the line has this many who wait.
    pub async fn has_waiting(&self, count: u64) {
        let line = self.seen().await;
        eventually("so many wait", LIMIT, async || line.view().await.is_ok_and(|view| view.waiting == count)).await;
    }

    /// Waits until the gate has been there for long enough to let somebody through: a new one starts empty.
    pub async fn gate_is_open(&self) {
        let line = self.seen().await;
        eventually("the gate is open", LIMIT, async || line.view().await.is_ok_and(|view| view.open > 1)).await;
    }

    /// True where the zone has this key.
    pub async fn exists(&self, rest: &str) -> bool {
        let mut conn = self.conn().await;
        redis::cmd("EXISTS").arg(key(rest)).query_async::<u64>(&mut conn).await.expect("EXISTS") == 1
    }
}

/// Waits until the proxy would pick the server, or would not any more.
pub async fn sees_accepting(proxy: &ProxyAgent, server: &Server, accepting: bool) {
    let id = server.agent.agent().lease().id().clone();
    eventually("the proxy sees the server", LIMIT, async || {
        let view = proxy.agent().directory().view_of(&id);
        view.is_some_and(|view| view.record.accepting == accepting)
    })
    .await;
}

pub fn entry(name: &str) -> Entry {
    Entry::new(login(), player(name))
}

pub async fn enters(proxy: &ProxyAgent, name: &str) -> Entering {
    proxy.enter(entry(name)).await.unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub async fn waits(proxy: &ProxyAgent, name: &str) -> Visit {
    match enters(proxy, name).await {
        Entering::Waiting(visit) => visit,
        other => panic!("{name} does not wait: {other:?}"),
    }
}

/// Enters and waits for the admission, at once or later.
pub async fn gets_in(proxy: &ProxyAgent, name: &str) -> Admitted {
    match enters(proxy, name).await {
        Entering::Admitted(admitted) => *admitted,
        Entering::Waiting(mut visit) => admitted(&mut visit).await,
        Entering::Full => panic!("{name}: the line is full"),
    }
}

/// The next update.
pub async fn next(visit: &mut Visit) -> Option<Update> {
    timeout(LIMIT, visit.next()).await.unwrap_or_else(|_| panic!("{} hears nothing", visit.player()))
}

/// The last update, positions left out.
pub async fn end(visit: &mut Visit) -> Option<Update> {
    loop {
        match next(visit).await {
            Some(Update::Position { .. }) => {}
            other => return other,
        }
    }
}

pub async fn admitted(visit: &mut Visit) -> Admitted {
    match end(visit).await {
        Some(Update::Admitted(admitted)) => *admitted,
        other => panic!("{} is not in: {other:?}", visit.player()),
    }
}

/// Waits until the visit shows this position.
pub async fn stands_at(visit: &Visit, position: u64) {
    eventually("the player hears the position", LIMIT, async || visit.position() == Some(position)).await;
}
