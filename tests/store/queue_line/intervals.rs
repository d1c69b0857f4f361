//! Heartbeats that are seldom.

use maitred::ids::Role;
use maitred::queue::{Admitter, Choice, GateOptions, LineOptions};
use redis::AsyncCommands;

use crate::fixtures::lines::{TestZone, login, rounds, snapshot};
use maitred_testkit::store::TestStore;

// else a fleet whose nodes beat every ten seconds has a shut gate for seven of them.
#[tokio::test]
async fn r_24_a_node_counts_at_the_gate_for_as_long_as_its_lease() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let lease_ms = 35_000;
    let b1 = zone.member_on(zone.store().await, "b1", Role::backend(), 1_000, lease_ms).await;
    let b2 = zone.member_on(zone.store().await, "b2", Role::backend(), 1_000, lease_ms).await;
    let gate = GateOptions { per_backend: 40, ..GateOptions::default() };
    let line = p1.line(&LineOptions { gate, ..login(1, 1) });
    for n in 0..100 {
        p1.waits(&line, &format!("p{n}")).await;
    }
    let mut raw = zone.raw.clone();
    let mut beat = async |id: &str, age_ms: u64| {
        let at = zone.now().await - age_ms;
        let _: () = raw.zadd(zone.key("nodes:backend"), id, at).await.unwrap();
        let _: () = raw.hset(zone.key(&format!("node:{id}")), "beat_at", at).await.unwrap();
    };
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    for (first_ms, second_ms, rate) in [(9_000, 100, 80), (9_000, 20_000, 80), (9_000, 36_000, 40)] {
        beat("b1", first_ms).await;
        beat("b2", second_ms).await;
        let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1, &b2])).await.unwrap();
        assert_eq!(round.rate, rate, "beats {first_ms} and {second_ms} ms ago: {round:?}");
        assert_eq!(line.view().await.unwrap().rate, rate, "QUE-8: and so the estimate has it");
    }
}
