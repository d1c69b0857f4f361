//! The same operation again: the same answer and no second effect, for as long as it is promised.

use maitred::ids::{OperationId, Role};

use crate::fixtures::tokens::{Bench, player, request, say};
use maitred_testkit::store::TestStore;

// STO-10: the last four ended tokens of a player are remembered with how they ended and under which operation.
#[tokio::test]
async fn sto_10_ended_tokens_are_remembered_until_the_fifth_later_one() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "previous").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let alice = player("alice");
    let claim_op = OperationId::fresh();
    let consume_op = OperationId::fresh();

    for ended in ["CONSUMED", "RELEASED", "EXPIRED"] {
        bench.clear_tokens().await;
        let mut order = b1.order(&alice, &request("r1"), 3);
        assert_eq!(say(&b1.book.issue(&b1.who, &mut order).await), "Issued");
        let token = b1.book.find(&alice).await.unwrap().unwrap().token;
        assert_eq!(say(&a.book.claim(&token, &a.who, &claim_op).await), "Claimed");
        match ended {
            "CONSUMED" => {
                assert_eq!(say(&b1.book.consume(&token.id, &alice, &b1.who, &consume_op).await), "Consumed");
            }
            "RELEASED" => assert_eq!(say(&a.book.release_claim(&token, &a.who, None, "full").await), "Released"),
            _ => bench.age(bench.times.ttl_ms).await,
        }
        let (again, another, released, cancelled) = match ended {
            "CONSUMED" => ("Consumed", "Replay", "Landed", "Landed"),
            "RELEASED" => ("Ended(RELEASED)", "Ended(RELEASED)", "Released", "Marked"),
            _ => ("Ended(EXPIRED)", "Ended(EXPIRED)", "Ended(EXPIRED)", "Marked"),
        };
        for later in 1..=5 {
            b1.issued(&alice, &request(&format!("later-{later}")), 1).await;
            let newest = b1.book.find(&alice).await.unwrap().unwrap().token;
            let forgotten = later == 5;
            let want = |answer: &str| if forgotten { "None".to_owned() } else { answer.to_owned() };
            let what = format!("{ended}, {later} later");
            let consume = b1.book.consume(&token.id, &alice, &b1.who, &consume_op).await;
            assert_eq!(say(&consume), want(again), "{what}");
            assert_eq!(say(&b1.consume(&token).await), want(another), "{what}");
            assert_eq!(say(&a.book.release_claim(&token, &a.who, None, "full").await), want(released), "{what}");
            let claim = a.book.claim(&token, &a.who, &claim_op).await;
            assert_eq!(say(&claim), want(&format!("Ended({ended})")), "{what}");
            if !forgotten {
                let issue = b1.book.issue(&b1.who, &mut order.clone()).await;
                assert_eq!(say(&issue), format!("Ended({ended})"), "{what}");
                // R-15: attempts are compared with ended tokens too, the remembered ones included.
                let mut lower = b1.order(&alice, &request("r1"), 3);
                let issue = b1.book.issue(&b1.who, &mut lower).await;
                assert_eq!(say(&issue), "Taken", "{what}");
                assert_eq!(say(&b1.book.release_own(&newest.id, &alice, &b1.who, "x").await), "Released");
                let mut lower = b1.order(&alice, &request("r1"), 3);
                assert_eq!(say(&b1.book.issue(&b1.who, &mut lower).await), "Attempt", "{what}");
                if later == 4 {
                    let cancel = a.book.cancel(&alice, &request("r1"), &a.who, None, &[]).await;
                    assert_eq!(say(&cancel), cancelled, "{what}: whoever gives up learns that the player landed");
                }
            }
        }
    }
}

// R-15: a cancel is met by whatever of its request comes later, in whatever order the two arrive.
#[tokio::test]
async fn r_15_a_cancelled_request_is_never_issued_again() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "cancel").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let b2 = bench.join("b2", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let alice = player("alice");
    let cancel = async |name: &str| say(&a.book.cancel(&alice, &request(name), &a.who, None, &[]).await);
    let issue = async |member: &crate::fixtures::tokens::Member, name: &str, attempt: u32| {
        say(&member.book.issue(&member.who, &mut member.order(&alice, &request(name), attempt)).await)
    };

    assert_eq!(cancel("r1").await, "Marked");
    assert_eq!(issue(&b1, "r1", 1).await, "Cancelled");
    assert_eq!(issue(&b1, "r2", 1).await, "Issued");
    assert_eq!(cancel("r2").await, "Released");
    assert_eq!(cancel("r2").await, "Released", "STO-10: a repeat after a lost answer is told the same");
    assert_eq!(bench.row(&alice).await["reason"], "cancelled");
    for (name, attempt) in [("r1", 2), ("r2", 2)] {
        assert_eq!(issue(&b2, name, attempt).await, "Cancelled", "the marks outlive the tokens between them");
    }
    // The last four marks stand, the newest first out of which no repeat pushes another.
    for name in ["r3", "r4", "r4", "r4"] {
        cancel(name).await;
    }
    let marks = bench.row(&alice).await["cancelled"].clone();
    let names: Vec<&str> = marks.split(' ').map(|mark| mark.split_once('@').unwrap().0).collect();
    assert_eq!(names, ["r4", "r3", "r2", "r1"]);
    cancel("r5").await;
    assert_eq!(issue(&b2, "r2", 3).await, "Cancelled");
    assert_eq!(issue(&b2, "r1", 3).await, "Issued", "the fifth mark pushes the first one out");

    // A mark alone is no token, and goes after the audit time.
    bench.clear_tokens().await;
    assert_eq!(cancel("r9").await, "Marked");
    assert!(a.book.find(&alice).await.unwrap().is_none());
    let ttl = bench.ttl("token:alice").await;
    assert!(ttl > 0 && ttl <= i64::try_from(bench.times.audit_ms).unwrap(), "{ttl}");
}

// R-1: a claim that was reopened since does not stand any more, so its repeat is told so.
#[tokio::test]
async fn r_1_a_repeat_is_told_the_truth_when_its_result_does_not_stand_any_more() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "stands").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let mut a = bench.join("A", Role::proxy()).await;
    let token = b1.issued(&player("alice"), &request("r"), 1).await;
    let op = OperationId::fresh();
    assert_eq!(say(&a.book.claim(&token, &a.who, &op).await), "Claimed");
    // While it stands the repeat is told of its own success, also by a claimant that lost its lease meanwhile.
    bench.lapse(&a.who.id).await;
    assert_eq!(say(&a.book.claim(&token, &a.who, &op).await), "Claimed");
    a.rejoin().await;
    // R-12: past its time nothing is claimed, swept or not.
    bench.age(bench.times.ttl_ms).await;
    assert_eq!(say(&a.book.claim(&token, &a.who, &op).await), "Expired");
    assert_eq!(say(&b1.consume(&token).await), "Expired");
}

// R-1: the caller's own success first, then its lease, then the state.
#[tokio::test]
async fn r_1_a_fenced_server_hears_of_its_own_consume_and_of_nothing_else() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "order").await;
    let mut old = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let alice = player("alice");
    let token = old.issued(&alice, &request("r"), 1).await;
    assert_eq!(say(&a.claim(&token).await), "Claimed");
    let op = OperationId::fresh();
    assert_eq!(say(&old.book.consume(&token.id, &alice, &old.who, &op).await), "Consumed");
    let new = bench.replace(&mut old).await;
    assert_eq!(say(&old.book.consume(&token.id, &alice, &old.who, &op).await), "Consumed");
    assert_eq!(say(&old.consume(&token).await), "Fenced");
    assert_eq!(say(&new.consume(&token).await), "Replay");
}
