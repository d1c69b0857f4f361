//! Joining a real store. If these fail, two processes act under one node id, or a node that works is kept out.

use std::time::{Duration, Instant};

use crate::fixtures::nodes::raw::Join;
use crate::fixtures::nodes::{
    LIMIT, LONG_MS, Listener, Running, ask, blank, calls, epoch_entry, key, membership, membership_at, open, roles_of,
    roster_of, row_of, store_ms,
};
use maitred::Error;
use maitred::ids::{Epoch, Incarnation};
use maitred::node::{BeatOutcome, Control, LeaseEvent};
use maitred::store::scripts;
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

// NOD-1, NOD-3, NOD-14, R-3: without this nobody finds a proxy unless its host is written down by hand.
#[tokio::test]
async fn nod_1_a_join_writes_row_roster_and_epoch_at_once() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut events = Listener::start(&server, "events:node").await;
    let mut proxy = membership(&store, "p1", "proxy", 3_500);
    let mut record = blank();
    record.players = 12;
    record.labels.insert("platform".to_owned(), "linux".to_owned());

    let before = store_ms(&mut conn).await;
    let epoch = proxy.join(record).await.unwrap();
    let after = store_ms(&mut conn).await;
    assert!((before - 1_000..=after + 1_000).contains(&epoch.0), "the epoch follows the store's clock");
    assert_eq!(proxy.lease().require().unwrap(), epoch);

    let row = row_of(&mut conn, "p1").await;
    let text = |field: &str| row[field].as_str();
    assert_eq!((text("id"), text("role"), text("addr")), ("p1", "proxy", "p1.example:25565"));
    assert_eq!((text("epoch"), text("players"), text("v")), (epoch.to_string().as_str(), "12", "1"));
    assert_eq!((text("labels"), text("state")), (r#"{"platform":"linux"}"#, "ready"));
    assert_eq!(text("incarnation"), proxy.incarnation().as_str());
    let ttl: u64 = ask(&mut conn, &["PTTL", &key("node:p1")]).await;
    assert!(ttl > 0 && ttl <= 3_500, "the row lives for a lease: {ttl}");
    let score: String = ask(&mut conn, &["ZSCORE", &key("nodes:proxy"), "p1"]).await;
    assert_eq!(score, text("beat_at"), "the roster has the store's time of the beat");
    assert_eq!(roles_of(&mut conn).await, ["proxy"]);
    let (given, seen) = epoch_entry(&mut conn, "p1").await.unwrap();
    assert_eq!(given, epoch.0);
    assert!((before..=after).contains(&seen));
    let heard = events.heard().await;
    assert_eq!(heard.len(), 1, "everyone hears it once");
    assert!(heard[0].contains("p1.example:25565"));

    // A beat renews row, roster and the newest numbers in one script.
    let seen_at: u64 = text("beat_at").parse().unwrap();
    eventually("the store's clock goes on", LIMIT, async || store_ms(&mut conn).await > seen_at).await;
    let mut record = blank();
    record.players = 13;
    let outcome = proxy.beat(record, &Control::default()).await.unwrap();
    assert_eq!(outcome, BeatOutcome::Acknowledged { control_changed: false });
    let row = row_of(&mut conn, "p1").await;
    assert_eq!((row["players"].as_str(), row["epoch"].as_str()), ("13", epoch.to_string().as_str()));
    let score: String = ask(&mut conn, &["ZSCORE", &key("nodes:proxy"), "p1"]).await;
    assert_eq!(score, row["beat_at"]);
    assert!(score.parse::<u64>().unwrap() > seen_at);
    assert_eq!(events.heard().await.len(), 1);
}

// NOD-2: two live processes under one id would both be sent players.
#[tokio::test]
async fn nod_2_a_second_live_process_is_told_who_holds_the_id_and_for_how_long() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut first = membership_at(&store, "p1", "proxy", "10.0.0.1:1", LONG_MS);
    let mut second = membership_at(&store, "p1", "proxy", "10.0.0.2:1", LONG_MS);
    let epoch = first.join(blank()).await.unwrap();
    match second.join(blank()).await {
        Err(Error::DuplicateNode { id, addr, lease_left_ms }) => {
            assert_eq!((id.as_str(), addr.as_str()), ("p1", "10.0.0.1:1"));
            assert!(lease_left_ms > LONG_MS - 60_000 && lease_left_ms <= LONG_MS, "{lease_left_ms}");
        }
        other => panic!("a second process got in: {other:?}"),
    }
    assert!(!second.lease().is_valid());
    assert_eq!(row_of(&mut conn, "p1").await["addr"], "10.0.0.1:1");

    // At once after a clean leave, with a new epoch.
    first.leave().await.unwrap();
    assert!(second.join(blank()).await.unwrap() > epoch);
}

// NOD-2, R-4: a crashed node would stay out until an operator cleans up.
#[tokio::test]
async fn nod_2_a_restart_gets_in_once_the_lease_of_the_crashed_process_ran_out() {
    let server = TestStore::start();
    let store = open(&server.url()).await;
    let mut crashed = membership(&store, "p1", "proxy", 300);
    let begun = Instant::now();
    let epoch = crashed.join(blank()).await.unwrap();
    let mut restarted = membership(&store, "p1", "proxy", LONG_MS);
    let mut duplicates = 0;
    let new = eventually("the old lease runs out", LIMIT, async || match restarted.join(blank()).await {
        Ok(epoch) => Some(epoch),
        Err(Error::DuplicateNode { lease_left_ms, .. }) => {
            assert!(lease_left_ms <= 300);
            duplicates += 1;
            None
        }
        Err(other) => panic!("{other}"),
    })
    .await;
    assert!(new > epoch);
    // Whether anybody was refused meanwhile depends on the machine.
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(290), "the lease was not respected: {took:?} and {duplicates} refusals");
}

// R-4: after the store's clock stepped back or forward, a row that is still there keeps nobody alive.
#[tokio::test]
async fn r_4_a_row_whose_beat_is_further_from_now_than_a_lease_is_dead() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    for off in [-400_000_i64, 400_000] {
        let mut first = membership(&store, "p1", "proxy", 300_000);
        let old = first.join(blank()).await.unwrap();
        let stepped = store_ms(&mut conn).await.checked_add_signed(off).unwrap().to_string();
        let _: u64 = ask(&mut conn, &["HSET", &key("node:p1"), "beat_at", &stepped]).await;
        let mut second = membership(&store, "p1", "proxy", 300_000);
        assert!(second.join(blank()).await.unwrap() > old, "off by {off} ms");
        second.leave().await.unwrap();
    }
}

// R-7: a supervisor that knows its child is dead does not have to wait for the lease; only that one child, and once.
#[tokio::test]
async fn r_7_replaces_takes_over_one_incarnation_once() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut old = membership(&store, "p1", "proxy", LONG_MS);
    let epoch = old.join(blank()).await.unwrap();

    let mut wrong = membership(&store, "p1", "proxy", LONG_MS).replacing(Incarnation::fresh());
    assert!(matches!(wrong.join(blank()).await, Err(Error::DuplicateNode { .. })));
    let mut new = membership(&store, "p1", "proxy", LONG_MS).replacing(old.incarnation().clone());
    assert!(new.join(blank()).await.unwrap() > epoch);
    assert_eq!(old.beat(blank(), &Control::default()).await.unwrap(), BeatOutcome::Fenced);
    assert!(!old.lease().is_valid());

    // The new one lapses, the old one was alive after all and gets in: now it is a duplicate like any other.
    let _: u64 = ask(&mut conn, &["DEL", &key("node:p1")]).await;
    old.join(blank()).await.unwrap();
    assert!(matches!(new.join(blank()).await, Err(Error::DuplicateNode { .. })));
}

// R-7, R-1: a join whose reply was lost would lock the process out of its own id for a lease.
#[tokio::test]
async fn r_7_a_join_whose_reply_was_lost_is_answered_with_the_same_epoch() {
    let server = TestStore::start();
    let (proxy, mut conn) = (FaultProxy::start(&server), server.conn().await);
    let store = open(&proxy.url()).await;
    let label = format!("EVALSHA {}", scripts::NODE_JOIN.pinned());
    proxy.drop_next_reply_of(&label, Action::Cut);
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let epoch = member.join(blank()).await.unwrap();
    assert_eq!((proxy.dropped(), proxy.count(&label)), (1, 2), "it was lost and repeated");
    assert_eq!(row_of(&mut conn, "p1").await["epoch"], epoch.to_string());
    assert_eq!(epoch_entry(&mut conn, "p1").await.unwrap().0, epoch.0);
    assert_eq!(roster_of(&mut conn, "proxy").await, ["p1"]);
}

// R-7: all replies lost: the same process comes again and takes over its own live row.
#[tokio::test]
async fn r_7_a_process_takes_over_its_own_live_row_at_once() {
    let server = TestStore::start();
    let (proxy, mut conn) = (FaultProxy::start(&server), server.conn().await);
    let store = open(&proxy.url()).await;
    let label = format!("EVALSHA {}", scripts::NODE_JOIN.pinned());
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    proxy.drop_replies_of(&label, 1_000, Action::Silent);
    tokio::select! {
        joined = member.join(blank()) => panic!("no reply comes, but {joined:?}"),
        () = eventually("the join has its effect", LIMIT, async || !row_of(&mut conn, "p1").await.is_empty()) => {}
    }
    let stood = row_of(&mut conn, "p1").await["epoch"].parse::<u64>().unwrap();
    assert_eq!(member.lease().epoch(), Epoch::NONE, "nobody told it");
    proxy.pass();
    proxy.cut_all();
    let epoch = member.join(blank()).await.unwrap();
    assert!(epoch.0 >= stood);
    assert_eq!(row_of(&mut conn, "p1").await["epoch"], epoch.to_string());
}

// R-7: two incarnations with one epoch would both pass every fence.
#[tokio::test]
async fn r_7_two_processes_that_propose_the_same_number_never_share_it() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let epoch = store_ms(&mut conn).await;
    let one = Join { id: "p1", incarnation: "one", epoch, own: 0, lease_ms: LONG_MS };
    let two = Join { incarnation: "two", ..one };
    assert_eq!(one.ask(&store).await.word(), "JOINED");
    assert_eq!(two.ask(&store).await.word(), "DUPLICATE");
    assert_eq!(one.ask(&store).await.word(), "JOINED", "the same process may ask again");

    // Also when the first is gone: its number is given for good.
    let _: u64 = ask(&mut conn, &["DEL", &key("node:p1")]).await;
    let answer = two.ask(&store).await;
    assert_eq!(answer.word(), "EPOCH");
    assert!(answer.number(0).unwrap() > epoch);
    let two = Join { epoch: answer.number(0).unwrap(), ..two };
    assert_eq!(two.ask(&store).await.word(), "JOINED");
}

// NOD-1, R-3, R-7: which proposals are taken, and what is answered to the others.
#[tokio::test]
async fn r_7_the_rule_of_proposed_epochs() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 86_400_000;
    // Offsets from the store's time: last epoch given, own last epoch, proposed; then what the answer has to be.
    type Case = (Option<i64>, Option<i64>, i64, Result<(), i64>);
    let table: [Case; 12] = [
        (None, None, 0, Ok(())),
        (None, None, -900, Ok(())),
        (None, None, -2_000, Err(0)),
        (None, None, 5_000, Err(0)),
        (Some(-10_000), None, 0, Ok(())),
        (Some(0), None, 0, Err(1)),
        (Some(HOUR), None, 0, Err(HOUR + 1)),
        (Some(HOUR), None, HOUR + 1, Ok(())),
        (Some(HOUR), None, HOUR + 2, Err(HOUR + 1)),
        // The store lost its data and its clock is behind what this process had: no epoch is given twice.
        (None, Some(DAY), DAY, Err(DAY + 1)),
        (None, Some(DAY), DAY + 1, Ok(())),
        // Lapsed, and nobody else was given an epoch since.
        (Some(-HOUR), Some(-HOUR), -HOUR, Ok(())),
    ];
    for (case, (last, own, proposed, want)) in table.into_iter().enumerate() {
        server.flushall().await;
        let now = store_ms(&mut conn).await;
        let at = |off: i64| now.checked_add_signed(off).unwrap();
        if let Some(last) = last {
            let entry = format!("{} {now}", at(last));
            let _: u64 = ask(&mut conn, &["HSET", &key("epochs"), "p1", &entry]).await;
        }
        let own = own.map_or(0, at);
        let join = Join { id: "p1", incarnation: "one", epoch: at(proposed), own, lease_ms: LONG_MS };
        let answer = join.ask(&store).await;
        match want {
            Ok(()) => assert_eq!(answer.word(), "JOINED", "case {case}"),
            Err(off) => {
                assert_eq!(answer.word(), "EPOCH", "case {case}");
                let (epoch, least) = (answer.number(0).unwrap(), at(off));
                assert!((least..least + 5_000).contains(&epoch), "case {case}: {epoch} against {least}");
                assert!(row_of(&mut conn, "p1").await.is_empty(), "case {case} wrote");
            }
        }
    }
}

// NOD-1, NOD-4: after a wipe an old epoch would make rows written under it valid again.
#[tokio::test]
async fn nod_1_after_a_wipe_the_epoch_is_a_new_and_greater_one() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let mut events = member.lease().events();
    let first = member.join(blank()).await.unwrap();
    server.flushall().await;
    assert_eq!(member.beat(blank(), &Control::default()).await.unwrap(), BeatOutcome::Gone);
    let second = member.join(blank()).await.unwrap();
    assert!(second > first);

    // Its last epoch is ahead of the store's clock (which stepped back), and the store forgets once more.
    let ahead = store_ms(&mut conn).await + 3_600_000;
    member.leave().await.unwrap();
    let _: u64 = ask(&mut conn, &["HSET", &key("epochs"), "p1", &format!("{ahead} {ahead}")]).await;
    let third = member.join(blank()).await.unwrap();
    assert_eq!(third.0, ahead + 1);
    server.flushall().await;
    assert_eq!(member.beat(blank(), &Control::default()).await.unwrap(), BeatOutcome::Gone);
    let fourth = member.join(blank()).await.unwrap();
    assert!(fourth > third, "{fourth} after {third}");
    assert_eq!(row_of(&mut conn, "p1").await["epoch"], fourth.to_string());
    let told: Vec<LeaseEvent> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    assert_eq!(told[0], LeaseEvent::Joined { epoch: first });
    assert_eq!(told[1], LeaseEvent::Rejoined { old: first, new: second });
    assert_eq!(told.last(), Some(&LeaseEvent::Rejoined { old: third, new: fourth }));
}

// R-31, STO-16: a node that changed its role would stay on the roster of the old one, and be sent the wrong work.
#[tokio::test]
async fn r_31_a_change_of_role_takes_the_old_roster_entry_away() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut proxy = membership(&store, "n1", "proxy", LONG_MS);
    proxy.join(blank()).await.unwrap();
    let mut backend = membership(&store, "n1", "backend", LONG_MS).replacing(proxy.incarnation().clone());
    let before = calls(&mut conn).await;
    backend.join(blank()).await.unwrap();
    let after = calls(&mut conn).await;
    assert!(after["evalsha"] - before["evalsha"] >= 2, "asked once more with the roster that was needed");
    assert!(roster_of(&mut conn, "proxy").await.is_empty());
    assert_eq!(roster_of(&mut conn, "backend").await, ["n1"]);
    assert_eq!(roles_of(&mut conn).await, ["backend"]);
}

// NOD-15: after a wipe the fleet would have to be restarted by hand.
#[tokio::test]
async fn nod_15_after_a_wipe_every_node_is_back_by_itself_with_a_new_epoch() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let fleet: Vec<Running> = (0..5)
        .map(|n| {
            let member = membership(&store, &format!("p{n}"), "proxy", crate::fixtures::nodes::LEASE_MS * 4);
            Running::start(&store, member, blank(), crate::fixtures::nodes::BEAT_MS)
        })
        .collect();
    eventually("all join", LIMIT, async || roster_of(&mut conn, "proxy").await.len() == 5).await;
    eventually("all know", LIMIT, async || fleet.iter().all(|node| node.lease.is_valid())).await;
    let old: Vec<Epoch> = fleet.iter().map(|node| node.lease.epoch()).collect();
    server.flushall().await;
    eventually("all are back", LIMIT, async || roster_of(&mut conn, "proxy").await.len() == 5).await;
    eventually("all know", LIMIT, async || fleet.iter().zip(&old).all(|(node, old)| node.lease.epoch() > *old)).await;
}

// R-2: a process that ended while it joined would stand there as a live node that nobody runs, until its lease is over.
#[tokio::test]
async fn r_2_a_process_that_leaves_before_its_join_is_answered_leaves_nothing() {
    let server = TestStore::start();
    let (proxy, mut conn) = (FaultProxy::start(&server), server.conn().await);
    let store = open(&proxy.url()).await;
    let mut fresh = membership(&store, "p1", "proxy", LONG_MS);
    let mut again = membership(&store, "p2", "proxy", LONG_MS);
    let epoch = again.join(blank()).await.unwrap();
    // The second has to take a new epoch: its row went, and the number of its old one was given on.
    let _: u64 = ask(&mut conn, &["DEL", &key("node:p2")]).await;
    let later = format!("{} {} other", epoch.0 + 1, store_ms(&mut conn).await);
    let _: u64 = ask(&mut conn, &["HSET", &key("epochs"), "p2", &later]).await;
    proxy.delay(Duration::from_millis(200));
    for (id, member) in [("p1", &mut fresh), ("p2", &mut again)] {
        let stands = async { while row_of(&mut conn, id).await.is_empty() {} };
        tokio::select! {
            () = stands => {}
            _ = member.join(blank()) => {}
        }
        member.leave().await.unwrap();
        assert!(row_of(&mut conn, id).await.is_empty(), "{id} is still there");
    }
    assert!(roster_of(&mut conn, "proxy").await.is_empty() && roles_of(&mut conn).await.is_empty());
    assert!(epoch_entry(&mut conn, "p2").await.unwrap().0 > epoch.0 + 1, "R-7: what was given stays known");
}
