use super::*;
use crate::ids::{NodeId, RequestId};

fn player() -> Player {
    Player::new("alice").expect("valid")
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

fn order(id: &str) -> IssueOrder {
    IssueOrder {
        id: TokenId::new(id).expect("valid"),
        player: player(),
        request: RequestId::new("r1").expect("valid"),
        attempt: 1,
        payload: raw("{\"x\":1}"),
        deadline_ms: 0,
        earlier: Vec::new(),
        issued_at_ms: 0,
    }
}

fn token(id: &str, expires_at_ms: u64) -> Token {
    Token {
        id: TokenId::new(id).expect("valid"),
        player: player(),
        server: NodeId::new("b1").expect("valid"),
        server_epoch: Epoch(1),
        request: RequestId::new("r1").expect("valid"),
        attempt: 1,
        payload: raw("{\"x\":1}"),
        issued_at_ms: 0,
        expires_at_ms,
        sig: String::new(),
    }
}

fn held(id: &str) -> Ledger<u32> {
    let mut ledger = Ledger::default();
    ledger.issuing(&order(id), Epoch(1), 7, 100);
    ledger.issued(&token(id, 100));
    ledger
}

#[test]
fn r_11_a_place_goes_back_once_and_only_from_held() {
    let id = TokenId::new("t1").expect("valid");
    let mut ledger = held("t1");
    assert_eq!(ledger.ended(&id), Some(7));
    assert_eq!(ledger.ended(&id), None, "an event that comes twice gives nothing back twice");
    assert!(ledger.expire(1_000).is_empty());
    assert_eq!(ledger.begin_redeem(&player(), 10), Redeem::Past, "what went back cannot be consumed");

    let mut ledger = held("t1");
    let Redeem::Consume { op, .. } = ledger.begin_redeem(&player(), 10) else { panic!("held") };
    assert_eq!(ledger.ended(&id), None, "what is being consumed waits for a definite answer");
    assert!(ledger.expire(1_000).is_empty());
    assert_eq!(ledger.begin_redeem(&player(), 10), Redeem::InProgress);
    ledger.unknown(&id);
    assert_eq!(
        ledger.begin_redeem(&player(), 2_000),
        Redeem::Consume { id: id.clone(), epoch: Epoch(1), op },
        "the same operation is asked again, also after the expiry"
    );
    assert_eq!(ledger.deliver(&id).map(|(place, _)| place), Some(7));
    assert!(ledger.deliver(&id).is_none());
    assert_eq!(ledger.begin_redeem(&player(), 10), Redeem::Past);
    assert_eq!(ledger.past(&player()), [Past { id, end: PastEnd::Known }]);
}

#[test]
fn r_11_what_a_shutdown_gives_up_ends_when_the_store_has_its_release() {
    let id = TokenId::new("t1").expect("valid");
    let mut ledger = held("t1");
    assert_eq!(ledger.give_up().len(), 1);
    assert_eq!(ledger.begin_redeem(&player(), 10), Redeem::Past);
    assert_eq!(ledger.past(&player()), [Past { id: id.clone(), end: PastEnd::GivenUp }]);
    ledger.released(&id);
    assert_eq!(ledger.past(&player()), [Past { id, end: PastEnd::Known }]);
}

#[test]
fn r_11_an_issue_of_unknown_outcome_is_settled_before_its_place_moves() {
    let id = TokenId::new("t1").expect("valid");
    let mut ledger = Ledger::default();
    ledger.issuing(&order("t1"), Epoch(1), 7, 100);
    assert!(ledger.take_unsettled().is_empty(), "its own task is still asking");
    ledger.unknown(&id);
    assert!(ledger.expire(1_000).is_empty());
    assert!(ledger.rejoined(Epoch(2)).is_empty());
    assert_eq!(ledger.take_unsettled().len(), 1);
    assert!(ledger.take_unsettled().is_empty(), "one asks at a time");
    assert_eq!(ledger.not_issued(&id), Some(7));
    assert_eq!(ledger.promised(), 0);
}

// The event goes over another connection than the answer.
#[test]
fn tok_7_an_event_that_overtakes_the_answer_to_the_issue_is_not_forgotten() {
    let (id, other) = (TokenId::new("t1").expect("valid"), TokenId::new("t2").expect("valid"));
    let mut ledger = Ledger::default();
    ledger.issuing(&order("t1"), Epoch(1), 7, 100);
    assert!(!ledger.hint(&id) && !ledger.hint(&other), "nothing to look at yet");
    assert!(ledger.issued(&token("t1", 100)), "now there is");
    assert!(ledger.hint(&id), "a held one is looked at when the event comes");
    assert_eq!(ledger.ended(&id), Some(7));
    assert!(!ledger.hint(&id));
    assert!(!ledger.issued(&token("t1", 100)));
}

#[test]
fn tok_7_held_places_come_home_at_expiry_and_after_a_rejoin() {
    let mut ledger = held("t1");
    assert!(ledger.expire(99).is_empty());
    assert_eq!(ledger.expire(100).len(), 1);
    assert_eq!(ledger.begin_redeem(&player(), 99), Redeem::Past);
    let id = TokenId::new("t1").expect("valid");
    assert_eq!(ledger.past(&player()), [Past { id, end: PastEnd::TimedOut }], "the store may have another time");
    ledger.forget(100);
    assert_eq!(ledger.begin_redeem(&player(), 101), Redeem::Nothing);

    let mut ledger = held("t1");
    assert!(ledger.rejoined(Epoch(1)).is_empty(), "a resumed epoch keeps what it holds");
    assert_eq!(ledger.rejoined(Epoch(2)).len(), 1);
}

#[test]
fn r_11_a_consume_nobody_heard_of_is_delivered_to_the_next_join_or_comes_home() {
    let id = TokenId::new("t1").expect("valid");
    let mut ledger = held("t1");
    assert!(matches!(ledger.begin_redeem(&player(), 10), Redeem::Consume { .. }));
    ledger.consumed_unheard(&id);
    assert_eq!(ledger.begin_redeem(&player(), 10), Redeem::Deliver(id.clone()));
    assert!(ledger.deliver(&id).is_some());

    let mut ledger = held("t1");
    assert!(matches!(ledger.begin_redeem(&player(), 10), Redeem::Consume { .. }));
    ledger.consumed_unheard(&id);
    assert_eq!(ledger.expire(100).len(), 1);
    assert!(ledger.expire(200).is_empty());
}

// A host that goes on after its agent left needs the place again, and nobody may have it twice.
#[test]
fn r_11_what_is_never_answered_is_given_up_once_when_its_time_is_over() {
    let id = TokenId::new("t1").expect("valid");
    let mut ledger = held("t1");
    assert!(ledger.abandon(1_000).is_empty(), "what is held goes back by itself");
    assert!(matches!(ledger.begin_redeem(&player(), 50), Redeem::Consume { .. }));
    assert!(ledger.abandon(1_000).is_empty(), "somebody is asking");
    ledger.unknown(&id);
    assert_eq!((ledger.abandon(99).len(), ledger.places()), (0, 1), "its time is not over");
    assert_eq!((ledger.abandon(100), ledger.places()), (vec![(id.clone(), 7)], 0));
    assert_eq!((ledger.abandon(100).len(), ledger.deliver(&id).is_none()), (0, true), "neither twice nor handed over");
}

// The player was told that nobody had claimed the token, by a repeat that overtook the first try.
#[test]
fn r_1_a_try_that_comes_late_has_its_effect_under_the_operation_of_the_next_join() {
    let id = TokenId::new("t1").expect("valid");
    let mut ledger = held("t1");
    let first = ledger.begin_redeem(&player(), 10);
    ledger.hold_again(&id);
    assert_eq!(ledger.begin_redeem(&player(), 20), first, "its own success would be a replay");
}

#[test]
fn r_11_an_issue_that_is_not_settled_is_known_of_its_player() {
    let id = TokenId::new("t1").expect("valid");
    let mut ledger = Ledger::default();
    assert!(!ledger.is_issuing(&player()));
    ledger.issuing(&order("t1"), Epoch(1), 7, 100);
    ledger.unknown(&id);
    assert!(ledger.is_issuing(&player()));
    ledger.issued(&token("t1", 100));
    assert!(!ledger.is_issuing(&player()));
}

#[test]
fn tok_7_an_event_that_comes_while_a_join_is_decided_is_not_forgotten() {
    let id = TokenId::new("t1").expect("valid");
    let mut ledger = held("t1");
    let _ = ledger.begin_redeem(&player(), 10);
    assert!(!ledger.hint(&id), "the join decides first");
    assert!(ledger.hold_again(&id), "now its row is looked at");
    assert!(ledger.hint(&id));
}
