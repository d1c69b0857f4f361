//! A fleet is gone as a whole: a build that never knew its processes brings the store in order.

use std::time::Duration;

use maitred_testkit::wait::eventually;
use serde_json::json;

use super::dispatch::transfer;
use super::fleet::{Build, Builds, Fleet, LOGIN, online};

/// A claim runs out (1.5 s), a token (20 s), a grace (8 s), and rows are audited for 2 s more.
const SWEPT_LIMIT: Duration = Duration::from_secs(60);

pub async fn swept(builds: Builds, dead: Build) -> String {
    let fleet = Fleet::new(builds, LOGIN);
    let (mut backend, mut proxy) = (fleet.node(dead, "backend").await, fleet.node(dead, "proxy").await);
    online(&mut proxy, 2).await;
    backend.must(json!({"op": "places", "count": 2}), "ok").await;
    let server = backend.id.clone();
    for player in ["alice", "bob"] {
        transfer(&mut proxy, player, &server).await;
    }
    proxy.must(json!({"op": "dispatch", "id": "waits", "player": "carol"}), "waiting").await;
    fleet.load(&mut backend, 1, 1).await;
    for player in ["dave", "erin"] {
        proxy.must(json!({"op": "enter", "player": player, "line": "login"}), "waiting").await;
    }
    let left = |key: &String| {
        ["token:", "due", "line", "tickets:", "away:", "via", "pass:"].iter().any(|start| key.starts_with(start))
    };
    let before = fleet.keys().await.into_iter().filter(left).count();
    assert!(before >= 10, "there is little to sweep: {:?}", fleet.keys().await);
    backend.kill();
    proxy.kill();
    let mut sweeps = 0;
    eventually("nothing is left", SWEPT_LIMIT, async || {
        sweeps += 1;
        fleet.command(dead.other(), &["reap"]);
        let keys: Vec<String> = fleet.keys().await.into_iter().filter(left).collect();
        keys.is_empty()
    })
    .await;
    format!("{before} keys are gone, after {sweeps} sweeps")
}
