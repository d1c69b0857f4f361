//! Beats, leases and leaves against a real store. If these fail, a process acts without a right to, or one that has the
//! right is put out of the fleet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fixtures::nodes::raw::{Join, beat};
use crate::fixtures::nodes::{
    LIMIT, LONG_MS, Listener, ask, blank, epoch_entry, key, membership, membership_at, node, open, role, roles_of,
    roster_of, row_of, store_ms,
};
use maitred::Error;
use maitred::error::StoreRefusal;
use maitred::ids::LineName;
use maitred::node::{BeatOutcome, Control, Identity, Lease, LeaseEvent, Membership};
use maitred::store::{Invocation, boot_ms, scripts};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use tokio::task::JoinSet;

// STO-9: a node whose estimate of the store's clock is off signs times that nobody believes.
#[tokio::test]
async fn sto_9_a_clock_that_is_off_is_corrected_and_the_call_repeated_once() {
    let server = TestStore::start();
    let (proxy, mut conn) = (FaultProxy::start(&server), server.conn().await);
    let store = open(&proxy.url()).await;
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let label = |script: &scripts::Script| format!("EVALSHA {}", script.pinned());
    for off in [-3_600_000_i64, 3_600_000] {
        let skew = |now: u64| store.clock().observe(now.checked_add_signed(off).unwrap(), boot_ms(), boot_ms());
        let correct = async |conn: &mut _| store.clock().now_ms().abs_diff(store_ms(conn).await) < 1_000;

        skew(store_ms(&mut conn).await);
        let epoch = member.join(blank()).await.unwrap();
        assert!(correct(&mut conn).await, "after a join, off by {off}");
        assert!(epoch.0.abs_diff(store_ms(&mut conn).await) < 2_000);

        proxy.reset_counts();
        skew(store_ms(&mut conn).await);
        let outcome = member.beat(blank(), &Control::default()).await.unwrap();
        assert_eq!(outcome, BeatOutcome::Acknowledged { control_changed: false });
        assert_eq!(proxy.count(&label(&scripts::NODE_BEAT)), 2, "refused once, repeated once");
        assert!(correct(&mut conn).await, "after a beat, off by {off}");
        let row = row_of(&mut conn, "p1").await;
        let (sent, beat): (u64, u64) = (row["sent_at"].parse().unwrap(), row["beat_at"].parse().unwrap());
        assert!(sent.abs_diff(beat) < 1_000);
        member.leave().await.unwrap();
        server.flushall().await;
    }
}

// what a beat may and may not do, and that nobody hears a repeated one twice.
#[tokio::test]
async fn r_8_a_beat_renews_only_the_row_of_its_own_incarnation_and_each_number_once() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut events = Listener::start(&server, "events:node").await;
    let epoch = store_ms(&mut conn).await;
    assert_eq!(beat(&store, epoch, "one", 1, "1").await.word(), "GONE");
    let left: Vec<String> = ask(&mut conn, &["KEYS", "*"]).await;
    assert!(left.is_empty(), "a beat made {left:?}");

    let join = Join { id: "p1", incarnation: "one", epoch, own: 0, lease_ms: LONG_MS };
    assert_eq!(join.ask(&store).await.word(), "JOINED");
    for (epoch, incarnation) in [(epoch - 1, "one"), (epoch + 1, "one"), (epoch, "two")] {
        let answer = beat(&store, epoch, incarnation, 1, "1").await;
        assert_eq!(answer.word(), "FENCED");
        assert_eq!(answer.values(), [join.epoch.to_string(), "a:1".to_owned()]);
    }
    assert_eq!(row_of(&mut conn, "p1").await["players"], "0");

    events.heard().await;
    let players = async |conn: &mut _| row_of(conn, "p1").await["players"].clone();
    for (seq, said, want, heard) in [(3, "3", "3", 1), (3, "4", "3", 0), (2, "2", "3", 0), (4, "5", "5", 1)] {
        assert_eq!(beat(&store, epoch, "one", seq, said).await.word(), "BEAT", "{seq}");
        assert_eq!(players(&mut conn).await, want, "{seq} said {said}");
        assert_eq!(events.heard().await.len(), heard, "{seq} said {said}");
    }
}

// STO-10, R-8, R-9: a lost reply must neither be heard twice nor lengthen the lease.
#[tokio::test]
async fn r_9_the_lease_counts_from_the_first_sending_of_the_acknowledged_beat() {
    let server = TestStore::start();
    let proxy = FaultProxy::start(&server);
    let store = open(&proxy.url()).await;
    let mut events = Listener::start(&server, "events:node").await;
    let mut member = membership(&store, "p1", "proxy", 10_000);
    member.join(blank()).await.unwrap();
    events.heard().await;

    let label = format!("EVALSHA {}", scripts::NODE_BEAT.pinned());
    proxy.drop_next_reply_of(&label, Action::Cut);
    member.beat(blank(), &Control::default()).await.unwrap();
    let left = member.lease().left_ms();
    assert_eq!(proxy.count(&label), 2);
    assert_eq!(events.heard().await.len(), 1, "sent twice, heard once");
    // The repeat waits for at least 10 ms, so the first sending is that much older than the answer.
    assert!(left <= 9_000 - 9, "valid for another {left} ms");

    proxy.delay(Duration::from_millis(300));
    let sent = boot_ms();
    member.beat(blank(), &Control::default()).await.unwrap();
    assert!(boot_ms() - sent >= 300);
    assert!(member.lease().left_ms() <= 8_700, "an answer that took 300 ms is worth 300 ms less");
}

// NOD-4: a process that is cut off from the store stops acting before anybody else may take its id.
#[tokio::test]
async fn nod_4_without_beats_the_lease_ends_by_the_nodes_own_clock() {
    let server = TestStore::start();
    let (proxy, mut conn) = (FaultProxy::start(&server), server.conn().await);
    let store = open(&proxy.url()).await;
    let mut member = membership(&store, "p1", "proxy", 1_500);
    let epoch = member.join(blank()).await.unwrap();
    let (left, at) = (member.lease().left_ms(), boot_ms());
    let row_left: u64 = ask(&mut conn, &["PTTL", &key("node:p1")]).await;
    assert!(left.saturating_sub(boot_ms() - at) < row_left, "it ends before the store would let another in");
    proxy.hold();
    let failed = member.beat(blank(), &Control::default()).await.expect_err("nothing is heard");
    assert!(failed.is_retryable() && failed.may_have_changed(), "{failed}");
    let lease = member.lease().clone();
    eventually("the lease ends", LIMIT, async || !lease.is_valid()).await;
    proxy.resume();
    proxy.cut_all();
    eventually("it resumes", LIMIT, async || match member.beat(blank(), &Control::default()).await {
        Ok(BeatOutcome::Gone) => member.join(blank()).await.is_ok(),
        outcome => outcome.is_ok(),
    })
    .await;
    assert_eq!(lease.require().unwrap(), epoch);
}

// NOD-5, R-8: leaving twice is fine, leaving for somebody else is not possible.
#[tokio::test]
async fn nod_5_leave_goes_at_once_is_heard_once_and_compares_the_epoch() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut events = Listener::start(&server, "events:node").await;
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let epoch = member.join(blank()).await.unwrap();
    events.heard().await;
    let before = store_ms(&mut conn).await;
    member.leave().await.unwrap();
    assert!(!member.lease().is_valid());
    assert_eq!(events.heard().await, [format!("left p1 {epoch}")]);
    let (given, seen) = epoch_entry(&mut conn, "p1").await.unwrap();
    assert!(given == epoch.0 && seen >= before, "R-8: the epoch stays known, seen at the leave");
    let keys: Vec<String> = ask(&mut conn, &["KEYS", "*"]).await;
    assert_eq!(keys, [key("epochs")]);
    member.leave().await.unwrap();
    assert!(events.heard().await.is_empty(), "nobody hears it again");
    assert_eq!(epoch_entry(&mut conn, "p1").await.unwrap(), (given, seen));

    // Row gone, roster entry left over: the leave takes it along.
    let mut lapsed = membership(&store, "p2", "proxy", LONG_MS);
    lapsed.join(blank()).await.unwrap();
    let _: u64 = ask(&mut conn, &["DEL", &key("node:p2")]).await;
    lapsed.leave().await.unwrap();
    assert!(roster_of(&mut conn, "proxy").await.is_empty() && roles_of(&mut conn).await.is_empty());

    // The late leave of an earlier process.
    let mut late = membership(&store, "p3", "proxy", LONG_MS);
    late.join(blank()).await.unwrap();
    let mut new = membership(&store, "p3", "proxy", LONG_MS).replacing(late.incarnation().clone());
    new.join(blank()).await.unwrap();
    events.heard().await;
    late.leave().await.unwrap();
    assert_eq!(roster_of(&mut conn, "proxy").await, ["p3"]);
    assert!(!row_of(&mut conn, "p3").await.is_empty() && events.heard().await.is_empty());

    // A lost reply.
    let proxy = FaultProxy::start(&server);
    let far = open(&proxy.url()).await;
    let identity = Identity { id: node("p4"), role: role("proxy"), addr: "a:1".to_owned() };
    let mut member =
        Membership::new(far, crate::fixtures::nodes::verifier(), identity, Lease::new(node("p4"), LONG_MS));
    member.join(blank()).await.unwrap();
    proxy.drop_next_reply_of(&format!("EVALSHA {}", scripts::NODE_LEAVE.pinned()), Action::Cut);
    member.leave().await.unwrap();
    assert_eq!(proxy.dropped(), 1);
    assert!(row_of(&mut conn, "p4").await.is_empty());
}

// NOD-4, NOD-15: an outage of a few seconds would void what the node holds in the store.
#[tokio::test]
async fn nod_4_a_lapsed_process_resumes_its_epoch_and_its_sequence_goes_on() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut member = membership(&store, "p1", "proxy", 1_000);
    let mut events = member.lease().events();
    let epoch = member.join(blank()).await.unwrap();
    for _ in 0..5 {
        member.beat(blank(), &Control::default()).await.unwrap();
    }
    let seq: u64 = row_of(&mut conn, "p1").await["seq"].parse().unwrap();
    eventually("the row runs out", LIMIT, async || row_of(&mut conn, "p1").await.is_empty()).await;
    assert!(!member.lease().is_valid(), "its own clock ends the lease first");
    assert!(matches!(member.lease().require(), Err(Error::LeaseLost { .. })));
    assert_eq!(roster_of(&mut conn, "proxy").await, ["p1"], "a missed beat unlists nobody");
    assert_eq!(member.beat(blank(), &Control::default()).await.unwrap(), BeatOutcome::Gone);
    assert!(row_of(&mut conn, "p1").await.is_empty(), "R-8: a beat never creates a row");

    assert_eq!(member.join(blank()).await.unwrap(), epoch);
    assert!(member.lease().is_valid());
    let resumed: u64 = row_of(&mut conn, "p1").await["seq"].parse().unwrap();
    assert!(resumed > seq, "R-10: {resumed} after {seq} would be older than what the others have");
    assert_eq!(events.recv().await.unwrap(), LeaseEvent::Joined { epoch });
    assert_eq!(events.recv().await.unwrap(), LeaseEvent::Resumed { epoch });

    // A beat that was sent before and arrives now changes nothing.
    let late = beat(&store, epoch.0, member.incarnation().as_str(), seq + 1, "99").await;
    assert_eq!(late.word(), "BEAT");
    assert_eq!(row_of(&mut conn, "p1").await["players"], "0");
}

// NOD-3, NOD-4, R-7: a paused process that wakes up must not act beside the one that took its place.
#[tokio::test]
async fn nod_4_a_lapsed_process_whose_id_was_taken_is_fenced_until_the_other_is_gone() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut paused = membership(&store, "p1", "proxy", LONG_MS);
    let mut events = paused.lease().events();
    let old = paused.join(blank()).await.unwrap();
    let _: u64 = ask(&mut conn, &["DEL", &key("node:p1")]).await;
    let mut other = membership_at(&store, "p1", "proxy", "10.0.0.9:1", LONG_MS);
    let others = other.join(blank()).await.unwrap();
    assert!(others > old);
    let before = row_of(&mut conn, "p1").await;

    assert!(paused.lease().is_valid(), "it does not know yet");
    assert_eq!(paused.beat(blank(), &Control::default()).await.unwrap(), BeatOutcome::Fenced);
    assert!(matches!(paused.lease().require(), Err(Error::LeaseLost { .. })));
    assert!(matches!(paused.join(blank()).await, Err(Error::DuplicateNode { .. })));
    paused.leave().await.unwrap();
    assert_eq!(row_of(&mut conn, "p1").await, before, "it changed nothing of the other's row");

    other.leave().await.unwrap();
    let new = paused.join(blank()).await.unwrap();
    assert!(new > others);
    assert_eq!(events.recv().await.unwrap(), LeaseEvent::Joined { epoch: old });
    assert_eq!(events.recv().await.unwrap(), LeaseEvent::Fenced { epoch: old, by: "10.0.0.9:1".to_owned() });
    assert_eq!(events.recv().await.unwrap(), LeaseEvent::Rejoined { old, new });
}

// STO-3: a restarted store has no scripts; without a reload nobody would ever beat again.
#[tokio::test]
async fn sto_3_scripts_that_the_store_lost_are_loaded_again() {
    let server = TestStore::start();
    let (proxy, mut conn) = (FaultProxy::start(&server), server.conn().await);
    let store = open(&proxy.url()).await;
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let flush = async |conn: &mut _| {
        let _: String = ask(conn, &["SCRIPT", "FLUSH"]).await;
        proxy.reset_counts();
    };
    flush(&mut conn).await;
    let epoch = member.join(blank()).await.unwrap();
    assert_eq!((proxy.count("EVALSHA"), proxy.count("SCRIPT")), (2, 1), "one reload, one retry");
    flush(&mut conn).await;
    let outcome = member.beat(blank(), &Control::default()).await.unwrap();
    assert_eq!(outcome, BeatOutcome::Acknowledged { control_changed: false });

    // In a pipeline only what was refused is sent again.
    flush(&mut conn).await;
    let keys = store.keys();
    let (id, proxy_role) = (node("p1"), role("proxy"));
    // Before the store's time, whatever this machine's estimate of that is off by.
    let version = store.clock().now_ms() - 500;
    let put = |text: &str| {
        Invocation::new(&scripts::CONTROL_PUT, &[keys.control()])
            .arg("config")
            .arg(text)
            .arg(version)
            .arg("0")
            .arg("")
            .arg(keys.control_events())
    };
    let leave = |id_text: &str| {
        Invocation::new(&scripts::NODE_LEAVE, &[keys.node(&id), keys.roster(&proxy_role), keys.roles(), keys.epochs()])
            .arg(id_text)
            .arg("proxy")
            .arg(epoch.0)
            .arg(member.incarnation().as_str())
            .arg(keys.node_events())
    };
    let _: String = ask(&mut conn, &["SCRIPT", "LOAD", scripts::CONTROL_PUT.source()]).await;
    let answers = store.run_many(&[put("a"), leave("p1"), put("b"), leave("p1")]).await.unwrap();
    let words: Vec<&str> = answers.iter().map(|answer| answer.as_ref().unwrap().word()).collect();
    assert_eq!(words, ["PUT", "LEFT", "CHANGED", "LEFT"]);
    assert_eq!(proxy.count(&format!("EVALSHA {}", scripts::CONTROL_PUT.pinned())), 2);
    assert_eq!(proxy.count(&format!("EVALSHA {}", scripts::NODE_LEAVE.pinned())), 4);
}

// STO-13: what the store refuses has to say what an operator can do, and whether trying again helps.
#[tokio::test]
async fn sto_13_a_refusal_of_the_store_is_typed() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    let _: String = ask(&mut conn, &["SET", &key("node:p1"), "not a hash"]).await;
    let error = member.join(blank()).await.expect_err("another type stands there");
    assert!(matches!(error, Error::Refused { refusal: StoreRefusal::WrongType, .. }), "{error:?}");
    assert!(!error.is_retryable() && !error.may_have_changed());
    assert!(roles_of(&mut conn).await.is_empty(), "STO-7: nothing was written");
    let error = store.row(store.keys().node(&node("p1"))).await.expect_err("a read too");
    assert!(matches!(error, Error::Refused { refusal: StoreRefusal::WrongType, .. }), "{error:?}");

    let _: u64 = ask(&mut conn, &["DEL", &key("node:p1")]).await;
    member.join(blank()).await.unwrap();
    let _: String = ask(&mut conn, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = member.beat(blank(), &Control::default()).await.expect_err("no memory is left");
    assert!(matches!(error, Error::Refused { refusal: StoreRefusal::OutOfMemory, .. }), "{error:?}");
    assert!(error.is_retryable() && error.to_string().contains("maxmemory"), "{error}");
}

// NOD-1, QUE-11: on opening day thousands of calls are under way at once. A heartbeat behind all of them comes too late, and
// the node loses its lease with everybody's place; so it passes by those that wait for their turn.
#[tokio::test]
async fn nod_1_a_heartbeat_passes_by_thousands_of_calls() {
    const CALLS: usize = 20_000;
    let server = TestStore::start();
    let store = open(&server.url()).await;
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    member.join(blank()).await.unwrap();
    let (keys, line, left) = (store.keys(), LineName::new("login").unwrap(), Arc::new(AtomicUsize::new(CALLS)));
    let proxies = role("proxy");
    let line_keys = [keys.line(&line), keys.tickets(&line), keys.away(&line), keys.gate(&line), keys.roster(&proxies)];
    let look = Invocation::new(&scripts::QUEUE_POSITION, &line_keys).arg("nobody").arg("1").arg("0").arg("1");
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (store, left, look) = (store.clone(), Arc::clone(&left), look.clone());
        calls.spawn(async move {
            let answered = store.run(&look).await;
            left.fetch_sub(1, Ordering::SeqCst);
            assert!(matches!(answered, Ok(_) | Err(Error::Unreachable { .. })), "{answered:?}");
        });
    }
    eventually("calls are under way", LIMIT, async || left.load(Ordering::SeqCst) < CALLS).await;
    let outcome = member.beat(blank(), &Control::default()).await.unwrap();
    assert_eq!(outcome, BeatOutcome::Acknowledged { control_changed: false });
    assert!(left.load(Ordering::SeqCst) > CALLS / 2, "it waited for the others");
    calls.join_all().await;
}
