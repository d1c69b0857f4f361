//! A fleet whose players wait by either kind of line, and what a test does with them.

use std::fmt;

use maitred::agent::config::{Config, LineConfig, OnNoCandidate};
use maitred::agent::{BackendAgent, Entering, Entry, Outcome, ProxyAgent, Request, Update, Visit, WaitUpdate, Waiting};
use maitred::ids::{LineName, Role};
use maitred::node::LoadSample;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, config, key, player, proxy, setup};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// What the players wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A pass, in the login line `login`.
    Pass,
    /// A token, in the wait line `wait`.
    Token,
}

impl Kind {
    pub fn line(self) -> &'static str {
        match self {
            Self::Pass => "login",
            Self::Token => "wait",
        }
    }
}

/// A player who waits, as the application holds it.
#[derive(Debug)]
pub enum Waits {
    Pass(Visit),
    Token(Waiting),
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The player has a pass or a place.
    Served,
    /// Another visit or request of the player has the place.
    Elsewhere,
    /// Anything else.
    Refused(String),
    /// Nothing was said.
    Silent,
}

impl Waits {
    pub fn session(&self) -> String {
        match self {
            Self::Pass(visit) => visit.session().to_string(),
            Self::Token(waiting) => waiting.session().to_string(),
        }
    }

    /// How it ends.
    pub async fn end(&mut self) -> End {
        match self {
            Self::Pass(visit) => loop {
                match timeout(LIMIT, visit.next()).await.expect("it ends") {
                    Some(Update::Position { .. }) => {}
                    Some(Update::Admitted(_)) => return End::Served,
                    Some(Update::Out { why }) if why.as_str() == "elsewhere" => return End::Elsewhere,
                    Some(Update::Out { why }) => return End::Refused(why.as_str().to_owned()),
                    None => return End::Silent,
                }
            },
            Self::Token(waiting) => match timeout(LIMIT, waiting.end()).await.expect("it ends") {
                Some(WaitUpdate::Transfer(_)) => End::Served,
                Some(WaitUpdate::Refused(refusal)) if matches!(refusal.reason.as_str(), "lost" | "replaced") => {
                    End::Elsewhere
                }
                Some(WaitUpdate::Refused(refusal)) => End::Refused(refusal.reason.to_string()),
                Some(WaitUpdate::Position { .. }) | None => End::Silent,
            },
        }
    }
}

/// Backends and proxies of one store. The proxies have both kinds of line.
pub struct Fleet {
    pub kind: Kind,
    pub store: TestStore,
}

impl Fleet {
    pub fn new(kind: Kind) -> Self {
        Self { kind, store: TestStore::start() }
    }

    pub fn config(&self, name: &str, url: &str) -> Config {
        let mut config = config(name, "proxy", url);
        config.selector.on_no_candidate = OnNoCandidate::Queue;
        config.dispatch.cooldown_ms = 0;
        config.routing.lobby_mode = false;
        config.lines.insert(login(), line());
        config
    }

    pub async fn proxy(&self, name: &str) -> ProxyAgent {
        self.proxy_at(name, &self.store.url()).await
    }

    pub async fn proxy_at(&self, name: &str, url: &str) -> ProxyAgent {
        proxy(self.config(name, url)).await
    }

    /// A backend that takes in so many players, by either kind of line.
    pub async fn backend(&self, name: &str, places: u64) -> BackendAgent<Stock> {
        let stock = Stock::new(if self.kind == Kind::Token { places } else { 0 }, 0);
        let mut config = config(name, "backend", &self.store.url());
        config.lines.insert(login(), line());
        config.node.role = Role::backend();
        let load = move || LoadSample { soft_cap: places, ..LoadSample::default() };
        let backend = setup(config).backend(stock, load).expect("a backend");
        eventually("the backend is a member", LIMIT, async || backend.agent().joined().await.ok()).await;
        backend
    }

    /// The player waits through `proxy`.
    pub async fn waits(&self, proxy: &ProxyAgent, name: &str) -> Waits {
        match self.kind {
            Kind::Pass => match proxy.enter(Entry::new(login(), player(name))).await {
                Ok(Entering::Waiting(visit)) => Waits::Pass(visit),
                other => panic!("{name} does not wait: {other:?}"),
            },
            Kind::Token => match proxy.dispatch(Request::new(player(name))).await {
                Outcome::Waiting(waiting) => Waits::Token(waiting),
                other => panic!("{name} does not wait: {other:?}"),
            },
        }
    }

    pub async fn conn(&self) -> MultiplexedConnection {
        self.store.conn().await
    }

    /// Who waits, in order, with the places as the store has them.
    pub async fn order(&self) -> Vec<String> {
        let key = key(&format!("line:{}", self.kind.line()));
        let range = ["0", "-1", "WITHSCORES"];
        redis::cmd("ZRANGE").arg(key).arg(&range).query_async(&mut self.conn().await).await.expect("ZRANGE")
    }

    /// Waits until so many wait, as the store has it.
    pub async fn has_waiting(&self, count: usize) {
        eventually("so many wait", LIMIT, async || self.order().await.len() == 2 * count).await;
    }

    /// The session of the ticket of a player.
    pub async fn session(&self, name: &str) -> Option<String> {
        let key = key(&format!("tickets:{}", self.kind.line()));
        let ticket: Option<String> = self.conn().await.hget(key, name).await.expect("HGET");
        ticket.and_then(|ticket| ticket.split(' ').nth(4).map(str::to_owned))
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fleet with {:?} lines", self.kind)
    }
}

pub fn login() -> LineName {
    LineName::new("login").expect("a name")
}

pub fn line() -> LineConfig {
    LineConfig { fixed_per_second: Some(1_000), burst: Some(1_000), tick_ms: 150, ..LineConfig::default() }
}

/// A player's place in the store, by hand.
pub struct Place {
    kind: Kind,
    name: String,
    ticket: String,
    score: f64,
    via: String,
}

impl Place {
    pub async fn of(fleet: &Fleet, name: &str) -> Self {
        let (mut conn, line) = (fleet.conn().await, fleet.kind.line());
        let ticket: String = conn.hget(key(&format!("tickets:{line}")), name).await.expect("HGET");
        let holder: Vec<&str> = ticket.split(' ').skip(2).take(2).collect();
        let via = key(&format!("via:{line}:{}", holder.join(":")));
        let score = conn.zscore(key(&format!("line:{line}")), name).await.expect("ZSCORE");
        Self { kind: fleet.kind, name: name.to_owned(), ticket, score, via }
    }

    fn key(&self, what: &str) -> String {
        key(&format!("{what}:{}", self.kind.line()))
    }

    pub async fn take_away(&self, fleet: &Fleet) {
        let mut conn = fleet.conn().await;
        let _: () = conn.hdel(self.key("tickets"), &self.name).await.expect("HDEL");
        let _: () = conn.zrem(self.key("line"), &self.name).await.expect("ZREM");
        let _: () = conn.srem(&self.via, &self.name).await.expect("SREM");
    }

    pub async fn put_back(&self, fleet: &Fleet) {
        let mut conn = fleet.conn().await;
        let _: () = conn.hset(self.key("tickets"), &self.name, &self.ticket).await.expect("HSET");
        let _: () = conn.zadd(self.key("line"), &self.name, self.score).await.expect("ZADD");
        let _: () = conn.sadd(&self.via, &self.name).await.expect("SADD");
    }
}
