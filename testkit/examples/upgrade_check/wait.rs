//! Players who wait for a place, at proxies of either build, and backends of either build that serve them.

use std::time::Duration;

use serde_json::json;

use super::dispatch::home;
use super::fleet::{BOTH, Builds, Fleet};

pub async fn served(builds: Builds) -> String {
    let fleet = Fleet::new(builds, "");
    let (mut proxies, mut backends) = fleet.four().await;
    let mut position = 0;
    // Who waits where and is served by whom: each combination.
    let turns = [(0, 1), (1, 0), (0, 0), (1, 1)];
    for (proxy, backend) in turns {
        position += 1;
        let player = format!("{}-by-{}", BOTH[proxy], BOTH[backend]);
        let waits = proxies[proxy].must(json!({"op": "dispatch", "id": player, "player": player}), "waiting").await;
        assert_eq!(waits["position"], position, "{waits}");
    }
    for (n, (proxy, backend)) in turns.into_iter().enumerate() {
        let player = format!("{}-by-{}", BOTH[proxy], BOTH[backend]);
        backends[backend].must(json!({"op": "places", "count": 1}), "ok").await;
        let moved = proxies[proxy].event("the first is served", |line| line["event"] == "transfer").await;
        assert_eq!((&moved["player"], &moved["server"]), (&json!(player), &json!(backends[backend].id)), "{moved}");
        let landed = backends[backend].must(json!({"op": "redeem", "player": player}), "landed").await;
        assert_eq!(landed["token"], moved["token"], "{landed}");
        home(&mut backends[backend], 0).await;
        for other in &mut proxies {
            let early = other.event_within(Duration::from_millis(300), |line| line["event"] == "transfer").await;
            assert!(early.is_none(), "served without a place: {early:?}");
        }
        if n + 1 < turns.len() {
            let (next, _) = turns[n + 1];
            proxies[next].event("the next is first", |line| line["event"] == "position" && line["position"] == 1).await;
        }
    }
    "4 waited, each combination was served, in their order".to_owned()
}
