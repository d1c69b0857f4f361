//! Sends and calls that work: where they go, and what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use maitred::error::Error;
use maitred::ids::ServiceName;
use maitred::message::{CallError, Incoming, handler_fn, json_handler};
use serde_json::json;

use crate::fixtures::member::{CALL, Gate, Member, PATIENCE, echo, json as raw, pair, until_refused};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

// MSG-1: without this nothing that one node asks of another works.
#[tokio::test(flavor = "multi_thread")]
async fn msg_1_two_members_call_each_others_services() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let add = json_handler(|(x, y): (i64, i64), call: Incoming| async move {
        match call.method.as_str() {
            "add" => Ok(json!({"sum": x + y, "asked_by": call.origin, "epoch": call.origin_epoch})),
            _ => Err(CallError::unknown_method(&call)),
        }
    });
    let _add = a.services.register("math", add).expect("a name");
    a.beat_now().await;
    b.sees(&a).await;

    let sum: serde_json::Value = b.post.call_json("a:math", "add", &(2, 3), CALL).await.expect("a sum");
    assert_eq!(sum, json!({"sum": 5, "asked_by": "b", "epoch": b.epoch()}));
    let text = r#"{ "z": 1.50, "a": "ä\u0041" }"#;
    let answer = a.post.call_raw("b:echo", "say", &raw(text), CALL).await.expect("an echo");
    assert_eq!(answer.get(), text, "the bytes of a body are the application's");

    let refused = b.post.call("a:math", "divide", &(2, 3), CALL).await.expect_err("no such method");
    assert!(matches!(&refused, Error::Callee { code, .. } if code == "unknown_method"), "{refused}");
    let refused = b.post.call("a:math", "add", &"two", CALL).await.expect_err("no numbers");
    assert!(matches!(&refused, Error::Callee { code, .. } if code == "bad_request"), "{refused}");
    assert_eq!(a.post.pending_calls() + b.post.pending_calls(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn msg_1_a_send_arrives_once_and_answers_nothing() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let gate = Gate::new(usize::MAX >> 4);
    let _log = b.services.register("log", gate.handler()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    a.post.send("b:log", "line", "hello").await.expect("sent");
    gate.has_started(1).await;
    // What comes behind it on the same channel has been handled, so a second copy would be there too.
    a.post.call("b:echo", "say", &1, CALL).await.expect("an echo");
    assert_eq!(gate.started(), 1);
    assert_eq!(b.post.counts().sent, 1, "the echo only");
}

// NOD-10, MSG-2: a service of this process must not be taken over by a node that happens to be named like it.
#[tokio::test(flavor = "multi_thread")]
async fn msg_2_a_local_name_comes_before_a_remote_one() {
    let store = TestStore::start();
    let (a, _b, _echo) = pair(&store.url()).await;
    let here = || handler_fn(|_| async { Ok(raw("\"here\"")) });
    let local = a.services.register("b:echo", here()).expect("a name");
    let answer: String = a.post.call_json("b:echo", "say", "there", CALL).await.expect("an answer");
    assert_eq!(answer, "here");
    a.post.send("b:echo", "say", "there").await.expect("sent");
    assert_eq!(a.post.counts().sent, 0, "nothing left the process");
    assert!(a.services.published().is_empty());

    local.unregister();
    let answer: String = a.post.call_json("b:echo", "say", "there", CALL).await.expect("an answer");
    assert_eq!(answer, "there");
    assert!(a.services.published().is_empty(), "no remote name enters the local registry");
}

// MSG-2: a node talks to itself, by name or by its own id, also while the store is away.
#[tokio::test(flavor = "multi_thread")]
async fn msg_2_this_nodes_own_services_need_no_store() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let a = Member::join(&proxy.url(), "a").await;
    let _echo = a.services.register("echo", echo()).expect("a name");
    proxy.hold();
    for target in ["echo", "a:echo"] {
        let answer: u64 = a.post.call_json(target, "say", &7, CALL).await.expect("an answer");
        assert_eq!(answer, 7, "{target}");
    }
    for (target, at) in [("a:missing", "a"), ("missing", "this node")] {
        let error = a.post.call(target, "say", &7, CALL).await.expect_err("no such service");
        assert!(matches!(&error, Error::ServiceNotFound { at: found, .. } if found == at), "{target}: {error}");
    }
}

// The bill of one player in design.md: one PUBLISH a request, one an answer, and no read on the way.
#[tokio::test(flavor = "multi_thread")]
async fn msg_1_a_call_costs_one_publish_and_its_answer_one() {
    let store = TestStore::start();
    let (of_a, of_b) = (FaultProxy::start(&store), FaultProxy::start(&store));
    let a = Member::join(&of_a.url(), "a").await;
    let b = Member::join(&of_b.url(), "b").await;
    let _echo = b.services.register("echo", echo()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    b.sees(&a).await;
    let inbox = |of: &Member| format!("PUBLISH {}", of.store.keys().inbox(&of.id));
    for call in 1..=20 {
        a.post.call("b:echo", "say", &call, CALL).await.expect("an echo");
    }
    a.post.send("b:echo", "say", &0).await.expect("sent");
    assert_eq!((of_a.count("PUBLISH"), of_a.count(&inbox(&b))), (21, 21));
    assert_eq!((of_b.count("PUBLISH"), of_b.count(&inbox(&a))), (20, 20));
}

// MSG-5, R-19: a PUBLISH whose answer is lost has been heard; publishing it again would run the handler twice, and
// giving the call up at once would hide an answer that is on its way.
#[tokio::test(flavor = "multi_thread")]
async fn msg_5_a_publish_of_unknown_outcome_is_not_repeated() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let a = Member::join(&proxy.url(), "a").await;
    let b = Member::join(&store.url(), "b").await;
    let gate = Gate::new(usize::MAX >> 4);
    let _work = b.services.register("work", gate.handler()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;

    proxy.drop_next_reply_of("PUBLISH", Action::Cut);
    let answer: u64 = a.post.call_json("b:work", "go", &1, CALL).await.expect("the answer comes all the same");
    assert_eq!((answer, proxy.count("PUBLISH"), gate.started()), (1, 1, 1));

    proxy.drop_next_reply_of("PUBLISH", Action::Cut);
    let error = a.post.send("b:work", "go", &2).await.expect_err("nobody knows whether it was sent");
    assert!(matches!(error, Error::Unreachable { .. }) && error.may_have_changed(), "{error}");
    gate.has_started(2).await;
    assert_eq!(proxy.count("PUBLISH"), 2);
    // The cut went through the shared connection; the next call finds a new one.
    eventually("the connection is back", PATIENCE, async || a.post.call("b:work", "go", &3, CALL).await.is_ok()).await;
    assert_eq!(gate.started() as u64, proxy.count("PUBLISH"), "each was heard once");
}

// NOD-10: a reference is of one incarnation; whoever kept one across a restart must learn it.
#[tokio::test(flavor = "multi_thread")]
async fn nod_10_a_reference_of_an_old_epoch_is_refused() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let service = ServiceName::new("echo").expect("a name");
    let reference = a.directory.query(&b.id, &service).await.expect("a reference");
    let answer: u64 = a.post.call_json(&reference, "say", &7, CALL).await.expect("an answer");
    assert_eq!(answer, 7);

    b.leave().await;
    drop(b);
    let b = Member::join(&store.url(), "b").await;
    let _echo = b.services.register("echo", echo()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    let error = a.post.call(&reference, "say", &7, CALL).await.expect_err("its epoch is over");
    assert!(matches!(&error, Error::StaleReference { epoch, .. } if *epoch == reference.epoch), "{error}");
    let answer: u64 = a.post.call_json("b:echo", "say", &8, CALL).await.expect("the name leads to the new one");
    assert_eq!(answer, 8);
}

// A handler that is half-way at a shutdown gets its time; who asks after that learns that the node is gone.
#[tokio::test(flavor = "multi_thread")]
async fn msg_3_a_stop_lets_handlers_end_and_refuses_what_is_new() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let gate = Gate::new(0);
    let _work = b.services.register("work", gate.handler()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    let post = a.post.clone();
    let first = tokio::spawn(async move { post.call_json::<u64, _>("b:work", "go", &1, CALL).await });
    gate.has_started(1).await;
    let inbox = b.inbox.clone();
    let stopping = tokio::spawn(async move { inbox.stop(PATIENCE).await });
    // Asked at another service, which must not add to the handlers that are counted here.
    let error = until_refused(&a.post, "b:echo", |error| matches!(error, Error::NodeOffline(_))).await;
    assert!(error.is_retryable() && !error.may_have_changed());
    assert_eq!(gate.started(), 1);
    gate.let_go(1);
    assert_eq!(first.await.expect("no panic").expect("an answer"), 1);
    stopping.await.expect("it ends");
    let error = b.post.call("a:any", "go", &1, CALL).await.expect_err("stopped");
    assert!(matches!(error, Error::ShuttingDown), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn msg_3_a_stop_ends_handlers_that_hang_and_calls_that_wait() {
    let store = TestStore::start();
    let (a, b, _echo) = pair(&store.url()).await;
    let (gate, ended) = (Gate::new(0), Arc::new(AtomicUsize::new(0)));
    let _work = b.services.register("work", gate.handler()).expect("a name");
    let _hang = a.services.register("hang", Gate::new(0).handler()).expect("a name");
    a.beat_now().await;
    b.beat_now().await;
    a.sees(&b).await;
    b.sees(&a).await;
    let post = a.post.clone();
    let asked = tokio::spawn(async move { post.call("b:work", "go", &1, CALL).await });
    let (post, count) = (b.post.clone(), Arc::clone(&ended));
    let asking = tokio::spawn(async move {
        let outcome = post.call("a:hang", "go", &1, CALL).await;
        count.fetch_add(1, Ordering::SeqCst);
        outcome
    });
    gate.has_started(1).await;
    eventually("the other call waits", PATIENCE, async || b.post.pending_calls() == 1).await;
    b.inbox.stop(Duration::ZERO).await;
    let error = asked.await.expect("no panic").expect_err("its handler was dropped");
    assert!(matches!(&error, Error::Callee { code, .. } if code == maitred::message::CANCELLED), "{error}");
    let error = asking.await.expect("no panic").expect_err("nobody takes the answer");
    assert!(matches!(error, Error::ShuttingDown), "{error}");
    assert_eq!((b.post.pending_calls(), ended.load(Ordering::SeqCst)), (0, 1));
}
