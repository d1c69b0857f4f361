//! Rows and heartbeats that no member wrote, or wrote for another place or time. If these fail, whoever has the store's
//! password decides where players go.

use std::collections::BTreeMap;

use crate::fixtures::nodes::{
    LIMIT, LONG_MS, Listener, PATIENT, Watcher, ask, blank, by_hand, key, membership, node, open, row_of, store_ms,
    stranger,
};
use maitred::Error;
use maitred::envelope::{AuditReason, Kind};
use maitred::node::{
    Control, Directory, DirectoryEvent as Event, DirectoryOptions, Identity, Lease, Liveness, Membership,
};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use redis::aio::MultiplexedConnection;

async fn write(conn: &mut MultiplexedConnection, id: &str, row: &BTreeMap<String, String>) {
    let key = key(&format!("node:{id}"));
    let mut words = vec!["HSET", &key];
    words.extend(row.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
    let _: u64 = ask(conn, &words).await;
}

async fn list(conn: &mut MultiplexedConnection, id: &str) {
    let score = store_ms(conn).await.to_string();
    let _: u64 = ask(conn, &["ZADD", &key("nodes:proxy"), &score, id]).await;
}

// ENV-5: every signed field counts; whatever is changed by hand drops the row, is counted, and stops nothing else.
#[tokio::test]
async fn env_5_a_row_with_one_changed_field_is_refused_and_the_others_still_count() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    membership(&store, "p1", "proxy", LONG_MS).join(blank()).await.unwrap();
    membership(&store, "other", "proxy", LONG_MS).join(blank()).await.unwrap();
    let row = row_of(&mut conn, "p1").await;
    for field in Kind::Node.fields().iter().filter(|field| **field != "v") {
        let changed = BTreeMap::from([((*field).to_owned(), format!("{}1", row[*field]))]);
        write(&mut conn, "p1", &changed).await;
        let verifier = crate::fixtures::nodes::verifier();
        let options = DirectoryOptions { limits: PATIENT, roles: None };
        let view = Directory::new(store.clone(), verifier.clone(), options, None);
        view.refresh().await.unwrap();
        assert!(view.view_of(&node("p1")).is_none(), "{field} was changed and believed");
        assert!(view.view_of(&node("other")).is_some());
        assert_eq!(verifier.audit().counts().iter().map(|(_, count)| count).sum::<u64>(), 1, "{field}");
        assert_eq!(verifier.audit().count(AuditReason::BadSignature), 1, "{field}");
        match view.resolve(&node("p1")).await {
            Err(Error::Untrusted { what, reason }) => assert_eq!((what.as_str(), reason), ("node:p1", "bad_signature")),
            other => panic!("{field}: {other:?}"),
        }
        write(&mut conn, "p1", &row).await;
    }
    // What stands beside the signed fields is not believed by anybody but the scripts.
    write(&mut conn, "p1", &BTreeMap::from([("beat_at".to_owned(), "1".to_owned())])).await;
    let view = by_hand(&store, PATIENT);
    view.refresh().await.unwrap();
    assert!(view.view_of(&node("p1")).is_some());
}

// ENV-5, ENV-6, R-5: each kind of row that is not to be believed has its own reason.
#[tokio::test]
async fn env_6_each_reason_to_refuse_a_row_is_counted_as_itself() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    membership(&store, "p1", "proxy", LONG_MS).join(blank()).await.unwrap();
    let row = row_of(&mut conn, "p1").await;
    let with = |field: &str, value: &str| {
        let mut row = row.clone();
        row.insert(field.to_owned(), value.to_owned());
        row
    };
    let without_signature = {
        let mut row = row.clone();
        row.remove("sig");
        row
    };
    let table = [
        ("copied", row.clone(), AuditReason::WrongKey),
        ("newer", with("v", "2"), AuditReason::SchemaVersion),
        ("unsigned", without_signature, AuditReason::MissingSignature),
        ("garbled", with("sig", "5ebd00f2"), AuditReason::MalformedSignature),
    ];
    for (id, row, _) in &table {
        write(&mut conn, id, row).await;
        list(&mut conn, id).await;
    }
    let identity =
        Identity { id: node("stranger"), role: crate::fixtures::nodes::role("proxy"), addr: "evil:1".to_owned() };
    let lease = Lease::new(node("stranger"), LONG_MS);
    Membership::new(store.clone(), stranger(), identity, lease).join(blank()).await.unwrap();

    let watcher = Watcher::subscribed(&open(&server.url()).await, PATIENT);
    eventually("the view is read", LIMIT, async || !watcher.view.is_stale()).await;
    let seen: Vec<String> = watcher.view.snapshot().nodes.iter().map(|node| node.record.id.to_string()).collect();
    assert_eq!(seen, ["p1"], "and the rest goes on working");
    let audit = watcher.verifier.audit();
    for (id, _, reason) in &table {
        assert!(audit.count(*reason) > 0, "{id}");
        let before = audit.count(*reason);
        let refused = watcher.view.resolve(&node(id)).await;
        match (reason, refused) {
            (AuditReason::SchemaVersion, Err(Error::SchemaVersion { what, version, known })) => {
                assert_eq!((what, version.as_str(), known), (format!("node:{id}"), "2", 1));
            }
            (_, Err(Error::Untrusted { what, reason: named })) => {
                assert_eq!((what, named), (format!("node:{id}"), reason.as_str()));
            }
            (_, other) => panic!("{id}: {other:?}"),
        }
        // The watcher reads in the background too, so there may be more than the one of this look.
        assert!(audit.count(*reason) > before, "{id}: verified on every read");
    }
    assert!(audit.count(AuditReason::UnknownKey) > 0, "a row signed with another secret");
}

// ENV-7, R-10: going back in time, in the store and on the channel.
#[tokio::test]
async fn env_7_an_old_heartbeat_moves_nothing_back() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut wire = Listener::start(&server, "events:node").await;
    let id = node("p1");
    let mut past = membership(&store, "p1", "proxy", LONG_MS);
    past.join(blank()).await.unwrap();
    let of_old_epoch = (row_of(&mut conn, "p1").await, wire.heard().await.remove(0));
    past.leave().await.unwrap();
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let epoch = member.join(blank()).await.unwrap();
    wire.heard().await;
    let of_old_beat = {
        member.beat(blank(), &Control::default()).await.unwrap();
        (row_of(&mut conn, "p1").await, wire.heard().await.remove(0))
    };
    let mut record = blank();
    record.players = 50;
    member.beat(record, &Control::default()).await.unwrap();
    let now = row_of(&mut conn, "p1").await;

    let watcher = Watcher::subscribed(&open(&server.url()).await, PATIENT);
    eventually("it is seen", LIMIT, async || watcher.view.view_of(&id).is_some() && !watcher.view.is_stale()).await;
    for (row, published) in [&of_old_beat, &of_old_epoch] {
        write(&mut conn, "p1", row).await;
        watcher.view.on_event(b"left p1 1").await.unwrap();
        watcher.view.on_event(published.as_bytes()).await.unwrap();
        let seen = watcher.view.view_of(&id).unwrap();
        assert_eq!((seen.record.epoch, seen.record.players), (epoch, 50));
        assert_eq!(seen.record.seq.to_string(), now["seq"]);
        assert_eq!(seen.liveness, Liveness::Online);
    }
    assert_eq!(watcher.told(), [Event::Joined { node: id, epoch }]);
    assert_eq!(watcher.verifier.audit().total(), 0, "they were valid once; it is their order that refuses them");
}

// ENV-5, ENV-6: the channel is as open as the store.
#[tokio::test]
async fn env_5_forged_heartbeats_are_dropped_and_counted() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut wire = Listener::start(&server, "events:node").await;
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let epoch = member.join(blank()).await.unwrap();
    let genuine = wire.heard().await.remove(0);
    let identity = Identity { id: node("p1"), role: crate::fixtures::nodes::role("proxy"), addr: "evil:1".to_owned() };
    let mut evil = Membership::new(store.clone(), stranger(), identity, Lease::new(node("p1"), LONG_MS))
        .replacing(member.incarnation().clone());
    let watcher = Watcher::subscribed(&open(&server.url()).await, PATIENT);
    let id = node("p1");
    eventually("it is seen", LIMIT, async || watcher.view.view_of(&id).is_some() && !watcher.view.is_stale()).await;

    evil.join(blank()).await.unwrap();
    let (changed, other_zone) = (genuine.replace("p1.example", "p2.example"), genuine.replace("2:eu,", "2:us,"));
    for forged in [changed, other_zone, genuine.replace("1:1,52:", "1:2,52:"), genuine[..genuine.len() - 3].to_owned()]
    {
        assert_ne!(forged, genuine);
        let _: u64 = ask(&mut conn, &["PUBLISH", &key("events:node"), &forged]).await;
    }
    let audit = watcher.verifier.audit();
    eventually("all of it is counted", LIMIT, async || audit.total() >= 5).await;
    assert_eq!(audit.count(AuditReason::UnknownKey), 1, "signed with another secret");
    assert!(audit.count(AuditReason::BadSignature) >= 1 && audit.count(AuditReason::Malformed) >= 1);
    let seen = watcher.view.view_of(&id).unwrap();
    assert_eq!((seen.record.addr.as_str(), seen.record.epoch), ("p1.example:25565", epoch));
    assert_eq!(watcher.told(), [Event::Joined { node: id, epoch }]);
}
