//! Rows and heartbeats of nodes.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use maitred::envelope::{AuditReason, Kind};
use maitred::node::Liveness;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, id, key, keyring, sees, transfer};
use crate::{Counts, Fleet, dropped, signed, stranger, with};
use maitred_testkit::wait::eventually;

/// A score that makes everybody look at the row.
const AHEAD: &str = "9000000000000";

impl Fleet {
    async fn put_on_roster(&mut self, name: &str) {
        let _: u64 = self.ask(&["ZADD", &key("nodes:backend"), AHEAD, name]).await;
    }

    async fn take_away(&mut self, name: &str) {
        let _: u64 = self.ask(&["ZREM", &key("nodes:backend"), name]).await;
        let _: u64 = self.ask(&["DEL", &key(&format!("node:{name}"))]).await;
    }
}

// ENV-5, ENV-6, R-5: a row that no member wrote for this id brings nobody into view.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_5_forged_rows_bring_nobody_into_view() {
    let mut fleet = Fleet::new().await;
    let real = fleet.row("node:b1").await;
    let evil = |name: &str| with(&real, &[("id", name), ("addr", "evil.example:1"), ("epoch", "9000000000000")]);
    let unsigned = |name: &str| {
        let mut row = evil(name);
        row.remove("sig");
        row
    };
    let table: Vec<(&str, BTreeMap<String, String>, AuditReason)> = vec![
        ("x1", unsigned("x1"), AuditReason::MissingSignature),
        ("x2", evil("x2"), AuditReason::BadSignature),
        ("x3", real.clone(), AuditReason::WrongKey),
        ("x4", signed(&stranger(), Kind::Node, evil("x4")), AuditReason::UnknownKey),
        ("x5", signed(&keyring(), Kind::Node, with(&evil("x5"), &[("v", "2")])), AuditReason::SchemaVersion),
        ("x6", with(&evil("x6"), &[("sig", "nonsense")]), AuditReason::MalformedSignature),
        ("x7", signed(&keyring(), Kind::Node, with(&evil("x7"), &[("epoch", "soon")])), AuditReason::Malformed),
    ];
    for (name, row, reason) in table {
        let before = Counts::of(fleet.p1.agent().verifier());
        fleet.write(&format!("node:{name}"), &row).await;
        fleet.put_on_roster(name).await;
        dropped(fleet.p1.agent().verifier(), &before, reason, &format!("node:{name}")).await;
        assert!(fleet.p1.agent().directory().view_of(&id(name)).is_none(), "{name} is believed");
        fleet.works().await;
        fleet.take_away(name).await;
        // A look that was under way may still count.
        let mut last = Counts::of(fleet.p1.agent().verifier());
        eventually("nothing more is dropped", LIMIT, async || {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            std::mem::replace(&mut last, Counts::of(fleet.p1.agent().verifier()))
                == Counts::of(fleet.p1.agent().verifier())
        })
        .await;
    }
    assert_eq!(
        fleet.p1.agent().directory().snapshot().nodes.iter().filter(|n| n.record.role.as_str() == "backend").count(),
        1
    );
}

// ENV-5: one changed field of a row that lives: whoever hears the member's beats goes on, and a row that was taken away is
// written anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_5_a_live_row_with_one_changed_field_moves_nobody() {
    let mut fleet = Fleet::new().await;
    let before = Counts::of(fleet.p1.agent().verifier());
    eventually("the changed row is looked at", LIMIT, async || {
        let _: u64 = fleet.ask(&["HSET", &key("node:b1"), "addr", "evil.example:1"]).await;
        fleet.put_on_roster("b1").await;
        fleet.p1.agent().verifier().audit().count(AuditReason::BadSignature) > 0
    })
    .await;
    dropped(fleet.p1.agent().verifier(), &before, AuditReason::BadSignature, "node:b1").await;
    fleet.works().await;
    let _: u64 = fleet.ask(&["DEL", &key("node:b1")]).await;
    eventually("the member writes its row again", LIMIT, async || {
        fleet.row("node:b1").await.get("addr").is_some_and(|addr| addr == "b1.example:25565")
    })
    .await;
}

// ENV-5, ENV-6: heartbeats on the channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_5_forged_heartbeats_change_nothing() {
    let mut fleet = Fleet::new().await;
    let row = with(&fleet.row("node:b1").await, &[("addr", "evil.example:1"), ("seq", "9000000")]);
    let fields: Vec<&str> = Kind::Node.fields().iter().map(|name| row[*name].as_str()).collect();
    let mut later = fields.clone();
    *later.last_mut().expect("v") = "2";
    let genuine = keyring().to_wire(Kind::Node, &fields);
    let changed = String::from_utf8(genuine).expect("texts").replace("evil.example:1", "evil.example:2").into_bytes();
    let table = [
        (b"anything".to_vec(), AuditReason::Malformed),
        (changed, AuditReason::BadSignature),
        (stranger().to_wire(Kind::Node, &fields), AuditReason::UnknownKey),
        (keyring().to_wire(Kind::Node, &later), AuditReason::SchemaVersion),
    ];
    for (bytes, reason) in table {
        let before = Counts::of(fleet.p1.agent().verifier());
        fleet.publish("events:node", &bytes).await;
        dropped(fleet.p1.agent().verifier(), &before, reason, "events:node").await;
        fleet.works().await;
    }
}

// ENV-7: an old heartbeat copied back, while its node lives and when it is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_7_an_old_heartbeat_copied_back_brings_nobody_back() {
    let mut fleet = Fleet::new().await;
    let stock = Stock::new(10, 1_000);
    let b2 = backend(config("b2", "backend", &fleet.url), &stock).await;
    sees(&fleet.p1, &[&b2]).await;
    let client = redis::Client::open(fleet.url.as_str()).expect("a URL");
    let mut events = client.get_async_pubsub().await.expect("a subscription");
    events.subscribe(key("events:node")).await.expect("a subscription");
    let old_row = fleet.row("node:b2").await;
    let old_event = {
        let mut heard = events.on_message();
        loop {
            let bytes = heard.next().await.expect("a heartbeat").get_payload_bytes().to_vec();
            if String::from_utf8_lossy(&bytes).contains("b2.example") {
                break bytes;
            }
        }
    };
    let sent_at: u64 = old_row["sent_at"].parse().expect("ms");
    let view = fleet.p1.agent().directory().clone();
    eventually("b2 has beaten for longer than a row lives", LIMIT, async || {
        view.view_of(&id("b2")).is_some_and(|b2| b2.record.sent_at_ms > sent_at + 2_000)
    })
    .await;

    let newest = || view.view_of(&id("b2")).map_or(0, |b2| b2.record.sent_at_ms);
    let (before, known) = (Counts::of(fleet.p1.agent().verifier()), newest());
    eventually("the old row is looked at", LIMIT, async || {
        fleet.write("node:b2", &old_row).await;
        fleet.put_on_roster("b2").await;
        fleet.publish("events:node", &old_event).await;
        fleet.p1.agent().verifier().audit().count(AuditReason::Stale) > 0
    })
    .await;
    dropped(fleet.p1.agent().verifier(), &before, AuditReason::Stale, "node:b2").await;
    assert!(newest() >= known, "the view went back in time");
    // Its lease looks old to the scripts until it beats again; then it is picked as before.
    let mut n = 0;
    eventually("b2 is given players again", LIMIT, async || {
        n += 1;
        transfer(&fleet.p1, &format!("while-it-lives-{n}")).await.server == id("b2")
    })
    .await;

    drop(b2);
    eventually("b2 is offline", LIMIT, async || {
        view.view_of(&id("b2")).is_none_or(|b2| b2.liveness >= Liveness::Offline)
    })
    .await;
    let looks = fleet.p1.agent().verifier().audit().count(AuditReason::Stale);
    fleet.write("node:b2", &old_row).await;
    fleet.put_on_roster("b2").await;
    fleet.publish("events:node", &old_event).await;
    eventually("it is looked at again", LIMIT, async || {
        fleet.p1.agent().verifier().audit().count(AuditReason::Stale) > looks
    })
    .await;
    assert!(view.view_of(&id("b2")).is_none_or(|b2| b2.liveness >= Liveness::Offline), "the dead came back");
    fleet.works().await;
}
