//! The upkeep of rosters and epochs on a real store. If these fail, the zone fills with nodes that are long gone, or a
//! node that lives is taken off.

use std::time::Duration;

use crate::fixtures::nodes::{
    LIMIT, LONG_MS, Listener, ask, blank, epoch_entry, key, membership, open, role, roles_of, roster_of, row_of,
    store_ms,
};
use maitred::node::roster::{forget, remove_silent, rosters};
use maitred::store::{Invocation, scripts};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const HOUR_MS: u64 = 3_600_000;

/// Makes the last beat of an id that much older, on the roster alone.
async fn age_entry(conn: &mut redis::aio::MultiplexedConnection, role_name: &str, id: &str, by_ms: u64) {
    let score = (store_ms(conn).await - by_ms).to_string();
    let _: u64 = ask(conn, &["ZADD", &key(&format!("nodes:{role_name}")), &score, id]).await;
}

// NOD-7, STO-16: an entry outlives its row until the removed age, then it goes, is heard, and its epoch stays known.
#[tokio::test]
async fn sto_16_remove_takes_what_is_silent_for_the_removed_age_and_nothing_else() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut events = Listener::start(&server, "events:node").await;
    let mut epochs = Vec::new();
    for id in ["dead", "late", "live"] {
        epochs.push(membership(&store, id, "proxy", LONG_MS).join(blank()).await.unwrap());
    }
    for id in ["dead", "late"] {
        let _: u64 = ask(&mut conn, &["DEL", &key(&format!("node:{id}"))]).await;
    }
    events.heard().await;
    assert!(remove_silent(&store, HOUR_MS).await.unwrap().is_empty(), "a missing row alone unlists nobody");
    age_entry(&mut conn, "proxy", "dead", HOUR_MS + 1_000).await;
    age_entry(&mut conn, "proxy", "late", HOUR_MS - 60_000).await;
    age_entry(&mut conn, "proxy", "live", HOUR_MS * 2).await;

    let before = store_ms(&mut conn).await;
    let removed = remove_silent(&store, HOUR_MS).await.unwrap();
    assert_eq!(removed.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["dead"]);
    let mut left = roster_of(&mut conn, "proxy").await;
    left.sort();
    assert_eq!(left, ["late", "live"], "one with a row stays, however old its entry is");
    assert_eq!(events.heard().await, ["removed dead"]);
    let (epoch, seen) = epoch_entry(&mut conn, "dead").await.unwrap();
    assert!(epoch == epochs[0].0 && seen >= before, "R-8: seen at the removal");
    assert!(remove_silent(&store, HOUR_MS).await.unwrap().is_empty(), "repeating it is safe");
    assert!(events.heard().await.is_empty());

    // The clock of the store stepped back: an entry from the future is as silent as one from the past.
    let ahead = (store_ms(&mut conn).await + HOUR_MS * 2).to_string();
    let _: u64 = ask(&mut conn, &["ZADD", &key("nodes:proxy"), &ahead, "late"]).await;
    assert_eq!(remove_silent(&store, HOUR_MS).await.unwrap().len(), 1);
}

// STO-16, R-6: a key of another type under one id holds up the removal of nobody else.
#[tokio::test]
async fn sto_16_a_key_of_another_type_keeps_no_other_node_on_the_roster() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    for id in ["a-dead", "m-strange", "z-dead"] {
        let _: u64 = ask(&mut conn, &["ZADD", &key("nodes:proxy"), "1000", id]).await;
    }
    let _: u64 = ask(&mut conn, &["SADD", &key("roles"), "proxy"]).await;
    let _: String = ask(&mut conn, &["SET", &key("node:m-strange"), "x"]).await;
    assert_eq!(remove_silent(&store, HOUR_MS).await.unwrap().len(), 2);
    assert_eq!(roster_of(&mut conn, "proxy").await, ["m-strange"]);
}

// STO-16: the sweep heals what no script would have left behind.
#[tokio::test]
async fn sto_16_remove_heals_entries_of_another_role_and_empty_rosters() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut events = Listener::start(&server, "events:node").await;
    let mut backend = membership(&store, "n1", "backend", LONG_MS);
    backend.join(blank()).await.unwrap();
    // It was a proxy, and its row had run out before it came back as a backend.
    age_entry(&mut conn, "proxy", "n1", 0).await;
    let _: u64 = ask(&mut conn, &["SADD", &key("roles"), "proxy", "ghost"]).await;
    let (given, seen) = epoch_entry(&mut conn, "n1").await.unwrap();
    events.heard().await;

    remove_silent(&store, HOUR_MS).await.unwrap();
    assert!(roster_of(&mut conn, "proxy").await.is_empty());
    assert_eq!(roster_of(&mut conn, "backend").await, ["n1"]);
    assert_eq!(roles_of(&mut conn).await, ["backend"], "roles without a roster are taken off too");
    assert!(events.heard().await.is_empty(), "the node lives: nobody may hear that it was removed");
    assert_eq!(epoch_entry(&mut conn, "n1").await.unwrap(), (given, seen));
    assert!(!row_of(&mut conn, "n1").await.is_empty());
}

// STO-8, STO-16: more nodes than one call takes, and several sweeps at once.
#[tokio::test]
async fn sto_8_a_long_roster_is_swept_in_batches_by_any_number_at_once() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let mut events = Listener::start(&server, "events:node").await;
    let mut add = redis::cmd("ZADD");
    add.arg(key("nodes:proxy"));
    for n in 0..600 {
        add.arg(1_000 + n).arg(format!("p{n}"));
    }
    let _: u64 = add.query_async(&mut conn).await.unwrap();
    let _: u64 = ask(&mut conn, &["SADD", &key("roles"), "proxy"]).await;
    assert_eq!(rosters(&store).await.unwrap()[0].1.len(), 600);

    let sweep = || remove_silent(&store, HOUR_MS);
    let (a, b, c) = tokio::join!(sweep(), sweep(), sweep());
    assert_eq!(a.unwrap().len() + b.unwrap().len() + c.unwrap().len(), 600, "each is removed once");
    assert_eq!(events.heard().await.len(), 600);
    assert!(roles_of(&mut conn).await.is_empty());
    let known: u64 = ask(&mut conn, &["HLEN", &key("epochs")]).await;
    assert_eq!(known, 600);
    assert_eq!(forget(&store, 0).await.unwrap(), 600);
    let keys: Vec<String> = ask(&mut conn, &["KEYS", "*"]).await;
    assert!(keys.is_empty(), "{keys:?}");
}

// an epoch that is forgotten too early can be given again; one that is never forgotten fills the store.
#[tokio::test]
async fn r_8_forget_drops_only_what_is_old_off_the_rosters_and_unchanged() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    let now = store_ms(&mut conn).await;
    let (old, young) = (format!("5 {}", now - HOUR_MS - 1_000), format!("6 {}", now - HOUR_MS + 60_000));
    for (id, entry) in [("gone", &old), ("young", &young), ("listed", &old), ("odd", &"nonsense".to_owned())] {
        let _: u64 = ask(&mut conn, &["HSET", &key("epochs"), id, entry]).await;
    }
    age_entry(&mut conn, "proxy", "listed", HOUR_MS * 9).await;
    let _: u64 = ask(&mut conn, &["SADD", &key("roles"), "proxy"]).await;
    assert_eq!(forget(&store, HOUR_MS).await.unwrap(), 1);
    let mut left: Vec<String> = ask(&mut conn, &["HKEYS", &key("epochs")]).await;
    left.sort();
    assert_eq!(left, ["listed", "odd", "young"]);

    // The id joined again between the read and the call: its bytes are others now.
    let keys = store.keys();
    let call = |entry: &str, roles: &[&str]| {
        let names: Vec<_> = roles.iter().map(|name| role(name)).collect();
        let mut key_list = vec![keys.epochs(), keys.roles()];
        key_list.extend(names.iter().map(|name| keys.roster(name)));
        let mut call = Invocation::new(&scripts::NODE_FORGET, &key_list).arg(HOUR_MS).arg(roles.len());
        for name in roles {
            call = call.arg(*name);
        }
        call.arg("young").arg(entry)
    };
    let changed = store.run(&call(&format!("6 {}", now - HOUR_MS * 3), &["proxy"])).await.unwrap();
    assert_eq!((changed.word(), changed.number(0).unwrap()), ("FORGOTTEN", 0));
    let exact = store.run(&call(&young, &["proxy"])).await.unwrap();
    assert_eq!(exact.number(0).unwrap(), 0, "not old enough by the store's own clock");
    // a roster that came up in between might list it.
    let need = store.run(&call(&young, &[])).await.unwrap();
    assert_eq!((need.word(), need.text(0).unwrap()), ("NEED", "proxy"));
    assert!(epoch_entry(&mut conn, "young").await.is_some());
}

// STO-16: after everything has ended and the times have passed, nothing of the nodes is left.
#[tokio::test]
async fn sto_16_after_the_times_have_passed_no_key_is_left() {
    let server = TestStore::start();
    let (store, mut conn) = (open(&server.url()).await, server.conn().await);
    for (n, name) in ["proxy", "backend", "link"].into_iter().enumerate() {
        let mut leaves = membership(&store, &format!("leaves{n}"), name, 300);
        leaves.join(blank()).await.unwrap();
        leaves.leave().await.unwrap();
        membership(&store, &format!("crashes{n}"), name, 300).join(blank()).await.unwrap();
    }
    eventually("the crashed ones are removed", LIMIT, async || {
        remove_silent(&store, 600).await.unwrap();
        roles_of(&mut conn).await.is_empty()
    })
    .await;
    let keys: Vec<String> = ask(&mut conn, &["KEYS", "*"]).await;
    assert_eq!(keys, [key("epochs")]);
    let known: u64 = ask(&mut conn, &["HLEN", &key("epochs")]).await;
    assert_eq!(known, 6);
    eventually("the epochs are forgotten", Duration::from_secs(5), async || {
        forget(&store, 200).await.unwrap();
        let keys: Vec<String> = ask(&mut conn, &["KEYS", "*"]).await;
        keys.is_empty()
    })
    .await;
}
