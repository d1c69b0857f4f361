//! Kill switch, drain and config on a real store. If these fail, a real switch is not obeyed, or a forged one is.

use crate::fixtures::nodes::{LONG_MS, Listener, ask, blank, key, membership, node, open, store_ms, stranger};
use maitred::Error;
use maitred::envelope::AuditReason;
use maitred::node::{BeatOutcome, CONFIG, Control, KILL, drain_name, kill_name};
use maitred::store::{Invocation, Store, boot_ms, scripts};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::{TestStore, command_stats};
use redis::aio::MultiplexedConnection;
use tokio_util::sync::CancellationToken;

async fn entry(conn: &mut MultiplexedConnection, name: &str) -> String {
    ask(conn, &["HGET", &key("control"), name]).await
}

async fn forge(conn: &mut MultiplexedConnection, name: &[u8], bytes: &[u8]) {
    let done: redis::RedisResult<u64> =
        redis::cmd("HSET").arg(key("control")).arg(name).arg(bytes).query_async(conn).await;
    done.unwrap();
}

/// What control/put answers to a version, by hand.
async fn put(store: &Store, text: &str, version: u64, last: u64, read: &str) -> (String, Vec<String>) {
    let keys = store.keys();
    let call = Invocation::new(&scripts::CONTROL_PUT, &[keys.control()])
        .arg("config")
        .arg(text)
        .arg(version)
        .arg(last)
        .arg(read)
        .arg(keys.control_events());
    let answer = store.run(&call).await.unwrap();
    (answer.word().to_owned(), answer.values().to_vec())
}

// R-32, NOD-13: an entry is obeyed by those it is meant for, from the next beat on.
#[tokio::test]
async fn r_32_a_written_entry_reaches_every_process_with_its_next_beat() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut events = Listener::start(&server, "events:control").await;
    let (operator, verifier) = (Control::default(), crate::fixtures::nodes::verifier());
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    member.join(blank()).await.unwrap();
    let seen = Control::default();
    let (one, other) = (node("p1"), node("p2"));
    let unchanged = BeatOutcome::Acknowledged { control_changed: false };
    assert_eq!(member.beat(blank(), &seen).await.unwrap(), unchanged);

    let steps = [(drain_name(&one), "on"), (kill_name(&one), "on"), (KILL.to_owned(), "on"), (KILL.to_owned(), "off")];
    let mut version = 0;
    for (name, value) in &steps {
        let before = store_ms(&mut conn).await;
        let written = operator.put(&store, &verifier, name, value, "ops").await.unwrap();
        assert!(written.version > version && written.version >= before - 1_000, "R-3: it follows the store's clock");
        assert_eq!((written.by.as_str(), written.value.as_str()), ("ops", *value));
        version = written.version;
        assert_eq!(events.heard().await, [format!("control {name}")]);

        let changed = BeatOutcome::Acknowledged { control_changed: true };
        assert_eq!(member.beat(blank(), &seen).await.unwrap(), changed, "{name}");
        seen.refresh(&store, &verifier).await.unwrap();
        assert_eq!(member.beat(blank(), &seen).await.unwrap(), unchanged, "{name}");
        assert_eq!(seen.entry(name), Some(written));
        assert_eq!(seen.is_on(name), *value == "on");
        assert_eq!(String::from_utf8(seen.kill_arg(name).bytes).unwrap(), entry(&mut conn, name).await);
    }
    assert!(seen.is_killed(&one) && seen.is_draining(&one), "its own entries");
    assert!(!seen.is_killed(&other) && !seen.is_draining(&other), "not another's");

    // What is not about this node is no reason to read.
    operator.put(&store, &verifier, &kill_name(&other), "on", "ops").await.unwrap();
    assert_eq!(member.beat(blank(), &seen).await.unwrap(), unchanged);
    // POL-5: a pushed config is for everybody.
    operator.put(&store, &verifier, CONFIG, "{}", "ops").await.unwrap();
    assert_eq!(member.beat(blank(), &seen).await.unwrap(), BeatOutcome::Acknowledged { control_changed: true });
    seen.refresh(&store, &verifier).await.unwrap();
    assert_eq!(member.beat(blank(), &seen).await.unwrap(), unchanged);
}

// ENV-1, ENV-6, R-32: with the store's password alone one must not stop a fleet, nor start one that was stopped.
#[tokio::test]
async fn r_32_a_forged_entry_neither_stops_nor_starts_anybody() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let (operator, verifier) = (Control::default(), crate::fixtures::nodes::verifier());
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    member.join(blank()).await.unwrap();
    let seen = Control::default();

    let on = operator.put(&store, &verifier, KILL, "on", "ops").await.unwrap();
    let genuine_on = entry(&mut conn, KILL).await;
    let off = operator.put(&store, &verifier, KILL, "off", "ops").await.unwrap();
    assert!(off.version > on.version);
    seen.refresh(&store, &verifier).await.unwrap();
    let genuine_off = entry(&mut conn, KILL).await;
    // Signed by somebody with another secret, with the highest version of all.
    let other_zone = TestStore::start();
    let elsewhere = open(&other_zone.url()).await;
    elsewhere.clock().observe(store_ms(&mut conn).await, boot_ms(), boot_ms());
    Control::default().put(&elsewhere, &stranger(), KILL, "on", "ops").await.unwrap();
    let strangers = entry(&mut other_zone.conn().await, KILL).await;

    let table: [(&str, Vec<u8>, AuditReason); 6] = [
        ("no JSON", b"on".to_vec(), AuditReason::ForgedControl),
        ("no text", vec![0xff, 0xfe], AuditReason::ForgedControl),
        ("its value changed", genuine_off.replace("\"off\"", "\"on\"").into_bytes(), AuditReason::ForgedControl),
        (
            "its version changed",
            genuine_on.replace(&on.version.to_string(), &(off.version + 9).to_string()).into_bytes(),
            AuditReason::ForgedControl,
        ),
        ("another secret", strangers.into_bytes(), AuditReason::ForgedControl),
        ("a later schema", genuine_off.replace("\"v\":1", "\"v\":2").into_bytes(), AuditReason::SchemaVersion),
    ];
    for (what, bytes, reason) in table {
        assert_ne!(bytes, genuine_off.as_bytes(), "{what}");
        forge(&mut conn, KILL.as_bytes(), &bytes).await;
        let before = verifier.audit().count(reason);
        let outcome = member.beat(blank(), &seen).await.unwrap();
        assert_eq!(outcome, BeatOutcome::Acknowledged { control_changed: true }, "{what}");
        seen.refresh(&store, &verifier).await.unwrap();
        seen.refresh(&store, &verifier).await.unwrap();
        assert_eq!(verifier.audit().count(reason), before + 1, "{what}: audited once for each change");
        assert!(!seen.is_on(KILL) && !seen.is_killed(&node("p1")), "{what} stopped the fleet");
        assert_eq!(seen.entry(KILL), Some(off.clone()));
        // Its bytes are known now, so scripts go on with the last verified value.
        let arg = seen.kill_arg(KILL);
        assert_eq!((arg.bytes.as_slice(), arg.verdict()), (bytes.as_slice(), "off"), "{what}");
        let outcome = member.beat(blank(), &seen).await.unwrap();
        assert_eq!(outcome, BeatOutcome::Acknowledged { control_changed: false }, "{what}");
    }

    // ENV-7: an older entry that was valid, and a valid one under another name.
    forge(&mut conn, KILL.as_bytes(), genuine_on.as_bytes()).await;
    forge(&mut conn, kill_name(&node("p1")).as_bytes(), genuine_on.as_bytes()).await;
    forge(&mut conn, b"\xff", b"\xff").await;
    let before = verifier.audit().count(AuditReason::OlderControl);
    seen.refresh(&store, &verifier).await.unwrap();
    seen.refresh(&store, &verifier).await.unwrap();
    assert_eq!(verifier.audit().count(AuditReason::OlderControl), before + 1, "one who puts it back is audited");
    assert!(!seen.is_killed(&node("p1")), "an older or copied entry is no order");

    // A real one is obeyed although a forgery stands there, and taking it away by hand ends nothing.
    let real = operator.put(&store, &verifier, KILL, "on", "ops").await.unwrap();
    seen.refresh(&store, &verifier).await.unwrap();
    assert_eq!((seen.is_on(KILL), seen.entry(KILL)), (true, Some(real)));
    let _: u64 = ask(&mut conn, &["DEL", &key("control")]).await;
    seen.refresh(&store, &verifier).await.unwrap();
    assert!(seen.is_on(KILL));
    assert_eq!((seen.kill_arg(KILL).bytes.as_slice(), seen.kill_arg(KILL).verdict()), (&b""[..], "on"));
}

// STO-10: operators at once: whoever is overtaken is told whose value stands, and does not write over it. One
// whose reply was lost would otherwise take back what somebody decided after them.
#[tokio::test]
async fn r_32_of_writers_at_once_the_overtaken_are_told_what_stands() {
    let server = TestStore::start();
    let (store, verifier) = (open(&server.url()).await, crate::fixtures::nodes::verifier());
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let (store, verifier) = (store.clone(), verifier.clone());
            tokio::spawn(async move {
                let control = Control::default();
                control.put(&store, &verifier, "config", &n.to_string(), &format!("ops{n}")).await
            })
        })
        .collect();
    let (mut written, mut overtaken) = (Vec::new(), Vec::new());
    for writer in writers {
        match writer.await.unwrap() {
            Ok(entry) => written.push(entry),
            Err(Error::Overtaken { name, value, by }) => overtaken.push((name, value, by)),
            Err(other) => panic!("{other}"),
        }
    }
    written.sort_by_key(|entry| entry.version);
    assert!(!written.is_empty() && written.windows(2).all(|pair| pair[0].version < pair[1].version), "{written:?}");
    for (name, value, by) in &overtaken {
        assert_eq!(name, "config");
        assert!(written.iter().any(|entry| entry.value == *value && entry.by == *by), "{by} never wrote {value}");
    }
    let seen = Control::default();
    seen.refresh(&store, &verifier).await.unwrap();
    assert_eq!(seen.entry("config").as_ref(), written.last());
}

// R-3, STO-10: which versions are taken, and that a repeated write is answered the same.
#[tokio::test]
async fn r_3_the_version_of_an_entry_follows_the_stores_clock() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut events = Listener::start(&server, "events:control").await;
    let now = store_ms(&mut conn).await;
    for (version, last) in [(now - 60_000, 0), (now + 60_000, 0), (now, now), (now, now + 5)] {
        let (word, values) = put(&store, "x", version, last, "").await;
        assert_eq!(word, "VERSION", "{version} after {last}");
        assert!(values[0].parse::<u64>().unwrap() >= now.max(last + 1));
    }
    assert_eq!(
        put(&store, "x", now + 3_600_001, now + 3_600_000, "").await.0,
        "PUT",
        "after a clock that stepped back"
    );
    assert_eq!(put(&store, "x", now + 3_600_001, now + 3_600_000, "").await.0, "PUT", "a repeat");
    assert_eq!(events.heard().await.len(), 1, "heard once");
    assert_eq!(put(&store, "y", now, 0, "something else").await, ("CHANGED".to_owned(), vec!["x".to_owned()]));
    assert_eq!(entry(&mut conn, "config").await, "x");
}

// STO-9, STO-10: a lost reply, and an operator whose clock is off.
#[tokio::test]
async fn sto_10_a_write_whose_reply_was_lost_stands_once() {
    let server = TestStore::start();
    let (proxy, mut conn) = (FaultProxy::start(&server), server.conn().await);
    let (store, verifier, control) = (open(&proxy.url()).await, crate::fixtures::nodes::verifier(), Control::default());
    let mut events = Listener::start(&server, "events:control").await;
    proxy.drop_next_reply_of(&format!("EVALSHA {}", scripts::CONTROL_PUT.pinned()), Action::Cut);
    let written = control.put(&store, &verifier, KILL, "on", "ops").await.unwrap();
    assert_eq!((proxy.dropped(), events.heard().await.len()), (1, 1));
    assert!(entry(&mut conn, KILL).await.contains(&written.version.to_string()));

    for off in [-3_600_000_i64, 3_600_000] {
        let now = store_ms(&mut conn).await;
        store.clock().observe(now.checked_add_signed(off).unwrap(), boot_ms(), boot_ms());
        let written = control.put(&store, &verifier, KILL, "off", "ops").await.unwrap();
        let now = store_ms(&mut conn).await;
        assert!(written.at.abs_diff(now) < 2_000 && written.version.abs_diff(now) < 2_000, "off by {off}");
    }
}

// an operator who works would be shown somebody who puts old entries back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn r_32_answers_that_overtake_each_other_are_no_old_entries() {
    let server = TestStore::start();
    let (store, far) = (open(&server.url()).await, open(&server.url()).await);
    let (seen, verifier, done) = (Control::default(), crate::fixtures::nodes::verifier(), CancellationToken::new());
    let readers: Vec<_> = (0..32)
        .map(|_| {
            let (seen, verifier, store, done) = (seen.clone(), verifier.clone(), store.clone(), done.clone());
            tokio::spawn(async move {
                while !done.is_cancelled() {
                    seen.refresh(&store, &verifier).await.unwrap();
                }
            })
        })
        .collect();
    let operator = Control::default();
    for n in 0..150 {
        let value = if n % 2 == 0 { "on" } else { "off" };
        operator.put(&far, &crate::fixtures::nodes::verifier(), KILL, value, "alice").await.unwrap();
        // Whoever asks after the write sees it, also where the answer is shared.
        seen.refresh(&store, &verifier).await.unwrap();
        assert_eq!(seen.is_on(KILL), n % 2 == 0);
    }
    done.cancel();
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(verifier.audit().counts().iter().map(|(_, count)| count).sum::<u64>(), 0);
}

// with the store's password alone somebody could else make every switch unreadable, for operators and for nodes: a read
// of all of it takes the store half a second for each that asks.
#[tokio::test]
async fn r_32_a_hash_that_was_filled_up_is_read_by_name_and_every_switch_works() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let (operator, verifier) = (Control::default(), crate::fixtures::nodes::verifier());
    let (one, other, later) = (node("p1"), node("p2"), node("p3"));
    let mut member = membership(&store, "p1", "proxy", LONG_MS);
    member.join(blank()).await.unwrap();
    operator.put(&store, &verifier, KILL, "on", "ops").await.unwrap();
    operator.put(&store, &verifier, &drain_name(&one), "on", "ops").await.unwrap();
    operator.put(&store, &verifier, &drain_name(&later), "on", "ops").await.unwrap();
    for batch in 0..50 {
        let mut fill = redis::cmd("HSET");
        fill.arg(key("control"));
        for n in 0..1_000 {
            // Some look like entries of nodes, and some are no text.
            let name = [b"junk-\xff".as_slice(), b"drain:nobody-", b"kill:nobody-"][n % 3];
            fill.arg([name, format!("{batch}-{n}").as_bytes()].concat()).arg("{\"value\":\"on\"}");
        }
        let _: u64 = fill.query_async(&mut conn).await.unwrap();
    }
    let wholes =
        async |conn: &mut MultiplexedConnection| command_stats(conn).await.get("hgetall").map_or(0, |stat| stat.calls);
    let before = wholes(&mut conn).await;

    let seen = Control::default();
    let beat = member.beat(blank(), &seen).await.unwrap();
    assert_eq!(beat, BeatOutcome::Acknowledged { control_changed: true });
    seen.refresh(&store, &verifier).await.unwrap();
    assert!(seen.is_on(KILL) && seen.is_draining(&one) && !seen.is_draining(&other));
    assert_eq!(seen.strangers(), 50_001, "the entry of a node that is on no roster is among them");
    assert_eq!(seen.entries().len(), 2);
    let beat = member.beat(blank(), &seen).await.unwrap();
    assert_eq!(beat, BeatOutcome::Acknowledged { control_changed: false }, "it knows all that concerns it");

    // Operators switch what is there, and what nobody has seen yet.
    operator.put(&store, &verifier, KILL, "off", "ops").await.unwrap();
    operator.put(&store, &verifier, &kill_name(&other), "on", "ops").await.unwrap();
    let fresh = Control::default();
    fresh.put(&store, &verifier, &drain_name(&later), "off", "ops").await.unwrap();
    seen.refresh(&store, &verifier).await.unwrap();
    assert!(!seen.is_on(KILL), "who is killed and on no roster is not looked for");

    // The node comes, and its own first beat says that there is something about it.
    let mut newcomer = membership(&store, "p2", "proxy", LONG_MS);
    newcomer.join(blank()).await.unwrap();
    let beat = newcomer.beat(blank(), &seen).await.unwrap();
    assert_eq!(beat, BeatOutcome::Acknowledged { control_changed: true });
    seen.refresh(&store, &verifier).await.unwrap();
    assert!(seen.is_killed(&other));
    assert_eq!(verifier.audit().counts().iter().map(|(_, count)| count).sum::<u64>(), 0, "nobody looks at junk");
    assert_eq!(wholes(&mut conn).await, before, "nothing reads the whole of it");
}
