//! What cannot work, yet or at all, and how it goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use maitred::agent::{ConfigSource, Managed, ManagedState, Reason, Reloaded, Request};
use maitred::node::{Control, KILL, LoadSample};
use maitred::store::scripts;

use super::relay::Relay;
use super::{Host, disabled, enabled, is_enabled, now, problems, state, text};
use crate::fixtures::agents::{LIMIT, key, keyring, operator, player, refused, stock::Stock};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

// POL-3: a bad config is looked at again by itself, so that whoever mends the file need not find the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_a_bad_file_is_disabled_with_its_line_and_taken_once_it_is_mended() {
    let store = TestStore::start();
    let host = Host::new("enabled: true\nheartbeat: { intervalMs: 1 }\n");
    let proxy = host.proxy();
    disabled(&proxy, "heartbeat.intervalMs: 1 is out of range (line 2").await;
    assert!(proxy.agent().is_none());
    assert!(problems(proxy.reload().await).contains("heartbeat.intervalMs"), "a reload says so too");
    std::fs::remove_file(host.file()).expect("a file");
    assert!(problems(proxy.reload().await).contains("cannot be read"));
    disabled(&proxy, "cannot be read").await;
    host.write(&text("p1", "redis://cook:hunter2@127.0.0.1:99999", ""));
    proxy.reload().await.expect_err("no such port");
    disabled(&proxy, "store URL").await;
    assert!(!format!("{:?} {proxy:?}", now(&proxy)).contains("hunter2"));

    host.write(&text("p1", &store.url(), ""));
    enabled(&proxy).await;
    proxy.stop().await;
    assert_eq!(now(&proxy), ManagedState::Stopped);
    proxy.reload().await.expect_err("it was stopped");
}

// POL-3: a file that is being written is empty for a moment; whoever reloads then must not take a server out of the fleet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_a_file_that_is_cut_short_switches_nothing_off() {
    let store = TestStore::start();
    let good = text("p1", &store.url(), "");
    let host = Host::new("");
    let source = ConfigSource::file(host.file()).with_keys(|_| Ok(keyring()));
    // At the first start an empty file is what a host without a config has.
    let proxy = Managed::start(source, |setup| setup.proxy(LoadSample::default));
    state(&proxy, "it is off", |state| *state == ManagedState::Off).await;
    host.write("enabled: true\nstoer: 1\n");
    assert!(problems(proxy.reload().await).contains("unknown key"));
    host.write("");
    assert!(problems(proxy.reload().await).contains("the file is empty"));
    host.write(&good);
    // The look that every 3 s brings may have been first.
    proxy.reload().await.expect("good");
    enabled(&proxy).await;
    for (cut, words) in [("", "the file is empty"), ("zone: eu\n", "enabled: is not given")] {
        host.write(cut);
        assert!(problems(proxy.reload().await).contains(words));
        assert!(is_enabled(&now(&proxy)), "it goes on");
    }
    host.write("enabled: false\n");
    assert_eq!(proxy.reload().await.expect("good"), Reloaded::SwitchedOff);
    host.write("");
    assert_eq!(proxy.reload().await.expect("good"), Reloaded::Unchanged, "off it is");
}

// POL-3: without a secret, an id or a store nothing is tried, and a reload after somebody gave it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_a_missing_secret_id_or_store_is_refused_until_a_reload() {
    let store = TestStore::start();
    let good = text("p1", &store.url(), "");
    let host = Host::new(&good);
    host.secret(None);
    let proxy = host.proxy();
    let says = async |words: &str| {
        let fits = |state: &ManagedState| matches!(state, ManagedState::Refused { why, for_good: false } if why.contains(words));
        state(&proxy, words, fits).await;
    };
    says("MAITRED_TEST_NEVER_SET").await;
    host.secret(Some("c2hvcnQ="));
    proxy.reload().await.expect_err("too short");
    says("TEST_SECRET").await;
    host.secret(Some(super::SECRET));
    for (line, words) in [("node: { id: \"\" }", "node.id"), ("node: { id: p1 }\nstore: { url: \"\" }", "store.url")] {
        host.write(&format!("enabled: true\nzone: eu\n{line}\n"));
        proxy.reload().await.expect_err(words);
        says(words).await;
    }
    host.write(&good);
    // Longer than a bad config waits.
    tokio::time::sleep(std::time::Duration::from_millis(3_300)).await;
    says("store.url").await;
    assert_eq!(proxy.reload().await.expect("mended"), Reloaded::Started);
    enabled(&proxy).await;
}

// POL-3: a store that is away at the start, or refuses a script or the subscription, is no reason to give up, and a node
// that could not be heard is not on the roster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_a_store_that_cannot_be_used_is_tried_again() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    let mut acl = async |rights: &[&str]| {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("op").arg("on").arg(">pw").arg("+@all").arg("~*").arg("&*").arg(rights);
        let () = command.query_async(&mut conn).await.expect("ACL SETUSER");
    };
    let wire = FaultProxy::start(&store);
    wire.refuse(true);
    acl(&["-script|load", "-subscribe"]).await;
    let url = wire.url().replace("redis://", "redis://op:pw@");
    let host = Host::new(&text("b1", &url, ""));
    let stock = Arc::new(Stock::new(3, 3));
    let backend = host.backend(&stock);
    disabled(&backend, "did not answer").await;
    wire.refuse(false);
    disabled(&backend, "script|load").await;
    acl(&["-subscribe"]).await;
    disabled(&backend, "subscrib").await;
    let mut look = store.conn().await;
    let there: bool = redis::cmd("EXISTS").arg(key("node:b1")).query_async(&mut look).await.expect("EXISTS");
    assert!(!there, "a deaf node is on the roster");
    acl(&[]).await;
    enabled(&backend).await;
    wire.refuse(true);
    wire.cut_all();
    disabled(&backend, "the lease ran out").await;
    assert!(backend.agent().is_some(), "the agent is there and goes on");
    wire.refuse(false);
    enabled(&backend).await;
}

// STO-5, POL-3: a script that is not the one of this build is a defect, and no reload makes it another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_a_script_that_does_not_match_its_pin_is_refused_for_good() {
    let store = TestStore::start();
    let relay = Relay::start(store.port(), scripts::TOKEN_ISSUE.pinned(), "0123456789012345678901234567890123456789");
    let relay = relay.await;
    let host = Host::new(&text("p1", &relay.url(), ""));
    let proxy = host.proxy();
    let router = Managed::start(host.source(), maitred::agent::Setup::router);
    let fits = |state: &ManagedState| matches!(state, ManagedState::Refused { why, for_good: true } if why.contains("token/issue"));
    state(&proxy, "it is refused", fits).await;
    state(&router, "it is refused", fits).await;
    host.write(&text("p1", &store.url(), ""));
    proxy.reload().await.expect_err("for good");
    router.reload().await.expect_err("for good");
    assert!(fits(&now(&proxy)) && proxy.agent().is_none());
}

// POL-3: nothing of the application's own brings it down by way of this library, and no runtime is no panic.
#[test]
fn pol_3_no_panic_crosses_the_face_of_the_library() {
    let store = TestStore::start();
    let host = Host::new(&text("p1", &store.url(), ""));
    host.panics.store(true, Ordering::SeqCst);
    let proxy = host.proxy();
    assert!(matches!(now(&proxy), ManagedState::Refused { why, for_good: false } if why.contains("runtime")));

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        assert!(problems(proxy.reload().await).contains("panicked"));
        disabled(&proxy, "panicked").await;
        host.panics.store(false, Ordering::SeqCst);
        proxy.reload().await.expect("a good config");
        enabled(&proxy).await;
        host.panics.store(true, Ordering::SeqCst);
        assert!(problems(proxy.reload().await).contains("panicked"));
        assert!(proxy.agent().is_some(), "what runs goes on");

        // A load source that panics at each beat, and a wiring that does.
        let host = Host::new(&text("p2", &store.url(), ""));
        let loads = Managed::start(host.source(), |setup| setup.proxy(|| -> LoadSample { panic!("the load's own") }));
        enabled(&loads).await;
        let agent = loads.agent().expect("it runs");
        let seq = async || {
            let row = agent.agent().directory().resolve(agent.agent().lease().id()).await;
            row.ok().map(|record| record.seq).filter(|seq| *seq > 2)
        };
        eventually("it beats", LIMIT, seq).await;
        let wiring = Managed::<maitred::agent::ProxyAgent>::start(host.source(), |_| panic!("the wiring's own"));
        disabled(&wiring, "panicked").await;
    });
}

// POL-3, POL-4: the switch stops requests and no process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pol_3_a_kill_switch_is_answered_and_the_agent_stays() {
    let store = TestStore::start();
    let host = Host::new(&text("p1", &store.url(), ""));
    let proxy = host.proxy();
    enabled(&proxy).await;
    let (tool, verifier) = operator(&store).await;
    Control::default().put(&tool, &verifier, KILL, "on", "test").await.expect("an entry");
    let agent = proxy.agent().expect("it runs");
    eventually("it heard", LIMIT, async || agent.agent().control().is_on(KILL)).await;
    assert_eq!(refused(&agent, Request::new(player("alice"))).await.reason, Reason::KillSwitch);
    enabled(&proxy).await;
}
