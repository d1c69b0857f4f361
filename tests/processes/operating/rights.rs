//! The three users of the document: what they call is granted, and nothing else is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::document::granted;
use super::fleet::{Fleet, island, login};
use crate::fixtures::agents::{LIMIT, ZONE, lands, player};
use crate::fixtures::routes::inc;
use maitred::store::scripts;
use maitred_testkit::wait::eventually;

/// What the client libraries send by themselves.
const OF_CONNECTIONS: [&str; 2] = ["ping", "unwatch"];
/// What only `maitred doctor` and `maitred scripts` ask.
const OF_DOCTORS: [&str; 4] = ["info", "script|exists", "acl|whoami", "acl|dryrun"];
/// What the document says to type, beyond what the programs call.
const OF_HANDS: [&str; 9] =
    ["type", "ttl", "memory|usage", "object", "hstrlen", "sismember", "zrange", "zrank", "psubscribe"];

/// The words behind each `start` in the files of a folder.
fn words_after(folder: &str, start: &str, found: &mut BTreeSet<String>, skip: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    for entry in fs::read_dir(path).expect("a folder") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            words_after(&format!("{folder}/{name}"), start, found, skip);
        } else if !skip.contains(&name.as_str()) {
            let text = fs::read_to_string(&path).expect("a text");
            let words = text.split(start).skip(1).filter_map(|rest| rest.split(['\'', '"']).next());
            found.extend(words.filter(|word| word.bytes().all(|b| b.is_ascii_uppercase())).map(str::to_lowercase));
        }
    }
}

/// What scripts call, and what the store's floor sends.
fn called() -> BTreeSet<String> {
    let mut called = BTreeSet::new();
    words_after("lua", "redis.call('", &mut called, &[]);
    assert!(called.len() > 15, "{called:?}");
    // Measurements are of a store of their own.
    words_after("src/store", "cmd(\"", &mut called, &["measure.rs"]);
    // Their second word counts, and only bench lists keys.
    for word in ["script", "acl", "keys"] {
        assert!(called.remove(word), "{word} is not called any more");
    }
    called.extend(["script|load", "script|exists", "acl|whoami", "acl|dryrun", "subscribe"].map(str::to_owned));
    called.extend(OF_CONNECTIONS.map(str::to_owned));
    called
}

// OBS-2: a right that is missing stops a fleet in the night in which it is first needed; one too many is an open door.
#[test]
fn obs_2_the_users_of_the_document_are_granted_what_the_code_calls_and_nothing_else() {
    let called = called();
    let agent: BTreeSet<String> = called.iter().filter(|word| !OF_DOCTORS.contains(&word.as_str())).cloned().collect();
    assert_eq!(granted("maitred-agent"), agent);
    let operator: BTreeSet<String> = called.iter().cloned().chain(OF_HANDS.map(str::to_owned)).collect();
    assert_eq!(granted("maitred-operator"), operator);
    let reader = granted("maitred-reader");
    let more: Vec<&String> = reader.difference(&operator).collect();
    assert!(more.is_empty(), "a reader may what an operator may not: {more:?}");
    let writes = [
        "publish",
        "script|load",
        "del",
        "pexpire",
        "pexpireat",
        "hdel",
        "hset",
        "sadd",
        "srem",
        "zadd",
        "zrem",
        "zremrangebyscore",
    ];
    let changing: Vec<&&str> = writes.iter().filter(|word| reader.contains(**word)).collect();
    assert!(changing.is_empty(), "{changing:?}");
}

/// What was refused to `user`, as the store remembers it.
async fn refused(fleet: &Fleet, user: &str) -> Vec<String> {
    let mut conn = fleet.server.conn().await;
    let log: Vec<BTreeMap<String, redis::Value>> =
        redis::cmd("ACL").arg("LOG").arg(128).query_async(&mut conn).await.expect("ACL LOG");
    let text = |value: &redis::Value| redis::from_redis_value::<String>(value.clone()).unwrap_or_default();
    log.iter()
        .filter(|entry| text(&entry["username"]) == user)
        .map(|entry| format!("{} {} {}", text(&entry["reason"]), text(&entry["context"]), text(&entry["object"])))
        // The client offers its name to the server, and goes on without. Before Redis 7 the log has no second word.
        .filter(|entry| !entry.ends_with(" client|setinfo") && !entry.ends_with(" client"))
        .collect()
}

async fn contents(fleet: &Fleet) -> BTreeMap<String, Vec<u8>> {
    let mut conn = fleet.server.conn().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut conn).await.expect("KEYS");
    let mut contents = BTreeMap::new();
    for key in keys {
        // Beats, and what they count, sweeps and gates go on.
        if !["node:", "nodes:", "held:", "due:", "gate:", "picks"].iter().any(|moving| key.contains(moving)) {
            let value: Option<Vec<u8>> = redis::cmd("DUMP").arg(&key).query_async(&mut conn).await.expect("DUMP");
            contents.extend(value.map(|value| (key, value)));
        }
    }
    contents
}

// OBS-2: dispatch, lines, routes, control and the doctor with exactly the rights of the document. Nothing is refused to
// anybody, which the store's own log of refusals says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn obs_2_a_fleet_and_its_operators_live_with_the_rights_of_the_document() {
    let fleet = Fleet::start().await;
    fleet.live().await;
    lands(&fleet.backend, "alice").await;
    fleet.proxy.arrived(&login(), &player("alice")).await.expect("the store answers");
    inc(&fleet.router, &island(), "test", 1).await.expect("the island counts");

    let as_operator = |args: &[&str]| fleet.cli("maitred-operator", args);
    let told = as_operator(&["doctor", "--probe", "--json"]).code(0).json();
    let checks = told["checks"].as_array().expect("checks");
    let rights = checks.iter().find(|check| check["check"] == "rights").expect("a check of rights");
    assert_eq!(rights["verdict"], "ok", "{told}");
    assert!(checks.iter().all(|check| !check["detail"].as_str().unwrap_or("").contains("SCAN")), "{told}");
    for args in [
        &["nodes"][..],
        &["tokens"],
        &["tokens", "alice"],
        &["tokens", "release", "alice"],
        &["routes"],
        &["route", "island", "i1"],
        &["queues"],
        &["queue", "login"],
        &["queue", "login", "--player", "carol"],
        &["queue", "login", "resume"],
        &["queue", "login", "clear", "--yes"],
        &["reap"],
        &["kill", "status"],
        &["drain", "--status"],
        &["config", "show"],
        &["config", "unpush"],
        &["scripts", "verify", "--loaded"],
        &["scripts", "load"],
    ] {
        let ran = as_operator(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
    }
    // While the secret changes, a node walks over the keys.
    eventually("a node walks over the keys", LIMIT, async || {
        let stats = maitred_testkit::store::command_stats(&mut fleet.server.conn().await).await;
        stats.get("scan").is_some_and(|scan| scan.calls > 0)
    })
    .await;
    fleet.keeper.flush(LIMIT, |_| {}).await;
    fleet.proxy.leave().await;
    fleet.backend.leave().await;
    for user in ["maitred-agent", "maitred-operator"] {
        let refused = refused(&fleet, user).await;
        assert!(refused.is_empty(), "refused to {user}: {refused:?}");
    }
}

// OBS-2: whoever was given a look must not be able to stop the fleet with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn obs_2_a_reader_sees_everything_and_changes_nothing() {
    let fleet = Fleet::start().await;
    fleet.live().await;
    let as_reader = |args: &[&str]| fleet.cli("maitred-reader", args);
    for args in [
        &["nodes"][..],
        &["tokens"],
        &["tokens", "alice"],
        &["routes"],
        &["route", "island", "i1"],
        &["queues"],
        &["queue", "login"],
        &["queue", "login", "--player", "carol"],
        &["kill", "status"],
        &["drain", "--status"],
        &["config", "show"],
    ] {
        let ran = as_reader(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
    }
    let looking = refused(&fleet, "maitred-reader").await;
    assert!(looking.is_empty(), "a look was refused: {looking:?}");

    let before = contents(&fleet).await;
    for args in [
        &["kill", "on"][..],
        &["drain", "backend-7"],
        &["queue", "login", "resume"],
        &["queue", "login", "clear", "--yes"],
        &["tokens", "release", "alice"],
        &["config", "unpush"],
        &["reap"],
    ] {
        let ran = as_reader(args);
        assert!(ran.code == Some(1) && ran.err.contains("NOPERM"), "{args:?}: {ran:?}");
    }
    let mut conn = fleet.conn("maitred-reader").await;
    let key = |name: &str| format!("maitred:{{{ZONE}}}:{name}");
    let (token, line, control, owned) = (key("token:alice"), key("line:login"), key("control"), key("owned"));
    let (events, inbox, pause) = (key("events:node"), key("inbox:proxy-1"), scripts::QUEUE_PAUSE.pinned());
    for words in [
        &["DEL", &token][..],
        &["UNLINK", &token],
        &["SET", &token, "x"],
        &["HSET", &token, "state", "EXPIRED"],
        &["PEXPIRE", &token, "1"],
        &["RENAME", &token, &line],
        &["ZREM", &line, "carol"],
        &["ZADD", &line, "1", "mallory"],
        &["SREM", &owned, "backend-7"],
        &["HDEL", &control, "kill"],
        &["PUBLISH", &events, "left proxy-1 1"],
        &["SUBSCRIBE", &inbox],
        &["EVAL", "return redis.call('DEL', KEYS[1])", "1", &token],
        &["SCRIPT", "LOAD", "return 1"],
        &["SCRIPT", "FLUSH"],
        // The script is loaded; what it does is not this user's to do.
        &["EVALSHA", pause, "1", &key("gate:login"), "login", "0", &key("events:line")],
        &["FLUSHALL"],
        &["CONFIG", "SET", "maxmemory", "1"],
        &["ACL", "SETUSER", "maitred-reader", "+@all"],
        &["GET", "another:key"],
        &["HGETALL", "another:key"],
    ] {
        let answer: redis::RedisResult<redis::Value> =
            redis::cmd(words[0]).arg(&words[1..]).query_async(&mut conn).await;
        assert!(answer.is_err(), "{words:?} was answered {answer:?}");
    }
    let after = contents(&fleet).await;
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed: Vec<&&String> = keys.iter().filter(|key| before.get(**key) != after.get(**key)).collect();
    assert!(changed.is_empty(), "a reader changed {changed:?}");
}
