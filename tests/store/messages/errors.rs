//! Each error of MSG-2 and MSG-3 by its real cause.

use std::time::{Duration, Instant};

use maitred::error::Error;
use maitred::message::{CallError, MessageOptions, handler_fn};
use maitred::node::LivenessLimits;

use crate::fixtures::member::{CALL, Gate, Member, Options, PATIENCE, echo, id, pair, until_refused};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const FAR: u64 = 600_000;

fn seeing(suspect_ms: u64, offline_ms: u64, removed_ms: u64) -> Options {
    Options { limits: LivenessLimits { suspect_ms, offline_ms, removed_ms }, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn msg_2_a_node_that_never_was_is_not_found() {
    let store = TestStore::start();
    let a = Member::join(&store.url(), "a").await;
    for outcome in
        [a.post.call("nobody:echo", "say", &1, CALL).await.map(|_| ()), a.post.send("nobody:echo", "say", &1).await]
    {
        let error = outcome.expect_err("there is no such node");
        assert!(matches!(&error, Error::NodeNotFound(node) if *node == id("nobody")), "{error}");
        assert!(!error.is_retryable());
    }
    for bad in ["not a node:echo", "b:", ":echo", "b:two:colons"] {
        let error = a.post.send(bad, "say", &1).await.expect_err("no name");
        assert!(matches!(error, Error::InvalidId(_)), "{bad}: {error}");
    }
    assert_eq!(a.post.counts().sent, 0);
}

// MSG-2: a hung backend keeps its inbox open; asking it would cost every player a timeout.
#[tokio::test(flavor = "multi_thread")]
async fn msg_2_a_node_whose_beats_stopped_is_suspect_and_then_offline() {
    let store = TestStore::start();
    let mut b = Member::join(&store.url(), "b").await;
    let _echo = b.services.register("echo", echo()).expect("a name");
    b.beat_now().await;
    let a = Member::join_with(&store.url(), "a", seeing(1_000, FAR, FAR * 2)).await;
    let c = Member::join_with(&store.url(), "c", seeing(500, 1_000, FAR)).await;
    b.stop_beating().await;
    // By then it is suspect for whoever hears of its last beat only now, so that nothing makes it younger again.
    let mut conn = store.conn().await;
    let row = b.store.keys().node(&b.id).to_string();
    let beat_at: u64 = redis::cmd("HGET").arg(row).arg("beat_at").query_async(&mut conn).await.expect("HGET");
    eventually("its last beat is old", PATIENCE, async || {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut conn).await.expect("TIME");
        seconds * 1_000 + micros / 1_000 > beat_at + 1_500
    })
    .await;
    let error = until_refused(&a.post, "b:echo", |error| matches!(error, Error::NodeSuspect(_))).await;
    assert!(error.is_retryable(), "{error}");
    let error = until_refused(&c.post, "b:echo", |error| matches!(error, Error::NodeOffline(_))).await;
    assert!(error.is_retryable(), "{error}");
    let sent = a.post.counts().sent;
    a.post.send("b:echo", "say", &1).await.expect_err("still suspect");
    assert_eq!(a.post.counts().sent, sent, "nothing is sent to a node that is suspect");
    b.beat_now().await;
    eventually("it is back", PATIENCE, async || a.post.call("b:echo", "say", &1, CALL).await.is_ok()).await;
}

// MSG-3: a caller must not wait for its timeout where the store knows that nobody listens.
#[tokio::test(flavor = "multi_thread")]
async fn msg_3_an_inbox_nobody_listens_on_is_offline_at_once() {
    let store = TestStore::start();
    let (a, mut b, _echo) = pair(&store.url()).await;
    b.stop_listening().await;
    let begin = Instant::now();
    let error = a.post.call("b:echo", "say", &1, CALL).await.expect_err("nobody listens");
    assert!(matches!(&error, Error::NodeOffline(node) if *node == b.id), "{error}");
    assert!(begin.elapsed() < CALL / 2, "{:?}", begin.elapsed());
    assert!(error.is_retryable() && !error.may_have_changed());
    assert_eq!(a.post.pending_calls(), 0);
    let error = a.post.send("b:echo", "say", &1).await.expect_err("nobody listens");
    assert!(matches!(error, Error::NodeOffline(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn msg_2_a_node_that_left_is_offline_at_once() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    b.leave().await;
    drop(b);
    let begin = Instant::now();
    until_refused(&a.post, "b:echo", |error| matches!(error, Error::NodeOffline(_))).await;
    assert!(begin.elapsed() < Duration::from_secs(10), "its limits are a minute and more");
}

// MSG-2: killed without a goodbye; remembered as removed for one more removed age, then forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn msg_2_a_killed_node_is_offline_then_removed_then_not_found() {
    let store = TestStore::start();
    let b = Member::join_with(&store.url(), "b", Options { lease_ms: 2_000, ..Options::default() }).await;
    let _echo = b.services.register("echo", echo()).expect("a name");
    b.beat_now().await;
    let a = Member::join_with(&store.url(), "a", seeing(500, 1_000, 3_000)).await;
    a.sees(&b).await;
    drop(b);
    let error = until_refused(&a.post, "b:echo", |error| matches!(error, Error::NodeOffline(_))).await;
    assert!(error.is_retryable());
    let error = until_refused(&a.post, "b:echo", |error| matches!(error, Error::NodeRemoved(_))).await;
    assert!(!error.is_retryable());
    until_refused(&a.post, "b:echo", |error| matches!(error, Error::NodeNotFound(_))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn msg_2_a_service_that_the_node_does_not_offer_is_not_found() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let error = a.post.call("b:nothing", "say", &1, CALL).await.expect_err("no such service");
    assert!(matches!(&error, Error::ServiceNotFound { service, at } if service == "nothing" && at == "b"), "{error}");
    assert_eq!(a.post.counts().sent, 0, "known before anything is sent");
    // Published, and gone by the time the message comes: the callee says it.
    let gone = b.services.register("gone", echo()).expect("a name");
    b.beat_now().await;
    let frozen = Member::join_with(&store.url(), "f", Options { refreshing: false, ..Options::default() }).await;
    gone.unregister();
    let error = frozen.post.call("b:gone", "say", &1, CALL).await.expect_err("no such service any more");
    assert!(matches!(&error, Error::ServiceNotFound { service, at } if service == "gone" && at == "b"), "{error}");
}

// the view may be older than the service; one read decides, and nobody is told a wrong `ServiceNotFound`.
#[tokio::test(flavor = "multi_thread")]
async fn msg_2_a_service_newer_than_the_view_is_found_by_a_fresh_read() {
    let store = TestStore::start();
    let b = Member::join(&store.url(), "b").await;
    let a = Member::join_with(&store.url(), "a", Options { refreshing: false, ..Options::default() }).await;
    let _new = b.services.register("new", echo()).expect("a name");
    b.beat_now().await;
    let answer: u64 = a.post.call_json("b:new", "say", &7, CALL).await.expect("an answer");
    assert_eq!(answer, 7);
}

// MSG-3: code and text are the application's contract; a code that reads like one of ours must stay a code.
#[tokio::test(flavor = "multi_thread")]
async fn msg_3_the_callees_own_error_arrives_unchanged() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let refuse = || {
        handler_fn(|call| async move { Err(CallError::new(call.method, format!("\"{}\" ist voll: ä\n", call.body))) })
    };
    let _far = b.services.register("refuse", refuse()).expect("a name");
    let _near = a.services.register("refuse", refuse()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    for (target, named) in [("b:refuse", "b:refuse"), ("refuse", "a:refuse")] {
        for method in ["no_place", "busy", "ok", "service_not_found"] {
            let error = a.post.call(target, method, &7, CALL).await.expect_err("refused");
            let Error::Callee { target: whom, code, message } = error else { panic!("{target} {method}: {error}") };
            assert_eq!((whom.as_str(), code.as_str(), message.as_str()), (named, method, "\"7\" ist voll: ä\n"));
        }
    }
}

// MSG-3: the caller goes on when its time is over, whatever the handler does.
#[tokio::test(flavor = "multi_thread")]
async fn msg_3_a_handler_that_hangs_is_a_timeout_and_blocks_nobody() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let hang = Gate::new(0);
    let _far = b.services.register("hang", hang.handler()).expect("a name");
    let _near = a.services.register("hang", hang.handler()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    for target in ["b:hang", "hang"] {
        let (begin, timeout) = (Instant::now(), Duration::from_millis(1_500));
        let error = a.post.call(target, "go", &1, timeout).await.expect_err("no answer");
        let took = begin.elapsed();
        assert!(matches!(&error, Error::Timeout { timeout_ms: 1_500, .. }), "{target}: {error}");
        assert!(error.is_retryable() && error.may_have_changed());
        assert!(took >= timeout && took < PATIENCE, "{took:?}");
        a.post.call("b:echo", "say", &1, CALL).await.expect("others are answered meanwhile");
    }
    assert_eq!((hang.started(), a.post.pending_calls()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nod_4_without_a_lease_nothing_is_sent_and_nothing_is_taken() {
    let store = TestStore::start();
    let (a, _b, _echo) = pair(&store.url()).await;
    let short = Options { lease_ms: 3_000, ..Options::default() };
    let mut c = Member::join_with(&store.url(), "c", short).await;
    let gate = Gate::new(usize::MAX >> 4);
    let _work = c.services.register("work", gate.handler()).expect("a name");
    c.beat_now().await;
    a.sees(&c).await;
    c.stop_beating().await;
    eventually("its lease runs out", PATIENCE, async || !c.lease.is_valid()).await;
    let error = c.post.call("b:echo", "say", &1, CALL).await.expect_err("no lease");
    assert!(matches!(&error, Error::LeaseLost { id } if *id == c.id), "{error}");
    assert_eq!((c.post.counts().sent, c.post.pending_calls()), (0, 0));
    // The limits of `a` are patient, so it still sends.
    a.post.send("c:work", "go", &1).await.expect("sent");
    eventually("it is dropped", PATIENCE, async || c.post.counts().dropped == 1).await;
    assert_eq!(gate.started(), 0);
    c.post.call("work", "go", &1, CALL).await.expect("within the process no lease is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn msg_1_what_is_out_of_bounds_is_refused_before_anything_happens() {
    let store = TestStore::start();
    let options =
        Options { messages: MessageOptions { max_concurrent: 1, ..Default::default() }, ..Options::default() };
    let a = Member::join_with(&store.url(), "a", options).await;
    let _echo = a.services.register("echo", echo()).expect("a name");
    for (method, timeout) in
        [("say", Duration::ZERO), ("say", Duration::from_millis(29_001)), ("", CALL), ("a b", CALL)]
    {
        let error = a.post.call("echo", method, &1, timeout).await.expect_err("out of bounds");
        assert!(matches!(error, Error::OutOfBounds { .. }), "{method} {timeout:?}: {error}");
    }
    a.post.call("echo", "say", &1, Duration::from_millis(29_000)).await.expect("the longest there is");
}
