use maitred::ids::{ObjectKey, OperationId};
use maitred::node::Membership;
use maitred::route::{AcquireOutcome, Cas, Held, RouteBook, RouteTimes};
use serde_json::json;

use crate::fixtures::command::{CliFixture, backend};

fn object(text: &str) -> ObjectKey {
    ObjectKey::read(text).expect("a key")
}

async fn takes(fixture: &CliFixture, member: &Membership, text: &str) -> (RouteBook, Held) {
    let lease = member.lease().clone();
    let book = RouteBook::new(fixture.store.clone(), fixture.verifier.clone(), lease, RouteTimes::default());
    match book.acquire(&object(text), None, true).await.expect("an answer") {
        AcquireOutcome::Acquired(held) => (book, held),
        other => panic!("{other:?}"),
    }
}

// RTE-12, CLI-1: an operator who cannot see who owns an island cannot help the player on it.
#[tokio::test]
async fn rte_12_routes_and_one_route_show_owner_version_and_age() {
    let fixture = CliFixture::new().await;
    let (b1, _) = fixture.join(backend("b1")).await;
    let (b2, who) = fixture.join(backend("b2")).await;
    let (book, held) = takes(&fixture, &b1, "island:i1").await;
    takes(&fixture, &b2, "team:t1").await;
    takes(&fixture, &b1, "island:i2").await;
    book.save(&held, Cas::NONE, "twelve bytes", &OperationId::fresh()).await.expect("saved");

    let told = fixture.json(&["routes"]);
    let objects: Vec<&str> =
        told["routes"].as_array().expect("a list").iter().filter_map(|route| route["object"].as_str()).collect();
    assert_eq!(objects, ["island:i1", "island:i2", "team:t1"]);
    assert_eq!((&told["total"], &told["routes"][0]["version"]), (&json!(3), &json!(held.version)));
    let ran = fixture.run(&["routes"]).code(0).shows(&["3 objects owned in zone eu"]);
    assert_eq!(ran.cells("team:t1")[1], "b2");
    assert_eq!(fixture.json(&["routes", "--owner", "b2"])["total"], 1);
    assert_eq!(fixture.json(&["routes", "--kind", "island"])["total"], 2);
    fixture.run(&["routes", "--limit", "1"]).code(0).shows(&["3 objects owned", "1 looked at (--limit)"]);

    let told = fixture.json(&["route", "island", "i1"]);
    assert_eq!((&told["route"]["owner"], &told["owner_alive"]), (&json!("b1"), &json!(true)));
    assert_eq!((&told["stored"]["cas"], &told["stored"]["bytes"]), (&json!(1), &json!(12)));
    assert!(told["route"]["age_ms"].as_u64().is_some_and(|age| age < 60_000), "{told}");
    fixture.run(&["route", "island", "i1"]).code(0).shows(&["b1 (epoch", "owned", "12 bytes in the built-in store"]);
    fixture.run(&["route", "island", "none"]).code(0).shows(&["nobody owns island:none"]);
    fixture.run(&["route", "isl and", "i1"]).code(2);

    let target = who.clone();
    book.transfer(&held, &target).await.expect("moved");
    fixture.run(&["route", "island", "i1"]).code(0).shows(&["b2 (epoch", "moved, not confirmed yet"]);
    fixture.dies("b2").await;
    fixture
        .run(&["route", "island", "i1"])
        .code(0)
        .shows(&["holds no lease", "by the next that asks where writes are fenced"]);
}

// ENV-5: what no member wrote is not shown as a route.
#[tokio::test]
async fn env_5_a_forged_route_is_counted_and_not_shown() {
    let fixture = CliFixture::new().await;
    let (b1, _) = fixture.join(backend("b1")).await;
    takes(&fixture, &b1, "island:i1").await;
    takes(&fixture, &b1, "island:i2").await;
    fixture.by_hand(&["HSET", "maitred:{eu}:route:island:i1", "owner", "evil"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:owned:b1", "island:none"]).await;
    let told = fixture.json(&["routes"]);
    assert_eq!((&told["not_believed"], &told["stray"], &told["total"]), (&json!(1), &json!(1), &json!(3)));
    fixture.run(&["routes"]).code(0).shows(&["1 without a record of that owner", "1 not believed"]);
    let refused = fixture.run(&["route", "island", "i1"]).code(1);
    assert!(refused.err.contains("no member wrote it"), "{}", refused.err);
    fixture.by_hand(&["SET", "maitred:{eu}:object:island:i2", "of another type"]).await;
    let refused = fixture.run(&["route", "island", "i2"]).code(1);
    assert!(refused.err.contains("maitred:{eu}:object:island:i2 is of another type"), "{}", refused.err);
}

// STO-16, CLI-1: what somebody wrote by hand hides no other route, and one run puts the index right.
#[tokio::test]
async fn sto_16_junk_among_the_routes_hides_no_other_and_a_reap_heals_the_index() {
    let fixture = CliFixture::new().await;
    let (b1, _) = fixture.join(backend("b1")).await;
    let (b2, _) = fixture.join(backend("b2")).await;
    takes(&fixture, &b1, "island:i1").await;
    let (_, old) = takes(&fixture, &b2, "island:old").await;
    fixture.by_hand(&["SET", "maitred:{eu}:owned:a1", "of another type"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:owned", "a1"]).await;
    fixture.by_hand(&["SADD", "maitred:{eu}:owned:b1", "island:none", "names nothing"]).await;
    let told = fixture.json(&["routes"]);
    assert_eq!((&told["total"], &told["unreadable"]), (&json!(3), &json!(["a1"])));
    fixture.run(&["routes"]).code(0).shows(&["owned:a1 is of another type"]);

    // Its owner is long gone, and the list of owners was lost with it.
    fixture.dies("b2").await;
    fixture.by_hand(&["HSET", "maitred:{eu}:route:island:old", "saved_at", "1000"]).await;
    fixture.by_hand(&["SREM", "maitred:{eu}:owned", "b2"]).await;
    let counts = |told: &serde_json::Value| ["released", "kept", "healed"].map(|of| told["routes"][of].clone());
    let dry = fixture.json(&["reap", "--dry-run"]);
    assert_eq!(counts(&dry), [json!(1), json!(1), json!(2)], "{dry}");
    let done = fixture.json(&["reap"]);
    assert_eq!(counts(&done), counts(&dry), "the run does not do what the dry run said");
    let again = fixture.json(&["reap"]);
    assert_eq!(counts(&again), [json!(0), json!(1), json!(0)], "{again}");
    let free = fixture.json(&["route", "island", "old"]);
    assert_eq!((&free["route"]["owner"], &free["route"]["state"]), (&json!(null), &json!("free")), "{free}");
    assert!(free["route"]["version"].as_u64() > Some(old.version.0), "{free}");
    assert_eq!(fixture.json(&["routes"])["total"], 1);
}
