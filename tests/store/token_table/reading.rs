//! What is read is believed only as far as a member signed it, for the player whose key it stands in.

use maitred::envelope::AuditReason;
use maitred::ids::Role;
use maitred::token::{Ledger, Redeem, TokenState};
use redis::AsyncCommands;

use crate::fixtures::tokens::{Bench, player, request, say};
use maitred_testkit::store::TestStore;

const SIGNED: [(&str, &str); 9] = [
    ("id", "stolen"),
    ("player", "mallory"),
    ("server", "b9"),
    ("server_epoch", "1"),
    ("request", "r9"),
    ("attempt", "9"),
    ("payload", "{\"world\":\"vault\"}"),
    ("issued_at", "1"),
    ("expires_at", "9796000000000"),
];

// TOK-9, ENV-5: one changed field, and neither find nor list shows the row.
#[tokio::test]
async fn tok_9_a_row_with_a_changed_field_is_not_shown() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "changed").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let alice = player("alice");
    let good = b1.issued(&player("good"), &request("r"), 1).await;
    let claimed: [(&str, &str); 3] = [("claimant", "B"), ("claimant_epoch", "7"), ("claim_op", "mine")];
    let token = b1.issued(&alice, &request("r"), 1).await;
    assert_eq!(say(&a.claim(&token).await), "Claimed");
    let row = bench.row(&alice).await;
    let short = &row["sig"][..51].to_owned();
    let spoiled: [(&str, &str); 5] =
        [("sig", ""), ("sig", short), ("claim_sig", ""), ("state", "GOLDEN"), ("claimed_at", "soon")];
    for (field, value) in SIGNED.iter().chain(&claimed).chain(&spoiled) {
        bench.forge(&alice, &[(field, value)]).await;
        let dropped = bench.verifier.audit().total();
        assert!(say_find(&bench, &alice).await.starts_with("Untrusted"), "{field} = {value}");
        assert!(bench.verifier.audit().total() > dropped, "{field} = {value} is audited");
        let listed = b1.book.list(&b1.who.id).await.unwrap();
        let names: Vec<&str> = listed.iter().map(|row| row.token.player.as_str()).collect();
        assert_eq!(names, ["good"], "{field} = {value}");
        bench.forge(&alice, &[(field, &row[*field])]).await;
    }
    assert_eq!(say_find(&bench, &alice).await, "CLAIMED", "restored, it is believed again");

    // ENV-6: another version is refused as that, and the rest goes on.
    bench.forge(&alice, &[("v", "2")]).await;
    assert!(matches!(a.book.find(&alice).await, Err(maitred::Error::SchemaVersion { .. })));
    assert_eq!(bench.verifier.audit().count(AuditReason::SchemaVersion), 1);
    assert_eq!(a.book.list(&b1.who.id).await.unwrap()[0].token.id, good.id);
    bench.forge(&alice, &[("v", "1")]).await;

    // A claim needs its own signature: without one, CLAIMED is a word that anybody could have written.
    let mut raw = bench.raw.clone();
    let _: () = raw.hdel(bench.key("token:alice"), &["claimant", "claim_sig"]).await.unwrap();
    assert_eq!(say_find(&bench, &alice).await, "Untrusted(missing_signature)");
}

async fn say_find(bench: &Bench, name: &maitred::ids::Player) -> String {
    match bench.book().await.find(name).await {
        Ok(Some(row)) => row.state.to_string(),
        Ok(None) => "nothing".to_owned(),
        Err(maitred::Error::Untrusted { reason, .. }) => format!("Untrusted({reason})"),
        Err(other) => format!("{other:?}"),
    }
}

// R-5: a valid row in another player's key, and a claim of another token.
#[tokio::test]
async fn r_5_a_row_copied_to_another_player_is_refused() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "copied").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let (alice, mallory) = (player("alice"), player("mallory"));
    let token = b1.issued(&alice, &request("r"), 1).await;
    let row = bench.row(&alice).await;
    let fields: Vec<(&str, &str)> = row.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    bench.forge(&mallory, &fields).await;
    let _: () = bench.raw.clone().zadd(bench.key("due:b1"), "mallory", 1).await.unwrap();
    assert_eq!(say_find(&bench, &mallory).await, "Untrusted(wrong_key)");
    assert_eq!(bench.verifier.audit().count(AuditReason::WrongKey), 1);
    assert_eq!(b1.book.list(&b1.who.id).await.unwrap().len(), 1);
    // The copy is a live row to the script, and still nobody is told of it as a token.
    let taken = b1.book.issue(&b1.who, &mut b1.order(&mallory, &request("r9"), 1)).await;
    assert_eq!(say(&taken), "Untrusted(wrong_key)");

    // The claim of one token under another.
    assert_eq!(say(&a.claim(&token).await), "Claimed");
    let claimed = bench.row(&alice).await;
    b1.issued(&player("bob"), &request("r"), 1).await;
    let copy: Vec<(&str, &str)> = ["state", "claimant", "claimant_epoch", "claimed_at", "claim_op", "claim_sig"]
        .iter()
        .map(|name| (*name, claimed[*name].as_str()))
        .collect();
    bench.forge(&player("bob"), &copy).await;
    assert_eq!(say_find(&bench, &player("bob")).await, "Untrusted(bad_signature)");
}

// ENV-7, R-11, TOK-4: CONSUMED turned CLAIMED by hand finds nothing held at the destination.
#[tokio::test]
async fn env_7_a_consumed_token_that_was_made_live_by_hand_lets_nobody_in() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "undone").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let alice = player("alice");
    let mut ledger: Ledger<&str> = Ledger::default();
    let mut order = b1.order(&alice, &request("r"), 1);
    ledger.issuing(&order, b1.who.epoch, "seat", order.issued_at_ms + bench.times.ttl_ms);
    let issued = b1.book.issue(&b1.who, &mut order).await.unwrap();
    let maitred::token::IssueOutcome::Issued(token) = issued else { panic!("{issued:?}") };
    ledger.issued(&token);
    assert_eq!(say(&a.claim(&token).await), "Claimed");
    let before = bench.row(&alice).await;

    let Redeem::Consume { id, op, .. } = ledger.begin_redeem(&alice, token.issued_at_ms) else { panic!("held") };
    assert_eq!(say(&b1.book.consume(&id, &alice, &b1.who, &op).await), "Consumed");
    assert_eq!(ledger.deliver(&id).unwrap().0, "seat");
    let _: () = bench.raw.clone().del(bench.key("token:alice")).await.unwrap();
    let fields: Vec<(&str, &str)> = before.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    bench.forge(&alice, &fields).await;

    // The row verifies: it is a copy of one that a member wrote. The destination's own book is what refuses it.
    assert_eq!(bench.book().await.find(&alice).await.unwrap().unwrap().state, TokenState::Claimed);
    assert_eq!(ledger.begin_redeem(&alice, token.issued_at_ms), Redeem::Past);
    assert_eq!(ledger.past(&alice), [maitred::token::Past { id: token.id, end: maitred::token::PastEnd::Known }]);
    assert!(ledger.expire(token.expires_at_ms).is_empty(), "and no place comes home for it");
}

// TOK-9: an ended token is found while it is readable, and told from a live one.
#[tokio::test]
async fn tok_9_find_tells_live_from_ended_and_list_shows_what_is_open() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "find").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let b2 = bench.join("b2", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let token = b1.issued(&player("alice"), &request("r"), 1).await;
    b2.issued(&player("bob"), &request("r"), 1).await;
    let released = b1.issued(&player("carol"), &request("r"), 1).await;
    assert_eq!(say(&b1.book.release_own(&released.id, &released.player, &b1.who, "full").await), "Released");
    assert_eq!(say(&a.claim(&token).await), "Claimed");

    let now = bench.now().await;
    let alice = a.book.find(&player("alice")).await.unwrap().unwrap();
    assert!(alice.is_live(now) && !alice.is_live(alice.token.expires_at_ms), "TOK-3: live by the time, not by the row");
    assert_eq!(alice.claim.as_ref().unwrap().claimant, a.who.id);
    let carol = a.book.find(&player("carol")).await.unwrap().unwrap();
    assert_eq!((carol.state, carol.reason.as_deref()), (TokenState::Released, Some("full")));
    assert!(!carol.is_live(now));
    assert!(a.book.find(&player("nobody")).await.unwrap().is_none());
    assert_eq!(a.book.servers().await.unwrap(), [b1.who.id.clone(), b2.who.id.clone()]);
    let listed = a.book.list(&b1.who.id).await.unwrap();
    assert_eq!(listed.iter().map(|row| &row.token.id).collect::<Vec<_>>(), [&token.id]);
    // An index entry of another server's token is no token of this one.
    let _: () = bench.raw.clone().zadd(bench.key("due:b1"), "bob", 1).await.unwrap();
    assert_eq!(a.book.list(&b1.who.id).await.unwrap().len(), 1);
}
