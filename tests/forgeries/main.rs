//! What somebody with the store's password and without the secret can write, against a fleet that works: each forgery is
//! dropped, counted by its own reason and logged, nobody acts on it, and players go on landing (ENV-4 to ENV-7, R-5, R-6,
//! When one of these fails, a stranger decides where players go, or an operator never hears of the attempt.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod log;
mod messages;
mod nodes;
mod switch;
mod tokens;

use std::collections::BTreeMap;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, key, lands, proxy, sees, transfer, zone};
use maitred::agent::{BackendAgent, ProxyAgent};
use maitred::envelope::{AuditReason, Keyring, Kind, Secret};
use maitred::store::Verifier;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use redis::aio::MultiplexedConnection;

/// One backend and one proxy that work, with an audit each.
struct Fleet {
    _store: TestStore,
    url: String,
    stock: Stock,
    b1: BackendAgent<Stock>,
    p1: ProxyAgent,
    conn: MultiplexedConnection,
    players: u64,
}

impl Fleet {
    async fn new() -> Self {
        log::listen();
        let store = TestStore::start();
        let url = store.url();
        let stock = Stock::new(100, 100);
        let b1 = backend(config("b1", "backend", &url), &stock).await;
        let mut looks_often = config("p1", "proxy", &url);
        looks_often.directory.refresh_ms = 200;
        let p1 = proxy(looks_often).await;
        sees(&p1, &[&b1]).await;
        let conn = store.conn().await;
        Self { _store: store, url, stock, b1, p1, conn, players: 0 }
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.conn).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    async fn row(&mut self, name: &str) -> BTreeMap<String, String> {
        self.ask(&["HGETALL", &key(name)]).await
    }

    async fn write(&mut self, name: &str, row: &BTreeMap<String, String>) {
        let key = key(name);
        let mut words = vec!["HSET", &key];
        words.extend(row.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
        let _: u64 = self.ask(&words).await;
    }

    async fn publish(&mut self, channel: &str, bytes: &[u8]) {
        let heard: redis::RedisResult<u64> =
            redis::cmd("PUBLISH").arg(key(channel)).arg(bytes).query_async(&mut self.conn).await;
        assert!(heard.expect("PUBLISH") > 0, "nobody listens to {channel}");
    }

    /// A player goes the whole way to where the backend really is, and lands.
    async fn works(&mut self) {
        self.players += 1;
        let name = format!("works-{}", self.players);
        let moved = transfer(&self.p1, &name).await;
        assert_eq!(
            (moved.server.as_str(), moved.addr.as_str()),
            ("b1", "b1.example:25565"),
            "{name} is sent elsewhere"
        );
        lands(&self.b1, &name).await;
        self.stock.check();
    }
}

/// The counts of one process.
#[derive(Debug, PartialEq, Eq)]
struct Counts(Vec<(&'static str, u64)>);

impl Counts {
    fn of(verifier: &Verifier) -> Self {
        Self(verifier.audit().counts())
    }
}

/// Waits until `verifier` has counted one more drop for `reason` than it had in `before`, and checks that it was for no other
/// reason, and that the log says so with `what` in it.
async fn dropped(verifier: &Verifier, before: &Counts, reason: AuditReason, what: &str) {
    let was = before.0.iter().find(|(name, _)| *name == reason.as_str()).map_or(0, |(_, count)| *count);
    eventually(&format!("{what} counts as {}", reason.as_str()), LIMIT, async || verifier.audit().count(reason) > was)
        .await;
    let others = |counts: &Counts| -> Vec<(&'static str, u64)> {
        counts.0.iter().filter(|(name, _)| *name != reason.as_str()).copied().collect()
    };
    assert_eq!(others(&Counts::of(verifier)), others(before), "{what}: counted for another reason too");
    eventually(&format!("the log tells of {what}"), LIMIT, async || log::tells(reason.as_str(), what)).await;
}

/// Of somebody who guessed a secret.
fn stranger() -> Keyring {
    Keyring::new(
        zone(),
        Secret::from_base64("TEST", "ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=").expect("a secret"),
        Vec::new(),
    )
}

/// Signs a row's fields as they stand.
fn signed(keyring: &Keyring, kind: Kind, mut row: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let fields: Vec<&str> = kind.fields().iter().map(|name| row.get(*name).map_or("", String::as_str)).collect();
    let sig = keyring.sign(kind, &fields).as_str().to_owned();
    row.insert("sig".to_owned(), sig);
    row
}

fn with(row: &BTreeMap<String, String>, changes: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut row = row.clone();
    row.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    row
}
