//! A proxy is gone without a word: what it had under way goes on with the other build.

use maitred_testkit::wait::eventually;
use serde_json::json;

use super::dispatch::{home, transfer};
use super::fleet::{Build, Builds, Fleet, LOGIN, online};
use super::peer::LIMIT;

/// The claim is opened again by what is left, all of the other build, and its proxy takes the player.
pub async fn claim(builds: Builds, dead: Build) -> String {
    let fleet = Fleet::new(builds, "");
    let mut backend = fleet.node(dead.other(), "backend").await;
    let mut heir = fleet.node(dead.other(), "proxy").await;
    let mut proxy = fleet.node(dead, "proxy").await;
    for peer in [&mut heir, &mut proxy] {
        online(peer, 3).await;
    }
    backend.must(json!({"op": "places", "count": 2}), "ok").await;
    let server = backend.id.clone();
    let moved = transfer(&mut proxy, "alice", &server).await;
    let other = heir.ask(json!({"op": "take", "player": "alice"})).await;
    assert_ne!(other["outcome"], "transfer", "the claim is the living proxy's: {other}");
    proxy.kill();
    let taken = eventually("the other build takes the player", LIMIT, async || {
        let answer = heir.ask(json!({"op": "take", "player": "alice"})).await;
        (answer["outcome"] == "transfer").then_some(answer)
    })
    .await;
    assert_eq!((&taken["token"], &taken["server"]), (&moved["token"], &json!(server)), "{taken}");
    backend.must(json!({"op": "redeem", "player": "alice"}), "landed").await;
    home(&mut backend, 1).await;
    "claimed, killed, reopened, taken, landed".to_owned()
}

/// A ticket stands for its player, not for the proxy that holds it.
pub async fn place(builds: Builds, dead: Build) -> String {
    let fleet = Fleet::new(builds, LOGIN);
    let mut backend = fleet.node(dead.other(), "backend").await;
    let mut heir = fleet.node(dead.other(), "proxy").await;
    let mut proxy = fleet.node(dead, "proxy").await;
    for peer in [&mut heir, &mut proxy] {
        online(peer, 3).await;
    }
    let enter = |player: &str| json!({"op": "enter", "player": player, "line": "login"});
    fleet.load(&mut backend, 1, 1).await;
    // No place is free. Alice is the first, at the proxy that dies.
    for (player, position) in [("alice", 1), ("bob", 2), ("carol", 3)] {
        let peer = if player == "bob" { &mut heir } else { &mut proxy };
        let waits = peer.must(enter(player), "waiting").await;
        assert_eq!(waits["position"], position, "{player}: {waits}");
    }
    proxy.kill();
    // Alice comes back at once, carol when her proxy is long known to be dead and her place is kept.
    let back = heir.must(enter("alice"), "waiting").await;
    assert_eq!(back["position"], 1, "{back}");
    online(&mut heir, 2).await;
    eventually("the dead proxy's player is put away", LIMIT, async || {
        fleet.keys().await.contains(&"away:login".to_owned())
    })
    .await;
    let back = heir.must(enter("carol"), "waiting").await;
    assert_eq!(back["position"], 3, "{back}");
    fleet.load(&mut backend, 0, 3).await;
    // They may be let in by one script and told in any order; the serials say which order it was.
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(heir.event("the next is let in", |line| line["event"] == "admitted").await);
    }
    told.sort_by_key(|told| told["serial"].as_u64());
    for (told, player) in told.iter().zip(["alice", "bob", "carol"]) {
        assert_eq!(told["player"], player, "{told}");
        backend.must(json!({"op": "redeem", "player": player, "pass": told["pass"]}), "redeemed").await;
    }
    "3 places kept, in their order, and all let in".to_owned()
}
