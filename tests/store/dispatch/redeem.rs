//! DSP-3: what a join finds. If one of these fails, a player who was promised a place does not get it, or somebody gets
//! in with a token that is used up.

use std::time::Duration;

use maitred::agent::{Outcome, Redeemed, Request};
use maitred::envelope::AuditReason;
use maitred::ids::{NodeEpoch, OperationId};
use maitred::node::{CONFIG, Control};
use maitred::store::scripts;
use maitred::token::ClaimOutcome;
use redis::aio::MultiplexedConnection;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, key, lands, operator, pending, player, proxy, reads, sees, state, transfer, word,
};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

fn consume() -> String {
    format!("EVALSHA {}", scripts::TOKEN_CONSUME.pinned())
}

#[tokio::test]
async fn dsp_3_a_join_takes_the_reserved_place_and_its_payload_without_a_read() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").wired("b1").quiet().up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let wire = fleet.wire();
    let moved = transfer(&p1, "alice").await;
    // DSP-2: what was resolved at the destination travels with the token.
    assert!(moved.payload().get().contains("\"x\":0"), "{}", moved.payload());
    assert!(moved.left_ms() > 50_000 && moved.left_ms() < 60_000, "R-14: {}", moved.left_ms());
    wire.reset_counts();
    match b1.redeem(&player("alice")).await.expect("an answer") {
        Redeemed::Landed { token, place, payload } => {
            assert_eq!((token, place), (moved.token.id.clone(), 0));
            assert_eq!(payload.get(), moved.payload().get(), "byte for byte");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((wire.count(&consume()), reads(wire)), (1, 0));
    // Somebody who has nothing here costs nothing at all.
    assert_eq!(word(&b1, "stranger").await.expect("an answer"), "none");
    assert_eq!((wire.count("EVALSHA"), reads(wire)), (1, 0));
    let mut conn = fleet.store.conn().await;
    assert_eq!(state(&mut conn, "alice").await, "CONSUMED");
}

#[tokio::test]
async fn dsp_3_a_token_that_nobody_claimed_lets_nobody_in_until_it_is() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let held = pending(&p1, "b1", "alice").await;
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "not_claimed");
    assert_eq!((stock.out(), b1.promised()), (1, 1), "the place is still the player's");
    let by = NodeEpoch { id: p1.agent().lease().id().clone(), epoch: p1.agent().lease().epoch() };
    let claimed = p1.agent().book().claim(&held.token, &by, &OperationId::fresh()).await.expect("an answer");
    assert!(matches!(claimed, ClaimOutcome::Claimed(_)));
    lands(&b1, "alice").await;
    stock.all_home().await;
}

// TOK-4, R-11: whoever has the store's password but not the secret can turn a row; nobody gets in by it.
#[tokio::test]
async fn dsp_3_a_used_token_whose_row_claims_to_be_live_again_is_a_replay_and_audited() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    transfer(&p1, "alice").await;
    lands(&b1, "alice").await;
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "none", "the row says that it is used");
    let audit = b1.agent().verifier().audit();
    assert_eq!(audit.count(AuditReason::TokenReplay), 0);

    let mut conn = fleet.store.conn().await;
    let turn: redis::RedisResult<()> =
        redis::cmd("HSET").arg(key("token:alice")).arg("state").arg("CLAIMED").query_async(&mut conn).await;
    turn.unwrap();
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "replay");
    assert_eq!(audit.count(AuditReason::TokenReplay), 1);
    stock.all_home().await;
    assert_eq!(stock.used(), 1);
}

#[tokio::test]
async fn tok_8_tokens_of_a_backend_that_started_again_are_refused_and_its_new_inventory_gains_none() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let (old, new) = (Stock::new(9, 9), Stock::new(4, 9));
    let dead = backend(config("b1", "backend", &store.url()), &old).await;
    let p1 = proxy(config("p1", "proxy", &store.url())).await;
    sees(&p1, &[&dead]).await;
    transfer(&p1, "alice").await;
    pending(&p1, "b1", "bob").await;
    let epoch = dead.agent().lease().epoch();
    drop(dead);

    let b1 = backend(config("b1", "backend", &wire.url()), &new).await;
    assert!(b1.agent().lease().epoch() > epoch, "NOD-2: always a new epoch");
    for name in ["alice", "bob"] {
        assert_eq!(word(&b1, name).await.expect("an answer"), "old_epoch");
    }
    assert_eq!((new.out(), new.used(), b1.promised()), (0, 0, 0));
    assert_eq!(b1.agent().verifier().audit().count(AuditReason::TokenReplay), 0, "nobody replayed anything");
    // The list of old tokens is by player: the joins of everybody else cost no read.
    eventually("the list is there", LIMIT, async || {
        let before = wire.count("HGETALL");
        word(&b1, "stranger").await.expect("an answer") == "none" && wire.count("HGETALL") == before
    })
    .await;

    // The next request of the player replaces the token.
    sees(&p1, &[&b1]).await;
    let again = eventually("the player gets a new place", LIMIT, async || {
        match p1.dispatch(Request::new(player("bob"))).await {
            Outcome::Transfer(transfer) => Some(transfer),
            _ => None,
        }
    })
    .await;
    assert!(again.token.server_epoch > epoch);
    lands(&b1, "bob").await;
    new.all_home().await;
}

// R-1, STO-10: the operation is repeated, and its own success is no replay.
#[tokio::test]
async fn dsp_3_a_join_whose_answer_was_lost_on_the_wire_lands_once() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").wired("b1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (stock, wire) = (b1.inventory().clone(), fleet.wire());
    for (name, action) in [("alice", Action::Cut), ("bob", Action::Silent)] {
        transfer(&p1, name).await;
        let (before, dropped) = (wire.count(&consume()), wire.dropped());
        wire.drop_next_reply_of(&consume(), action);
        if action == Action::Silent {
            // Nothing is heard on that connection any more, and it is cut before it would be given up.
            let who = player(name);
            let (landed, ()) = tokio::join!(b1.redeem(&who), async {
                eventually("the answer is lost", LIMIT, async || wire.dropped() > dropped).await;
                wire.cut_all();
            });
            let Redeemed::Landed { place, .. } = landed.expect("landed") else { panic!("not landed") };
            stock.hand_over(place);
        } else {
            lands(&b1, name).await;
        }
        assert!(wire.count(&consume()) >= before + 2, "it was asked again");
        assert_eq!(word(&b1, name).await.expect("an answer"), "none", "once");
    }
    assert_eq!(b1.agent().verifier().audit().count(AuditReason::TokenReplay), 0);
    stock.all_home().await;
    assert_eq!(stock.used(), 2);
}

// R-11: after the operation's time the outcome is not known; the place waits until it is.
#[tokio::test]
async fn dsp_3_a_join_of_unknown_outcome_keeps_its_place_and_the_next_one_gets_it() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(9, 9);
    let mut setting = config("b1", "backend", &wire.url());
    setting.store.command_timeout_ms = 200;
    setting.store.operation_timeout_ms = 600;
    // No sweep in between settles it: the join itself has to.
    setting.tokens.reap_interval_ms = 60_000;
    let b1 = backend(setting, &stock).await;
    let p1 = proxy(config("p1", "proxy", &store.url())).await;
    sees(&p1, &[&b1]).await;
    transfer(&p1, "alice").await;
    wire.drop_replies_of(&consume(), 100, Action::Silent);
    let error = b1.redeem(&player("alice")).await.expect_err("nothing is heard");
    assert!(error.may_have_changed() && error.is_retryable(), "{error:?}");
    assert_eq!((stock.out(), b1.promised()), (1, 1), "neither handed over nor given back");
    wire.pass();
    wire.cut_all();
    let landed = eventually("the next join decides", LIMIT, async || word(&b1, "alice").await.ok()).await;
    assert_eq!(landed, "landed");
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "none");
    assert_eq!((stock.used(), stock.out(), b1.promised()), (1, 0, 0));
    stock.check();
}

#[tokio::test]
async fn dsp_3_two_joins_of_one_player_at_once_get_one_place() {
    let mut fleet = Fleet::new().backend("b1", 30).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    for n in 0..10 {
        let name = format!("p{n}");
        transfer(&p1, &name).await;
        let (one, two) = tokio::join!(word(&b1, &name), word(&b1, &name));
        let mut words = [one.expect("an answer"), two.expect("an answer")];
        words.sort_unstable();
        assert_eq!(words, ["in_progress", "landed"]);
    }
    assert_eq!(stock.used(), 10);
    stock.check();
}

// A join whose future is dropped half-way leaves the token to the settling loop and to the next join.
#[tokio::test]
async fn r_11_a_join_that_is_dropped_half_way_loses_no_place() {
    let mut fleet = Fleet::new().backend("b1", 40).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    for n in 0..20 {
        let name = format!("p{n}");
        transfer(&p1, &name).await;
        let who = player(&name);
        let cut = tokio::time::timeout(Duration::from_micros(n * 30), b1.redeem(&who)).await;
        if let Ok(landed) = cut {
            let Redeemed::Landed { place, .. } = landed.expect("an answer") else { panic!("not landed") };
            stock.hand_over(place);
        } else {
            let landed = eventually("the next join gets it", LIMIT, async || {
                word(&b1, &name).await.ok().filter(|word| *word != "in_progress")
            });
            assert_eq!(landed.await, "landed", "{name}");
        }
    }
    assert_eq!((stock.used(), stock.out()), (20, 0));
    stock.check();
}

#[tokio::test]
async fn tok_3_a_token_whose_time_is_over_lets_nobody_in_and_its_place_goes_home_once() {
    let store = TestStore::start();
    let stock = Stock::new(9, 9);
    let short = |name: &str, role: &str| {
        let mut setting = config(name, role, &store.url());
        setting.tokens.ttl_ms = 1_500;
        setting
    };
    let b1 = backend(short("b1", "backend"), &stock).await;
    let p1 = proxy(short("p1", "proxy")).await;
    sees(&p1, &[&b1]).await;
    let moved = transfer(&p1, "alice").await;
    eventually("the token's time is over", LIMIT, async || {
        p1.agent().store().clock().now_ms() > moved.token.expires_at_ms + 50
    })
    .await;
    assert_eq!(moved.left_ms(), 0, "R-14: the application is told not to move the player any more");
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "none");
    stock.all_home().await;
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "none");
    let mut conn = store.conn().await;
    eventually("somebody swept it", LIMIT, async || state(&mut conn, "alice").await == "EXPIRED").await;
}

// R-25: lines that come with a pushed config would let more players in than there are places, until each backend restarts.
#[tokio::test]
async fn r_25_lines_that_are_pushed_hold_the_places_of_arrivals_from_then_on() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").quiet().up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let store = &fleet.store;
    let mut conn = fleet.store.conn().await;
    let held = async |conn: &mut MultiplexedConnection| -> Vec<String> {
        redis::cmd("ZRANGE").arg(key("held:b1")).arg(0).arg(-1).query_async(conn).await.expect("ZRANGE")
    };
    transfer(&p1, "alice").await;
    lands(&b1, "alice").await;
    assert!(held(&mut conn).await.is_empty(), "without lines nobody reads it");
    let (by, verifier) = operator(store).await;
    // A place is promised for more than two beats, and these are slow.
    let push = r#"{"lines":{"login":{"arriveMs":3600000,"passMs":3600000}}}"#;
    Control::default().put(&by, &verifier, CONFIG, push, "ops").await.expect("the store answers");
    eventually("the push is in force", LIMIT, async || b1.agent().config_version().borrow().is_some()).await;
    transfer(&p1, "bob").await;
    lands(&b1, "bob").await;
    let held = held(&mut conn).await;
    assert!(held.len() == 1 && held[0].starts_with("bob "), "{held:?}");
}
