//! Answers that get lost: the operation has happened, and only whoever asked does not know.

use std::time::Duration;

use maitred::envelope::AuditReason;
use maitred::ids::{NodeEpoch, OperationId, Player, Role};
use maitred::store::{Script, Store, scripts};
use maitred::token::{Book, IssueOutcome, Ledger, LedgerState, Token, Unsettled};

use crate::fixtures::tokens::{Bench, Member, player, request, say, store_options};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const ROUNDS: usize = 20;

fn label(script: &Script) -> String {
    format!("EVALSHA {}", script.pinned())
}

/// A backend and a proxy behind a wire that loses replies, and a second handle of the backend on a wire that does not.
struct Wired {
    bench: Bench,
    wire: FaultProxy,
    b1: Member,
    a: Member,
    sound: Book,
    _server: TestStore,
}

impl Wired {
    async fn new(zone: &str) -> Self {
        let server = TestStore::start();
        let mut bench = Bench::new(&server, zone).await;
        let sound = bench.book().await;
        let wire = FaultProxy::start(&server);
        bench.url = wire.url();
        let b1 = bench.join("b1", Role::backend()).await;
        let a = bench.join("A", Role::proxy()).await;
        Self { bench, wire, b1, a, sound, _server: server }
    }

    fn loses_the_next(&self, script: &Script) -> u64 {
        self.wire.reset_counts();
        self.wire.drop_next_reply_of(&label(script), Action::Cut);
        self.wire.dropped()
    }

    /// The reply was lost, and the script ran twice.
    fn lost_one(&self, script: &Script, dropped: u64) {
        assert_eq!(self.wire.dropped(), dropped + 1);
        assert_eq!(self.wire.count(&label(script)), 2, "asked again, once");
    }
}

// TOK-4, STO-10, R-1: the repeat of a consume whose reply was lost hears of its own success; another one is a replay.
#[tokio::test]
async fn tok_4_a_consume_whose_reply_is_lost_succeeds_and_a_second_consumer_is_a_replay() {
    let wired = Wired::new("lost-consume").await;
    let Wired { b1, a, bench, .. } = &wired;
    for round in 0..ROUNDS {
        let token = b1.issued(&player(&format!("p{round}")), &request("r"), 1).await;
        assert_eq!(say(&a.claim(&token).await), "Claimed");
        let dropped = wired.loses_the_next(&scripts::TOKEN_CONSUME);
        assert_eq!(say(&b1.consume(&token).await), "Consumed", "round {round}");
        wired.lost_one(&scripts::TOKEN_CONSUME, dropped);
        let second = wired.sound.consume(&token.id, &token.player, &b1.who, &OperationId::fresh()).await;
        assert_eq!(say(&second), "Replay", "round {round}");
    }
    assert_eq!(bench.verifier.audit().count(AuditReason::TokenReplay), ROUNDS as u64);
}

// TOK-3, STO-10: the winner of a claim learns that it won although the reply was lost, and nobody else wins.
#[tokio::test]
async fn tok_3_a_claim_whose_reply_is_lost_is_still_the_only_one() {
    let wired = Wired::new("lost-claim").await;
    let Wired { b1, a, bench, .. } = &wired;
    let b = bench.join("B", Role::proxy()).await;
    for round in 0..ROUNDS {
        let token = b1.issued(&player(&format!("p{round}")), &request("r"), 1).await;
        let dropped = wired.loses_the_next(&scripts::TOKEN_CLAIM);
        assert_eq!(say(&a.claim(&token).await), "Claimed", "round {round}");
        wired.lost_one(&scripts::TOKEN_CLAIM, dropped);
        assert_eq!(say(&b.claim(&token).await), "Lost");
        assert_eq!(bench.row(&token.player).await["claimant"], "A");
    }
}

// TOK-2, STO-10: an issue whose reply was lost is not told Taken by its own token.
#[tokio::test]
async fn tok_2_an_issue_whose_reply_is_lost_stands_once() {
    let wired = Wired::new("lost-issue").await;
    let Wired { b1, bench, .. } = &wired;
    for round in 0..ROUNDS {
        let name = player(&format!("p{round}"));
        let mut order = b1.order(&name, &request("r"), 1);
        let mut ear = bench.listen().await;
        let dropped = wired.loses_the_next(&scripts::TOKEN_ISSUE);
        assert_eq!(say(&b1.book.issue(&b1.who, &mut order).await), "Issued", "round {round}");
        wired.lost_one(&scripts::TOKEN_ISSUE, dropped);
        assert!(ear.heard().await.is_empty(), "nothing was replaced");
        let found = wired.sound.find(&name).await.unwrap().expect("it verifies");
        assert_eq!(found.token.id, order.id);
    }
}

// TOK-5, R-15: whoever gives up is told once and for all, also where the first answer was lost.
#[tokio::test]
async fn tok_5_a_release_or_cancel_whose_reply_is_lost_gives_the_same_answer() {
    let wired = Wired::new("lost-release").await;
    let Wired { b1, a, bench, .. } = &wired;
    for round in 0..ROUNDS {
        let token = b1.issued(&player(&format!("p{round}")), &request("r"), 1).await;
        assert_eq!(say(&a.claim(&token).await), "Claimed");
        let mut ear = bench.listen().await;
        let script = if round % 2 == 0 { &scripts::TOKEN_RELEASE } else { &scripts::TOKEN_CANCEL };
        let dropped = wired.loses_the_next(script);
        let said = if round % 2 == 0 {
            say(&a.book.release_claim(&token, &a.who, None, "full").await)
        } else {
            say(&a.book.cancel(&token.player, &token.request, &a.who, None, std::slice::from_ref(&token.server)).await)
        };
        assert_eq!(said, "Released", "round {round}");
        wired.lost_one(script, dropped);
        assert_eq!(ear.heard().await, [format!("ended {} {} b1 RELEASED", token.player, token.id)], "told once");
    }
}

/// A book of the same fleet that gives up soon, behind the wire.
async fn impatient(wired: &Wired) -> Book {
    let mut options = store_options(&wired.wire.url());
    options.command_timeout = Duration::from_millis(200);
    options.operation_timeout = Duration::from_millis(450);
    let store = Store::new(wired.bench.zone.clone(), options).unwrap();
    store.sync_clock().await.unwrap();
    Book::new(store, wired.bench.verifier.clone(), wired.b1.control.clone(), wired.bench.times)
}

fn ledger_of(order: &maitred::token::IssueOrder, who: &NodeEpoch) -> Ledger<&'static str> {
    let mut ledger = Ledger::default();
    ledger.issuing(order, who.epoch, "seat", order.issued_at_ms + 30_000);
    ledger
}

fn settled(outcome: &IssueOutcome) -> Token {
    match outcome {
        IssueOutcome::Issued(token) => token.clone(),
        other => panic!("{other:?}"),
    }
}

// R-2, R-11: as long as the outcome is not known nothing is compensated; the same operation finds out.
#[tokio::test]
async fn r_2_an_unknown_outcome_is_asked_under_the_same_operation_before_anything_is_given_back() {
    let wired = Wired::new("unknown").await;
    let (b1, a, wire) = (&wired.b1, &wired.a, &wired.wire);
    let book = impatient(&wired).await;
    let alice: Player = player("alice");
    let many = 1_000;

    let mut order = b1.order(&alice, &request("r"), 1);
    let mut ledger = ledger_of(&order, &b1.who);
    wire.drop_replies_of("EVALSHA", many, Action::Silent);
    assert_eq!(say(&book.issue(&b1.who, &mut order).await), "Unreachable");
    ledger.unknown(&order.id);
    assert_eq!(ledger.state(&order.id), Some(LedgerState::Issuing));
    assert!(ledger.expire(u64::MAX).is_empty() && ledger.give_up().is_empty(), "the token may stand: the place stays");
    wire.pass();
    wire.cut_all();
    let unsettled = ledger.take_unsettled();
    let [Unsettled::Issue { order: again, .. }] = unsettled.as_slice() else { panic!("{unsettled:?}") };
    let outcome = b1.book.issue(&b1.who, &mut again.clone()).await.unwrap();
    let token = settled(&outcome);
    ledger.issued(&token);
    assert_eq!(token.id, order.id);

    assert_eq!(say(&a.claim(&token).await), "Claimed");
    let maitred::token::Redeem::Consume { id, op, .. } = ledger.begin_redeem(&alice, order.issued_at_ms) else {
        panic!("held")
    };
    wire.drop_replies_of("EVALSHA", many, Action::Silent);
    assert_eq!(say(&book.consume(&id, &alice, &b1.who, &op).await), "Unreachable");
    ledger.unknown(&id);
    assert!(ledger.ended(&id).is_none() && ledger.expire(u64::MAX).is_empty(), "he may be in: the place stays");
    wire.pass();
    wire.cut_all();
    let unsettled = ledger.take_unsettled();
    let [Unsettled::Consume { op: again, .. }] = unsettled.as_slice() else { panic!("{unsettled:?}") };
    assert_eq!(*again, op);
    assert_eq!(say(&b1.book.consume(&id, &alice, &b1.who, again).await), "Consumed");
    ledger.consumed_unheard(&id);
    assert_eq!(ledger.begin_redeem(&alice, order.issued_at_ms), maitred::token::Redeem::Deliver(id.clone()));
    assert_eq!(ledger.deliver(&id).unwrap().0, "seat");
    assert_eq!(ledger.promised(), 0);
}

// R-2: a refusal speaks for the try that it answers. After a lost answer it is no proof that nothing happened; taken for
// one, the backend gives the place of a player who is in to somebody else, and turns the player away as a replay.
#[tokio::test]
async fn r_2_a_refused_repeat_does_not_make_a_lost_answer_definite() {
    let wired = Wired::new("refused-repeat").await;
    let (b1, a, wire) = (&wired.b1, &wired.a, &wired.wire);
    let mut raw = wired.bench.raw.clone();
    let mut evalsha = async |rule: &str| {
        let _: () = redis::cmd("ACL").arg("SETUSER").arg("default").arg(rule).query_async(&mut raw).await.unwrap();
    };
    let token = b1.issued(&player("alice"), &request("r"), 1).await;
    assert_eq!(say(&a.claim(&token).await), "Claimed");
    wire.drop_next_reply_of(&label(&scripts::TOKEN_CONSUME), Action::Silent);
    let op = OperationId::fresh();
    let consume = b1.book.consume(&token.id, &token.player, &b1.who, &op);
    let deny = async {
        eventually("the first try has run", Duration::from_secs(5), async || wire.dropped() == 1).await;
        evalsha("-evalsha").await;
        wire.cut_all();
    };
    let (outcome, ()) = tokio::join!(consume, deny);
    let error = outcome.unwrap_err();
    assert!(error.may_have_changed(), "the first try ran: {error}");
    evalsha("+evalsha").await;
    assert_eq!(say(&b1.book.consume(&token.id, &token.player, &b1.who, &op).await), "Consumed");
}
