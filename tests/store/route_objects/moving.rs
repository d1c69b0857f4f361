//! Transfers with messages under way, and RTE-11's three faults. If this fails a player's action
//! during a move is lost, or happens twice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use maitred::Error;
use maitred::error::RouteRefusal;
use maitred::ids::ObjectKey;
use maitred::message::{MessageOptions, RoutedCall};
use maitred::route::{Handover, Header, KindOptions, RouteTimes};
use serde_json::value::RawValue;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::fixtures::member::{Member, Options, PATIENCE, echo};
use crate::fixtures::routes::{CALL, Client, Count, Counter, Host, acquainted, holds_back, inc, object};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// Messages that are sent while the object moves, from each of two senders.
const MESSAGES: usize = 20;

/// A transfer from `a` to `b` that stands still before its save, with messages of `a` itself and of a client held back.
struct Moving {
    server: TestStore,
    a: Host,
    b: Host,
    client: Client,
    key: ObjectKey,
    transfer: JoinHandle<maitred::Result<Handover>>,
    messages: Vec<JoinHandle<(String, usize, maitred::Result<u64>)>>,
}

impl Moving {
    async fn start(notify: bool) -> Self {
        let server = TestStore::start();
        let a = Host::join(&server.url(), "a", KindOptions::default()).await;
        let b = Host::join(&server.url(), "b", KindOptions::default()).await;
        let client = Client::join(&server.url(), "c").await;
        acquainted(&[&a.member, &b.member, &client.member]).await;
        let key = object("counter:one");
        a.keeper.acquire(&key).await.unwrap();
        client.inc(&key, 1_000).await.unwrap();
        let doors = a.counter.door.available_permits();
        a.counter.door.forget_permits(doors);
        let (keeper, target, moved) = (a.keeper.clone(), b.member.id.clone(), key.clone());
        let transfer = tokio::spawn(async move { keeper.transfer(&moved, &target, notify).await });
        eventually("the transfer is under way", PATIENCE, async || a.counter.at_door.load(Ordering::Acquire)).await;
        Self { server, a, b, client, key, transfer, messages: Vec::new() }
    }

    /// Sends, waits until all of it is held back, and lets the transfer go on.
    async fn hold_and_go(mut self) -> (Self, maitred::Result<Handover>) {
        let (own, far) = (std::sync::Arc::new(self.a.router), std::sync::Arc::new(self.client.router));
        for number in 0..MESSAGES {
            for (name, router) in [("a", &own), ("c", &far)] {
                let (router, key, name) = (std::sync::Arc::clone(router), self.key.clone(), name.to_owned());
                self.messages.push(tokio::spawn(async move {
                    let outcome = inc(&router, &key, &name, number).await;
                    (name, number, outcome)
                }));
            }
        }
        let keeper = self.a.keeper.clone();
        eventually("all messages are held back", PATIENCE, async || keeper.held_back() == 2 * MESSAGES).await;
        self.a.counter.door.add_permits(1_000);
        let outcome = (&mut self.transfer).await.unwrap();
        let ended = join_all(std::mem::take(&mut self.messages)).await;
        let outcomes: Vec<_> = ended.into_iter().map(|ended| ended.unwrap()).collect();
        self.a.router = std::sync::Arc::into_inner(own).expect("all have ended");
        self.client.router = std::sync::Arc::into_inner(far).expect("all have ended");
        assert_eq!(self.a.keeper.held_back() + self.b.keeper.held_back(), 0);
        self.check(outcomes).await;
        (self, outcome)
    }

    /// Each answered message happened once, each other one at most once.
    async fn check(&self, outcomes: Vec<(String, usize, maitred::Result<u64>)>) {
        let count = self.count().await;
        assert_eq!(count.twice, 0, "handled twice");
        let mut answered = 1;
        for (name, number, outcome) in &outcomes {
            match outcome {
                Ok(_) => {
                    answered += 1;
                    assert!(count.has(name, *number), "{name} {number} was answered and is not in it");
                }
                Err(error) => {
                    let typed =
                        matches!(error, Error::NodeOffline(_) | Error::Routed { .. } | Error::ServiceNotFound { .. });
                    assert!(typed, "{name} {number}: {error:?}");
                    assert!(!count.has(name, *number), "{name} {number} was refused and is in it: {error:?}");
                }
            }
        }
        assert_eq!(count.value, answered);
    }

    /// The counter, wherever it is.
    async fn count(&self) -> Count {
        for host in [&self.a, &self.b] {
            if !host.keeper.is_empty() {
                return host.keeper.with(&self.key, |count| (count.clone(), false)).await.unwrap();
            }
        }
        self.a.stored(&self.key).await.expect("saved")
    }
}

// RTE-10: the way it should go: all that was held back is handled by the new owner, in its order and once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_what_is_held_back_during_a_move_is_handled_by_the_new_owner_once() {
    let (moving, outcome) = Moving::start(true).await.hold_and_go().await;
    let moved = outcome.unwrap();
    assert!(moved.unconfirmed.is_none(), "{:?}", moved.unconfirmed);
    let count = moving.count().await;
    assert_eq!(count.value, 1 + 2 * MESSAGES as u64, "RTE-11: held back and sent as well, or not at all");
    assert_eq!(moving.b.counter.told()[0], "promoted counter:one 1", "before the first of them");
    assert!(moving.a.keeper.is_empty());
    assert!(moving.a.counter.told().contains(&"removed counter:one 1 Moved(\"b\")".to_owned()));
}

// RTE-10, RTE-11: the target does not hear the notice; it is its owner all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_a_notice_that_nobody_hears_loses_nothing() {
    let mut moving = Moving::start(true).await;
    moving.b.member.stop_listening().await;
    let (moving, outcome) = moving.hold_and_go().await;
    let moved = outcome.unwrap();
    assert!(matches!(moved.unconfirmed, Some(Error::NodeOffline(_))), "{:?}", moved.unconfirmed);
    assert_eq!(moving.a.owner(&moving.key).await.as_deref(), Some("b"));
    assert_eq!(moving.count().await.value, 1, "nobody could handle what was held back, and all were told so");
}

// RTE-10: the target is killed between the save and the notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_a_target_that_dies_before_the_notice_loses_nothing_and_is_replaced() {
    let mut moving = Moving::start(true).await;
    moving.b.member.stop_listening().await;
    moving.b.member.stop_beating().await;
    let (moving, outcome) = moving.hold_and_go().await;
    assert!(outcome.unwrap().unconfirmed.is_some());
    // As its row goes with its lease.
    moving.b.member.leave().await;
    let (client, key) = (&moving.client, &moving.key);
    eventually("another takes over", PATIENCE, async || client.inc(key, 2_000).await.is_ok()).await;
    assert_eq!(moving.a.owner(key).await.as_deref(), Some("a"));
    assert!(moving.count().await.has("c", 1_000), "what was saved before the move is there");
}

// RTE-10: the target cannot load the object and refuses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_a_target_that_refuses_loses_nothing() {
    let moving = Moving::start(true).await;
    moving.b.counter.broken.store(true, Ordering::SeqCst);
    let broken = std::sync::Arc::clone(&moving.b.counter.broken);
    let (moving, outcome) = moving.hold_and_go().await;
    assert!(matches!(outcome.unwrap().unconfirmed, Some(Error::Callee { code, .. }) if code == "not_taken"));
    broken.store(false, Ordering::SeqCst);
    assert!(moving.client.inc(&moving.key, 2_000).await.is_ok());
}

// RTE-10: the save fails: the object stays, and all that was held back is handled here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_a_save_that_fails_leaves_the_object_where_it_was() {
    let moving = Moving::start(true).await;
    let mut conn = moving.server.conn().await;
    let name = moving.a.member.store.keys().object(&moving.key).to_string();
    let _: () = redis::cmd("SET").arg(&name).arg("of another type").query_async(&mut conn).await.unwrap();
    let (moving, outcome) = moving.hold_and_go().await;
    assert!(matches!(&outcome, Err(Error::Refused { .. })), "{outcome:?}");
    assert_eq!(moving.a.owner(&moving.key).await.as_deref(), Some("a"));
    assert_eq!(moving.count().await.value, 1 + 2 * MESSAGES as u64);
    let told = moving.a.counter.told();
    assert_eq!(told[1..], ["removing counter:one 1", "promoted counter:one 1"], "the removal did not come about");
    let _: i64 = redis::cmd("DEL").arg(&name).query_async(&mut conn).await.unwrap();
    moving.a.keeper.save(&moving.key).await.unwrap_or_else(|error| panic!("{error}"));
}

// a target that is gone, or that hosts no such objects, gets nothing, and nothing was changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_20_a_target_that_cannot_take_the_object_leaves_it_where_it_was() {
    let server = TestStore::start();
    let a = Host::join(&server.url(), "a", KindOptions::default()).await;
    let client = Client::join(&server.url(), "c").await;
    acquainted(&[&a.member, &client.member]).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    let version = a.router.table().version(&key);
    let unhosted = a.keeper.transfer(&key, &client.member.id, true).await.unwrap_err();
    assert!(matches!(unhosted, Error::ServiceNotFound { .. }), "{unhosted:?}");
    let unknown = a.keeper.transfer(&key, &crate::fixtures::member::id("nobody"), true).await.unwrap_err();
    assert!(matches!(unknown, Error::NodeNotFound(_)), "{unknown:?}");
    let oneself = a.keeper.transfer(&key, &a.member.id, true).await.unwrap_err();
    assert!(matches!(oneself, Error::OutOfBounds { .. }));
    assert_eq!(a.router.table().version(&key), version);
    assert_eq!(client.inc(&key, 0).await.unwrap(), 1);
    assert_eq!(a.counter.told(), ["promoted counter:one 0"]);
    holds_back(&a, 0).await;
    let refused = a.router.call(&object("other:one"), "inc", &1, CALL).await;
    assert!(matches!(refused, Err(Error::Routed { refusal: RouteRefusal::NoOwner, .. })), "{refused:?}");
}

// RTE-10: a notice that comes after the object went on to a third node takes it from nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_a_late_notice_takes_the_object_from_nobody() {
    let server = TestStore::start();
    let options = KindOptions::default;
    let (a, b, c) = (
        Host::join(&server.url(), "a", options()).await,
        Host::join(&server.url(), "b", options()).await,
        Host::join(&server.url(), "c", options()).await,
    );
    acquainted(&[&a.member, &b.member, &c.member]).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    a.inc(&key, 0).await.unwrap();
    let first = a.keeper.transfer(&key, &b.member.id, false).await.unwrap();
    b.inc(&key, 1).await.unwrap();
    b.keeper.transfer(&key, &c.member.id, true).await.unwrap();
    let before = c.router.book().read(&key).await.unwrap();

    let old = Header { key: key.clone(), version: first.route.version }.text();
    let late = a.member.post.call_routed(RoutedCall {
        node: &b.member.id,
        epoch: b.member.epoch(),
        service: "routes",
        method: "moved",
        route: &old,
        body: RawValue::NULL,
        deadline: Instant::now() + CALL,
    });
    let late = late.await.unwrap_err();
    assert!(matches!(&late, Error::Callee { code, .. } if code == "not_taken"), "{late:?}");
    assert!(b.keeper.is_empty() && c.keeper.len() == 1);
    assert_eq!(c.router.book().read(&key).await.unwrap(), before);
    assert_eq!(a.inc(&key, 2).await.unwrap(), 3);
}

// RTE-10: what is held back for a moving object is bounded by the messages that a node takes at once; the rest is refused at
// once, and nothing stays behind. All else that the node does has room of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rte_10_the_held_list_is_bounded_and_empty_in_the_end() {
    const HANDLERS: usize = 8;
    const MOST: usize = 6;
    let server = TestStore::start();
    let messages = MessageOptions { max_concurrent: HANDLERS, ..MessageOptions::default() };
    let narrow = Options { messages, ..Options::default() };
    let member = Member::join_with(&server.url(), "a", narrow).await;
    let a = Host::join_as(member, Counter::new(KindOptions::default()), RouteTimes::default()).await;
    let b = Host::join(&server.url(), "b", KindOptions::default()).await;
    let client = std::sync::Arc::new(Client::join(&server.url(), "c").await);
    acquainted(&[&a.member, &b.member, &client.member]).await;
    let key = object("counter:one");
    a.keeper.acquire(&key).await.unwrap();
    client.inc(&key, 1_000).await.unwrap();
    a.counter.door.forget_permits(a.counter.door.available_permits());
    let (keeper, target, moved) = (a.keeper.clone(), b.member.id.clone(), key.clone());
    let transfer = tokio::spawn(async move { keeper.transfer(&moved, &target, true).await });
    eventually("the transfer is under way", PATIENCE, async || a.counter.at_door.load(Ordering::Acquire)).await;
    let send = |number: usize, timeout: Duration| {
        let (client, key) = (std::sync::Arc::clone(&client), key.clone());
        tokio::spawn(async move {
            let increment = crate::fixtures::routes::Increment { sender: "c".to_owned(), number };
            client.router.call_json::<u64, _>(&key, "inc", &increment, timeout).await
        })
    };
    // One of them gives up while it is held back.
    let hasty = send(0, Duration::from_secs(3));
    let held: Vec<_> = (1..MOST).map(|number| send(number, CALL)).collect();
    holds_back(&a, MOST).await;
    for number in MOST..3 * MOST {
        let refused = send(number, CALL).await.unwrap();
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        assert!(a.keeper.held_back() <= MOST);
    }
    let _echo = a.member.services.register("echo", echo()).unwrap();
    a.member.beat_now().await;
    client.member.sees(&a.member).await;
    let answer: u64 =
        client.member.post.call_json("a:echo", "say", &7, CALL).await.expect("it is no message to an object");
    assert_eq!(answer, 7);
    let late = hasty.await.unwrap();
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    a.counter.door.add_permits(1_000);
    transfer.await.unwrap().unwrap();
    for ended in join_all(held).await {
        ended.unwrap().unwrap();
    }
    assert_eq!((a.keeper.held_back(), b.keeper.held_back()), (0, 0));
    let count = b.keeper.with(&key, |count| (count.clone(), false)).await.unwrap();
    assert_eq!((count.value, count.twice), (MOST as u64, 0), "{count:?}");
    assert!(!count.has("c", 0), "nobody waited for it any more");
}
