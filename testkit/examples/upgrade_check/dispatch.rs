//! Dispatches from proxies of either build to backends of either build.

use maitred_testkit::wait::eventually;
use serde_json::{Value, json};

use super::fleet::{BOTH, Builds, Fleet};
use super::peer::{LIMIT, Peer};

pub async fn seen(builds: Builds) -> String {
    let fleet = Fleet::new(builds, "");
    let _four = fleet.four().await;
    for build in BOTH {
        let told = fleet.command(build, &["nodes"]);
        let nodes = told["nodes"].as_array().map_or(0, Vec::len);
        assert_eq!(nodes, 4, "`nodes` of the {build} build: {told}");
    }
    "the proxies see 4, and so does `nodes` of each build".to_owned()
}

pub async fn landed(builds: Builds) -> String {
    let fleet = Fleet::new(builds, "");
    let (mut proxies, mut backends) = fleet.four().await;
    for backend in &mut backends {
        backend.must(json!({"op": "places", "count": 10}), "ok").await;
    }
    let mut count = 0;
    for proxy in &mut proxies {
        for backend in &mut backends {
            for round in 0..3 {
                let player = format!("player-{}-{}-{round}", proxy.id, backend.id);
                let moved = transfer(proxy, &player, &backend.id).await;
                let promised = backend
                    .event("a promised place", |line| line["event"] == "place_promised" && line["player"] == player)
                    .await;
                assert_eq!(promised["token"], moved["token"], "{promised}");
                let landed = backend.must(json!({"op": "redeem", "player": player}), "landed").await;
                assert_eq!(landed["token"], moved["token"], "{landed}");
                backend.must(json!({"op": "redeem", "player": player}), "none").await;
                count += 1;
            }
        }
    }
    for backend in &mut backends {
        let status = backend.ask(json!({"op": "status"})).await;
        assert_eq!((&status["free"], &status["promised"]), (&json!(4), &json!(0)), "{}: {status}", backend.id);
    }
    format!("{count} players, three in each combination; places add up")
}

pub async fn released(builds: Builds) -> String {
    let fleet = Fleet::new(builds, "");
    let (mut proxies, mut backends) = fleet.four().await;
    for backend in &mut backends {
        backend.must(json!({"op": "places", "count": 1}), "ok").await;
    }
    for proxy in &mut proxies {
        for backend in &mut backends {
            let moved = transfer(proxy, "alice", &backend.id).await;
            proxy.must(json!({"op": "release", "player": "alice", "request": moved["id"]}), "released").await;
            home(backend, 1).await;
            let moved = transfer(proxy, "alice", &backend.id).await;
            proxy.must(json!({"op": "cancel", "player": "alice", "request": moved["id"]}), "cancelled").await;
            home(backend, 1).await;
        }
    }
    "one place each, released and cancelled in each combination".to_owned()
}

/// Sends a player to that backend; asks again while the proxy does not see its places yet. Answers with the id of the
/// request that moved the player.
pub async fn transfer(proxy: &mut Peer, player: &str, server: &str) -> Value {
    let mut tries = 0;
    eventually(&format!("{} moves {player} to {server}", proxy.id), LIMIT, async || {
        tries += 1;
        let id = format!("{player}-{server}-{tries}-{}", proxy.fresh());
        let answer = proxy.ask(json!({"op": "dispatch", "id": id, "player": player, "server": server})).await;
        if answer["outcome"] == "waiting" {
            proxy.ask(json!({"op": "cancel", "player": player, "request": id})).await;
        }
        (answer["outcome"] == "transfer" && answer["server"] == server).then_some(answer)
    })
    .await
}

/// Waits until that many places are free and none is promised.
pub async fn home(backend: &mut Peer, free: u64) {
    eventually(&format!("{} has {free} free places", backend.id), LIMIT, async || {
        let status = backend.ask(json!({"op": "status"})).await;
        status["free"] == free && status["promised"] == 0
    })
    .await;
}
