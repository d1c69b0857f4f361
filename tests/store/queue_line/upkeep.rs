//! What a sweep puts right.

use maitred::ids::Role;
use maitred::queue::LineSweepReport;
use redis::AsyncCommands;

use crate::fixtures::lines::{TestZone, login};
use maitred_testkit::store::TestStore;

// STO-16: else a line that nobody is in stays for ever, and its players' places with it.
#[tokio::test]
async fn sto_16_players_of_a_dead_proxy_whose_index_entry_is_lost_are_swept_all_the_same() {
    for lost in ["via", "vias", "both"] {
        let store = TestStore::start();
        let zone = TestZone::new(&store).await;
        let mut p1 = zone.member("p1", Role::proxy(), 0).await;
        let p2 = zone.member("p2", Role::proxy(), 0).await;
        let (l1, l2) = (p1.line(&login(500, 1)), p2.line(&login(500, 1)));
        for name in ["a1", "a2", "a3"] {
            p1.waits(&l1, name).await;
        }
        p2.waits(&l2, "b").await;
        let (via, vias) = (zone.key(&format!("via:login:{}:{}", "p1", p1.who.epoch)), zone.key("vias:login"));
        let mut raw = zone.raw.clone();
        if lost != "vias" {
            let _: () = raw.del(&via).await.unwrap();
        }
        if lost != "via" {
            let _: () = raw.srem(&vias, format!("p1:{}", p1.who.epoch)).await.unwrap();
        }
        // While the proxy lives its players stay where they are, and the index is put right.
        let preview = l2.sweep_preview().await.unwrap();
        assert_eq!(l2.sweep().await.unwrap(), preview, "{lost}: as it was said");
        assert_eq!(raw.scard::<_, u64>(&via).await.unwrap(), 3, "{lost}: the entry is there again");
        assert_eq!(l2.view().await.unwrap().waiting, 4, "{lost}");
        assert_eq!(l2.sweep().await.unwrap(), LineSweepReport::default(), "{lost}: in order");

        if lost != "vias" {
            let _: () = raw.del(&via).await.unwrap();
        }
        if lost != "via" {
            let _: () = raw.srem(&vias, format!("p1:{}", p1.who.epoch)).await.unwrap();
        }
        p1.leave().await;
        let preview = l2.sweep_preview().await.unwrap();
        assert_eq!(preview.away, 3, "{lost}: {preview:?}");
        assert_eq!(l2.sweep().await.unwrap().away, 3, "{lost}");
        let view = l2.view().await.unwrap();
        assert_eq!((view.waiting, view.away), (1, 3), "{lost}");
        for name in ["a1", "a2", "a3"] {
            let _: () = raw.zadd(zone.key("away:login"), name, 1_000).await.unwrap();
        }
        assert_eq!(l2.sweep().await.unwrap().out, 3, "{lost}");
        drop(p2);
        l2.clear().await.unwrap();
        let left: Vec<String> =
            zone.keys().await.into_iter().filter(|key| key.contains("login") || key == "lines").collect();
        assert_eq!(left, ["gate:login"], "{lost}: only the gate of a configured line is left");
    }
}

// STO-16: a sweep that sees an index in the making must not read the whole line for it.
#[tokio::test]
async fn sto_16_a_line_that_is_in_order_is_not_walked() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, p2) = (zone.member("p1", Role::proxy(), 0).await, zone.member("p2", Role::proxy(), 0).await);
    let (l1, l2) = (p1.line(&login(500, 1)), p2.line(&login(500, 1)));
    for n in 0..20 {
        p1.waits(&l1, &format!("a{n}")).await;
        p2.waits(&l2, &format!("b{n}")).await;
    }
    let mut raw = zone.raw.clone();
    let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut raw).await.unwrap();
    assert_eq!(l1.sweep().await.unwrap(), LineSweepReport::default());
    let stats = maitred_testkit::store::command_stats(&mut raw).await;
    assert!(!stats.contains_key("hscan"), "the tickets were read: {:?}", stats.keys().collect::<Vec<_>>());
}
