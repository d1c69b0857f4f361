use std::time::Duration;

use maitred::ids::{NodeId, Player, RequestId};
use maitred::token::{BookOptions, ReapOptions, TokenState, reap};
use serde_json::{Value, json};

use crate::fixtures::command::{CliFixture, backend, proxy};
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(20);
const SHORT: BookOptions = BookOptions { ttl_ms: 600, claim_reanimate_ms: 100, audit_ms: 60_000 };

fn player(name: &str) -> Player {
    Player::new(name).expect("valid")
}

fn players(told: &Value) -> Vec<&str> {
    told["tokens"].as_array().expect("a list").iter().filter_map(|token| token["player"].as_str()).collect()
}

// CLI-1, TOK-9: what is promised now, what runs out first on top.
#[tokio::test]
async fn tok_9_open_tokens_are_listed_soonest_expiry_first() {
    let fixture = CliFixture::new().await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    let (_b2, b2) = fixture.join(backend("b2")).await;
    let (_p1, p1) = fixture.join(proxy("p1")).await;
    let alice = fixture.issue(&b1, "alice", "{}").await;
    fixture.claim(&alice, &p1).await;
    fixture.issue(&b2, "bob", "{}").await;
    let carol = fixture.issue(&b1, "carol", "{}").await;
    fixture.claim(&carol, &p1).await;
    fixture.consume(&carol, &b1).await;

    let told = fixture.json(&["tokens"]);
    assert_eq!((players(&told), &told["total"]), (vec!["alice", "bob"], &json!(2)));
    let first = &told["tokens"][0];
    assert_eq!((&first["state"], &first["claim"]["claimant"]), (&json!("CLAIMED"), &json!("p1")));
    assert!(first["expires_in_ms"].as_i64().is_some_and(|left| (1..=30_000).contains(&left)), "{first}");
    let ran = fixture.run(&["tokens"]).code(0).shows(&["zone eu: 2 open tokens"]);
    assert_eq!(ran.cells("alice")[1..4], ["CLAIMED", "b1", "p1"]);
    assert_eq!(ran.cells("bob")[1..4], ["PENDING", "b2", "-"]);
    assert_eq!(ran.cells("bob")[6..8], ["r-bob", "1"]);

    assert_eq!(players(&fixture.json(&["tokens", "--server", "b2"])), ["bob"]);
    let told = fixture.json(&["tokens", "--limit", "1"]);
    assert_eq!((players(&told), &told["total"]), (vec!["alice"], &json!(2)));
    fixture.run(&["tokens", "--limit", "1"]).code(0).shows(&["2 open tokens; 1 more that expire later are not shown"]);
    fixture.run(&["tokens", "--limit", "1", "alice"]).code(2).complains(&["--limit"]);
}

// TOK-3, ENV-5: what is over or forged must not pass for a promise.
#[tokio::test]
async fn tok_3_overdue_and_forged_tokens_are_told_apart() {
    let fixture = CliFixture::with_config("", SHORT).await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    fixture.issue(&b1, "alice", "{}").await;
    fixture.issue(&b1, "mallory", "{}").await;
    fixture.by_hand(&["HSET", "maitred:{eu}:token:mallory", "payload", "{\"vip\":true}"]).await;
    fixture.by_hand(&["ZADD", "maitred:{eu}:due:b1", "1", "nobody"]).await;
    eventually("alice's time is over", LIMIT, async || {
        fixture.json(&["tokens"])["tokens"][0]["overdue"] == json!(true)
    })
    .await;
    let told = fixture.json(&["tokens"]);
    assert_eq!((players(&told), &told["unindexed"]), (vec!["alice"], &json!(1)));
    assert_eq!(told["not_believed"]["rows"], json!([{"key": "token:mallory", "reason": "bad_signature"}]));
    let ran = fixture.run(&["tokens"]).code(0);
    assert!(ran.cells("alice")[5].starts_with("over since"), "{ran:?}");
    ran.shows(&["not believed: 1 (bad_signature 1): token:mallory", "index entries without an open token: 1"]);
    fixture.run(&["tokens", "alice"]).code(0).shows(&["it counts as EXPIRED"]);
    let ran = fixture.run(&["tokens", "mallory"]).code(1);
    assert!(ran.err.contains("bad_signature") && ran.err.contains("maitred:{eu}:token:mallory"), "{ran:?}");
    // The same for whoever wants it gone: nothing of a forged row is acted on.
    fixture.run(&["tokens", "release", "mallory"]).code(1);
}

// TOK-10: who was it that had this player, and what became of the place.
#[tokio::test]
async fn tok_10_one_players_token_is_shown_whole_also_after_its_end() {
    let fixture = CliFixture::with_config("", BookOptions { claim_reanimate_ms: 100, ..BookOptions::default() }).await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    let (mut p1, claimant) = fixture.join(proxy("p1")).await;
    let payload = format!("{{\"note\":\"{}\"}}", "x".repeat(300));
    let token = fixture.issue(&b1, "alice", &payload).await;
    fixture.claim(&token, &claimant).await;
    p1.leave().await.expect("p1 leaves");
    eventually("the claim of a proxy that left is reopened", LIMIT, async || {
        reap(&fixture.book, None, ReapOptions::default()).await.expect("the store answers");
        fixture.book.find(&player("alice")).await.expect("read").is_some_and(|row| row.state == TokenState::Pending)
    })
    .await;
    let told = fixture.json(&["tokens", "alice"]);
    let shown = &told["token"];
    assert_eq!((&shown["state"], &shown["claim"]), (&json!("PENDING"), &Value::Null));
    assert_eq!(shown["last_claim"]["claimant"], "p1");
    assert_eq!(shown["payload"]["note"].as_str().map(str::len), Some(300), "JSON has the whole payload");
    let ran = fixture.run(&["tokens", "alice"]).code(0);
    assert!(ran.cells("payload")[1].ends_with("… (311 bytes)"), "{ran:?}");
    assert!(ran.cells("last claim")[1].starts_with("p1 (epoch "), "{ran:?}");

    fixture.consume(&token, &b1).await;
    let told = fixture.json(&["tokens", "alice"]);
    assert_eq!(told["token"]["state"], "CONSUMED");
    assert!(told["token"]["consumed_at"].is_u64() && told["previous"] == json!([]), "{told}");
    fixture.run(&["tokens", "alice"]).code(0).shows(&["CONSUMED: the player took the place"]);

    // The next one replaces the row and keeps what was before it.
    fixture.by_hand(&["HSET", "maitred:{eu}:token:alice", "request", "r-old"]).await;
    let next = fixture.issue(&b1, "alice", "{}").await;
    let told = fixture.json(&["tokens", "alice"]);
    assert_eq!(told["token"]["id"], next.id.as_str());
    assert_eq!((&told["previous"][0]["id"], &told["previous"][0]["end"]), (&json!(token.id), &json!("CONSUMED")));
    fixture.run(&["tokens", "alice"]).code(0).shows(&["BEFORE IT", "CONSUMED"]);

    let request = RequestId::new("r9").expect("valid");
    fixture.book.cancel(&player("bob"), &request, &b1, None, &[]).await.expect("the store answers");
    let told = fixture.json(&["tokens", "bob"]);
    assert_eq!((&told["token"], &told["cancelled"][0]["request"]), (&Value::Null, &json!("r9")));
    fixture.run(&["tokens", "bob"]).code(0).shows(&["bob has no token", "request r9 was cancelled"]);
}

// TOK-5: an operator can free a player whom everybody else must leave alone.
#[tokio::test]
async fn tok_5_an_operator_releases_what_is_open_and_is_told_what_is_not() {
    let fixture = CliFixture::new().await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    let (_p1, p1) = fixture.join(proxy("p1")).await;
    let state = async |name: &str| fixture.book.find(&player(name)).await.expect("read").map(|row| row.state);

    fixture.issue(&b1, "pending", "{}").await;
    let claimed = fixture.issue(&b1, "claimed", "{}").await;
    fixture.claim(&claimed, &p1).await;
    let landed = fixture.issue(&b1, "landed", "{}").await;
    fixture.claim(&landed, &p1).await;
    fixture.consume(&landed, &b1).await;

    let ran = fixture.run(&["tokens", "release", "pending"]).code(0);
    ran.shows(&["released: the token of pending on b1 (reason: operator); its place goes back"]);
    assert_eq!(state("pending").await, Some(TokenState::Released));
    let told = fixture.json(&["tokens", "release", "claimed", "--reason", "stuck"]);
    let want =
        json!({"player": "claimed", "outcome": "released", "server": "b1", "token": claimed.id, "reason": "stuck"});
    assert_eq!(told, want);
    assert_eq!(state("claimed").await, Some(TokenState::Released));
    assert_eq!(fixture.json(&["tokens", "claimed"])["token"]["reason"], "stuck");
    // Its own second try, and all else that is not open, is no failure and says so.
    assert_eq!(fixture.json(&["tokens", "release", "claimed"])["outcome"], "already_released");
    fixture.run(&["tokens", "release", "claimed"]).code(0).shows(&["nothing to release", "before (reason: stuck)"]);
    fixture.run(&["tokens", "release", "landed"]).code(0).shows(&["nothing to release: landed landed on b1"]);
    assert_eq!(state("landed").await, Some(TokenState::Consumed));
    fixture.run(&["tokens", "release", "nobody"]).code(0).shows(&["nothing to release: nobody has no token"]);
    fixture.run(&["tokens", "release", "alice", "--reason", "two words"]).code(2);
    fixture.run(&["tokens", "release"]).code(2);
    fixture.run(&["tokens", "a b"]).code(2);
    // The index went with the tokens (STO-16).
    assert!(!fixture.contents().await.keys().any(|key| key.contains("due")), "{:?}", fixture.contents().await.keys());
}

#[tokio::test]
async fn tok_5_releasing_what_ran_out_ends_it_as_expired() {
    let fixture = CliFixture::with_config("", SHORT).await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    let token = fixture.issue(&b1, "alice", "{}").await;
    eventually("its time is over", LIMIT, async || fixture.store.clock().now_ms() > token.expires_at_ms + 50).await;
    let told = fixture.json(&["tokens", "release", "alice"]);
    assert_eq!((&told["outcome"], &told["end"]), (&json!("ended"), &json!("EXPIRED")));
    assert_eq!(fixture.json(&["tokens", "alice"])["token"]["state"], "EXPIRED");
    fixture.run(&["tokens", "release", "alice"]).code(0).shows(&["has ended (EXPIRED)"]);
    assert!(fixture.book.list(&NodeId::new("b1").expect("valid")).await.expect("read").is_empty());
}
