//! One handler instead of the list, and nothing behind it.

use std::time::Duration;

use maitred::place::{Decision, LoginRoute, LoginSource, Origin, Registry, ServerView, Why};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{PATIENT, Plugin, ends, name, placed, unplaced};
use crate::fixtures::agents::player;
use crate::fixtures::listener::Backend;
use maitred_testkit::wait::eventually;

/// Answers of a handler that refuse, each with the reason that is told.
async fn refusal<F, A>(answer: F, time: Duration) -> Why
where
    F: Fn(ServerView) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Decision, String>> + Send + 'static,
{
    let lobby = Backend::start().await;
    let registry = Registry::new();
    registry.set_static([(name("lobby"), lobby.text())]);
    let refused = unplaced(&registry, &LoginRoute::new(LoginSource::handler(Plugin(answer))), time).await;
    assert!(refused.attempts.is_empty(), "{refused}");
    assert_eq!(lobby.connections(), 0, "the registered lobby is no fall-back");
    refused.why
}

// PLC-1: each of them would put a player where the application's own rules forbid it, if the list were a fall-back.
#[tokio::test]
async fn plc_1_table_row_2_a_handler_that_refuses_fails_or_says_nothing_refuses_the_login() {
    let rejected = refusal(async |_| Ok(Decision::reject("The isle is closed.")), PATIENT).await;
    assert_eq!(rejected, Why::Rejected { reason: "The isle is closed.".to_owned() });
    let long = refusal(async |_| Ok(Decision::reject("ä".repeat(5_000))), PATIENT).await;
    assert_eq!(long, Why::Rejected { reason: "ä".repeat(512) });
    let failed = refusal(async |_| Err("the database is away".to_owned()), PATIENT).await;
    assert_eq!(failed, Why::HandlerFailed { error: "the database is away".to_owned() });
    let panicked = refusal(async |_| panic!("index out of bounds"), PATIENT).await;
    assert_eq!(panicked, Why::HandlerPanicked { panic: "index out of bounds".to_owned() });
    let nothing = refusal(async |_| Ok(Decision::select_many(Vec::<String>::new())), PATIENT).await;
    assert_eq!(nothing, Why::EmptyAnswer);
    // What another language would call null is an empty name here.
    assert!(matches!(refusal(async |_| Ok(Decision::select("")), PATIENT).await, Why::BadAnswer { .. }));
    let twice = refusal(async |_| Ok(Decision::select_many(["lobby", "lobby"])), PATIENT).await;
    assert_eq!(twice, Why::BadAnswer { problem: "\"lobby\" stands in the list twice".to_owned() });
    let many = refusal(async |_| Ok(Decision::select_many((0..17).map(|n| format!("s{n}")))), PATIENT).await;
    assert!(matches!(many, Why::BadAnswer { .. }));
    assert_eq!(refusal(|_| std::future::pending(), Duration::from_millis(100)).await, Why::HandlerTimeout);
}

// PLC-1: a panic before the first await is one, too.
#[tokio::test]
async fn plc_1_table_row_2_a_handler_that_panics_at_once_refuses_the_login() {
    let early = |_: ServerView| -> std::future::Ready<Result<Decision, String>> { panic!("at once") };
    assert_eq!(refusal(early, PATIENT).await, Why::HandlerPanicked { panic: "at once".to_owned() });
}

// PLC-3: an answer that blocks its thread past the deadline does not keep the login.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plc_3_table_row_2_a_handler_that_blocks_does_not_keep_the_login_past_its_deadline() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let begin = Instant::now();
    let blocking = move |_: ServerView| {
        let _ = blocked.lock().expect("not poisoned").recv_timeout(PATIENT);
        std::future::ready(Ok(Decision::select("lobby")))
    };
    assert_eq!(refusal(blocking, Duration::from_millis(200)).await, Why::HandlerTimeout);
    assert!(begin.elapsed() < PATIENT, "it waited for the handler");
    drop(release);
}

#[tokio::test]
async fn plc_1_the_handler_s_order_counts_and_missing_names_are_passed_over() {
    let (a, b) = (Backend::start().await, Backend::start().await);
    let registry = Registry::new();
    registry.set_static([(name("a"), a.text()), (name("b"), b.text())]);
    let route = LoginRoute::new(LoginSource::handler(Plugin(async |view: ServerView| {
        assert_eq!(view.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        Ok(Decision::select_many(["not there", "b", "a"]))
    })));
    let placed = placed(&registry, &route).await;
    assert_eq!(placed.registration.name.as_str(), "b");
    assert_eq!(ends(&placed.passed)[0].0, "not there");
    assert_eq!(a.connections(), 0);
}

// PLC-1, PLC-4: a handler that has an instance started, and names it once it registered itself.
#[tokio::test]
async fn plc_4_a_handler_waits_for_a_registration_and_is_placed_by_it() {
    let lobby = Backend::start().await;
    let instance = Backend::start().await;
    let registry = Registry::new();
    registry.set_static([(name("lobby"), lobby.text())]);
    let (called, called_with) = oneshot::channel();
    let called = std::sync::Mutex::new(Some(called));
    let known = registry.clone();
    let handler = Plugin(move |view: ServerView| {
        let known = known.clone();
        if let Some(called) = called.lock().expect("not poisoned").take() {
            called.send(view).expect("the test listens");
        }
        async move {
            let registration = known.appears(&name("isle-7")).await;
            Ok(Decision::select(registration.name.as_str()))
        }
    });
    let route = LoginRoute::new(LoginSource::handler(handler));
    let waiting = {
        let (registry, route) = (registry.clone(), route.clone());
        tokio::spawn(async move { placed(&registry, &route).await })
    };
    let view = called_with.await.expect("the handler is asked");
    assert!(view.get("isle-7").is_none() && view.get("lobby").is_some());
    assert!(!waiting.is_finished());
    let handle = registry.register(name("isle-7"), instance.text());
    let placed = waiting.await.expect("no panic");
    assert_eq!(&placed.registration, handle.registration(), "by the registration made meanwhile");
    assert_eq!(placed.registration.origin, Origin::Registered);
    assert!(view.get("isle-7").is_none(), "the snapshot of the call never changes");
    assert_eq!(lobby.connections(), 0);
}

struct Flag(CancellationToken);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

// PLC-7: an answer that comes too late opens no connection; the handler itself is ended.
#[tokio::test]
async fn plc_7_table_row_2_a_late_answer_is_dropped() {
    let lobby = Backend::start().await;
    let registry = Registry::new();
    registry.set_static([(name("lobby"), lobby.text())]);
    let (ended, gate) = (CancellationToken::new(), CancellationToken::new());
    let (flag, opened) = (ended.clone(), gate.clone());
    let route = LoginRoute::new(LoginSource::handler(Plugin(move |_| {
        let (flag, opened) = (Flag(flag.clone()), opened.clone());
        async move {
            opened.cancelled().await;
            drop(flag);
            Ok(Decision::select("lobby"))
        }
    })));
    let refused = unplaced(&registry, &route, Duration::from_millis(100)).await;
    assert_eq!(refused.why, Why::HandlerTimeout);
    eventually("the handler is ended", PATIENT, async || ended.is_cancelled()).await;
    gate.cancel();
    // Another login passes; the late one would have come before it.
    let deadline = Instant::now() + PATIENT;
    let gone = CancellationToken::new();
    let direct = LoginRoute::new(super::list(&["lobby"]));
    drop(maitred::place::place(&player("bob"), &registry, &direct, deadline, &gone).await.expect("placed"));
    assert_eq!(lobby.closed(1).await, b"");
}
