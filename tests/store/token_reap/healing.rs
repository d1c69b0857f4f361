//! The index, whatever happened to it, and what is left when everything is over.

use maitred::ids::{NodeId, Role};
use maitred::store::{Invocation, Key, scripts};
use maitred::token::{ReapOptions, ReapReport, reap};
use redis::AsyncCommands;

use crate::fixtures::tokens::{Bench, Member, player, request, say};
use maitred_testkit::store::TestStore;

/// One call of the script for alice, whose claimant was read as `read` and may be taken for dead until then.
async fn reap_alice_until(bench: &Bench, by: &Member, read: Option<&NodeId>, judge_until_ms: u64) -> String {
    let keys = by.store.keys();
    let (b1, alice) = (NodeId::new("b1").unwrap(), player("alice"));
    let due: Key<'_> = keys.due(&b1);
    let node = read.map_or(due, |id| keys.node(id));
    let call = Invocation::new(&scripts::TOKEN_REAP, &[due, keys.due_servers(), keys.token(&alice), node])
        .arg("b1")
        .arg(bench.times.claim_reanimate_ms)
        .arg(bench.times.audit_ms)
        .arg(keys.token_events())
        .arg("0")
        .arg(judge_until_ms)
        .arg("alice")
        .arg(read.map_or("", NodeId::as_str));
    by.store.run(&call).await.unwrap().text(0).unwrap().to_owned()
}

async fn reap_alice(bench: &Bench, by: &Member, read: Option<&NodeId>) -> String {
    reap_alice_until(bench, by, read, u64::MAX).await
}

// R-43: a call that stood in the store's socket through a stall comes when everybody's beat is as late as the store was.
#[tokio::test]
async fn r_43_a_sweep_that_comes_late_takes_nobody_for_dead_and_still_ends_what_is_over() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "late").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let token = b1.issued(&player("alice"), &request("r"), 1).await;
    assert_eq!(say(&a.claim(&token).await), "Claimed");
    bench.age(bench.times.claim_reanimate_ms).await;
    bench.lapse(&a.who.id).await;
    let before = bench.dump().await;
    for too_early in [0, b1.store.clock().now_ms() - 1] {
        assert_eq!(reap_alice_until(&bench, &b1, Some(&a.who.id), too_early).await, "SKIPPED");
    }
    assert_eq!(bench.dump().await, before);
    bench.age(bench.times.ttl_ms).await;
    assert_eq!(reap_alice_until(&bench, &b1, Some(&a.who.id), 0).await, "EXPIRED", "its own time says that");
}

// R-16: what changed between the reaper's look and the script is left alone.
#[tokio::test]
async fn r_16_a_token_whose_claimant_changed_under_the_look_is_skipped() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "changed").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let token = b1.issued(&player("alice"), &request("r"), 1).await;
    assert_eq!(say(&a.claim(&token).await), "Claimed");
    bench.age(bench.times.claim_reanimate_ms).await;
    bench.lapse(&a.who.id).await;
    let before = bench.dump().await;
    let other = NodeId::new("B").unwrap();
    assert_eq!(reap_alice(&bench, &b1, None).await, "SKIPPED", "read before the claim");
    assert_eq!(reap_alice(&bench, &b1, Some(&other)).await, "SKIPPED", "read before a claim by another");
    assert_eq!(bench.dump().await, before, "and still to be looked at by the next sweep");
    assert_eq!(reap_alice(&bench, &b1, Some(&a.who.id)).await, "REOPENED");
    assert_eq!(reap_alice(&bench, &b1, Some(&a.who.id)).await, "SKIPPED", "and only once");
}

// R-34: else the place of a token that nobody uses is gone for as long as the store's clock went back.
#[tokio::test]
async fn r_34_a_token_from_before_the_stores_clock_stepped_back_is_over() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "stepped").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    for name in ["pending", "claimed", "now"] {
        let token = b1.issued(&player(name), &request("r"), 1).await;
        if name == "claimed" {
            assert_eq!(say(&a.claim(&token).await), "Claimed");
        }
        if name != "now" {
            let mut raw = bench.raw.clone();
            for field in ["issued_at", "expires_at"] {
                let _: () = raw.hincr(bench.key(&format!("token:{name}")), field, 600_000).await.unwrap();
            }
            let _: () = raw.zincr(bench.key("due:b1"), name, 600_000).await.unwrap();
        }
    }
    let report = reap(&a.book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(report, ReapReport { expired: 2, servers: 1, ..ReapReport::default() });
    assert_eq!(reap(&a.book, None, ReapOptions::default()).await.unwrap().expired, 0);
}

// STO-16: entries of the index that stand for no token go, and take nothing else with them.
#[tokio::test]
async fn sto_16_the_sweep_heals_what_stands_for_no_token() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "heal").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let b2 = bench.join("b2", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let mut raw = bench.raw.clone();
    // Its row is gone; its row is another server's; it has ended; it is only a cancel mark; its server has no index.
    b1.issued(&player("gone"), &request("r"), 1).await;
    let _: () = raw.del(bench.key("token:gone")).await.unwrap();
    b2.issued(&player("elsewhere"), &request("r"), 1).await;
    let ended = b1.issued(&player("ended"), &request("r"), 1).await;
    assert_eq!(say(&b1.book.release_own(&ended.id, &ended.player, &b1.who, "x").await), "Released");
    let marked = a.book.cancel(&player("marked"), &request("r"), &a.who, None, &[]).await;
    assert_eq!(say(&marked), "Marked");
    for name in ["gone", "elsewhere", "ended", "marked"] {
        let _: () = raw.zadd(bench.key("due:b1"), name, 1).await.unwrap();
    }
    let _: () = raw.sadd(bench.key("due"), &["b1", "b8", "b9"]).await.unwrap();
    let rows = bench.dump().await;

    let report = reap(&a.book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(report, ReapReport { healed: 4, servers: 1, ..ReapReport::default() });
    assert_eq!(bench.due_servers().await, ["b2"]);
    assert_eq!(bench.token_keys().await, ["due", "due:b2", "token:elsewhere", "token:ended", "token:marked"]);
    let after = bench.dump().await;
    for name in ["token:elsewhere", "token:ended", "token:marked", "due:b2"] {
        assert_eq!(after[name], rows[name], "{name} is none of its business");
    }
}

// STO-16, R-6: what a stranger wrote under our keys holds up nothing but itself. Otherwise one wrong key keeps every place
// of the zone promised for good.
#[tokio::test]
async fn sto_16_a_key_of_another_type_holds_up_no_sweep() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "strange").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let mut raw = bench.raw.clone();
    b1.issued(&player("alice"), &request("r"), 1).await;
    bench.age(bench.times.ttl_ms).await;
    for key in ["token:evil", "due:a1"] {
        let _: () = raw.set(bench.key(key), "x").await.unwrap();
    }
    let _: () = raw.zadd(bench.key("due:b1"), "evil", 1).await.unwrap();
    let _: () = raw.sadd(bench.key("due"), "a1").await.unwrap();
    let _: () = raw.sadd(bench.key("due"), b"\xff".as_slice()).await.unwrap();
    let report = reap(&b1.book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(report, ReapReport { expired: 1, skipped: 1, servers: 1, ..ReapReport::default() });
    assert_eq!(bench.row(&player("alice")).await["state"], "EXPIRED");
    assert!(b1.book.list(&b1.who.id).await.unwrap().is_empty());
}

// STO-16, R-6: entries that no token can ever be behind keep as many places promised, for lines and for dispatches.
#[tokio::test]
async fn sto_16_an_entry_under_what_no_player_can_be_called_goes() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "nameless").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let mut raw = bench.raw.clone();
    b1.issued(&player("alice"), &request("r"), 1).await;
    for name in [b"\xff\xfe".as_slice(), b"two words", b"", &[b'x'; 129]] {
        let _: () = raw.zadd(bench.key("due:b1"), name, 1).await.unwrap();
    }
    let report = reap(&b1.book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(report, ReapReport { healed: 4, servers: 1, ..ReapReport::default() });
    let left: Vec<String> = raw.zrange(bench.key("due:b1"), 0, -1).await.unwrap();
    assert_eq!(left, ["alice"]);
}

// STO-16: the list of servers lost one that has open tokens. Its own node finds them, and puts it on the list again.
#[tokio::test]
async fn sto_16_a_server_that_the_list_has_lost_sweeps_its_own_tokens() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "unlisted").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let mut raw = bench.raw.clone();
    b1.issued(&player("alice"), &request("r"), 1).await;
    bench.age(bench.times.ttl_ms).await;
    b1.issued(&player("bob"), &request("r"), 1).await;
    let _: () = raw.del(bench.key("due")).await.unwrap();
    let report = reap(&b1.book, Some(&b1.who.id), ReapOptions::default()).await.unwrap();
    assert_eq!(report, ReapReport { expired: 1, servers: 1, ..ReapReport::default() });
    assert_eq!(bench.due_servers().await, ["b1"], "bob's token is found by everybody from now on");
}

/// A token in every state, claimed by the living and by the dead, and marks.
async fn everything(bench: &Bench) {
    let b1 = bench.join("b1", Role::backend()).await;
    let b2 = bench.join("b2", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let r = request("r");
    b1.issued(&player("pending"), &r, 1).await;
    for name in ["claimed", "consumed", "released", "cancelled"] {
        let token = b1.issued(&player(name), &r, 1).await;
        assert_eq!(say(&a.claim(&token).await), "Claimed");
        match name {
            "consumed" => assert_eq!(say(&b1.consume(&token).await), "Consumed"),
            "released" => assert_eq!(say(&a.book.release_claim(&token, &a.who, None, "full").await), "Released"),
            "cancelled" => {
                assert_eq!(say(&a.book.cancel(&token.player, &r, &a.who, None, &[]).await), "Released");
            }
            _ => {}
        }
    }
    b1.issued(&player("moved"), &r, 1).await;
    b2.issued(&player("moved"), &r, 2).await;
    b1.issued(&player("marked-too"), &r, 1).await;
    assert_eq!(say(&a.book.cancel(&player("marked-too"), &request("other"), &a.who, None, &[]).await), "Marked");
    assert_eq!(say(&a.book.cancel(&player("marked"), &r, &a.who, None, &[]).await), "Marked");
}

// STO-16, TOK-10: after the time of the tokens, one sweep and the audit time nothing of them is left.
#[tokio::test]
async fn sto_16_no_key_of_a_token_outlives_its_time_the_audit_time_and_one_sweep() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "over").await;
    everything(&bench).await;
    bench.age(bench.times.ttl_ms).await;
    let book = bench.book().await;
    let report = reap(&book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(report, ReapReport { expired: 4, servers: 2, ..ReapReport::default() });
    let left = bench.token_keys().await;
    assert!(left.contains(&"token:pending".to_owned()), "an ended token stays readable for the audit time");
    assert!(left.iter().all(|key| key.starts_with("token:")), "{left:?}");
    bench.age(bench.times.audit_ms).await;
    assert_eq!(bench.token_keys().await, Vec::<String>::new());
}

// TOK-10: with nobody sweeping the rows go all the same; only the index waits, and the first sweep empties it.
#[tokio::test]
async fn tok_10_with_no_reaper_alive_nothing_but_the_index_outlives_time_and_audit_time() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "unswept").await;
    everything(&bench).await;
    bench.age(bench.times.ttl_ms + bench.times.audit_ms).await;
    assert_eq!(bench.token_keys().await, ["due", "due:b1", "due:b2"]);
    let book = bench.book().await;
    let report = reap(&book, None, ReapOptions::default()).await.unwrap();
    assert_eq!(report, ReapReport { healed: 4, servers: 2, ..ReapReport::default() });
    assert_eq!(bench.token_keys().await, Vec::<String>::new());
}
