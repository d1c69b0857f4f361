//! Messages between nodes.

use futures_util::StreamExt;
use maitred::envelope::{AuditReason, Kind};

use crate::fixtures::agents::{key, keyring, lands, transfer};
use crate::{Counts, Fleet, dropped, stranger};

/// Changes named fields of a message.
fn changed(fields: &[String], changes: &[(&str, &str)]) -> Vec<String> {
    let names = Kind::Message.fields();
    let mut fields = fields.to_vec();
    for (name, value) in changes {
        let at = names.iter().position(|field| field == name).expect("a field of messages");
        fields[at] = (*value).to_owned();
    }
    fields
}

// ENV-5, ENV-6, ENV-7: nobody gets a place by a message that no member sent now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_7_replayed_and_forged_messages_reserve_nothing() {
    let mut fleet = Fleet::new().await;
    let client = redis::Client::open(fleet.url.as_str()).expect("a URL");
    let mut inbox = client.get_async_pubsub().await.expect("a subscription");
    inbox.subscribe(key("inbox:b1")).await.expect("a subscription");
    transfer(&fleet.p1, "dave").await;
    let sent = inbox.on_message().next().await.expect("the request").get_payload_bytes().to_vec();
    lands(&fleet.b1, "dave").await;

    let keyring = keyring();
    let wire = keyring.from_wire(&sent, 1_000_000).expect("a genuine message");
    assert_eq!(wire.kind, Kind::Message);
    let fields: Vec<String> = wire.fields.iter().map(|field| (*field).to_owned()).collect();
    let wire = |keyring: &maitred::envelope::Keyring, changes: &[(&str, &str)]| {
        let fields = changed(&fields, changes);
        keyring.to_wire(Kind::Message, &fields.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let at = |name: &str| &fields[Kind::Message.fields().iter().position(|field| *field == name).expect("a field")];
    let earlier = (at("sent_at").parse::<u64>().expect("ms") - 40_000).to_string();
    let over = (at("deadline").parse::<u64>().expect("ms") - 40_000).to_string();
    let old_epoch = (at("from_epoch").parse::<u64>().expect("an epoch") - 1).to_string();
    let bent = String::from_utf8(sent.clone()).expect("texts").replace("dave", "mall").into_bytes();
    let table = [
        ("inbox", sent.clone(), AuditReason::Replay),
        ("inbox", bent, AuditReason::BadSignature),
        ("inbox", wire(&stranger(), &[("nonce", "n1")]), AuditReason::UnknownKey),
        ("inbox", wire(&keyring, &[("nonce", "n2"), ("v", "2")]), AuditReason::SchemaVersion),
        ("p1", wire(&keyring, &[("nonce", "n3"), ("sent_at", &earlier), ("deadline", &over)]), AuditReason::Stale),
        (
            "p1",
            wire(&keyring, &[("nonce", "n4"), ("from_epoch", &old_epoch), ("origin_epoch", &old_epoch)]),
            AuditReason::OldEpoch,
        ),
        (
            "ghost",
            wire(&keyring, &[("nonce", "n5"), ("from", "ghost"), ("origin", "ghost")]),
            AuditReason::UnknownSender,
        ),
        ("p1", wire(&keyring, &[("nonce", "n6"), ("to", "b2")]), AuditReason::WrongKey),
        ("inbox", b"anything".to_vec(), AuditReason::Malformed),
    ];
    for (what, bytes, reason) in table {
        let (before, asked) = (Counts::of(fleet.b1.agent().verifier()), fleet.stock.asked().len());
        fleet.publish("inbox:b1", &bytes).await;
        dropped(fleet.b1.agent().verifier(), &before, reason, what).await;
        fleet.works().await;
        assert_eq!(fleet.stock.asked().len(), asked + 1, "{reason:?}: the inventory was asked by a forgery");
    }
    fleet.stock.all_home().await;
}
