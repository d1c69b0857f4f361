//! The kill switch.

use maitred::agent::{Reason, Request};
use maitred::envelope::{AuditReason, Kind};
use maitred::node::{Control, ControlEntry, KILL};
use maitred::store::{Store, StoreOptions, StoreUrl, Verifier};

use crate::fixtures::agents::{LIMIT, key, keyring, player, refused, zone};
use crate::{Counts, Fleet, dropped, stranger};
use maitred_testkit::wait::eventually;

impl Fleet {
    /// Writes bytes where an entry stands and tells everybody that it changed, as whoever has the password can.
    async fn forge_switch(&mut self, bytes: &str) {
        let _: u64 = self.ask(&["HSET", &key("control"), KILL, bytes]).await;
        self.publish("events:control", b"control kill").await;
    }

    async fn each_drops(&mut self, bytes: &str, reason: AuditReason) {
        let (p1, b1) = (self.p1.agent().verifier().clone(), self.b1.agent().verifier().clone());
        let before = [Counts::of(&p1), Counts::of(&b1)];
        self.forge_switch(bytes).await;
        dropped(&p1, &before[0], reason, "kill").await;
        dropped(&b1, &before[1], reason, "kill").await;
    }
}

fn entry(keyring: &maitred::envelope::Keyring, value: &str, version: u64, v: u32) -> String {
    let (version_text, v_text) = (version.to_string(), v.to_string());
    let fields = [KILL, value, &version_text, "mallory", &version_text, &v_text];
    let sig = keyring.sign(Kind::Control, &fields).as_str().to_owned();
    let entry = ControlEntry { value: value.to_owned(), version, by: "mallory".to_owned(), at: version, v, sig };
    serde_json::to_string(&entry).expect("JSON")
}

// a forged switch neither stops a fleet nor starts one that was stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_32_a_forged_kill_switch_neither_stops_nor_starts_the_fleet() {
    let mut fleet = Fleet::new().await;
    let late = 9_000_000_000_000;
    let own = entry(&keyring(), "off", late, 1);
    let forgeries = |value: &str| {
        [
            ("{\"value\":\"on\"}".to_owned(), AuditReason::ForgedControl),
            (own.replace("\"off\"", &format!("\"{value}\"")).replace("mallory", "ops"), AuditReason::ForgedControl),
            (entry(&stranger(), value, late, 1), AuditReason::ForgedControl),
            (entry(&keyring(), value, late, 2), AuditReason::SchemaVersion),
        ]
    };
    for (bytes, reason) in forgeries("on") {
        fleet.each_drops(&bytes, reason).await;
        fleet.works().await;
    }

    let options = StoreOptions::new(StoreUrl::parse(&fleet.url).expect("a URL"));
    let store = Store::open(zone(), options).await.expect("the store");
    let (operator, verifier) = (Control::default(), Verifier::new(keyring()));
    operator.put(&store, &verifier, KILL, "on", "ops").await.expect("the switch is on");
    eventually("everybody heard it", LIMIT, async || {
        fleet.p1.agent().control().is_on(KILL) && fleet.b1.agent().control().is_on(KILL)
    })
    .await;
    for (n, (bytes, reason)) in forgeries("off").into_iter().enumerate() {
        fleet.each_drops(&bytes, reason).await;
        let refusal = refused(&fleet.p1, Request::new(player(&format!("stopped-{n}")))).await;
        assert_eq!(refusal.reason, Reason::KillSwitch, "{refusal:?}");
    }
    // Taken away by hand it stays in force.
    let _: u64 = fleet.ask(&["DEL", &key("control")]).await;
    fleet.publish("events:control", b"control kill").await;
    let refusal = refused(&fleet.p1, Request::new(player("stopped"))).await;
    assert_eq!(refusal.reason, Reason::KillSwitch, "{refusal:?}");

    operator.put(&store, &verifier, KILL, "off", "ops").await.expect("the switch is off");
    eventually("everybody heard it", LIMIT, async || {
        !fleet.p1.agent().control().is_on(KILL) && !fleet.b1.agent().control().is_on(KILL)
    })
    .await;
    fleet.works().await;
    fleet.stock.all_home().await;
}
