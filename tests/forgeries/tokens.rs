//! Rows of tokens.

use maitred::agent::{Outcome, Reason};
use maitred::envelope::{AuditReason, Kind};

use crate::fixtures::agents::{key, keyring, lands, pending, player, word};
use crate::{Counts, Fleet, dropped, signed, stranger, with};

// ENV-7, R-11: who has used a place cannot be given it a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_7_a_consumed_token_turned_to_claimed_by_hand_lands_nobody() {
    let mut fleet = Fleet::new().await;
    fleet.works().await;
    let row = fleet.row("token:works-1").await;
    assert_eq!(row["state"], "CONSUMED");
    let before = Counts::of(fleet.b1.agent().verifier());
    for n in 1..=3 {
        let _: u64 = fleet.ask(&["HSET", &key("token:works-1"), "state", "CLAIMED"]).await;
        assert_eq!(word(&fleet.b1, "works-1").await.expect("the store answers"), "replay", "time {n}");
    }
    dropped(fleet.b1.agent().verifier(), &before, AuditReason::TokenReplay, "works-1").await;
    assert_eq!((fleet.stock.used(), fleet.stock.out()), (1, 0));
    fleet.works().await;
}

// ENV-5, ENV-6, R-5: what a proxy takes over for a player who connects has to be what a backend signed for that player.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_5_a_forged_token_moves_nobody() {
    let mut fleet = Fleet::new().await;
    pending(&fleet.p1, "b1", "bob").await;
    let real = fleet.row("token:bob").await;
    let mut unsigned = real.clone();
    unsigned.remove("sig");
    let claimed = with(&real, &[("state", "CLAIMED"), ("claimant", "p9"), ("claimant_epoch", "1"), ("claim_op", "o")]);
    let table = [
        ("bob", with(&real, &[("server", "evil")]), AuditReason::BadSignature),
        ("bob", with(&real, &[("expires_at", "9000000000000")]), AuditReason::BadSignature),
        ("bob", with(&real, &[("payload", "{\"world\":\"vault\"}")]), AuditReason::BadSignature),
        ("bob", unsigned, AuditReason::MissingSignature),
        ("bob", signed(&stranger(), Kind::Token, with(&real, &[("server", "evil")])), AuditReason::UnknownKey),
        ("bob", signed(&keyring(), Kind::Token, with(&real, &[("v", "2")])), AuditReason::SchemaVersion),
        ("bob", claimed, AuditReason::MissingSignature),
        ("carol", real.clone(), AuditReason::WrongKey),
    ];
    for (name, row, reason) in table {
        let before = Counts::of(fleet.p1.agent().verifier());
        let key_name = format!("token:{name}");
        let _: u64 = fleet.ask(&["DEL", &key(&key_name)]).await;
        fleet.write(&key_name, &row).await;
        match fleet.p1.take(&player(name)).await {
            Outcome::Refused(refusal) => assert_ne!(refusal.reason, Reason::KillSwitch, "{refusal:?}"),
            other => panic!("{reason:?}: {name} is sent somewhere: {other:?}"),
        }
        dropped(fleet.p1.agent().verifier(), &before, reason, &key_name).await;
    }
    fleet.works().await;

    // The row as it was is as good as before.
    let _: u64 = fleet.ask(&["DEL", &key("token:bob")]).await;
    fleet.write("token:bob", &real).await;
    match fleet.p1.take(&player("bob")).await {
        Outcome::Transfer(transfer) => assert_eq!(transfer.addr, "b1.example:25565"),
        other => panic!("{other:?}"),
    }
    lands(&fleet.b1, "bob").await;
    fleet.stock.all_home().await;
}
