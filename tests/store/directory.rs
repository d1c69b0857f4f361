//! The view of the others, over a real store. If these fail, players are sent to nodes that are gone, or the fleet
//! believes itself dead.

use std::collections::BTreeSet;

use crate::fixtures::nodes::{
    BEAT_MS, LEASE_MS, LIMIT, LONG_MS, PATIENT, Running, SHORT, Watcher, ask, blank, by_hand, calls, key, membership,
    node, open, open_patient, pass, role, row_of, sees,
};
use futures_util::{StreamExt, stream};
use maitred::Error;
use maitred::ids::{Region, ServiceName};
use maitred::node::{
    Control, Directory, DirectoryEvent as Event, DirectoryOptions, Liveness, LivenessLimits, NodeRecord, NodeState,
    ServiceRef,
};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

fn offering(service: &str, region: &str) -> NodeRecord {
    let mut record = blank();
    record.services = vec![ServiceName::new(service).unwrap()];
    record.load.regions.insert(Region::new(region).unwrap(), Some(4));
    record
}

// NOD-7, NOD-9: the whole life of a node, as the others are told it.
#[tokio::test]
async fn nod_9_events_of_a_nodes_life_in_order() {
    let server = TestStore::start();
    let store = open(&server.url()).await;
    let watcher = Watcher::subscribed(&open(&server.url()).await, SHORT);
    eventually("the view is read", LIMIT, async || !watcher.view.is_stale()).await;
    let id = node("p1");

    let running = Running::start(&store, membership(&store, "p1", "proxy", LEASE_MS), blank(), BEAT_MS);
    eventually("it joins", LIMIT, async || running.lease.is_valid()).await;
    let old = running.lease.epoch();
    sees(&watcher, "joined", Event::Joined { node: id.clone(), epoch: old }).await;
    let updates = watcher.updates();
    eventually("each beat is an update", LIMIT, async || watcher.updates() > updates + 2).await;

    let lapsed = running.crash().await;
    sees(&watcher, "suspect", Event::Suspect { node: id.clone() }).await;
    sees(&watcher, "offline", Event::Offline { node: id.clone() }).await;
    assert!(watcher.view.snapshot().get(&id).is_some(), "an offline node is still shown");
    // although many beats of this epoch went before, the first one of the resumed lease counts.
    let back = Running::start(&store, lapsed, blank(), BEAT_MS);
    sees(&watcher, "back", Event::Back { node: id.clone() }).await;
    assert_eq!(watcher.view.epoch_of(&id), Some(old));

    back.crash().await;
    let restarted = Running::start(&store, membership(&store, "p1", "proxy", LEASE_MS), blank(), BEAT_MS);
    eventually("it restarts", LIMIT, async || restarted.lease.is_valid()).await;
    let new = restarted.lease.epoch();
    sees(&watcher, "restarted", Event::Restarted { node: id.clone(), old, new }).await;

    restarted.crash().await;
    sees(&watcher, "removed", Event::Removed { node: id.clone() }).await;
    assert!(matches!(watcher.view.resolve(&id).await, Err(Error::NodeRemoved(_))));
    assert!(watcher.view.snapshot().get(&id).is_none());
    eventually("it is forgotten after another removed age", LIMIT, async || {
        matches!(watcher.view.resolve(&id).await, Err(Error::NodeNotFound(_)))
    })
    .await;

    // In this order; a busy machine may put a suspicion and a return in between.
    let told = watcher.told();
    let mut rest = told.iter();
    for wanted in [
        Event::Joined { node: id.clone(), epoch: old },
        Event::Suspect { node: id.clone() },
        Event::Offline { node: id.clone() },
        Event::Back { node: id.clone() },
        Event::Restarted { node: id.clone(), old, new },
        Event::Suspect { node: id.clone() },
        Event::Offline { node: id.clone() },
        Event::Removed { node: id },
    ] {
        assert!(rest.any(|event| *event == wanted), "{wanted:?} is missing or out of order in {told:?}");
    }
}

// NOD-5, NOD-7: players would be sent to a server that has shut down until its beats are late.
#[tokio::test]
async fn nod_5_a_shutdown_is_seen_coming_and_a_leave_is_offline_at_once() {
    let server = TestStore::start();
    let store = open(&server.url()).await;
    let watcher = Watcher::subscribed(&open(&server.url()).await, PATIENT);
    let running = Running::start(&store, membership(&store, "p1", "proxy", LONG_MS), blank(), BEAT_MS);
    let id = node("p1");
    eventually("it is seen", LIMIT, async || watcher.view.view_of(&id).is_some()).await;
    running.say(|record| (record.state, record.accepting) = (NodeState::ShuttingDown, false));
    eventually("the shutdown is seen", LIMIT, async || {
        let record = watcher.view.view_of(&id).unwrap().record;
        record.state == NodeState::ShuttingDown && !record.accepting
    })
    .await;
    running.crash().await.leave().await.unwrap();
    sees(&watcher, "offline", Event::Offline { node: id.clone() }).await;
    assert_eq!(watcher.view.view_of(&id).unwrap().liveness, Liveness::Offline);
    assert!(watcher.view.snapshot().get(&id).is_none(), "it is not offered any more");
    assert!(!watcher.told().contains(&Event::Suspect { node: id.clone() }), "nobody waited for its beats to be late");
    assert!(matches!(watcher.view.resolve(&id).await, Err(Error::NodeOffline(_))));
}

// whoever may publish must not be able to turn a node off.
#[tokio::test]
async fn r_10_a_forged_goodbye_costs_one_read_and_changes_nothing() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let watcher = Watcher::subscribed(&open(&server.url()).await, PATIENT);
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let epoch = member.join(blank()).await.unwrap();
    let id = node("p1");
    eventually("it is seen", LIMIT, async || watcher.view.view_of(&id).is_some() && !watcher.view.is_stale()).await;
    let before = calls(&mut conn).await.get("hgetall").copied().unwrap_or(0);
    for forged in [format!("left p1 {epoch}"), "removed p1".to_owned()] {
        let _: u64 = ask(&mut conn, &["PUBLISH", &key("events:node"), &forged]).await;
    }
    for nonsense in ["left nobody 1", "left ", "removed {}", "left p2", "", "12:x", "\u{fffd}"] {
        let _: u64 = ask(&mut conn, &["PUBLISH", &key("events:node"), nonsense]).await;
    }
    let updates = watcher.updates();
    member.beat(blank(), &Control::default()).await.unwrap();
    eventually("the beat behind it is heard", LIMIT, async || watcher.updates() > updates).await;
    let after = calls(&mut conn).await["hgetall"];
    assert_eq!(after - before, 2, "one read for each that names a known node");
    assert_eq!(watcher.view.view_of(&id).unwrap().liveness, Liveness::Online);
    assert_eq!(watcher.told(), [Event::Joined { node: id, epoch }]);
}

// NOD-10, MSG-2: which of the errors tells whether asking again can help.
#[tokio::test]
async fn nod_10_query_answers_a_reference_or_why_not() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let view = by_hand(&store, LivenessLimits { suspect_ms: 1_000, offline_ms: 2_000, removed_ms: 60_000 });
    let (id, lobby) = (node("p1"), ServiceName::new("lobby").unwrap());
    view.refresh().await.unwrap();
    assert!(matches!(view.query(&id, &lobby).await, Err(Error::NodeNotFound(_))));
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let epoch = member.join(offering("lobby", "spawn")).await.unwrap();
    let found = view.query(&id, &lobby).await.expect("an unknown node costs one read");
    assert_eq!(found, ServiceRef { node: id.clone(), epoch, service: lobby.clone() });
    match view.query(&id, &ServiceName::new("other").unwrap()).await {
        Err(Error::ServiceNotFound { service, at }) => assert_eq!((service.as_str(), at.as_str()), ("other", "p1")),
        other => panic!("{other:?}"),
    }
    assert!(view.is_current(&id, epoch).await.unwrap());
    pass(&mut conn, 1_100).await;
    view.refresh().await.unwrap();
    assert!(matches!(view.query(&id, &lobby).await, Err(Error::NodeSuspect(_))));
    pass(&mut conn, 1_000).await;
    view.refresh().await.unwrap();
    assert!(matches!(view.query(&id, &lobby).await, Err(Error::NodeOffline(_))));

    // A reference of an old epoch is told apart, at the price of one read.
    member.leave().await.unwrap();
    let new = membership(&store, "p1", "proxy", LONG_MS).join(offering("lobby", "spawn")).await.unwrap();
    assert!(view.is_current(&id, new).await.unwrap());
    assert!(!view.is_current(&id, epoch).await.unwrap());
    assert_eq!(view.query(&id, &lobby).await.unwrap().epoch, new);
}

// NOD-11: a node that does not subscribe must neither give up others between two reads nor read all the time.
#[tokio::test]
async fn nod_11_a_timed_view_judges_as_of_its_read_and_reads_a_row_again_before_it_gives_a_node_up() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let limits = LivenessLimits { suspect_ms: 1_000, offline_ms: 1_500, removed_ms: 60_000 };
    let view = by_hand(&open(&server.url()).await, limits);
    let id = node("p1");
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    member.join(blank()).await.unwrap();
    assert!(view.is_stale());
    view.refresh().await.unwrap();
    let read = calls(&mut conn).await;
    pass(&mut conn, 1_600).await;
    view.age();
    let seen = view.view_of(&id).unwrap();
    assert_eq!(seen.liveness, Liveness::Online, "as of the read, {} ms after its beat", seen.age_ms);
    assert!(!view.is_stale() && view.resolve(&id).await.is_ok());
    let reads = async |conn: &mut _| calls(conn).await.get("hgetall").copied().unwrap_or(0);
    assert_eq!(reads(&mut conn).await, read["hgetall"], "nothing was read for it");

    view.refresh().await.unwrap();
    assert_eq!(view.view_of(&id).unwrap().liveness, Liveness::Offline);
    let before = reads(&mut conn).await;
    assert!(matches!(view.resolve(&id).await, Err(Error::NodeOffline(_))));
    assert_eq!(reads(&mut conn).await, before + 1, "it looked again");
    member.beat(blank(), &Control::default()).await.unwrap();
    assert!(view.resolve(&id).await.is_ok(), "it has beaten since the last read");
    assert_eq!(reads(&mut conn).await, before + 2);
}

// NOD-16, NOD-14: command completion would cost a read of the store for each keystroke.
#[tokio::test]
async fn nod_16_regions_and_services_of_online_nodes_merge_without_a_read() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let limits = LivenessLimits { suspect_ms: 2_000, offline_ms: 60_000, removed_ms: 120_000 };
    membership(&store, "late", "backend", LONG_MS).join(offering("arena", "desert")).await.unwrap();
    pass(&mut conn, 2_100).await;
    membership(&store, "b1", "backend", LONG_MS).join(offering("lobby", "spawn")).await.unwrap();
    membership(&store, "b2", "backend", LONG_MS).join(offering("lobby", "forest")).await.unwrap();
    membership(&store, "p1", "proxy", LONG_MS).join(offering("chat", "spawn")).await.unwrap();
    let view = by_hand(&store, limits);
    view.refresh().await.unwrap();

    let before = calls(&mut conn).await;
    let snapshot = view.snapshot();
    let of = |ids: &[&str]| ids.iter().map(|id| node(id)).collect::<BTreeSet<_>>();
    let regions: Vec<_> = snapshot.regions().into_iter().map(|(name, at)| (name.to_string(), at)).collect();
    assert_eq!(regions, [("forest".to_owned(), of(&["b2"])), ("spawn".to_owned(), of(&["b1", "p1"]))]);
    let services: Vec<_> = snapshot.services().into_iter().map(|(name, at)| (name.to_string(), at)).collect();
    assert_eq!(services, [("chat".to_owned(), of(&["p1"])), ("lobby".to_owned(), of(&["b1", "b2"]))]);
    assert_eq!(snapshot.get(&node("late")).unwrap().liveness, Liveness::Suspect, "not online: not offered");
    assert_eq!(calls(&mut conn).await, before);
}

// STO-18: choosing among 5,000 backends would read 5,000 rows for each player.
#[tokio::test]
async fn sto_18_among_5000_rows_a_look_reads_nothing_and_a_refresh_reads_rosters() {
    let server = TestStore::start();
    let (store, mut conn) = (open_patient(&server.url()).await, server.conn().await);
    stream::iter(0..5_000)
        // Few at once: a row that came to the store long after it was signed looks like one that has beaten since.
        .for_each_concurrent(8, |n| {
            let mut member = membership(&store, &format!("b{n:04}"), "backend", LONG_MS);
            async move {
                member.join(blank()).await.unwrap();
            }
        })
        .await;
    let limits = LivenessLimits { suspect_ms: 300_000, offline_ms: 400_000, removed_ms: 500_000 };
    let view = by_hand(&store, limits);
    view.refresh().await.unwrap();
    assert_eq!(view.snapshot().nodes.len(), 5_000);

    let before = calls(&mut conn).await;
    for n in 0..100 {
        assert_eq!(view.snapshot().nodes.len(), 5_000);
        assert_eq!(view.view_of(&node(&format!("b{n:04}"))).unwrap().liveness, Liveness::Online);
        assert!(view.resolve(&node(&format!("b{n:04}"))).await.is_ok());
    }
    assert_eq!(calls(&mut conn).await, before);

    view.refresh().await.unwrap();
    let after = calls(&mut conn).await;
    let grown: Vec<&str> =
        after.iter().filter(|(name, calls)| before.get(*name) != Some(*calls)).map(|(name, _)| name.as_str()).collect();
    assert_eq!(grown, ["sscan", "zrangebyscore"]);
    assert!(after["zrangebyscore"] - before["zrangebyscore"] <= 5_000 / 256 + 1);

    // One of them beats: one row is read.
    let _: u64 = ask(&mut conn, &["DEL", &key("node:b0007")]).await;
    pass(&mut conn, 600).await;
    let mut again = membership(&store, "b0007", "backend", LONG_MS);
    let epoch = again.join(blank()).await.unwrap();
    view.refresh().await.unwrap();
    assert_eq!(calls(&mut conn).await["hgetall"], before["hgetall"] + 1);
    assert_eq!(view.epoch_of(&node("b0007")), Some(epoch));
}

// NOD-11: who needs only backends does not have to keep the proxies in view.
#[tokio::test]
async fn nod_11_a_view_of_some_roles_reads_the_others_one_by_one() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    membership(&store, "b1", "backend", LONG_MS).join(blank()).await.unwrap();
    membership(&store, "p1", "proxy", LONG_MS).join(blank()).await.unwrap();
    let options = DirectoryOptions { limits: PATIENT, roles: Some(BTreeSet::from([role("backend")])) };
    let view = Directory::new(store.clone(), crate::fixtures::nodes::verifier(), options, None);
    view.refresh().await.unwrap();
    assert!(view.view_of(&node("b1")).is_some() && view.view_of(&node("p1")).is_none());
    assert_eq!(view.resolve(&node("p1")).await.unwrap().addr, row_of(&mut conn, "p1").await["addr"]);
}

// R-6, NOD-7: what a stranger wrote under our keys hides nothing but itself. Otherwise one wrong key blinds every proxy.
#[tokio::test]
async fn nod_7_a_key_of_another_type_hides_no_other_node() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut member = membership(&store, "b1", "backend", LONG_MS);
    member.join(blank()).await.unwrap();
    let (roster, roles) = (key("nodes:backend"), key("roles"));
    let _: () = ask(&mut conn, &["SET", &key("node:a1"), "x"]).await;
    let _: () = ask(&mut conn, &["ZADD", &roster, "1", "a1"]).await;
    let _: () = ask(&mut conn, &["SET", &key("nodes:aaa"), "x"]).await;
    let _: () = ask(&mut conn, &["SADD", &roles, "aaa"]).await;
    let mut bytes = redis::cmd("ZADD");
    bytes.arg(&roster).arg(1).arg(b"\xff".as_slice());
    let _: () = bytes.query_async(&mut conn).await.unwrap();
    let view = by_hand(&store, PATIENT);
    view.refresh().await.unwrap();
    assert!(!view.is_stale());
    assert!(view.view_of(&node("b1")).is_some(), "it is seen all the same");
}
