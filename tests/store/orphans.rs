//! STO-16: what is left in the store when everything has ended. If this fails, a store fills up over the months with
//! keys that belong to nobody.

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, id, key, keyring, keys, lands, operator, pending, player, proxy, sees, state, transfer,
};
use maitred::agent::Setup;
use maitred::agent::config::Config;
use maitred::ids::RequestId;
use maitred::node::{Control, LoadSample, drain_name, roster};
use maitred::token::{Book, ReapOptions, reap};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use redis::AsyncCommands;

const REMOVED_MS: u64 = 3_000;

fn short(name: &str, role: &str, url: &str) -> Config {
    let mut config = config(name, role, url);
    config.directory.removed_ms = REMOVED_MS;
    config.tokens.ttl_ms = 3_000;
    config.tokens.claim_reanimate_ms = 500;
    config.tokens.audit_ms = 1_000;
    config
}

#[tokio::test]
async fn sto_16_after_everything_has_ended_the_zone_holds_nothing_but_what_it_may() {
    let store = TestStore::start();
    let url = store.url();
    let shelves = [Stock::new(50, 50), Stock::new(50, 40)];
    let b1 = backend(short("b1", "backend", &url), &shelves[0]).await;
    let b2 = backend(short("b2", "backend", &url), &shelves[1]).await;
    let p1 = proxy(short("p1", "proxy", &url)).await;
    let p2 = proxy(short("p2", "proxy", &url)).await;
    let lonely =
        Setup::with_keyring(short("s1", "service", &url), keyring()).unwrap().node(LoadSample::default).unwrap();
    lonely.joined().await.expect("a member");
    sees(&p1, &[&b1, &b2]).await;
    sees(&p2, &[&b1, &b2]).await;
    let (tool, verifier) = operator(&store).await;
    let control = Control::default();
    control.put(&tool, &verifier, &drain_name(&id("b9")), "on", "test").await.expect("an entry");

    // Players who land, who are cancelled with and without a token, and who never come.
    for n in 0..5 {
        let name = format!("landed{n}");
        transfer(&p1, &name).await;
        lands(&b1, &name).await;
        let moved = transfer(&p1, &format!("cancelled{n}")).await;
        p1.cancel(&moved.player, &moved.request).await.expect("cancelled");
        p2.cancel(&player(&format!("mark{n}")), &RequestId::fresh()).await.expect("marked");
        transfer(&p1, &format!("expired{n}")).await;
        pending(&p1, "b2", &format!("unclaimed{n}")).await;
    }
    // Claims of a proxy that dies, on a backend that dies too.
    for n in 0..5 {
        transfer(&p2, &format!("orphan{n}")).await;
        pending(&p2, "b2", &format!("silent{n}")).await;
    }
    drop(p2);
    drop(b2);
    drop(lonely);
    let mut conn = store.conn().await;
    eventually("a claim of the dead proxy was reopened or ended", LIMIT, async || {
        state(&mut conn, "orphan0").await != "CLAIMED"
    })
    .await;
    b1.leave().await;
    p1.leave().await;
    shelves[0].all_home().await;

    // Entries of an index whose row is gone: deleted by hand, or evicted by a store that was told to.
    let (mut entries, now) = (redis::pipe(), tool.clock().now_ms());
    entries.zadd(key("due:b7"), "nobody", now).sadd(key("due"), &["b7", "b8"]);
    entries.zadd(key("nodes:link"), "l1", now).sadd(key("roles"), &["link", "queue"]);
    let () = entries.query_async(&mut conn).await.unwrap();

    eventually("the audit time and the removed age are over", LIMIT, async || {
        let left = keys(&mut conn).await;
        let rows = left.iter().any(|name| name.starts_with("token:") || name.starts_with("node:"));
        !rows && tool.clock().now_ms() > now + REMOVED_MS + 100
    })
    .await;
    let book = Book::new(tool.clone(), verifier, control, Setup::book_options(&short("cli", "backend", &url)));
    let report = reap(&book, None, ReapOptions::default()).await.expect("a sweep");
    assert!(report.healed >= 1, "{report:?}");
    roster::remove_silent(&tool, REMOVED_MS).await.expect("upkeep");
    assert_eq!(keys(&mut conn).await, ["control", "epochs"]);

    // Ids that were not seen for the forget age leave it; those seen since stay.
    let given: Vec<String> = conn.hkeys(key("epochs")).await.unwrap();
    assert!(given.len() >= 5, "{given:?}");
    assert_eq!(roster::forget(&tool, 60_000).await.expect("upkeep"), 0);
    let mut forgotten = 0;
    eventually("every id is older than that", LIMIT, async || {
        forgotten += roster::forget(&tool, 10).await.expect("upkeep");
        forgotten == u64::try_from(given.len()).unwrap()
    })
    .await;
    assert_eq!(keys(&mut conn).await, ["control"]);
}
