//! QUE-9, SEL-7: requests that no backend can serve wait in the store and are served in order as places come in. If one of
//! these fails, players wait for nothing, are served out of their turn, hold a place twice, or are forgotten.

mod agents_common;
mod support;

#[path = "wait/blocked.rs"]
mod blocked;
#[path = "wait/cancel.rs"]
mod cancel;
#[path = "wait/doubt.rs"]
mod doubt;
#[path = "wait/fair.rs"]
mod fair;
#[path = "wait/killed.rs"]
mod killed;
#[path = "wait/lost.rs"]
mod lost;
#[path = "wait/named.rs"]
mod named;
#[path = "wait/order.rs"]
mod order;
#[path = "wait/sidecar.rs"]
mod sidecar;
#[path = "wait/stall.rs"]
mod stall;
#[path = "wait/wishes.rs"]
mod wishes;

use std::time::Duration;

use agents_common::{LIMIT, config, key, player, proxy};
use maitred::agent::config::{Config, OnNoCandidate};
use maitred::agent::{Outcome, ProxyAgent, Refusal, Request, Transfer, WaitUpdate, Waiting};
use maitred::ids::LineName;
use maitred::queue::{Line, LineOptions};
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

/// A proxy whose requests wait.
fn queueing(name: &str, url: &str) -> Config {
    let mut config = config(name, "proxy", url);
    config.selector.on_no_candidate = OnNoCandidate::Queue;
    config.dispatch.cooldown_ms = 0;
    config.routing.lobby_mode = false;
    config
}

async fn wait_proxy(name: &str, url: &str) -> ProxyAgent {
    proxy(queueing(name, url)).await
}

/// Dispatches a request, which has to wait.
async fn waits(proxy: &ProxyAgent, request: Request) -> Waiting {
    match proxy.dispatch(request).await {
        Outcome::Waiting(waiting) => waiting,
        other => panic!("does not wait: {other:?}"),
    }
}

async fn waits_for_any(proxy: &ProxyAgent, name: &str) -> Waiting {
    waits(proxy, Request::new(player(name))).await
}

/// How a wait ends.
async fn end(waiting: &mut Waiting) -> WaitUpdate {
    timeout(LIMIT, waiting.end()).await.expect("it ends").expect("with an update")
}

async fn served(waiting: &mut Waiting) -> Box<Transfer> {
    match end(waiting).await {
        WaitUpdate::Transfer(transfer) => transfer,
        other => panic!("not served: {other:?}"),
    }
}

async fn turned_away(waiting: &mut Waiting) -> Refusal {
    match end(waiting).await {
        WaitUpdate::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// The line as somebody else sees it.
async fn line(url: &str, name: LineName) -> Line {
    let (store, verifier) = agents_common::operator_at(url).await;
    Line::new(store, verifier, maitred::node::Control::default(), LineOptions::wait_line(name)).expect("a line")
}

/// The players with a ticket in the line.
async fn tickets(conn: &mut MultiplexedConnection, line: &str) -> Vec<String> {
    let mut names: Vec<String> =
        redis::cmd("HKEYS").arg(key(&format!("tickets:{line}"))).query_async(conn).await.expect("HKEYS");
    names.sort_unstable();
    names
}

/// Nothing comes of it within a time in which the loops looked more than once.
const QUIET: Duration = Duration::from_millis(1_500);
