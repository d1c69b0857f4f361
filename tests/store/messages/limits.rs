//! What happens at the bounds: of handlers, bodies, deadlines and patience.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use maitred::error::Error;
use maitred::message::{INTERNAL, MessageOptions, REPLY_TOO_LARGE, handler_fn};
use tokio::time::sleep;

use crate::fixtures::member::{CALL, Gate, Member, Options, PATIENCE, echo, json, pair};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

fn at_once(max_concurrent: usize) -> Options {
    Options { messages: MessageOptions { max_concurrent, ..Default::default() }, ..Options::default() }
}

// MSG-5: a rush must end in answers, each of them, and not take the node with it.
#[tokio::test(flavor = "multi_thread")]
async fn msg_5_a_thousand_calls_at_once_are_answered_or_busy() {
    let store = TestStore::start();
    let a = Member::join(&store.url(), "a").await;
    let b = Member::join_with(&store.url(), "b", at_once(4)).await;
    let (slow, running) = (Gate::new(0), Arc::new(AtomicBool::new(true)));
    let _slow = b.services.register("slow", slow.handler()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    let opening = {
        let (slow, running) = (slow.clone(), Arc::clone(&running));
        tokio::spawn(async move {
            while running.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(20)).await;
                slow.let_go(1);
            }
        })
    };
    let outcomes = join_all((0..1_000_u64).map(|n| {
        let post = a.post.clone();
        async move { (n, post.call_json::<u64, _>("b:slow", "go", &n, CALL).await) }
    }))
    .await;
    running.store(false, Ordering::SeqCst);
    opening.await.expect("no panic");
    let (mut answered, mut busy) = (0, 0);
    for (n, outcome) in outcomes {
        match outcome {
            Ok(answer) if answer == n => answered += 1,
            Err(Error::Busy { target }) if target == "b:slow" => busy += 1,
            other => panic!("{n}: {other:?}"),
        }
    }
    assert_eq!(answered + busy, 1_000);
    assert!(answered >= 4 && busy > 0, "{answered} answered, {busy} busy");
    assert!(slow.most_at_once() <= 4, "{}", slow.most_at_once());
    assert_eq!((slow.started(), a.post.pending_calls()), (answered, 0), "busy means not started");
    assert_eq!(b.post.counts().busy, busy as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn msg_5_calls_within_the_process_count_among_the_handlers() {
    let store = TestStore::start();
    let a = Member::join_with(&store.url(), "a", at_once(1)).await;
    let gate = Gate::new(0);
    let _work = a.services.register("work", gate.handler()).expect("a name");
    a.post.send("work", "go", &1).await.expect("started");
    gate.has_started(1).await;
    let error = a.post.call("work", "go", &2, CALL).await.expect_err("one at a time");
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    gate.let_go(2);
    eventually("the first ends", PATIENCE, async || a.post.call("work", "go", &3, CALL).await.is_ok()).await;
}

// MSG-1: whoever builds too large a body learns its size at once, and the fleet does not carry it.
#[tokio::test(flavor = "multi_thread")]
async fn msg_1_a_body_over_the_limit_is_refused_at_the_sender() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let of = |bytes: usize| json(&format!("\"{}\"", "x".repeat(bytes - 2)));
    let limit = 65_536;
    for outcome in [
        a.post.call_raw("b:echo", "say", &of(limit + 1), CALL).await.map(|_| ()),
        a.post.send_raw("b:echo", "say", &of(limit + 1)).await,
    ] {
        let error = outcome.expect_err("too large");
        assert!(matches!(error, Error::BodyTooLarge { bytes: 65_537, max_bytes: 65_536 }), "{error}");
    }
    assert_eq!(a.post.counts().sent, 0);
    let answer = a.post.call_raw("b:echo", "say", &of(limit), CALL).await.expect("just fits, both ways");
    assert_eq!(answer.get().len(), limit);

    let _large = b.services.register("large", handler_fn(move |_| async move { Ok(of(limit + 1)) })).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    let error = a.post.call("b:large", "go", &1, CALL).await.expect_err("the answer does not fit");
    assert!(matches!(&error, Error::Callee { code, .. } if code == REPLY_TOO_LARGE), "{error}");
}

// MSG-5: an answer that comes after its caller gave up must not reach another call, and an operator must see it.
#[tokio::test(flavor = "multi_thread")]
async fn msg_5_a_late_answer_is_dropped_and_counted() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let gate = Gate::new(0);
    let _work = b.services.register("work", gate.handler()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    // In time for the handler to begin, also where the machine is busy.
    let error = a.post.call("b:work", "go", &1, Duration::from_millis(1_500)).await.expect_err("too slow");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    gate.has_started(1).await;
    assert_eq!(a.post.counts().late, 0);
    gate.let_go(1);
    eventually("the answer comes late", PATIENCE, async || a.post.counts().late == 1).await;
    assert_eq!((a.post.pending_calls(), a.post.counts().received), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn msg_5_a_panic_of_a_handler_is_an_error_of_its_call_only() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let fault = || handler_fn(|call| async move { panic!("a defect of the application, in {}", call.method) });
    let _far = b.services.register("fault", fault()).expect("a name");
    let _near = a.services.register("fault", fault()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    for target in ["b:fault", "fault"] {
        let error = a.post.call(target, "go", &1, CALL).await.expect_err("it panicked");
        assert!(matches!(&error, Error::Callee { code, .. } if code == INTERNAL), "{target}: {error}");
    }
    a.post.call("b:echo", "say", &1, CALL).await.expect("the node goes on");
}

// Cancel safety: an application drops a call in a select all the time.
#[tokio::test(flavor = "multi_thread")]
async fn msg_5_a_dropped_call_is_forgotten_and_its_handler_ends_in_peace() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let gate = Gate::new(0);
    let _far = b.services.register("work", gate.handler()).expect("a name");
    let _near = a.services.register("work", gate.handler()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    for (dropped, target) in [(1, "b:work"), (2, "work")] {
        tokio::select! {
            outcome = a.post.call(target, "go", &1, CALL) => panic!("{outcome:?}"),
            () = gate.has_started(dropped) => {}
        }
        assert_eq!(a.post.pending_calls(), 0, "{target}");
    }
    gate.let_go(2);
    eventually("the answer finds nobody", PATIENCE, async || a.post.counts().late == 1).await;
    // Both slots are free again.
    b.inbox.stop(PATIENCE).await;
    a.inbox.stop(PATIENCE).await;
}

// MSG-5: the caller has gone elsewhere by then; a place reserved for it would be a second one.
#[tokio::test(flavor = "multi_thread")]
async fn msg_5_no_handler_starts_after_the_deadline() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let a = Member::join(&store.url(), "a").await;
    let b = Member::join(&proxy.url(), "b").await;
    let gate = Gate::new(usize::MAX >> 4);
    let _work = b.services.register("work", gate.handler()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    b.sees(&a).await;
    proxy.hold();
    let error = a.post.call("b:work", "go", &1, Duration::from_millis(500)).await.expect_err("held up");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    proxy.resume();
    eventually("the message is dropped", PATIENCE, async || b.post.counts().dropped == 1).await;
    let answer: u64 = a.post.call_json("b:work", "go", &2, CALL).await.expect("the next one is in time");
    assert_eq!((answer, gate.started(), a.post.counts().late), (2, 1, 0));
}

// MSG-5: the look at an unknown sender's row takes time too, from a slow store more than the call has left.
#[tokio::test(flavor = "multi_thread")]
async fn msg_5_no_handler_starts_after_a_look_up_that_outlived_the_call() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let b = Member::join_with(&proxy.url(), "b", Options { refreshing: false, ..Options::default() }).await;
    let gate = Gate::new(usize::MAX >> 4);
    let _work = b.services.register("work", gate.handler()).expect("a name");
    b.beat_now().await;
    let a = Member::join(&store.url(), "a").await;
    // The message comes after 1 s, in time, and the row after 2.
    proxy.delay(Duration::from_secs(1));
    let error = a.post.call("b:work", "go", &1, Duration::from_millis(1_800)).await.expect_err("too slow");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    eventually("the message is dropped", PATIENCE, async || b.post.counts().dropped == 1).await;
    proxy.pass();
    a.post.call("b:work", "go", &2, CALL).await.expect("the next one is in time");
    assert_eq!((gate.started(), a.post.counts().late), (1, 0));
}

// MSG-5: with every slot taken by slow handlers the inbox still takes answers and says Busy.
#[tokio::test(flavor = "multi_thread")]
async fn msg_5_slow_handlers_never_block_the_inbox() {
    let store = TestStore::start();
    let a = Member::join_with(&store.url(), "a", at_once(1)).await;
    let b = Member::join(&store.url(), "b").await;
    let gate = Gate::new(0);
    let _slow = a.services.register("slow", gate.handler()).expect("a name");
    let _echo = b.services.register("echo", echo()).expect("a name");
    a.beat_now().await;
    b.beat_now().await;
    a.sees(&b).await;
    b.sees(&a).await;
    b.post.send("a:slow", "go", &1).await.expect("sent");
    gate.has_started(1).await;
    let answer: u64 = a.post.call_json("b:echo", "say", &7, CALL).await.expect("answers pass");
    assert_eq!(answer, 7);
    let error = b.post.call("a:slow", "go", &2, CALL).await.expect_err("no slot");
    assert!(matches!(error, Error::Busy { .. }), "{error}");
}

// MSG-3: `messages.callTimeoutMs` is what a caller who names no time of its own waits, not a number that nobody reads.
#[tokio::test(flavor = "multi_thread")]
async fn msg_3_a_call_that_names_no_time_waits_for_the_configured_one() {
    let store = TestStore::start();
    let messages = MessageOptions { call_timeout: Duration::from_millis(700), ..Default::default() };
    let a = Member::join_with(&store.url(), "a", Options { messages, ..Options::default() }).await;
    let gate = Gate::new(0);
    let _work = a.services.register("work", gate.handler()).expect("a name");
    let error = a.post.call("work", "go", &1, None).await.expect_err("nobody lets it go");
    assert!(matches!(error, Error::Timeout { timeout_ms: 700, .. }), "{error}");
    // What the caller says goes before it.
    let error = a.post.call("work", "go", &1, Duration::from_millis(300)).await.expect_err("nobody lets it go");
    assert!(matches!(error, Error::Timeout { timeout_ms: 300, .. }), "{error}");
}
