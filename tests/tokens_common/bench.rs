use std::collections::BTreeMap;

use futures_util::StreamExt;
use maitred::envelope::{Keyring, Secret};
use maitred::ids::{NodeId, Player, Zone};
use maitred::node::Control;
use maitred::store::{Store, StoreOptions, StoreUrl, Verifier};
use maitred::token::{Book, BookOptions};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncCommands, Client, cmd};

use crate::support::store::TestStore;

/// A lease that no test outlives by being slow.
pub const HOUR_MS: u64 = 3_600_000;

const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The crate's defaults, with a command timeout that a busy machine does not reach.
pub fn store_options(url: &str) -> StoreOptions {
    let mut options = StoreOptions::new(StoreUrl::parse(url).unwrap());
    options.command_timeout = std::time::Duration::from_secs(10);
    options.operation_timeout = std::time::Duration::from_secs(30);
    options
}

/// One zone of a test store.
pub struct Bench {
    /// Where its members connect to.
    pub url: String,
    pub zone: Zone,
    /// The times of its tokens.
    pub times: BookOptions,
    /// The lease of members that join from now on.
    pub lease_ms: u64,
    pub verifier: Verifier,
    /// A look at the store past the library.
    pub raw: MultiplexedConnection,
    client: Client,
}

impl Bench {
    pub async fn new(server: &TestStore, zone: &str) -> Self {
        Self::with_times(server, zone, BookOptions::default()).await
    }

    pub async fn with_times(server: &TestStore, zone: &str, times: BookOptions) -> Self {
        let zone = Zone::new(zone).unwrap();
        let secret = Secret::from_base64("MAITRED_SECRET", SECRET).unwrap();
        let verifier = Verifier::new(Keyring::new(zone.clone(), secret, Vec::new()));
        let client = Client::open(server.url()).unwrap();
        Self { url: server.url(), zone, times, lease_ms: HOUR_MS, verifier, raw: server.conn().await, client }
    }

    /// A handle with connections of its own.
    pub async fn store(&self) -> Store {
        Store::open(self.zone.clone(), store_options(&self.url)).await.unwrap()
    }

    /// The same without loading the scripts before they are needed.
    pub async fn lazy_store(&self) -> Store {
        let store = Store::new(self.zone.clone(), store_options(&self.url)).unwrap();
        store.sync_clock().await.unwrap();
        store
    }

    /// A book of a process that is no member, with connections of its own.
    pub async fn book(&self) -> Book {
        Book::new(self.store().await, self.verifier.clone(), Control::default(), self.times)
    }

    /// The key `rest` of this zone.
    pub fn key(&self, rest: &str) -> String {
        format!("maitred:{{{}}}:{rest}", self.zone)
    }

    /// The store's time in ms.
    pub async fn now(&self) -> u64 {
        let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut self.raw.clone()).await.unwrap();
        seconds * 1_000 + micros / 1_000
    }

    /// All keys of the zone, without its prefix.
    pub async fn keys(&self) -> Vec<String> {
        let pattern = self.key("*");
        let (mut cursor, mut keys) = (0_u64, Vec::new());
        loop {
            let (next, page): (u64, Vec<String>) = cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(1_000)
                .query_async(&mut self.raw.clone())
                .await
                .unwrap();
            keys.extend(page.into_iter().map(|key| key[pattern.len() - 1..].to_owned()));
            cursor = next;
            if cursor == 0 {
                keys.sort_unstable();
                keys.dedup();
                return keys;
            }
        }
    }

    /// The keys of tokens and their index.
    pub async fn token_keys(&self) -> Vec<String> {
        let ours = |key: &String| key.starts_with("token:") || key == "due" || key.starts_with("due:");
        self.keys().await.into_iter().filter(ours).collect()
    }

    /// Every key of the zone with its bytes, so that "nothing changed" can be said of all of it.
    pub async fn dump(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        let keys = self.keys().await;
        let mut pipe = redis::pipe();
        for key in &keys {
            pipe.cmd("DUMP").arg(self.key(key));
        }
        let values: Vec<Option<Vec<u8>>> =
            if keys.is_empty() { Vec::new() } else { pipe.query_async(&mut self.raw.clone()).await.unwrap() };
        keys.into_iter().zip(values).collect()
    }

    /// A player's row as it stands, unverified.
    pub async fn row(&self, player: &Player) -> BTreeMap<String, String> {
        self.raw.clone().hgetall(self.key(&format!("token:{player}"))).await.unwrap()
    }

    /// Overwrites fields of a player's row by hand, as somebody with the store's password could.
    pub async fn forge(&self, player: &Player, fields: &[(&str, &str)]) {
        let _: () = self.raw.clone().hset_multiple(self.key(&format!("token:{player}")), fields).await.unwrap();
    }

    /// A key's time to live in ms; negative where it has none or is not there.
    pub async fn ttl(&self, rest: &str) -> i64 {
        self.raw.clone().pttl(self.key(rest)).await.unwrap()
    }

    /// When somebody must look at the player's token, by the index of `server`.
    pub async fn due_at(&self, server: &NodeId, player: &Player) -> Option<u64> {
        let score: Option<f64> =
            self.raw.clone().zscore(self.key(&format!("due:{server}")), player.as_str()).await.unwrap();
        score.map(|score| score as u64)
    }

    /// The servers that the index says have tokens.
    pub async fn due_servers(&self) -> Vec<String> {
        let mut servers: Vec<String> = self.raw.clone().smembers(self.key("due")).await.unwrap();
        servers.sort_unstable();
        servers
    }

    /// Takes everything away.
    pub async fn clear(&self) {
        let keys: Vec<String> = self.keys().await.iter().map(|key| self.key(key)).collect();
        if !keys.is_empty() {
            let _: () = self.raw.clone().del(keys).await.unwrap();
        }
    }

    /// Takes all tokens away and leaves the members alone.
    pub async fn clear_tokens(&self) {
        let keys: Vec<String> = self.token_keys().await.iter().map(|key| self.key(key)).collect();
        if !keys.is_empty() {
            let _: () = self.raw.clone().del(keys).await.unwrap();
        }
    }

    /// Ends a member's lease behind its back, as a pause longer than it would.
    pub async fn lapse(&self, id: &NodeId) {
        let _: () = self.raw.clone().del(self.key(&format!("node:{id}"))).await.unwrap();
    }

    /// An ear on the token channel.
    pub async fn listen(&self) -> Ear {
        let mut pubsub = self.client.get_async_pubsub().await.unwrap();
        pubsub.subscribe(self.key("events:token")).await.unwrap();
        Ear { pubsub, channel: self.key("events:token"), raw: self.raw.clone() }
    }
}

/// What is heard on the token channel.
pub struct Ear {
    pubsub: PubSub,
    channel: String,
    raw: MultiplexedConnection,
}

impl Ear {
    /// Everything published since the last look. What comes after the mark that this publishes itself is not waited
    /// for.
    pub async fn heard(&mut self) -> Vec<String> {
        const MARK: &str = "that was all";
        let _: () = self.raw.publish(&self.channel, MARK).await.unwrap();
        let mut heard = Vec::new();
        let mut messages = self.pubsub.on_message();
        loop {
            let text: String = messages.next().await.expect("the subscription ended").get_payload().unwrap();
            if text == MARK {
                return heard;
            }
            heard.push(text);
        }
    }
}
