//! The view of the others while messages are lost or the store is away. If these fail, an outage of the store empties
//! every proxy's list of backends.

use std::time::Duration;

use crate::fixtures::nodes::{
    BEAT_MS, LEASE_MS, LIMIT, LONG_MS, PATIENT, Running, SHORT, Watcher, blank, membership, node, open, pass, sees,
    zone,
};
use maitred::ids::Epoch;
use maitred::node::{Control, Directory, DirectoryEvent as Event, DirectoryOptions, Liveness, LivenessLimits};
use maitred::store::{Feed, FeedChannel, Store, StoreOptions, StoreUrl};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use tokio_util::sync::CancellationToken;

// NOD-7: whatever is lost between a node and its observer is made good by the next read.
#[tokio::test]
async fn nod_7_a_lost_message_costs_one_refresh() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let (feed, sink, mut items) = Feed::new();
    let options = DirectoryOptions { limits: PATIENT, roles: None };
    let view = Directory::new(store.clone(), crate::fixtures::nodes::verifier(), options, Some(feed.clone()));
    let stop = CancellationToken::new();
    let channels = vec![(FeedChannel::Node, store.keys().node_events().to_string())];
    let running = tokio::spawn({
        let (feed, store, stop) = (feed.clone(), store.clone(), stop.clone());
        async move { feed.run(store, channels, sink, stop).await }
    });
    // Whatever is heard is lost.
    tokio::spawn(async move { while items.recv().await.is_some() {} });
    eventually("the feed stands", LIMIT, async || feed.is_live()).await;
    assert!(view.is_stale(), "nothing was read since it stands");
    view.refresh().await.unwrap();
    assert!(!view.is_stale());

    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    member.join(blank()).await.unwrap();
    assert!(view.view_of(&node("p1")).is_none());
    view.refresh().await.unwrap();
    assert!(view.view_of(&node("p1")).is_some(), "a join that was not heard");
    pass(&mut conn, 700).await;
    let mut record = blank();
    record.players = 5;
    member.beat(record, &Control::default()).await.unwrap();
    view.refresh().await.unwrap();
    assert_eq!(view.view_of(&node("p1")).unwrap().record.players, 5, "beats that were not heard");
    stop.cancel();
    running.await.unwrap();
}

// NOD-7, R-10: a gap in the feed is closed by a read of everything.
#[tokio::test]
async fn nod_7_the_view_is_read_again_after_a_reconnect() {
    let server = TestStore::start();
    let (proxy, store) = (FaultProxy::start(&server), open(&server.url()).await);
    let watcher = Watcher::start(&open(&proxy.url()).await, SHORT, true, Duration::from_secs(600));
    let gone = Running::start(&store, membership(&store, "gone", "proxy", LEASE_MS), blank(), BEAT_MS);
    eventually("it is seen", LIMIT, async || watcher.view.view_of(&node("gone")).is_some()).await;
    proxy.refuse(true);
    proxy.cut_all();
    eventually("the view knows that it is deaf", LIMIT, async || watcher.view.is_stale()).await;
    assert!(watcher.view.snapshot().stale, "and says so");
    gone.crash().await.leave().await.unwrap();
    let new = Running::start(&store, membership(&store, "new", "proxy", LEASE_MS), blank(), BEAT_MS);
    eventually("the new one joined", LIMIT, async || new.lease.is_valid()).await;
    assert_eq!(watcher.view.view_of(&node("gone")).unwrap().liveness, Liveness::Online, "as of the last contact");
    proxy.refuse(false);
    eventually("the new one is seen", LIMIT, async || watcher.view.view_of(&node("new")).is_some()).await;
    sees(&watcher, "the goodbye that was missed", Event::Offline { node: node("gone") }).await;
    eventually("the view is whole", LIMIT, async || !watcher.view.is_stale()).await;
}

/// The store falls silent for longer than the offline limit and comes back with its data.
async fn outage(mut server: TestStore, begin: impl FnOnce(&mut TestStore), end: impl FnOnce(&mut TestStore)) {
    let limits = LivenessLimits::default();
    let store = open(&server.url()).await;
    let subscribed = Watcher::subscribed(&open(&server.url()).await, limits);
    let timed = Watcher::timed(&open(&server.url()).await, limits, Duration::from_millis(300));
    let watchers = [&subscribed, &timed];
    let ids: Vec<String> = (0..4).map(|n| format!("p{n}")).collect();
    let fleet: Vec<Running> =
        ids.iter().map(|id| Running::start(&store, membership(&store, id, "proxy", 1_000), blank(), 250)).collect();
    for watcher in watchers {
        eventually("all are seen", LIMIT, async || {
            watcher.view.snapshot().nodes.len() == 4 && !watcher.view.is_stale()
        })
        .await;
    }
    begin(&mut server);
    let down = tokio::time::Instant::now();
    for watcher in watchers {
        eventually("the view is marked stale", LIMIT, async || watcher.view.is_stale()).await;
    }
    eventually("the leases run out", LIMIT, async || fleet.iter().all(|node| !node.lease.is_valid())).await;
    let long = Duration::from_millis(limits.offline_ms + 500);
    eventually("longer than the offline limit", LIMIT, async || {
        for watcher in watchers {
            let snapshot = watcher.view.snapshot();
            assert_eq!(snapshot.nodes.len(), 4);
            assert!(snapshot.nodes.iter().all(|node| node.liveness < Liveness::Offline), "{snapshot:?}");
        }
        down.elapsed() > long
    })
    .await;
    let epochs: Vec<Epoch> = fleet.iter().map(|node| node.lease.epoch()).collect();
    end(&mut server);
    let up = tokio::time::Instant::now();
    for watcher in watchers {
        eventually("the view is whole again", LIMIT, async || !watcher.view.is_stale()).await;
    }
    // As long again as it takes to turn offline: whoever was forgiven has to have beaten since.
    eventually("everybody beats", LIMIT, async || {
        up.elapsed() > long && fleet.iter().all(|node| node.lease.is_valid())
    })
    .await;
    for watcher in watchers {
        eventually("everybody is online", LIMIT, async || {
            watcher.view.snapshot().nodes.iter().filter(|node| node.liveness == Liveness::Online).count() == 4
        })
        .await;
        let told = watcher.told();
        assert!(!told.iter().any(|event| matches!(event, Event::Offline { .. } | Event::Restarted { .. })), "{told:?}");
    }
    assert!(
        fleet.iter().zip(&epochs).all(|(node, epoch)| node.lease.epoch() == *epoch),
        "NOD-15: they keep their epochs"
    );
}

// NOD-8, NOD-15: a restart of the store would empty every proxy's list of backends.
#[tokio::test]
async fn nod_8_a_store_that_is_gone_and_comes_back_turns_nobody_offline() {
    let server = TestStore::with_args(&["--appendonly", "yes", "--appendfsync", "always"]);
    outage(server, TestStore::kill, TestStore::restart_with_data).await;
}

// NOD-8: the same for one that hangs and keeps its connections.
#[tokio::test]
async fn nod_8_a_store_that_hangs_turns_nobody_offline() {
    outage(TestStore::start(), |server| server.sigstop(), |server| server.sigcont()).await;
}

// STO-13: a connection that stays open and says nothing (a half-open socket, a balancer whose server is gone) is given
// up. If this fails, a node whose connection hangs never comes back until somebody restarts it.
#[tokio::test]
async fn sto_13_a_connection_that_goes_silent_is_given_up() {
    let server = TestStore::start();
    let wire = FaultProxy::start(&server);
    let store = open(&wire.url()).await;
    for _ in 0..2 {
        wire.drop_replies(1, Action::Silent);
        let error = store.sync_clock().await.expect_err("the reply is lost");
        assert!(error.is_retryable() && wire.dropped() > 0, "{error}");
        // The next command goes through a new connection.
        eventually("the store is heard again", LIMIT, async || store.sync_clock().await.is_ok()).await;
    }
    // One that says nothing from its very first answer on, the handshake apart.
    wire.cut_all();
    wire.drop_replies_of("TIME", 1, Action::Silent);
    eventually("the store is heard again", LIMIT, async || store.sync_clock().await.is_ok()).await;
}

// STO-13: whatever happens to the connection, one that works is kept.
#[tokio::test]
async fn sto_13_a_slow_answer_among_others_costs_no_connection() {
    let server = TestStore::start();
    let wire = FaultProxy::start(&server);
    let mut options = StoreOptions::new(StoreUrl::parse(&wire.url()).unwrap());
    options.command_timeout = Duration::from_secs(2);
    let store = Store::open(zone(), options).await.unwrap();
    let before = wire.connections();
    for _ in 0..3 {
        wire.delay(store.options().command_timeout / 2);
        store.sync_clock().await.expect("late, but in time");
        wire.delay(Duration::ZERO);
        store.sync_clock().await.expect("an answer");
    }
    assert_eq!(wire.connections(), before);
}
