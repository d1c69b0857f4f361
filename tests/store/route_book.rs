//! The records of routes and the built-in object store, call by call: who may write, and who is refused.
//!
//! If one of these fails two servers write the same object, and what a player did on one of them is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fixtures::nodes::{LONG_MS, blank, key, membership, open, row_of, verifier};
use futures_util::future::join_all;
use maitred::Error;
use maitred::ids::{NodeEpoch, NodeId, ObjectKey, OperationId};
use maitred::node::Membership;
use maitred::route::{
    AcquireOutcome, Cas, Held, Route, RouteBook, RouteReleaseOutcome, RouteState, RouteTimes, RouteVersion,
    SweepOptions, TransferOutcome, sweep,
};
use maitred::store::Store;
use maitred_testkit::store::TestStore;
use redis::aio::MultiplexedConnection;

const NODES: usize = 32;
const ROUNDS: usize = 500;

fn object(text: &str) -> ObjectKey {
    ObjectKey::read(text).unwrap()
}

/// A member that writes routes.
struct Node {
    id: NodeId,
    book: RouteBook,
    membership: Membership,
}

impl Node {
    async fn join(store: &Store, id: &str) -> Self {
        Self::join_for(store, id, LONG_MS, RouteTimes::default()).await
    }

    async fn join_for(store: &Store, id: &str, lease_ms: u64, times: RouteTimes) -> Self {
        let mut membership = membership(store, id, "backend", lease_ms);
        membership.join(blank()).await.unwrap();
        let book = RouteBook::new(store.clone(), verifier(), membership.lease().clone(), times);
        Self { id: NodeId::new(id).unwrap(), book, membership }
    }

    fn owner(&self) -> NodeEpoch {
        NodeEpoch { id: self.id.clone(), epoch: self.membership.lease().epoch() }
    }

    async fn takes(&self, key: &ObjectKey) -> Held {
        let known = self.book.read(key).await.unwrap();
        match self.book.acquire(key, known.as_ref(), true).await.unwrap() {
            AcquireOutcome::Acquired(held) => held,
            other => panic!("{} does not get {key}: {other:?}", self.id),
        }
    }

    async fn is_refused(&self, key: &ObjectKey, fenced: bool) -> NodeEpoch {
        match self.book.acquire(key, None, fenced).await.unwrap() {
            AcquireOutcome::Owned { owner, .. } => owner,
            other => panic!("{} gets {key}: {other:?}", self.id),
        }
    }
}

async fn route_row(conn: &mut MultiplexedConnection, object: &ObjectKey) -> BTreeMap<String, String> {
    crate::fixtures::nodes::ask(conn, &["HGETALL", &key(&format!("route:{object}"))]).await
}

async fn set(conn: &mut MultiplexedConnection, name: &str, field: &str, value: &str) {
    let _: i64 = crate::fixtures::nodes::ask(conn, &["HSET", &key(name), field, value]).await;
}

async fn members(conn: &mut MultiplexedConnection, name: &str) -> Vec<String> {
    let mut members: Vec<String> = crate::fixtures::nodes::ask(conn, &["SMEMBERS", &key(name)]).await;
    members.sort();
    members
}

// RTE-2, RTE-1. Two owners in one round are two servers that write one island.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_2_of_32_nodes_that_race_for_an_object_one_gets_it_each_round() {
    let server = TestStore::start();
    let store = open(&server.url()).await;
    let mut nodes = Vec::new();
    for n in 0..NODES {
        nodes.push(Node::join(&store, &format!("b{n}")).await);
    }
    let key = object("island:one");
    let mut last = RouteVersion::NONE;
    let mut winners: BTreeMap<NodeId, usize> = BTreeMap::new();
    for round in 0..ROUNDS {
        let known = nodes[round % NODES].book.read(&key).await.unwrap();
        let racing = (0..NODES).map(|n| nodes[(n + round) % NODES].book.acquire(&key, known.as_ref(), true));
        let outcomes = join_all(racing).await;
        let mut held = None;
        let mut named = Vec::new();
        for outcome in outcomes {
            match outcome.unwrap() {
                AcquireOutcome::Acquired(won) => assert!(held.replace(won).is_none(), "round {round}: two owners"),
                AcquireOutcome::Owned { owner, version } => named.push((owner, version)),
            }
        }
        let held = held.unwrap_or_else(|| panic!("round {round}: no owner"));
        assert_eq!(named.len(), NODES - 1);
        assert!(named.iter().all(|named| *named == (held.owner.clone(), held.version)), "round {round}: {named:?}");
        assert!(held.version > last, "RTE-1, round {round}: {} after {last}", held.version);
        let read = nodes[(round + 1) % NODES].book.read(&key).await.unwrap().expect("a record");
        assert_eq!((read.owner.as_ref(), read.version), (Some(&held.owner), held.version));
        last = held.version;
        *winners.entry(held.owner.id.clone()).or_default() += 1;
        let owner = nodes.iter().find(|node| node.id == held.owner.id).unwrap();
        match owner.book.release(&held, false).await.unwrap() {
            RouteReleaseOutcome::Released(version) => {
                assert!(version > last, "RTE-4");
                last = version;
            }
            lost => panic!("{lost:?}"),
        }
    }
    assert!(winners.len() > NODES / 2, "the race is none: {winners:?}");
}

// RTE-3, R-17. Without the number the second save undoes the first.
#[tokio::test]
async fn rte_3_of_two_saves_from_one_read_the_second_is_refused() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let a = Node::join(&store, "a").await;
    let key = object("island:one");
    let held = a.takes(&key).await;
    let (first, second) = (OperationId::fresh(), OperationId::fresh());
    assert_eq!(a.book.save(&held, Cas::NONE, "first", &first).await.unwrap(), Cas(1));
    let error = a.book.save(&held, Cas::NONE, "second", &second).await.unwrap_err();
    assert!(matches!(&error, Error::CasMismatch { found: 1, .. }), "{error:?}");
    assert_eq!(a.book.load(&key).await.unwrap().unwrap().data, "first");

    // STO-10: the answer was lost, and the save comes again.
    assert_eq!(a.book.save(&held, Cas::NONE, "first", &first).await.unwrap(), Cas(1));
    assert_eq!(a.book.save(&held, Cas(1), "second", &second).await.unwrap(), Cas(2));
    let stored = a.book.load(&key).await.unwrap().unwrap();
    assert_eq!((stored.cas, stored.route_version, &*stored.data), (Cas(2), held.version, "second"));

    // bytes that no member wrote, or that stand under another key, are not loaded.
    let other = object("island:two");
    let _: i64 = crate::fixtures::nodes::ask(
        &mut conn,
        &["COPY", &crate::fixtures::nodes::key("object:island:one"), &crate::fixtures::nodes::key("object:island:two")],
    )
    .await;
    assert!(matches!(a.book.load(&other).await, Err(Error::Untrusted { .. })));
    set(&mut conn, "object:island:one", "data", "forged").await;
    assert!(matches!(a.book.load(&key).await, Err(Error::Untrusted { .. })));
}

// RTE-2, RTE-3: a node that lost the object writes nothing and learns who has it.
#[tokio::test]
async fn rte_3_whoever_lost_an_object_is_refused_with_the_new_owner() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let (a, b) = (Node::join(&store, "a").await, Node::join(&store, "b").await);
    let key = object("island:one");
    let held = a.takes(&key).await;
    assert_eq!(b.is_refused(&key, true).await, a.owner(), "its owner lives");
    a.book.save(&held, Cas::NONE, "of a", &OperationId::fresh()).await.unwrap();

    // its last beat is older than its lease.
    set(&mut conn, "node:a", "beat_at", "1000").await;
    assert_eq!(b.is_refused(&key, false).await, a.owner(), "without a fence the lock timeout has to pass");
    let taken = b.takes(&key).await;
    assert!(taken.version > held.version);
    b.book.save(&taken, Cas(1), "of b", &OperationId::fresh()).await.unwrap();

    let is_b = |error: Error| matches!(&error, Error::NotOwner { owner: Some(node), .. } if *node == b.id);
    assert!(is_b(a.book.save(&held, Cas(2), "late", &OperationId::fresh()).await.unwrap_err()));
    assert!(is_b(a.book.renew(&held).await.unwrap_err()));
    assert_eq!(a.book.release(&held, true).await.unwrap(), RouteReleaseOutcome::Lost(Some(b.id.clone())));
    assert_eq!(a.book.transfer(&held, &a.owner()).await.unwrap(), TransferOutcome::Lost(Some(b.id.clone())));
    assert_eq!(b.book.load(&key).await.unwrap().unwrap().data, "of b");
    assert_eq!(members(&mut conn, "owned:a").await, Vec::<String>::new());
    assert_eq!(members(&mut conn, "owned").await, ["b"], "STO-16");

    // The lock timeout alone: the owner lives and has saved nothing for too long.
    set(&mut conn, "route:island:one", "saved_at", "1000").await;
    let row = row_of(&mut conn, "a").await;
    let now = crate::fixtures::nodes::store_ms(&mut conn).await;
    set(&mut conn, "node:a", "beat_at", &now.to_string()).await;
    assert_eq!(row["epoch"], a.owner().epoch.to_string());
    let known = a.book.read(&key).await.unwrap();
    let again = a.book.acquire(&key, known.as_ref(), false).await.unwrap();
    assert!(matches!(again, AcquireOutcome::Acquired(held) if held.version > taken.version));
}

// RTE-4, R-20: transfer only by the owner, only to the living.
#[tokio::test]
async fn r_20_a_transfer_makes_a_living_target_the_owner_and_raises_the_version() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let (a, b) = (Node::join(&store, "a").await, Node::join(&store, "b").await);
    let key = object("island:one");
    let held = a.takes(&key).await;
    let late = NodeEpoch { epoch: maitred::ids::Epoch(b.owner().epoch.0 - 1), ..b.owner() };
    let nobody = NodeEpoch { id: NodeId::new("c").unwrap(), ..b.owner() };
    for gone in [late, nobody] {
        assert_eq!(a.book.transfer(&held, &gone).await.unwrap(), TransferOutcome::TargetGone);
    }
    let TransferOutcome::Moved(route) = a.book.transfer(&held, &b.owner()).await.unwrap() else { panic!("not moved") };
    assert!(route.version > held.version && route.is_of(&b.id, b.owner().epoch));
    let read = b.book.read(&key).await.unwrap().unwrap();
    assert_eq!((read.owner, read.version, read.state), (Some(b.owner()), route.version, RouteState::Moved));
    assert_eq!(members(&mut conn, "owned").await, ["b"], "STO-16");

    // The target confirms, and owns what it was given: no other version.
    let confirmed = b.takes(&key).await;
    assert_eq!((confirmed.version, confirmed.owner.clone()), (route.version, b.owner()));
    assert_eq!(b.book.read(&key).await.unwrap().unwrap().state, RouteState::Owned);
    b.book.renew(&confirmed).await.unwrap();
    assert!(matches!(a.book.renew(&held).await, Err(Error::NotOwner { owner: Some(node), .. }) if node == b.id));
}

// a free record runs out, and the version grows all the same, also over a wipe of the store.
#[tokio::test]
async fn r_17_a_free_record_runs_out_and_versions_grow_over_the_loss_of_the_store() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let times = RouteTimes { free_ms: 200, ..RouteTimes::default() };
    let mut a = Node::join_for(&store, "a", LONG_MS, times).await;
    let key = object("island:one");
    let held = a.takes(&key).await;
    let RouteReleaseOutcome::Released(freed) = a.book.release(&held, false).await.unwrap() else { panic!("lost") };
    // Within the same millisecond it proposes the same version, and is a repeat.
    let twice = a.book.release(&held, false).await.unwrap();
    assert!(twice == RouteReleaseOutcome::Lost(None) || twice == RouteReleaseOutcome::Released(freed), "{twice:?}");
    let free = a.book.read(&key).await.unwrap().unwrap();
    assert_eq!((free.owner, free.version, free.state), (None, freed, RouteState::Free));
    let again = a.takes(&key).await;
    assert!(again.version > freed);
    let ttl: i64 =
        crate::fixtures::nodes::ask(&mut conn, &["PTTL", &crate::fixtures::nodes::key("route:island:one")]).await;
    assert_eq!(ttl, -1, "an owned record must not run out");
    a.book.release(&again, false).await.unwrap();
    maitred_testkit::wait::eventually("the free record runs out", crate::fixtures::nodes::LIMIT, async || {
        route_row(&mut conn, &key).await.is_empty()
    })
    .await;
    assert_eq!(members(&mut conn, "owned").await, Vec::<String>::new(), "STO-16");
    let third = a.takes(&key).await;
    assert!(third.version > again.version);

    let _: String = crate::fixtures::nodes::ask(&mut conn, &["FLUSHALL"]).await;
    assert!(matches!(a.book.acquire(&key, None, true).await, Err(Error::LeaseLost { .. })));
    a.membership.join(blank()).await.unwrap();
    assert!(a.takes(&key).await.version > third.version);
    assert!(matches!(a.book.renew(&third).await, Err(Error::NotOwner { .. } | Error::Fenced { .. })));
}

// R-17, STO-16: the routes of an owner long gone are freed, those of the living and the lately gone are not, and entries
// without a record go.
#[tokio::test]
async fn r_17_the_sweep_frees_what_an_owner_long_gone_left_and_heals_the_index() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let (mut a, b) = (Node::join(&store, "a").await, Node::join(&store, "b").await);
    let (old, young, living) = (object("island:old"), object("island:young"), object("island:living"));
    let (held, _, _) = (a.takes(&old).await, a.takes(&young).await, b.takes(&living).await);
    for (node, member) in [("a", "island:none"), ("b", "island:old"), ("c", "island:never")] {
        let _: i64 = crate::fixtures::nodes::ask(&mut conn, &["SADD", &key(&format!("owned:{node}")), member]).await;
        let _: i64 = crate::fixtures::nodes::ask(&mut conn, &["SADD", &key("owned"), node]).await;
    }
    for object in ["old", "living"] {
        set(&mut conn, &format!("route:island:{object}"), "saved_at", "1000").await;
    }
    let dry = sweep(&b.book, SweepOptions { dry_run: true, ..SweepOptions::default() }).await.unwrap();
    assert_eq!((dry.released, dry.kept, dry.healed), (0, 3, 3), "{dry:?}");
    a.membership.leave().await.unwrap();
    let swept = sweep(&b.book, SweepOptions::default()).await.unwrap();
    assert_eq!((swept.released, swept.kept, swept.healed), (1, 2, 3), "{swept:?}");
    let free = b.book.read(&old).await.unwrap().unwrap();
    assert!(free.owner.is_none() && free.version > held.version);
    assert!(b.book.read(&young).await.unwrap().unwrap().owner.is_some(), "saved not long ago");
    assert_eq!(members(&mut conn, "owned:a").await, ["island:young"]);
    assert_eq!(members(&mut conn, "owned").await, ["a", "b"]);
    let again = sweep(&b.book, SweepOptions::default()).await.unwrap();
    assert_eq!((again.released, again.kept, again.healed), (0, 2, 0), "{again:?}");
}

// R-17, STO-16: one key that somebody wrote by hand keeps no other route of a dead owner from being freed.
#[tokio::test]
async fn r_17_a_key_of_another_type_keeps_no_other_route_from_the_sweep() {
    const OBJECTS: usize = 40;
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let (mut a, b) = (Node::join(&store, "a").await, Node::join(&store, "b").await);
    for number in 0..OBJECTS {
        a.takes(&object(&format!("island:{number}"))).await;
        set(&mut conn, &format!("route:island:{number}"), "saved_at", "1000").await;
    }
    let _: i64 = crate::fixtures::nodes::ask(&mut conn, &["SADD", &key("owned:a"), "island:bad"]).await;
    let _: String = crate::fixtures::nodes::ask(&mut conn, &["SET", &key("route:island:bad"), "of another type"]).await;
    a.membership.leave().await.unwrap();
    let swept = sweep(&b.book, SweepOptions::default()).await.unwrap();
    assert_eq!((swept.released, swept.skipped), (40, 1), "{swept:?}");
    assert_eq!(members(&mut conn, "owned:a").await, ["island:bad"]);
}

// the repeat of what was done is answered as done, and a number that could not be is refused.
#[tokio::test]
async fn r_1_an_acquire_that_is_repeated_is_answered_alike() {
    let server = TestStore::start();
    let store = open(&server.url()).await;
    let mut a = Node::join(&store, "a").await;
    let key = object("island:one");
    let held = a.takes(&key).await;
    let again = a.takes(&key).await;
    assert_eq!((again.version, &again.owner), (held.version, &held.owner));
    // The same id in a new epoch is another owner: what it held before is over.
    let old = a.owner();
    a.membership.leave().await.unwrap();
    let mut other = membership(&store, "a", "backend", LONG_MS);
    other.join(blank()).await.unwrap();
    let book = RouteBook::new(store.clone(), verifier(), other.lease().clone(), RouteTimes::default());
    let AcquireOutcome::Owned { owner, .. } = book.acquire(&key, None, false).await.unwrap() else { panic!("taken") };
    assert_eq!(owner, old, "not fenced: the lock timeout has to pass also here");
    let AcquireOutcome::Acquired(taken) = book.acquire(&key, None, true).await.unwrap() else { panic!("refused") };
    assert!(taken.version > held.version && taken.owner.epoch > old.epoch);
}

// STO-3: a route is written although the store forgot its scripts; RTE-1: what was read is what was signed.
#[tokio::test]
async fn sto_3_routes_survive_a_script_flush() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let a = Arc::new(Node::join(&store, "a").await);
    let _: String = crate::fixtures::nodes::ask(&mut conn, &["SCRIPT", "FLUSH"]).await;
    let key = object("island:one");
    let held = a.takes(&key).await;
    let route: Route = a.book.read(&key).await.unwrap().unwrap();
    assert_eq!((route.owner, route.version), (Some(held.owner.clone()), held.version));
    assert!(route.saved_at_ms > 0);
    let _: String = crate::fixtures::nodes::ask(&mut conn, &["SCRIPT", "FLUSH"]).await;
    a.book.renew(&held).await.unwrap();
}

// RTE-1: a row that names this node, written by somebody without the fleet's key, makes it the owner of nothing.
#[tokio::test]
async fn rte_1_a_forged_record_that_names_this_node_is_not_believed() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let a = Node::join(&store, "a").await;
    let key = object("island:one");
    let me = a.owner();
    for (field, value) in [
        ("owner", "a"),
        ("owner_epoch", &me.epoch.to_string()),
        ("version", "1796000001000"),
        ("saved_at", "1796000001000"),
        ("state", "MOVED"),
        ("v", "1"),
        ("sig", "5ebd00f2.xxx"),
    ] {
        set(&mut conn, "route:island:one", field, value).await;
    }
    let outcome = a.book.acquire(&key, None, true).await;
    assert!(outcome.is_err(), "{outcome:?}");
}

// STO-16: an owner of very much does not take the whole of a sweep from the others.
#[tokio::test]
async fn sto_16_a_sweep_with_a_limit_reaches_every_owner() {
    let server = TestStore::start();
    let store = open(&server.url()).await;
    let (a, b) = (Node::join(&store, "a").await, Node::join(&store, "b").await);
    for number in 0..20 {
        a.takes(&object(&format!("island:a{number}"))).await;
    }
    b.takes(&object("island:b")).await;
    let swept = sweep(&b.book, SweepOptions { limit: 8, ..SweepOptions::default() }).await.unwrap();
    assert_eq!(swept.nodes, 2, "{swept:?}");
    assert!(swept.kept >= 5 && swept.kept <= 8, "{swept:?}");
}
