//! Members of a zone and their view of it, driven by hand: what an agent does, without one.
//!
//! - [`open`], [`verifier`], [`membership`], [`blank`]: the pieces.
//! - [`Running`]: a process that beats. [`Watcher`]: a process that looks at the others.
//! - [`raw`]: the node scripts without a membership.
//! - [`Listener`]: everything that is published on one channel.
#![allow(dead_code, reason = "every test binary compiles all of this and uses a part of it")]

pub mod raw;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use maitred::envelope::{Keyring, Secret};
use maitred::ids::{Epoch, Incarnation, NodeId, Role, Zone};
use maitred::node::{
    BeatOutcome, Control, Directory, DirectoryEvent, DirectoryOptions, Identity, Lease, LivenessLimits, LoadSample,
    Membership, NodeRecord, NodeState,
};
use maitred::store::{Feed, FeedChannel, FeedItem, Store, StoreOptions, StoreUrl, Verifier};
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::support::store::{TestStore, command_stats};
use crate::support::wait::eventually;

pub const LIMIT: Duration = Duration::from_secs(10);
pub const ZONE: &str = "eu";
/// A lease that no test outlives.
pub const LONG_MS: u64 = 600_000;
pub const BEAT_MS: u64 = 100;
pub const LEASE_MS: u64 = 350;
/// The states of a fleet that beats every [`BEAT_MS`].
pub const SHORT: LivenessLimits = LivenessLimits { suspect_ms: 250, offline_ms: 350, removed_ms: 1_500 };
/// Limits that a busy machine does not reach by itself, for tests in which nobody may turn offline.
pub const PATIENT: LivenessLimits = LivenessLimits { suspect_ms: 2_500, offline_ms: 5_000, removed_ms: 60_000 };

pub fn zone() -> Zone {
    Zone::new(ZONE).unwrap()
}

pub fn node(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

pub fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

pub fn keyring(fill: u8) -> Keyring {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode([fill; 32]);
    Keyring::new(zone(), Secret::from_base64("TEST_SECRET", &text).unwrap(), Vec::new())
}

/// Of the fleet, with counts of its own.
pub fn verifier() -> Verifier {
    Verifier::new(keyring(7))
}

/// Of somebody who has the store's password and not the secret.
pub fn stranger() -> Verifier {
    Verifier::new(keyring(8))
}

pub async fn open(url: &str) -> Store {
    Store::open(zone(), StoreOptions::new(StoreUrl::parse(url).unwrap())).await.unwrap()
}

/// With times that a busy machine does not reach, for what is large.
pub async fn open_patient(url: &str) -> Store {
    let mut options = StoreOptions::new(StoreUrl::parse(url).unwrap());
    (options.command_timeout, options.operation_timeout) = (Duration::from_secs(20), Duration::from_secs(40));
    Store::open(zone(), options).await.unwrap()
}

pub fn membership(store: &Store, id: &str, role_name: &str, lease_ms: u64) -> Membership {
    membership_at(store, id, role_name, &format!("{id}.example:25565"), lease_ms)
}

pub fn membership_at(store: &Store, id: &str, role_name: &str, addr: &str, lease_ms: u64) -> Membership {
    let identity = Identity { id: node(id), role: role(role_name), addr: addr.to_owned() };
    Membership::new(store.clone(), verifier(), identity, Lease::new(node(id), lease_ms))
}

/// A ready node with nobody on it; join and beat fill in who it is.
pub fn blank() -> NodeRecord {
    let sample = LoadSample::default();
    NodeRecord {
        id: node("nobody"),
        role: role("none"),
        addr: String::new(),
        epoch: Epoch::NONE,
        incarnation: Incarnation::fresh(),
        seq: 0,
        sent_at_ms: 0,
        state: NodeState::Ready,
        accepting: true,
        kill: true,
        players: sample.players,
        soft_cap: sample.soft_cap,
        load: sample.load,
        services: Vec::new(),
        labels: BTreeMap::new(),
    }
}

/// `maitred:{eu}:<rest>`
pub fn key(rest: &str) -> String {
    format!("maitred:{{{ZONE}}}:{rest}")
}

pub async fn ask<T: redis::FromRedisValue>(conn: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(conn).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

pub async fn row_of(conn: &mut MultiplexedConnection, id: &str) -> BTreeMap<String, String> {
    ask(conn, &["HGETALL", &key(&format!("node:{id}"))]).await
}

pub async fn roster_of(conn: &mut MultiplexedConnection, role_name: &str) -> Vec<String> {
    ask(conn, &["ZRANGE", &key(&format!("nodes:{role_name}")), "0", "-1"]).await
}

pub async fn roles_of(conn: &mut MultiplexedConnection) -> Vec<String> {
    let mut roles: Vec<String> = ask(conn, &["SMEMBERS", &key("roles")]).await;
    roles.sort();
    roles
}

/// `(last epoch, last seen)` of an id.
pub async fn epoch_entry(conn: &mut MultiplexedConnection, id: &str) -> Option<(u64, u64)> {
    let text: Option<String> = ask(conn, &["HGET", &key("epochs"), id]).await;
    let text = text?;
    let words: Vec<&str> = text.split(' ').collect();
    let &[epoch, seen, ..] = words.as_slice() else { panic!("{text}") };
    Some((epoch.parse().unwrap(), seen.parse().unwrap()))
}

pub async fn store_ms(conn: &mut MultiplexedConnection) -> u64 {
    let (seconds, micros): (u64, u64) = ask(conn, &["TIME"]).await;
    seconds * 1_000 + micros / 1_000
}

/// Every command that the server has run, without those of the test's own look and of idle connections.
pub async fn calls(conn: &mut MultiplexedConnection) -> BTreeMap<String, u64> {
    let stats = command_stats(conn).await;
    let own = ["info", "ping", "hello", "client|setinfo", "subscribe", "unwatch", "select"];
    stats.into_iter().filter(|(name, _)| !own.contains(&name.as_str())).map(|(name, stat)| (name, stat.calls)).collect()
}

/// A process that joins, beats and joins again, as an agent makes it do.
pub struct Running {
    pub control: Control,
    pub lease: Lease,
    pub record: Arc<Mutex<NodeRecord>>,
    stop: CancellationToken,
    task: JoinHandle<Membership>,
}

impl Running {
    pub fn start(store: &Store, mut membership: Membership, record: NodeRecord, beat_ms: u64) -> Self {
        let (store, control, stop) = (store.clone(), Control::default(), CancellationToken::new());
        let (lease, record) = (membership.lease().clone(), Arc::new(Mutex::new(record)));
        let task = tokio::spawn({
            let (control, record, stop) = (control.clone(), Arc::clone(&record), stop.clone());
            async move {
                let mut beats = interval(Duration::from_millis(beat_ms));
                beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut joined = membership.lease().is_valid();
                while stop.run_until_cancelled(beats.tick()).await.is_some() {
                    let now = record.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    // What fails is tried again with the next beat.
                    if joined {
                        match membership.beat(now, &control).await {
                            Ok(BeatOutcome::Acknowledged { control_changed: true }) => {
                                let _ = control.refresh(&store, &verifier()).await;
                            }
                            Ok(BeatOutcome::Gone | BeatOutcome::Fenced) => joined = false,
                            _ => {}
                        }
                    }
                    if !joined {
                        let now = record.lock().unwrap_or_else(PoisonError::into_inner).clone();
                        joined = membership.join(now).await.is_ok();
                    }
                }
                membership
            }
        });
        Self { control, lease, record, stop, task }
    }

    /// Changes what the next beat says.
    pub fn say(&self, change: impl FnOnce(&mut NodeRecord)) {
        change(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Stops beating without a word, like a process that is killed.
    pub async fn crash(self) -> Membership {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

/// A process that looks at the others, and all that its directory told.
pub struct Watcher {
    pub view: Directory,
    pub verifier: Verifier,
    told: Arc<Mutex<Vec<DirectoryEvent>>>,
    stop: CancellationToken,
}

impl Watcher {
    /// Subscribed to heartbeats; reads everything every 5 s and after each gap.
    pub fn subscribed(store: &Store, limits: LivenessLimits) -> Self {
        Self::start(store, limits, true, Duration::from_secs(5))
    }

    /// Reads on a timer and hears nothing (NOD-11).
    pub fn timed(store: &Store, limits: LivenessLimits, every: Duration) -> Self {
        Self::start(store, limits, false, every)
    }

    pub fn start(store: &Store, limits: LivenessLimits, subscribe: bool, every: Duration) -> Self {
        let (feed, sink, mut items) = Feed::new();
        let stop = CancellationToken::new();
        let verifier = verifier();
        let options = DirectoryOptions { limits, roles: None };
        let view = Directory::new(store.clone(), verifier.clone(), options, subscribe.then(|| feed.clone()));
        let mut events = view.events();
        let told = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn({
            let told = Arc::clone(&told);
            async move {
                while let Ok(event) = events.recv().await {
                    told.lock().unwrap_or_else(PoisonError::into_inner).push(event);
                }
            }
        });
        if subscribe {
            let channels = vec![(FeedChannel::Node, store.keys().node_events().to_string())];
            let (store, stop) = (store.clone(), stop.clone());
            tokio::spawn(async move { feed.run(store, channels, sink, stop).await });
        }
        tokio::spawn({
            let (view, stop) = (view.clone(), stop.clone());
            async move {
                let (mut reads, mut ages) = (interval(every), interval(Duration::from_millis(10)));
                reads.set_missed_tick_behavior(MissedTickBehavior::Delay);
                ages.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    tokio::select! {
                        () = stop.cancelled() => break,
                        // A failed read leaves the view stale, which is what the tests look at.
                        _ = reads.tick() => { let _ = view.refresh().await; }
                        _ = ages.tick() => view.age(),
                        Some(item) = items.recv() => match item {
                            FeedItem::Gap => { let _ = view.refresh().await; }
                            FeedItem::Down => {}
                            FeedItem::Message(_, bytes) => { let _ = view.on_event(&bytes).await; }
                        },
                    }
                }
            }
        });
        Self { view, verifier, told, stop }
    }

    /// What it told so far, without the updates.
    pub fn told(&self) -> Vec<DirectoryEvent> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().filter(|event| !matches!(event, DirectoryEvent::Updated { .. })).cloned().collect()
    }

    pub fn updates(&self) -> usize {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().filter(|event| matches!(event, DirectoryEvent::Updated { .. })).count()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Hears all that is published on a channel.
pub struct Listener {
    pubsub: redis::aio::PubSub,
    conn: MultiplexedConnection,
    channel: String,
}

impl Listener {
    pub async fn start(server: &TestStore, channel: &str) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let mut pubsub = client.get_async_pubsub().await.unwrap();
        let channel = key(channel);
        pubsub.subscribe(&channel).await.unwrap();
        Self { pubsub, conn: server.conn().await, channel }
    }

    /// What was published since the last time, up to now: a marker of its own comes behind all of it.
    pub async fn heard(&mut self) -> Vec<String> {
        const MARKER: &[u8] = b"no row and no event";
        let _: u64 = redis::cmd("PUBLISH").arg(&self.channel).arg(MARKER).query_async(&mut self.conn).await.unwrap();
        let mut messages = self.pubsub.on_message();
        let mut heard = Vec::new();
        loop {
            let message = tokio::time::timeout(LIMIT, messages.next()).await.expect("the marker comes back").unwrap();
            if message.get_payload_bytes() == MARKER {
                return heard;
            }
            heard.push(String::from_utf8_lossy(message.get_payload_bytes()).into_owned());
        }
    }
}

/// A view that is read only when the test says so.
pub fn by_hand(store: &Store, limits: LivenessLimits) -> Directory {
    Directory::new(store.clone(), verifier(), DirectoryOptions { limits, roles: None }, None)
}

pub async fn pass(conn: &mut MultiplexedConnection, ms: u64) {
    let until = store_ms(conn).await + ms;
    eventually("the store's clock goes on", LIMIT, async || store_ms(conn).await >= until).await;
}

pub async fn sees(watcher: &Watcher, what: &str, wanted: DirectoryEvent) {
    eventually(what, LIMIT, async || watcher.told().contains(&wanted)).await;
}
