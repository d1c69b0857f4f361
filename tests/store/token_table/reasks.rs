//! What a script asks back for, and that it is asked once and not at every call: keys it was not given, control entries
//! it did not expect, another time.

use maitred::ids::{NodeId, Role};
use maitred::node::KILL;
use maitred::store::{Script, scripts};

use crate::fixtures::tokens::{Bench, player, request, say};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::TestStore;

fn label(script: &Script) -> String {
    format!("EVALSHA {}", script.pinned())
}

// R-31: a server in the row whose keys were not passed is asked for, and the same operation then goes through.
#[tokio::test]
async fn r_31_keys_of_a_server_in_the_row_are_asked_for_once() {
    let server = TestStore::start();
    let wire = FaultProxy::start(&server);
    let mut bench = Bench::new(&server, "need").await;
    bench.url = wire.url();
    let b1 = bench.join("b1", Role::backend()).await;
    let b2 = bench.join("b2", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    let (alice, r) = (player("alice"), request("r"));
    let issue = label(&scripts::TOKEN_ISSUE);
    let cancel = label(&scripts::TOKEN_CANCEL);

    for (earlier, calls) in [(vec![], 2), (vec![b1.who.id.clone()], 1)] {
        b1.issued(&alice, &r, 1).await;
        wire.reset_counts();
        let mut order = b2.order(&alice, &r, 2);
        order.earlier = earlier;
        assert_eq!(say(&b2.book.issue(&b2.who, &mut order).await), "Issued");
        assert_eq!(wire.count(&issue), calls);
        assert_eq!(bench.due_servers().await, ["b2"]);
        bench.clear_tokens().await;
    }
    for (asked, calls) in [(vec![], 2), (vec![b1.who.id.clone(), b2.who.id.clone()], 1)] {
        b1.issued(&alice, &r, 1).await;
        wire.reset_counts();
        assert_eq!(say(&a.book.cancel(&alice, &r, &a.who, None, &asked).await), "Released");
        assert_eq!(wire.count(&cancel), calls);
        assert!(bench.due_servers().await.is_empty());
        bench.clear_tokens().await;
    }

    // More earlier servers than one call takes, and the one that counts is not among those passed.
    let many: Vec<NodeId> = (0..40).map(|n| NodeId::new(format!("a{n}")).unwrap()).collect();
    b1.issued(&alice, &r, 1).await;
    let mut order = b2.order(&alice, &r, 2);
    order.earlier = many.clone();
    assert_eq!(say(&b2.book.issue(&b2.who, &mut order).await), "Issued");
    assert_eq!(say(&a.book.cancel(&alice, &r, &a.who, None, &many).await), "Released");
}

// R-32: new control entries cost one more call and one read, once a process.
#[tokio::test]
async fn r_32_control_entries_are_read_again_only_when_they_changed() {
    let server = TestStore::start();
    let wire = FaultProxy::start(&server);
    let mut bench = Bench::new(&server, "control").await;
    let operator = bench.join("ops", Role::new("service").unwrap()).await;
    bench.url = wire.url();
    let b1 = bench.join("b1", Role::backend()).await;
    let a = bench.join("A", Role::proxy()).await;
    operator.control.put(&operator.store, &bench.verifier, KILL, "off", "ops").await.unwrap();

    let (issue, claim) = (label(&scripts::TOKEN_ISSUE), label(&scripts::TOKEN_CLAIM));
    for calls in [2, 1] {
        wire.reset_counts();
        let token = b1.issued(&player("alice"), &request("r"), 1).await;
        assert_eq!(say(&a.claim(&token).await), "Claimed");
        assert_eq!((wire.count(&issue), wire.count(&claim)), (calls, calls));
        bench.clear_tokens().await;
    }
}

// STO-9: a backend whose idea of the store's time is off by more than 5 s corrects itself and signs anew.
#[tokio::test]
async fn sto_9_a_wrong_issue_time_is_corrected_and_signed_again() {
    let server = TestStore::start();
    let wire = FaultProxy::start(&server);
    let mut bench = Bench::new(&server, "skew").await;
    bench.url = wire.url();
    let b1 = bench.join("b1", Role::backend()).await;
    for (name, off) in [("early", -20_000), ("late", 20_000_i64)] {
        let mut order = b1.order(&player(name), &request("r"), 1);
        order.issued_at_ms = order.issued_at_ms.checked_add_signed(off).unwrap();
        wire.reset_counts();
        assert_eq!(say(&b1.book.issue(&b1.who, &mut order).await), "Issued");
        assert_eq!(wire.count(&label(&scripts::TOKEN_ISSUE)), 2);
        assert_eq!(wire.count("TIME"), 1);
        let row = b1.book.find(&player(name)).await.unwrap().expect("it verifies with the time it was signed with");
        assert!(row.token.issued_at_ms.abs_diff(bench.now().await) < 5_000);
        assert_eq!(row.token.issued_at_ms, order.issued_at_ms, "a repeat signs the same");
        assert_eq!(row.token.expires_at_ms, row.token.issued_at_ms + bench.times.ttl_ms);
    }
    let mut order = b1.order(&player("near"), &request("r"), 1);
    order.issued_at_ms -= 2_000;
    wire.reset_counts();
    assert_eq!(say(&b1.book.issue(&b1.who, &mut order).await), "Issued");
    assert_eq!(wire.count(&label(&scripts::TOKEN_ISSUE)), 1);
}
