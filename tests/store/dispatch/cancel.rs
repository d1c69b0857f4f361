//! DSP-8: somebody who goes away while being dispatched leaves no live token, and the place is back at once.

use std::time::Duration;

use maitred::agent::{Outcome, Reason, Request};
use maitred::store::scripts;
use maitred::token::CancelOutcome;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, backend, config, lands, pending, player, proxy, row, sees, state, transfer, transfer_of, word,
};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

#[tokio::test]
async fn dsp_8_a_cancel_while_the_backend_reserves_ends_the_request_and_refuses_its_late_issue() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").quiet().up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    stock.shut();
    let request = Request::new(player("alice"));
    let id = request.id.clone();
    let (outcome, cancelled) = tokio::join!(p1.dispatch(request), async {
        eventually("the backend reserves", LIMIT, async || stock.out() == 1).await;
        p1.cancel(&player("alice"), &id).await
    });
    assert_eq!(cancelled.expect("an answer"), CancelOutcome::Marked);
    let Outcome::Refused(refusal) = outcome else { panic!("moved") };
    assert_eq!(refusal.reason, Reason::Cancelled);
    stock.open();
    stock.all_home_within(Duration::from_secs(5)).await;
    let mut conn = fleet.store.conn().await;
    let mark = row(&mut conn, "alice").await;
    assert!(!mark.contains_key("id") && mark["cancelled"].starts_with(id.as_str()), "{mark:?}");
    assert_eq!(b1.promised(), 0);
    // The next wish of the player is not touched by the mark.
    transfer(&p1, "alice").await;
    lands(&b1, "alice").await;
    stock.check();
}

#[tokio::test]
async fn dsp_8_a_cancel_after_the_transfer_releases_the_token_and_after_the_join_says_landed() {
    let mut fleet = Fleet::new().backend("b1", 9).proxy("p1").quiet().up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let moved = transfer(&p1, "alice").await;
    let cancelled = p1.cancel(&player("alice"), &moved.request).await.expect("an answer");
    assert_eq!(cancelled, CancelOutcome::Released);
    stock.all_home_within(Duration::from_secs(5)).await;
    assert_eq!(word(&b1, "alice").await.expect("an answer"), "none");
    assert!(p1.find(&player("alice")).await.expect("an answer").is_none());

    let moved = transfer(&p1, "bob").await;
    lands(&b1, "bob").await;
    let cancelled = p1.cancel(&player("bob"), &moved.request).await.expect("an answer");
    assert_eq!(cancelled, CancelOutcome::Landed, "the player arrived all the same");
    // a request that was cancelled once gets nothing any more, however often it is sent.
    let again = Request { id: moved.request.clone(), ..Request::new(player("bob")) };
    assert!(matches!(p1.dispatch(again).await, Outcome::Refused(_)));
    stock.all_home().await;
    assert_eq!(stock.used(), 1);
}

// The application's task ends with the player's connection, at whatever step the request is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dsp_8_a_dispatch_that_is_dropped_at_any_moment_leaves_no_live_token_and_no_place() {
    let mut fleet = Fleet::new().backend("b1", 100).proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    transfer(&p1, "warm").await;
    lands(&b1, "warm").await;
    let (mut moved, mut dropped) = (Vec::new(), Vec::new());
    for n in 0..60_u64 {
        let name = format!("p{n}");
        let patience = Duration::from_micros(n * 120);
        match tokio::time::timeout(patience, p1.dispatch(Request::new(player(&name)))).await {
            Ok(Outcome::Transfer(_)) => moved.push(name),
            Ok(other) => panic!("{other:?}"),
            Err(_) => dropped.push(name),
        }
    }
    assert!(dropped.len() > 1, "the times of this test drop some of them");
    let mut conn = fleet.store.conn().await;
    for name in &dropped {
        eventually("no live token is left", LIMIT, async || {
            !matches!(state(&mut conn, name).await.as_str(), "PENDING" | "CLAIMED")
        })
        .await;
    }
    let expected = u64::try_from(moved.len()).unwrap();
    eventually("the places of the dropped ones are home", LIMIT, async || stock.out() == expected).await;
    for name in &moved {
        lands(&b1, name).await;
    }
    stock.all_home().await;
}

// POL-3: no panic crosses the API, also where the last owner of a request is no task.
#[test]
fn pol_3_a_dispatch_can_be_dropped_outside_of_every_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = TestStore::start();
    let stock = Stock::new(9, 9);
    let (b1, p1) = runtime.block_on(async {
        let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
        let p1 = proxy(config("p1", "proxy", &store.url())).await;
        sees(&p1, &[&b1]).await;
        (b1, p1)
    });
    stock.shut();
    let mut asking = Box::pin(p1.dispatch(Request::new(player("alice"))));
    runtime.block_on(async {
        let reserved = eventually("the backend reserves", LIMIT, async || stock.out() == 1);
        tokio::select! {
            _ = &mut asking => panic!("the gate is shut"),
            () = reserved => {}
        }
    });
    drop(asking);
    stock.open();
    runtime.block_on(async {
        stock.all_home().await;
        assert_eq!(b1.promised(), 0);
        transfer_of(&p1, Request::new(player("alice"))).await;
    });
}

// TOK-5, R-15: a request that was answered with the place of another one and then goes away lets go of it. Otherwise the
// player is refused as lost by every proxy until the token expires.
#[tokio::test]
async fn tok_5_a_claim_of_another_requests_token_is_given_up_when_its_answer_is_lost_or_its_player_leaves() {
    let store = TestStore::start();
    let stock = Stock::new(5, 5);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let wire = FaultProxy::start(&store);
    let mut setting = config("p1", "proxy", &wire.url());
    setting.store.command_timeout_ms = 5_000;
    let p1 = proxy(setting).await;
    let p2 = proxy(config("p2", "proxy", &store.url())).await;
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let mut conn = store.conn().await;
    let claim = format!("EVALSHA {}", scripts::TOKEN_CLAIM.pinned());
    for (name, taking) in [("alice", false), ("bob", true)] {
        let first = pending(&p2, "b1", name).await;
        let before = wire.dropped();
        wire.drop_next_reply_of(&claim, Action::Silent);
        let who = player(name);
        let way = async { if taking { p1.take(&who).await } else { p1.dispatch(Request::new(who.clone())).await } };
        let claimed = async {
            eventually("the claim has run", LIMIT, async || wire.dropped() > before).await;
        };
        tokio::select! {
            outcome = way => panic!("no answer came through: {outcome:?}"),
            () = claimed => {}
        }
        // The future is dropped, as by a player who goes away.
        assert_eq!(row(&mut conn, name).await["claimant"], "p1");
        wire.cut_all();
        eventually("the claim is given up", LIMIT, async || state(&mut conn, name).await == "RELEASED").await;
        assert_eq!(row(&mut conn, name).await["id"], first.token.id.as_str());
    }
    stock.all_home().await;
    let moved = transfer(&p2, "alice").await;
    assert_eq!(moved.server.as_str(), "b1");
    lands(&b1, "alice").await;
}
