//! A config that changes while the process goes on.

use std::sync::Arc;
use std::time::Duration;

use maitred::agent::{Managed, Reason, Redeemed, Reloaded, Request};
use maitred::store::scripts;

use super::{Host, ManagedState, enabled, is_enabled, now, problems, state, text};
use crate::fixtures::agents::{
    LIMIT, key, pending, player, refused, sees, state as token_state, stock::Stock, transfer,
};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

// POL-3: what can change at once does, without the node leaving; a file with problems changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_hot_sections_are_swapped_in_and_a_bad_file_leaves_all_as_it_was() {
    let store = TestStore::start();
    let host = Host::new(&text("p1", &store.url(), ""));
    let proxy = host.proxy();
    enabled(&proxy).await;
    let agent = proxy.agent().expect("it runs");
    let epoch = agent.agent().lease().epoch();
    assert_eq!(proxy.reload().await.expect("good"), Reloaded::Unchanged);

    host.write(&text("p1", &store.url(), "texts: { noCandidate: \"nobody home\" }\ntriggers: { command: false }\n"));
    let done = proxy.reload().await.expect("good");
    assert_eq!(done, Reloaded::Swapped { changed: vec!["triggers", "texts"] });
    assert_eq!(refused(&agent, Request::new(player("alice"))).await.reason, Reason::SourceOff);

    host.write(&text("p1", &store.url(), "dispatch: { maxRetries: 99 }\ntexts: { noCandidate: \"worse\" }\n"));
    assert!(problems(proxy.reload().await).contains("dispatch.maxRetries: 99 is out of range (line 7"));
    host.write(&text("p1", &store.url(), "texts: { noCandidate: \"nobody home\" }\n"));
    host.secret(None);
    proxy.reload().await.expect_err("no secret");
    assert_eq!(refused(&agent, Request::new(player("alice"))).await.reason, Reason::SourceOff, "as it was");
    host.secret(Some(super::SECRET));
    proxy.reload().await.expect("good");
    assert_eq!(refused(&agent, Request::new(player("alice"))).await.message, "nobody home");
    assert!(Arc::ptr_eq(&agent, &proxy.agent().expect("it runs")), "it never left");
    assert_eq!(agent.agent().lease().epoch(), epoch);
}

// POL-3, R-11: another id, another beat, another secret: the node leaves and joins anew, and no place is lost on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_11_a_change_of_identity_starts_a_new_agent_over_the_same_places() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    let wire = FaultProxy::start(&store);
    let stock = Arc::new(Stock::new(3, 3));
    let times = "tokens: { ttlMs: 8000, reapIntervalMs: 300 }\n\
                 store: { commandTimeoutMs: 300, operationTimeoutMs: 600, connectTimeoutMs: 300, url: \"URL\" }\n";
    let of = |id: &str| {
        let file = text(id, "URL", "");
        file.replace("store: { url: \"URL\" }\n", times).replace("URL", &wire.url())
    };
    let host = Host::new(&of("b1"));
    let backend = host.backend(&stock);
    let entrance_host = Host::new(&text("p1", &store.url(), ""));
    let entrance = entrance_host.proxy();
    enabled(&backend).await;
    enabled(&entrance).await;
    let (b1, p1) = (backend.agent().expect("it runs"), entrance.agent().expect("it runs"));
    sees(&p1, &[&b1]).await;
    // One is held, and the outcome of another's join is not known: the store did it, and every answer was lost.
    pending(&p1, "b1", "held").await;
    transfer(&p1, "unheard").await;
    wire.drop_replies_of(&format!("EVALSHA {}", scripts::TOKEN_CONSUME.pinned()), 1_000, Action::Cut);
    b1.redeem(&player("unheard")).await.expect_err("no answer");
    assert_eq!((token_state(&mut conn, "unheard").await.as_str(), stock.out()), ("CONSUMED", 2));

    host.write(&of("b2"));
    assert_eq!(backend.reload().await.expect("good"), Reloaded::Restarted { changed: vec!["node"] });
    enabled(&backend).await;
    let b2 = backend.agent().expect("it runs");
    assert_eq!((b2.agent().lease().id().as_str(), token_state(&mut conn, "held").await.as_str()), ("b2", "RELEASED"));
    let gone: bool = redis::cmd("EXISTS").arg(key("node:b1")).query_async(&mut conn).await.expect("EXISTS");
    assert!(!gone, "b1 left");
    assert_eq!(stock.out(), 1, "what is not known does not go back yet");
    // Nothing is promised twice meanwhile, and the old place comes home when its outcome is known and its time over.
    sees(&p1, &[&b2]).await;
    transfer(&p1, "carol").await;
    match b2.redeem(&player("carol")).await {
        // Every answer to a consume is still lost.
        Err(_) => {}
        other => panic!("{other:?}"),
    }
    wire.pass();
    let landed = eventually("the place is handed over", LIMIT, async || match b2.redeem(&player("carol")).await {
        Ok(Redeemed::Landed { place, .. }) => Some(place),
        _ => None,
    })
    .await;
    stock.hand_over(landed);
    stock.all_home_within(Duration::from_secs(40)).await;
    assert_eq!(stock.used(), 1);
}

// POL-2, POL-3: switched off there is nothing of it, and back on it is there again.
#[test]
fn pol_3_switched_off_everything_stops_and_switched_on_it_starts() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = TestStore::start();
        let mut conn = store.conn().await;
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let on = text("b1", &store.url(), "");
        let host = Host::new(&on.replace("enabled: true", "enabled: false"));
        let stock = Arc::new(Stock::new(1, 1));
        let backend = host.backend(&stock);
        state(&backend, "it is off", |state| *state == ManagedState::Off).await;
        eventually("no task is left", LIMIT, async || tasks() == before).await;
        host.write(&on);
        assert_eq!(backend.reload().await.expect("good"), Reloaded::Started);
        enabled(&backend).await;
        host.write(&on.replace("enabled: true", "enabled: false"));
        assert_eq!(backend.reload().await.expect("good"), Reloaded::SwitchedOff);
        assert_eq!((now(&backend), backend.agent().is_none()), (ManagedState::Off, true));
        let keys: Vec<String> = redis::cmd("KEYS").arg("*node*").query_async(&mut conn).await.expect("KEYS");
        assert!(keys.is_empty(), "{keys:?}");
        eventually("no task is left", LIMIT, async || tasks() == before).await;
        host.write(&on);
        assert_eq!(backend.reload().await.expect("good"), Reloaded::Started);
        enabled(&backend).await;
        backend.stop().await;
        stock.check();
    });
}

// POL-3: a file on a mount that hangs blocks whoever reads it. The agent goes on, a reload is refused, and a stop ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_a_source_that_blocks_holds_up_neither_a_reload_nor_a_stop() {
    let store = TestStore::start();
    let host = Host::new(&text("p1", &store.url(), ""));
    let proxy = host.proxy();
    enabled(&proxy).await;
    let calm = std::fs::read_to_string(host.file()).expect("a file");
    let pipe = host.file().with_extension("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    std::fs::rename(&pipe, host.file()).expect("a pipe in its place");
    assert!(problems(proxy.reload().await).contains("gave nothing within 5 s"));
    assert!(problems(proxy.reload().await).contains("still being read"), "a second read would block too");
    assert!(is_enabled(&now(&proxy)), "it goes on");
    // Whoever reads is let go, and from then on files are read again.
    std::fs::write(host.file(), &calm).expect("a writer");
    eventually("it is read again", LIMIT, async || {
        let _ = std::fs::remove_file(host.file());
        host.write(&calm);
        proxy.reload().await.is_ok()
    })
    .await;

    std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    std::fs::rename(&pipe, host.file()).expect("a pipe in its place");
    let file = host.file();
    let reload = async { proxy.reload().await.expect_err("it stops") };
    let stop = async {
        // Opens once somebody reads, who then waits for as long as it stays open.
        let open = move || std::fs::OpenOptions::new().write(true).open(file);
        let writer = tokio::task::spawn_blocking(open).await.expect("no panic").expect("a reader");
        tokio::time::timeout(LIMIT, proxy.stop()).await.expect("it ends");
        drop(writer);
    };
    let (error, ()) = tokio::join!(reload, stop);
    assert!(matches!(error, maitred::Error::ShuttingDown), "{error:?}");
    assert_eq!(now(&proxy), ManagedState::Stopped);
}

// POL-3: a router is no member; it is kept, retried and reloaded all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_a_router_is_kept_too() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    wire.refuse(true);
    let host = Host::new(&text("r1", &wire.url(), ""));
    let router = Managed::start(host.source(), maitred::agent::Setup::router);
    super::disabled(&router, "did not answer").await;
    wire.refuse(false);
    enabled(&router).await;
    host.write(&text("r1", &wire.url(), "texts: { refused: \"nothing for you\" }\n"));
    assert_eq!(router.reload().await.expect("good"), Reloaded::Swapped { changed: vec!["texts"] });
    match router.agent().expect("it runs").take(&player("alice")).await {
        maitred::agent::Outcome::Refused(refusal) => assert_eq!(refusal.message, "nothing for you"),
        other => panic!("{other:?}"),
    }
}

// CLI-3, R-2: a deploy that reloads twice, or stops a node while it starts, would leave a live node that nobody runs, and
// the next one would be a duplicate of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_2_a_node_that_is_stopped_while_it_joins_is_gone() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    let wire = FaultProxy::start(&store);
    let of = |beat_ms: u64| text("p1", &wire.url(), "").replace("intervalMs: 500", &format!("intervalMs: {beat_ms}"));
    let host = Host::new(&of(500));
    let proxy = host.proxy();
    enabled(&proxy).await;
    wire.delay(Duration::from_millis(60));
    let mut there = async || {
        let there: bool = redis::cmd("EXISTS").arg(key("node:p1")).query_async(&mut conn).await.expect("EXISTS");
        there
    };
    for round in 0..3 {
        // The second finds the agent of the first in its join: the store has it, and nobody told the agent.
        host.write(&of(501 + round * 2));
        proxy.reload().await.expect("good");
        eventually("the join stands", LIMIT, &mut there).await;
        host.write(&of(502 + round * 2));
        proxy.reload().await.expect("good");
        let agent = eventually("an agent", LIMIT, async || proxy.agent()).await;
        agent.agent().joined().await.expect("no duplicate of itself");
    }
    host.write(&of(600));
    proxy.reload().await.expect("good");
    eventually("the join stands", LIMIT, &mut there).await;
    proxy.stop().await;
    assert!(!there().await, "it is still there");
    let listed: u64 = redis::cmd("ZCARD").arg(key("nodes:proxy")).query_async(&mut conn).await.expect("ZCARD");
    assert_eq!(listed, 0);
}
