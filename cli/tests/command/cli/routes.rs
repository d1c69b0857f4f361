use maitred::ids::{ObjectKey, OperationId};
use maitred::node::Membership;
use maitred::route::{AcquireOutcome, Cas, Held, RouteBook, RouteTimes};
use serde_json::json;

use crate::fixtures::command::{Scene, backend};

fn object(text: &str) -> ObjectKey {
    ObjectKey::read(text).expect("a key")
}

async fn takes(scene: &Scene, member: &Membership, text: &str) -> (RouteBook, Held) {
    let lease = member.lease().clone();
    let book = RouteBook::new(scene.store.clone(), scene.verifier.clone(), lease, RouteTimes::default());
    match book.acquire(&object(text), None, true).await.expect("an answer") {
        AcquireOutcome::Acquired(held) => (book, held),
        other => panic!("{other:?}"),
    }
}

// RTE-12, CLI-1: an operator who cannot see who owns an island cannot help the player on it.
#[tokio::test]
async fn rte_12_routes_and_one_route_show_owner_version_and_age() {
    let scene = Scene::new().await;
    let (b1, _) = scene.join(backend("b1")).await;
    let (b2, who) = scene.join(backend("b2")).await;
    let (book, held) = takes(&scene, &b1, "island:i1").await;
    takes(&scene, &b2, "team:t1").await;
    takes(&scene, &b1, "island:i2").await;
    book.save(&held, Cas::NONE, "twelve bytes", &OperationId::fresh()).await.expect("saved");

    let told = scene.json(&["routes"]);
    let objects: Vec<&str> =
        told["routes"].as_array().expect("a list").iter().filter_map(|route| route["object"].as_str()).collect();
    assert_eq!(objects, ["island:i1", "island:i2", "team:t1"]);
    assert_eq!((&told["total"], &told["routes"][0]["version"]), (&json!(3), &json!(held.version)));
    let ran = scene.run(&["routes"]).code(0).shows(&["3 objects owned in zone eu"]);
    assert_eq!(ran.cells("team:t1")[1], "b2");
    assert_eq!(scene.json(&["routes", "--owner", "b2"])["total"], 1);
    assert_eq!(scene.json(&["routes", "--kind", "island"])["total"], 2);
    scene.run(&["routes", "--limit", "1"]).code(0).shows(&["3 objects owned", "1 looked at (--limit)"]);

    let told = scene.json(&["route", "island", "i1"]);
    assert_eq!((&told["route"]["owner"], &told["owner_alive"]), (&json!("b1"), &json!(true)));
    assert_eq!((&told["stored"]["cas"], &told["stored"]["bytes"]), (&json!(1), &json!(12)));
    assert!(told["route"]["age_ms"].as_u64().is_some_and(|age| age < 60_000), "{told}");
    scene.run(&["route", "island", "i1"]).code(0).shows(&["b1 (epoch", "owned", "12 bytes in the built-in store"]);
    scene.run(&["route", "island", "none"]).code(0).shows(&["nobody owns island:none"]);
    scene.run(&["route", "isl and", "i1"]).code(2);

    let target = who.clone();
    book.transfer(&held, &target).await.expect("moved");
    scene.run(&["route", "island", "i1"]).code(0).shows(&["b2 (epoch", "moved, not confirmed yet"]);
    scene.dies("b2").await;
    scene
        .run(&["route", "island", "i1"])
        .code(0)
        .shows(&["holds no lease", "by the next that asks where writes are fenced"]);
}

// ENV-5: what no member wrote is not shown as a route.
#[tokio::test]
async fn env_5_a_forged_route_is_counted_and_not_shown() {
    let scene = Scene::new().await;
    let (b1, _) = scene.join(backend("b1")).await;
    takes(&scene, &b1, "island:i1").await;
    takes(&scene, &b1, "island:i2").await;
    scene.by_hand(&["HSET", "maitred:{eu}:route:island:i1", "owner", "evil"]).await;
    scene.by_hand(&["SADD", "maitred:{eu}:owned:b1", "island:none"]).await;
    let told = scene.json(&["routes"]);
    assert_eq!((&told["not_believed"], &told["stray"], &told["total"]), (&json!(1), &json!(1), &json!(3)));
    scene.run(&["routes"]).code(0).shows(&["1 without a record of that owner", "1 not believed"]);
    let refused = scene.run(&["route", "island", "i1"]).code(1);
    assert!(refused.err.contains("no member wrote it"), "{}", refused.err);
    scene.by_hand(&["SET", "maitred:{eu}:object:island:i2", "of another type"]).await;
    let refused = scene.run(&["route", "island", "i2"]).code(1);
    assert!(refused.err.contains("maitred:{eu}:object:island:i2 is of another type"), "{}", refused.err);
}

// STO-16, CLI-1: what somebody wrote by hand hides no other route, and one run puts the index right.
#[tokio::test]
async fn sto_16_junk_among_the_routes_hides_no_other_and_a_reap_heals_the_index() {
    let scene = Scene::new().await;
    let (b1, _) = scene.join(backend("b1")).await;
    let (b2, _) = scene.join(backend("b2")).await;
    takes(&scene, &b1, "island:i1").await;
    let (_, old) = takes(&scene, &b2, "island:old").await;
    scene.by_hand(&["SET", "maitred:{eu}:owned:a1", "of another type"]).await;
    scene.by_hand(&["SADD", "maitred:{eu}:owned", "a1"]).await;
    scene.by_hand(&["SADD", "maitred:{eu}:owned:b1", "island:none", "names nothing"]).await;
    let told = scene.json(&["routes"]);
    assert_eq!((&told["total"], &told["unreadable"]), (&json!(3), &json!(["a1"])));
    scene.run(&["routes"]).code(0).shows(&["owned:a1 is of another type"]);

    // Its owner is long gone, and the list of owners was lost with it.
    scene.dies("b2").await;
    scene.by_hand(&["HSET", "maitred:{eu}:route:island:old", "saved_at", "1000"]).await;
    scene.by_hand(&["SREM", "maitred:{eu}:owned", "b2"]).await;
    let counts = |told: &serde_json::Value| ["released", "kept", "healed"].map(|of| told["routes"][of].clone());
    let dry = scene.json(&["reap", "--dry-run"]);
    assert_eq!(counts(&dry), [json!(1), json!(1), json!(2)], "{dry}");
    let done = scene.json(&["reap"]);
    assert_eq!(counts(&done), counts(&dry), "the run does not do what the dry run said");
    let again = scene.json(&["reap"]);
    assert_eq!(counts(&again), [json!(0), json!(1), json!(0)], "{again}");
    let free = scene.json(&["route", "island", "old"]);
    assert_eq!((&free["route"]["owner"], &free["route"]["state"]), (&json!(null), &json!("free")), "{free}");
    assert!(free["route"]["version"].as_u64() > Some(old.version.0), "{free}");
    assert_eq!(scene.json(&["routes"])["total"], 1);
}
