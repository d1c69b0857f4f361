//! Agents of both roles in the test's own process, against a real store, and an inventory that counts its places.
#![allow(dead_code, reason = "every test binary compiles all of this and uses a part of it")]

pub mod shelf;

use std::collections::BTreeMap;
use std::time::Duration;

use maitred::Error;
use maitred::agent::config::{Config, SecretUrl};
use maitred::agent::{
    BackendAgent, Outcome, PLACES, PlaceAnswer, PlaceRequest, ProxyAgent, RESERVE, Redeemed, Refusal, Request, Setup,
    Transfer,
};
use maitred::envelope::{Keyring, Secret};
use maitred::ids::{NodeId, Player, Region, RequestId, Role, Zone};
use maitred::node::{LoadSample, NodeState};
use maitred::store::{Store, StoreOptions, StoreUrl, Verifier, scripts};
use redis::aio::MultiplexedConnection;
use shelf::Shelf;

use crate::support::fault::FaultProxy;
use crate::support::store::TestStore;
use crate::support::wait::eventually;

/// Longest wait for what has to happen; a busy machine does not reach it.
pub const LIMIT: Duration = Duration::from_secs(20);
/// The secret of every fleet of the tests.
pub const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The zone of every fleet of the tests.
pub const ZONE: &str = "eu";

pub fn zone() -> Zone {
    Zone::new(ZONE).expect("a zone")
}

pub fn id(name: &str) -> NodeId {
    NodeId::new(name).expect("an id")
}

pub fn player(name: &str) -> Player {
    Player::new(name).expect("a player")
}

pub fn region(name: &str) -> Region {
    Region::new(name).expect("a region")
}

pub fn key(rest: &str) -> String {
    format!("maitred:{{{ZONE}}}:{rest}")
}

pub fn keyring() -> Keyring {
    Keyring::new(zone(), Secret::from_base64("TEST", SECRET).expect("a secret"), Vec::new())
}

/// A node with short times: a lease of 1.75 s, a token of 20 s, a sweep every 400 ms. The fleet has lobbies, so that a
/// bare request goes by kept places and a test says with them who is asked first.
pub fn config(name: &str, role: &str, url: &str) -> Config {
    let mut config = Config { enabled: true, zone: zone(), ..Config::default() };
    config.node.id = Some(id(name));
    config.node.role = Role::new(role).expect("a role");
    config.node.addr = format!("{name}.example:25565");
    config.store.url = SecretUrl::new(url);
    config.heartbeat.interval_ms = 500;
    config.directory.suspect_ms = 1_300;
    config.directory.offline_ms = 1_750;
    config.tokens.ttl_ms = 20_000;
    config.tokens.claim_reanimate_ms = 1_000;
    config.tokens.audit_ms = 30_000;
    config.tokens.reap_interval_ms = 400;
    config.routing.lobby_mode = true;
    config
}

/// The same node with a background that is as quiet as can be, and so patient that nothing is asked twice.
pub fn quiet(mut config: Config) -> Config {
    config.heartbeat.interval_ms = 60_000;
    config.directory.refresh_ms = 600_000;
    config.directory.suspect_ms = 150_000;
    config.directory.offline_ms = 210_000;
    config.directory.removed_ms = 86_400_000;
    config.dispatch.stale_after_ms = 150_000;
    config.dispatch.attempt_timeout_ms = 15_000;
    config.store.command_timeout_ms = 10_000;
    config.store.operation_timeout_ms = 30_000;
    config.tokens.claim_reanimate_ms = 60_000;
    config.tokens.ttl_ms = 60_000;
    config.tokens.reap_interval_ms = 60_000;
    config
}

pub fn setup(config: Config) -> Setup {
    Setup::with_keyring(config, keyring()).expect("a config that is valid")
}

/// Starts a backend and waits until it is a member, also past the lease of a dead holder of its id.
pub async fn backend(config: Config, shelf: &Shelf) -> BackendAgent<Shelf> {
    let backend = setup(config).backend(shelf.clone(), LoadSample::default).expect("a backend");
    eventually("the backend is a member", LIMIT, async || backend.agent().joined().await.ok()).await;
    backend
}

/// Starts a proxy and waits until it is a member.
pub async fn proxy(config: Config) -> ProxyAgent {
    let proxy = setup(config).proxy(LoadSample::default).expect("a proxy");
    eventually("the proxy is a member", LIMIT, async || proxy.agent().joined().await.ok()).await;
    proxy
}

/// Waits until the proxy has these backends in view, ready and in their present epoch.
pub async fn sees(proxy: &ProxyAgent, backends: &[&BackendAgent<Shelf>]) {
    eventually("the proxy sees the backends", LIMIT, async || {
        let snapshot = proxy.agent().directory().snapshot();
        backends.iter().all(|backend| {
            let lease = backend.agent().lease();
            snapshot.get(lease.id()).is_some_and(|view| {
                view.record.state == NodeState::Ready && view.record.accepting && view.record.epoch == lease.epoch()
            })
        })
    })
    .await;
}

/// Dispatches a bare request, which has to end with a transfer.
pub async fn transfer(proxy: &ProxyAgent, name: &str) -> Box<Transfer> {
    transfer_of(proxy, Request::new(player(name))).await
}

pub async fn transfer_of(proxy: &ProxyAgent, request: Request) -> Box<Transfer> {
    match proxy.dispatch(request).await {
        Outcome::Transfer(transfer) => transfer,
        other => panic!("no transfer: {other:?}"),
    }
}

/// Dispatches a request, which has to end with a refusal.
pub async fn refused(proxy: &ProxyAgent, request: Request) -> Refusal {
    match proxy.dispatch(request).await {
        Outcome::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// Asks a backend for a place as a proxy does, and leaves the token unclaimed.
pub async fn pending(proxy: &ProxyAgent, backend: &str, name: &str) -> PlaceAnswer {
    let request = PlaceRequest {
        player: player(name),
        request: RequestId::fresh(),
        attempt: 1,
        region: None,
        deadline_ms: proxy.agent().store().clock().now_ms() + 2_000,
        earlier: Vec::new(),
        bypass: false,
    };
    let target = format!("{backend}:{PLACES}");
    let answer = proxy.agent().post().call_json(&target, RESERVE, &request, Duration::from_secs(2)).await;
    answer.expect("a place")
}

/// A player joins who has a place here.
pub async fn lands(backend: &BackendAgent<Shelf>, name: &str) -> u64 {
    match backend.redeem(&player(name)).await {
        Ok(Redeemed::Landed { place, .. }) => {
            backend.inventory().hand_over(place);
            place
        }
        other => panic!("{name} did not land: {other:?}"),
    }
}

/// The word of what a join finds: `landed`, `none`, or the refusal. A place is handed over.
pub async fn word(backend: &BackendAgent<Shelf>, name: &str) -> Result<&'static str, Error> {
    Ok(match backend.redeem(&player(name)).await? {
        Redeemed::Landed { place, .. } => {
            backend.inventory().hand_over(place);
            "landed"
        }
        Redeemed::None => "none",
        Redeemed::Refused(refusal) => refusal.as_str(),
    })
}

/// A player's row in the store.
pub async fn row(conn: &mut MultiplexedConnection, name: &str) -> BTreeMap<String, String> {
    redis::cmd("HGETALL").arg(key(&format!("token:{name}"))).query_async(conn).await.expect("HGETALL")
}

pub async fn state(conn: &mut MultiplexedConnection, name: &str) -> String {
    row(conn, name).await.remove("state").unwrap_or_default()
}

/// The keys of the zone, without the zone.
pub async fn keys(conn: &mut MultiplexedConnection) -> Vec<String> {
    let all: Vec<String> = redis::cmd("KEYS").arg("*").query_async(conn).await.expect("KEYS");
    let mut keys: Vec<String> = all
        .iter()
        .map(|name| name.strip_prefix(&key("")).unwrap_or_else(|| panic!("stray key {name}")).to_owned())
        .collect();
    keys.sort_unstable();
    keys
}

/// What an operator's tool works with.
pub async fn operator(store: &TestStore) -> (Store, Verifier) {
    operator_at(&store.url()).await
}

pub async fn operator_at(url: &str) -> (Store, Verifier) {
    let mut options = StoreOptions::new(StoreUrl::parse(url).expect("a URL"));
    // A busy machine is no reason to lose an order.
    (options.command_timeout, options.operation_timeout) = (Duration::from_secs(5), Duration::from_secs(20));
    (Store::open(zone(), options).await.expect("the store"), Verifier::new(keyring()))
}

/// Rows read through the wire so far.
pub fn reads(wire: &FaultProxy) -> u64 {
    wire.count("HGETALL") + wire.count("HMGET")
}

/// What went through the wire, without beats, sweeps and the pings of the subscription. Reads of rows stay in.
pub fn bill(wire: &FaultProxy) -> BTreeMap<String, u64> {
    let mut counts = wire.counts();
    let mut background = 0;
    for script in [&scripts::NODE_BEAT, &scripts::NODE_REMOVE, &scripts::NODE_FORGET, &scripts::TOKEN_REAP] {
        background += counts.remove(&format!("EVALSHA {}", script.pinned())).unwrap_or(0);
    }
    if let Some(all) = counts.get_mut("EVALSHA") {
        *all -= background;
    }
    let passing = ["PING", "UNWATCH", "SSCAN", "HSCAN", "ZRANGEBYSCORE"];
    counts.retain(|name, count| *count > 0 && !passing.contains(&name.as_str()));
    counts
}
