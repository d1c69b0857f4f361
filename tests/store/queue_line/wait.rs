use std::time::Duration;

use maitred::envelope::AuditReason;
use maitred::ids::{LineName, RequestId, Role, SessionId, TokenId};
use maitred::queue::{Attributes, Drained, Line, LineOptions, Wish};
use maitred::token::{Book, BookOptions, TokenState};
use redis::AsyncCommands;
use serde_json::value::RawValue;

use crate::fixtures::lines::{Member, TestZone, player};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(5);

fn payload() -> Box<RawValue> {
    RawValue::from_string("{\"x\":1}".to_owned()).unwrap()
}

async fn wish(p1: &Member, line: &Line, name: &str, request: &RequestId) {
    let attributes = Attributes::of_wish(request, None, None).unwrap();
    line.enter(&p1.who, &player(name), 0, &SessionId::fresh(), &attributes, None).await.unwrap();
}

async fn drain(b: &Member, line: &Line, wish: &Wish) -> Drained {
    let times = BookOptions::default();
    line.drain(&b.who, wish, &TokenId::fresh(), &payload(), &times).await.unwrap()
}

// QUE-9
#[tokio::test]
async fn que_9_a_wait_line_is_drained_in_order_and_by_as_many_as_there_are_places() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let (b1, b2) = (zone.member("b1", Role::backend(), 0).await, zone.member("b2", Role::backend(), 0).await);
    let options = LineOptions::wait_line(LineName::wait());
    let line = p1.line(&options);
    for n in 0..200 {
        wish(&p1, &line, &format!("p{n:03}"), &RequestId::fresh()).await;
    }
    let book = Book::new(p1.store.clone(), p1.verifier.clone(), p1.control.clone(), BookOptions::default());
    let (mut order, mut batch) = (Vec::new(), 0);
    while order.len() < 200 {
        // Places come in by seven, to one of the two.
        let (b, at) = if batch % 2 == 0 { (&b1, b1.line(&options)) } else { (&b2, b2.line(&options)) };
        batch += 1;
        let mut places = 7;
        for wish in at.wishes(places).await.unwrap() {
            match drain(b, &at, &wish).await {
                Drained::Issued(token) => {
                    assert_eq!((&token.player, &token.request), (&wish.player, &wish.request));
                    order.push(token.player.to_string());
                    places -= 1;
                }
                other => panic!("{other:?}"),
            }
            // A repeat of a look: the ticket is gone.
            assert!(matches!(drain(b, &at, &wish).await, Drained::Gone));
        }
        let live = book.list(&b1.who.id).await.unwrap().len() + book.list(&b2.who.id).await.unwrap().len();
        assert_eq!((live, places), (order.len(), 7 - (order.len() - 7 * (batch - 1))), "never more tokens than places");
    }
    assert!(order.is_sorted(), "first in, first out");
    let row = book.find(&player("p000")).await.unwrap().expect("a token");
    assert_eq!((row.state, row.token.server), (TokenState::Pending, b1.who.id.clone()));
    line.sweep().await.unwrap();
    let left: Vec<String> = zone.keys().await.into_iter().filter(|key| key.contains("wait")).collect();
    assert!(left.is_empty(), "STO-16: {left:?}");
}

// QUE-9: the same call again after a lost reply makes no second token, and a killed backend leaves no half-moved player.
#[tokio::test]
async fn que_9_a_drain_is_whole_or_not_at_all() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let mut b1 = zone.member("b1", Role::backend(), 0).await;
    let b2 = zone.member("b2", Role::backend(), 0).await;
    let options = LineOptions::wait_line(LineName::wait());
    let (line, times) = (p1.line(&options), BookOptions::default());
    for name in ["alice", "bob", "carol", "dave"] {
        wish(&p1, &line, name, &RequestId::new(format!("r-{name}")).unwrap()).await;
    }
    let wishes = line.wishes(10).await.unwrap();
    let id = TokenId::fresh();
    for _ in 0..2 {
        let drained = b1.line(&options).drain(&b1.who, &wishes[0], &id, &payload(), &times).await.unwrap();
        assert!(matches!(drained, Drained::Issued(token) if token.id == id));
    }
    // b1 dies: alice's token is there and ends as every token of the dead does; the others wait for b2.
    b1.leave().await;
    let fenced = b1.line(&options).drain(&b1.who, &wishes[1], &TokenId::fresh(), &payload(), &times).await;
    assert!(matches!(fenced, Err(maitred::Error::LeaseLost { .. })), "{fenced:?}");
    let at_b2 = b2.line(&options);
    assert!(matches!(drain(&b2, &at_b2, &wishes[1]).await, Drained::Issued(_)));
    wish(&p1, &line, "alice", &RequestId::fresh()).await;
    let again = line.wishes(10).await.unwrap().into_iter().find(|wish| wish.player == player("alice")).expect("waits");
    assert!(matches!(drain(&b2, &at_b2, &again).await, Drained::Issued(_)), "the token of the dead is replaced");

    // A player who has a live token needs no place, and one who cancelled neither.
    wish(&p1, &line, "bob", &RequestId::fresh()).await;
    let again = line.wishes(10).await.unwrap().into_iter().find(|wish| wish.player == player("bob")).expect("waits");
    assert!(matches!(drain(&b2, &at_b2, &again).await, Drained::NotNeeded));
    let book = Book::new(p1.store.clone(), p1.verifier.clone(), p1.control.clone(), times);
    book.cancel(&player("carol"), &wishes[2].request, &p1.who, None, &[]).await.unwrap();
    assert!(matches!(drain(&b2, &at_b2, &wishes[2]).await, Drained::NotNeeded));

    // A proxy that is gone: its player keeps the place.
    let _: () = zone.raw.clone().del(zone.key("node:p1")).await.unwrap();
    assert!(matches!(drain(&b2, &at_b2, &wishes[3]).await, Drained::Away));
    let view = at_b2.view().await.unwrap();
    assert_eq!((view.waiting, view.away), (0, 1));
}

#[tokio::test]
async fn que_9_the_wait_line_of_a_server_ends_when_it_is_removed() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let mut b1 = zone.member("b1", Role::backend(), 0).await;
    let line = p1.line(&LineOptions::wait_line(LineName::wait_for(&b1.who.id)));
    assert_eq!(line.name().as_str(), "wait.b1");
    wish(&p1, &line, "alice", &RequestId::fresh()).await;
    assert_eq!(line.end_if_removed(&b1.who.id, &[]).await.unwrap().out, 0, "its row is there");
    b1.leave().await;
    assert_eq!(line.end_if_removed(&b1.who.id, std::slice::from_ref(&b1.who.id)).await.unwrap().out, 0, "listed");
    assert_eq!(line.end_if_removed(&b1.who.id, &[]).await.unwrap().out, 1);
}

// TOK-7: the place comes home when the token's time is over, and not a second time's length later.
#[tokio::test]
async fn tok_7_a_drain_that_is_repeated_late_tells_until_when_the_token_lives() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 0).await);
    let options = LineOptions::wait_line(LineName::wait());
    wish(&p1, &p1.line(&options), "alice", &RequestId::short()).await;
    let at = b1.line(&options);
    let wishes = at.wishes(1).await.unwrap();
    let (id, times) = (TokenId::fresh(), BookOptions::default());
    let issued = async || {
        let Drained::Issued(token) = at.drain(&b1.who, &wishes[0], &id, &payload(), &times).await.unwrap() else {
            panic!("no token")
        };
        token
    };
    let first = issued().await;
    let until = first.issued_at_ms;
    eventually("the clock moves on", LIMIT, async || b1.store.clock().now_ms() > until + 1).await;
    let again = issued().await;
    assert_eq!((again.expires_at_ms, again.sig), (first.expires_at_ms, first.sig), "as it was signed");
}

// QUE-9: another backend served the player between the two reads. Nobody wrote anything there.
#[tokio::test]
async fn que_9_a_ticket_that_is_gone_is_no_forgery() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let b1 = zone.member("b1", Role::backend(), 0).await;
    let at = b1.line(&LineOptions::wait_line(LineName::wait()));
    let wishes = at.wishes_of(&[player("alice")]).await.unwrap();
    assert_eq!(wishes[0].seq(), None, "an index entry without a ticket is put out");
    assert!(matches!(drain(&b1, &at, &wishes[0]).await, Drained::Gone));
    assert_eq!(b1.verifier.audit().count(AuditReason::Malformed), 0);
}
