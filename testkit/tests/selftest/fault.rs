//! The fault proxy in front of a real store. If these fail, "survives a lost reply" was never tried.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, Cmd, RedisResult, cmd, pipe};

use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

async fn connect(url: &str, response: Duration) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(response));
    Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// A script that counts its runs, so that a test sees whether a command ran whose reply was lost.
async fn load_counter(store: &TestStore) -> String {
    let source = "return redis.call('INCR', KEYS[1])";
    cmd("SCRIPT").arg("LOAD").arg(source).query_async(&mut store.conn().await).await.unwrap()
}

fn counter(sha: &str) -> Cmd {
    cmd("EVALSHA").arg(sha).arg(1).arg("runs").to_owned()
}

async fn runs(store: &TestStore) -> u64 {
    store.conn().await.get::<_, Option<u64>>("runs").await.unwrap().unwrap_or(0)
}

#[tokio::test]
async fn counts_commands_one_by_one_in_a_pipeline() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let sha = load_counter(&store).await;
    let mut conn = connect(&proxy.url(), LIMIT).await;
    proxy.reset_counts();

    // Values past one read of the proxy, so that frames arrive in parts.
    let big = "x".repeat(300_000);
    let mut batch = pipe();
    for n in 0..50 {
        batch.set(format!("k{n}"), n).ignore();
    }
    batch.set("big", &big).ignore();
    batch.add_command(counter(&sha)).ignore().add_command(counter(&sha)).ignore();
    batch.cmd("PUBLISH").arg("inbox:a").arg("x").ignore();
    batch.get("big");
    let (back,): (String,) = batch.query_async(&mut conn).await.unwrap();
    assert_eq!(back.len(), big.len());

    let counts = proxy.counts();
    assert_eq!(counts["SET"], 51);
    assert_eq!(counts["EVALSHA"], 2);
    assert_eq!(counts[&format!("EVALSHA {sha}")], 2);
    assert_eq!(counts["PUBLISH"], 1);
    assert_eq!(counts["PUBLISH inbox:a"], 1);
    assert_eq!(counts["GET"], 1);
    assert_eq!(proxy.count("HGETALL"), 0);
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn a_dropped_reply_belongs_to_a_command_that_ran_and_the_connection_is_cut() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let sha = load_counter(&store).await;
    let mut conn = connect(&proxy.url(), LIMIT).await;

    proxy.drop_next_reply_of("EVALSHA", Action::Cut);
    let before: String = cmd("PING").query_async(&mut conn).await.unwrap();
    assert_eq!(before, "PONG", "another command is left alone");
    let lost: RedisResult<u64> = counter(&sha).query_async(&mut conn).await;
    let error = lost.unwrap_err();
    assert!(error.is_connection_dropped() || error.is_io_error(), "{error:?}");
    assert_eq!((proxy.dropped(), runs(&store).await), (1, 1), "the script ran, once");

    let mut again = connect(&proxy.url(), LIMIT).await;
    let second: u64 = counter(&sha).query_async(&mut again).await.unwrap();
    assert_eq!(second, 2, "the order was for one reply");
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test]
async fn replies_before_the_dropped_one_arrive_even_out_of_one_packet() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let sha = load_counter(&store).await;
    let conn = connect(&proxy.url(), LIMIT).await;
    proxy.drop_next_reply_of(&format!("EVALSHA {sha}"), Action::Cut);
    let (ping, script, ping_after) = tokio::join!(
        async { cmd("ECHO").arg("first").query_async::<String>(&mut conn.clone()).await },
        async { counter(&sha).query_async::<u64>(&mut conn.clone()).await },
        async { cmd("ECHO").arg("last").query_async::<String>(&mut conn.clone()).await },
    );
    assert_eq!(ping.unwrap(), "first");
    assert!(script.is_err() && ping_after.is_err());
    assert_eq!(runs(&store).await, 1);
}

#[tokio::test]
async fn a_silent_drop_leaves_the_connection_open_and_dumb() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let sha = load_counter(&store).await;
    let mut conn = connect(&proxy.url(), SHORT).await;
    proxy.drop_next_reply_of("EVALSHA", Action::Silent);
    let lost: RedisResult<u64> = counter(&sha).query_async(&mut conn).await;
    assert!(lost.unwrap_err().is_timeout());
    let behind: RedisResult<u64> = counter(&sha).query_async(&mut conn).await;
    assert!(behind.unwrap_err().is_timeout(), "a later reply must not pass for the lost one");
    assert_eq!((proxy.dropped(), proxy.open_connections()), (1, 1));
    eventually("both scripts ran", LIMIT, async || runs(&store).await == 2).await;

    let mut other = connect(&proxy.url(), LIMIT).await;
    let third: u64 = counter(&sha).query_async(&mut other).await.unwrap();
    assert_eq!(third, 3, "other connections are not touched");
}

#[tokio::test]
async fn the_next_replies_are_swallowed_and_then_the_connection_is_cut() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let mut conn = connect(&proxy.url(), SHORT).await;
    proxy.drop_replies(2, Action::Cut);
    let first: RedisResult<u64> = conn.incr("n", 1).await;
    assert!(first.unwrap_err().is_timeout());
    assert_eq!(proxy.open_connections(), 1, "one more reply to swallow before the cut");
    let second: RedisResult<u64> = conn.incr("n", 1).await;
    assert!(!second.unwrap_err().is_timeout());
    assert_eq!(proxy.dropped(), 2);
    let n: u64 = store.conn().await.get("n").await.unwrap();
    assert_eq!(n, 2);
    eventually("the connection is closed", LIMIT, async || proxy.open_connections() == 0).await;
}

#[tokio::test]
async fn resp3_pushes_are_no_replies() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(sender).set_response_timeout(Some(LIMIT));
    let client = Client::open(format!("{}?protocol=resp3", proxy.url())).unwrap();
    let mut conn = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let () = conn.subscribe(&["a", "b"]).await.unwrap();
    let mut store_conn = store.conn().await;
    let () = conn.set("k", "v").await.unwrap();

    proxy.drop_next_reply_of("GET", Action::Cut);
    for n in 0..20 {
        let heard: u64 = store_conn.publish("a", n).await.unwrap();
        assert_eq!(heard, 1);
    }
    let set: String = cmd("SET").arg("k").arg("w").query_async(&mut conn).await.unwrap();
    assert_eq!(set, "OK", "20 pushes in between did not shift the replies");
    let mut messages = 0;
    while messages < 20 {
        let push = tokio::time::timeout(LIMIT, pushes.recv()).await.expect("a push is missing").unwrap();
        messages += u32::from(push.kind == redis::PushKind::Message);
    }
    let lost: RedisResult<String> = conn.get("k").await;
    assert!(lost.is_err());
    assert_eq!((proxy.count("SUBSCRIBE"), proxy.dropped()), (1, 1));
}

#[tokio::test]
async fn resp2_messages_are_no_replies() {
    use futures_util::StreamExt as _;

    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let client = Client::open(format!("{}?protocol=resp2", proxy.url())).unwrap();
    let mut subscriber = client.get_async_pubsub().await.unwrap();
    subscriber.subscribe("a").await.unwrap();
    proxy.drop_replies(1, Action::Cut);
    let _: u64 = store.conn().await.publish("a", "x").await.unwrap();
    let message = tokio::time::timeout(LIMIT, subscriber.on_message().next()).await.unwrap().unwrap();
    assert_eq!(message.get_payload::<String>().unwrap(), "x");
    assert_eq!(proxy.dropped(), 0);
    assert!(subscriber.subscribe("b").await.is_err(), "the confirmation was the next reply");
    assert_eq!(proxy.dropped(), 1);
}

#[tokio::test]
async fn cut_all_closes_every_connection_and_lets_new_ones_in() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let mut one = connect(&proxy.url(), LIMIT).await;
    let mut two = connect(&proxy.url(), LIMIT).await;
    proxy.cut_all();
    assert_eq!(proxy.open_connections(), 0);
    for conn in [&mut one, &mut two] {
        let cut: RedisResult<String> = cmd("PING").query_async(conn).await;
        assert!(!cut.unwrap_err().is_timeout());
    }
    let pong: String = cmd("PING").query_async(&mut connect(&proxy.url(), LIMIT).await).await.unwrap();
    assert_eq!((pong.as_str(), proxy.connections()), ("PONG", 3));
}

#[tokio::test]
async fn refuse_closes_new_connections_and_spares_open_ones() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let mut open = connect(&proxy.url(), LIMIT).await;
    proxy.refuse(true);
    let refused = Client::open(proxy.url()).unwrap().get_multiplexed_async_connection().await;
    assert!(refused.is_err());
    assert_eq!(proxy.connections(), 2, "attempts count");
    let pong: String = cmd("PING").query_async(&mut open).await.unwrap();
    assert_eq!(pong, "PONG");
    proxy.refuse(false);
    connect(&proxy.url(), LIMIT).await;
}

#[tokio::test]
async fn a_delay_is_latency_and_not_a_throttle() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let conn = connect(&proxy.url(), LIMIT).await;
    // 20 one after the other would take 20 s; a busy machine alone takes no half of that.
    let delay = Duration::from_secs(1);
    proxy.delay(delay);
    let begin = Instant::now();
    let pings = (0..20).map(|_| {
        let mut conn = conn.clone();
        async move { cmd("PING").query_async::<String>(&mut conn).await.unwrap() }
    });
    futures_util::future::join_all(pings).await;
    let took = begin.elapsed();
    assert!(took >= delay, "{took:?}");
    assert!(took < delay * 10, "20 replies at once took {took:?}: they waited for one another");
    // Without it, what comes after is as quick as ever.
    proxy.delay(LIMIT * 2);
    proxy.pass();
    let _: String = cmd("PING").query_async(&mut conn.clone()).await.unwrap();
}

#[tokio::test]
async fn hold_keeps_everything_back_and_resume_delivers_it() {
    let store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let mut conn = connect(&proxy.url(), LIMIT).await;
    proxy.reset_counts();
    proxy.hold();
    let mut held = tokio::spawn(async move { conn.incr::<_, _, u64>("n", 1).await });
    assert!(tokio::time::timeout(SHORT, &mut held).await.is_err(), "a held wire answered");
    assert_eq!(proxy.count("INCRBY") + proxy.count("INCR"), 0, "nothing was forwarded");
    assert_eq!(proxy.open_connections(), 1);
    proxy.resume();
    assert_eq!(held.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn the_proxy_survives_a_restart_of_its_store() {
    let mut store = TestStore::start();
    let proxy = FaultProxy::start(&store);
    let mut conn = connect(&proxy.url(), LIMIT).await;
    store.kill();
    let gone: RedisResult<String> = cmd("PING").query_async(&mut conn).await;
    assert!(gone.is_err());
    store.restart_empty();
    let pong: String = cmd("PING").query_async(&mut connect(&proxy.url(), LIMIT).await).await.unwrap();
    assert_eq!(pong, "PONG");
}
