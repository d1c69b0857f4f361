//! If these fail, tests talk to a server that is not the one they started, or leave servers behind.

use std::ffi::OsStr;
use std::time::Duration;

use redis::AsyncCommands;

use maitred_testkit::store::{TestStore, command_stats, find_server, listens, listens_unix};
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_store_answers_on_its_own_port_and_goes_with_its_handle() {
    let one = TestStore::start();
    let two = TestStore::start();
    assert_ne!(one.port(), two.port());
    let () = one.conn().await.set("whose", "one").await.unwrap();
    let other: Option<String> = two.conn().await.get("whose").await.unwrap();
    assert_eq!(other, None);
    let (port, dir) = (one.port(), one.data_dir());
    drop(one);
    assert!(!listens(port), "the server outlived its handle");
    assert!(!dir.exists(), "the directory outlived its handle");
    assert!(listens(two.port()));
}

#[tokio::test]
async fn a_store_on_a_unix_socket_has_no_port() {
    let store = TestStore::start_unix();
    let socket = store.url().strip_prefix("unix://").unwrap().to_owned();
    let mut conn = store.conn().await;
    let () = conn.set("k", 1).await.unwrap();
    let port: Vec<String> = redis::cmd("CONFIG").arg("GET").arg("port").query_async(&mut conn).await.unwrap();
    assert_eq!(port, ["port", "0"]);
    assert!(listens_unix(socket.as_ref()));
    drop(store);
    assert!(!listens_unix(socket.as_ref()));
}

#[tokio::test]
async fn arguments_reach_the_server() {
    let store = TestStore::with_args(&["--maxmemory", "3145728", "--appendonly", "yes"]);
    let mut conn = store.conn().await;
    let got: Vec<String> = redis::cmd("CONFIG").arg("GET").arg("maxmemory").query_async(&mut conn).await.unwrap();
    assert_eq!(got, ["maxmemory", "3145728"]);
    let got: Vec<String> = redis::cmd("CONFIG").arg("GET").arg("appendonly").query_async(&mut conn).await.unwrap();
    assert_eq!(got, ["appendonly", "yes"]);
}

#[tokio::test]
async fn a_store_comes_back_on_its_port_with_or_without_its_data() {
    let mut store = TestStore::start();
    let (port, first_pid) = (store.port(), store.pid());
    let () = store.conn().await.set("k", "kept").await.unwrap();

    store.restart_with_data();
    assert_eq!(store.port(), port);
    assert_ne!(store.pid(), first_pid);
    let kept: Option<String> = store.conn().await.get("k").await.unwrap();
    assert_eq!(kept.as_deref(), Some("kept"));

    store.restart_empty();
    assert_eq!(store.port(), port);
    let gone: Option<String> = store.conn().await.get("k").await.unwrap();
    assert_eq!(gone, None);

    store.stop();
    assert!(!listens(port));
    store.kill();
    store.restart_with_data();
    assert!(listens(port));
}

#[tokio::test]
async fn a_killed_store_with_an_append_only_file_keeps_what_it_answered() {
    let mut store = TestStore::with_args(&["--appendonly", "yes", "--appendfsync", "always"]);
    let () = store.conn().await.set("k", "kept").await.unwrap();
    store.kill();
    assert!(!listens(store.port()));
    store.restart_with_data();
    let kept: Option<String> = store.conn().await.get("k").await.unwrap();
    assert_eq!(kept.as_deref(), Some("kept"));
}

#[tokio::test]
async fn a_frozen_store_answers_nothing_until_it_goes_on() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    store.sigstop();
    let ping = redis::cmd("PING");
    let asked = tokio::time::timeout(Duration::from_millis(200), ping.query_async::<String>(&mut conn)).await;
    assert!(asked.is_err(), "a frozen store answered {asked:?}");
    store.sigcont();
    let answer: String = ping.query_async(&mut conn).await.unwrap();
    assert_eq!(answer, "PONG");
}

#[tokio::test]
async fn command_stats_count_calls_and_flushall_empties() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    let before = command_stats(&mut conn).await.get("set").copied().unwrap_or_default();
    for n in 0..7 {
        let () = conn.set(format!("k{n}"), n).await.unwrap();
    }
    let after = command_stats(&mut conn).await["set"];
    assert_eq!(after.calls - before.calls, 7);
    store.flushall().await;
    let left: u64 = redis::cmd("DBSIZE").query_async(&mut conn).await.unwrap();
    assert_eq!(left, 0);
}

#[test]
fn without_a_server_the_test_fails_and_says_what_to_run() {
    let empty = tempfile::tempdir().unwrap();
    for (named, path) in [
        (None, None),
        (None, Some(empty.path().as_os_str())),
        (Some(OsStr::new("/nowhere/redis-server")), std::env::var_os("PATH").as_deref()),
    ] {
        let why = find_server(named, path).unwrap_err();
        assert!(why.contains("make test") && why.contains("MAITRED_TEST_SERVER"), "{why}");
    }
    let server = empty.path().join("valkey-server");
    std::fs::write(&server, "").unwrap();
    assert_eq!(find_server(None, Some(empty.path().as_os_str())), Ok(server.clone()));
    assert_eq!(find_server(Some(OsStr::new("")), Some(empty.path().as_os_str())), Ok(server.clone()));
    assert_eq!(find_server(Some(server.as_os_str()), None), Ok(server));
}

#[tokio::test]
async fn eventually_hands_back_what_the_probe_found() {
    let mut looks = 0;
    let found = eventually("the third look", LIMIT, async || {
        looks += 1;
        (looks == 3).then_some("there")
    })
    .await;
    assert_eq!((found, looks), ("there", 3));
    eventually("a plain condition", LIMIT, async || true).await;
}

#[tokio::test]
#[should_panic(expected = "the moon is blue")]
async fn eventually_gives_up_with_its_message() {
    eventually("the moon is blue", Duration::from_millis(20), async || false).await;
}

#[tokio::test]
#[should_panic(expected = "a probe that hangs")]
async fn eventually_gives_up_on_a_probe_that_hangs() {
    eventually("a probe that hangs", Duration::from_millis(20), async || std::future::pending::<bool>().await).await;
}
