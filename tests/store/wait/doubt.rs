//! Tickets of which the store and the proxy that holds the player do not say the same.

use maitred::agent::{Outcome, ProxyAgent, Reason, Request, Waiting};
use maitred::envelope::AuditReason;
use maitred::ids::{LineName, NodeEpoch, RequestId, SessionId};
use maitred::queue::{Attributes, Line, Position};
use maitred::store::scripts;
use redis::aio::MultiplexedConnection;

use super::{line, queueing, served, turned_away, wait_proxy, waits, waits_for_any};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, id, key, lands, player, proxy, refused, sees, transfer};
use crate::fixtures::fleet::Fleet;
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

fn holder(proxy: &ProxyAgent) -> NodeEpoch {
    let lease = proxy.agent().lease();
    NodeEpoch { id: lease.id().clone(), epoch: lease.epoch() }
}

async fn place(at: &Line, name: &str) -> Position {
    at.position(&player(name)).await.expect("the store answers")
}

fn seq(place: &Position) -> u64 {
    match place {
        Position::Waiting { seq, .. } => *seq,
        other => panic!("does not wait: {other:?}"),
    }
}

/// As if the turn of `waiting` had come: the ticket is gone.
async fn goes(at: &Line, proxy: &ProxyAgent, waiting: &Waiting) {
    at.leave(&holder(proxy), waiting.player(), &waiting.session()).await.expect("the store answers");
}

/// The proxy hears no events any more; all else goes on.
async fn deafen(conn: &mut MultiplexedConnection, wire: &FaultProxy, listeners: u64) {
    wire.refuse(true);
    let _: u64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query_async(conn).await.expect("killed");
    let heard = key("events:line");
    eventually("the proxy is deaf", LIMIT, async || {
        let (_, count): (String, u64) =
            redis::cmd("PUBSUB").arg("NUMSUB").arg(&heard).query_async(conn).await.expect("NUMSUB");
        count == listeners
    })
    .await;
}

// QUE-9, R-22: a lapse of the lease that ended while the player entered, or that only a backend saw, put the ticket away.
// Without a look the player waits outside of the line, and is sent away when the grace is over.
#[tokio::test]
async fn r_22_a_ticket_that_was_put_away_while_its_proxy_lives_stands_again_where_it_stood() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let (store, stock) = (&fleet.store, b1.inventory().clone());
    let mut alice = waits_for_any(&p1, "alice").await;
    let mut bob = waits_for_any(&p1, "bob").await;
    let at = line(&store.url(), LineName::wait()).await;
    let before = seq(&place(&at, "alice").await);
    at.away(&holder(&p1), alice.player(), &alice.session()).await.expect("the store answers");
    eventually("she stands there again", LIMIT, async || matches!(place(&at, "alice").await, Position::Waiting { .. }))
        .await;
    assert_eq!(seq(&place(&at, "alice").await), before);
    for waiting in [&mut alice, &mut bob] {
        stock.restock(1);
        b1.restocked();
        served(waiting).await;
    }
}

// a ticket that nobody waits for takes a place from those who wait, for as long as a token lives.
#[tokio::test]
async fn r_2_a_ticket_without_a_player_is_put_away() {
    let store = TestStore::start();
    let p1 = wait_proxy("p1", &store.url()).await;
    let at = line(&store.url(), LineName::wait()).await;
    let attributes = Attributes::of_wish(&RequestId::short(), None, None).expect("short");
    let NodeEpoch { id: proxy, epoch } = holder(&p1);
    let who = NodeEpoch { id: proxy, epoch };
    at.enter(&who, &player("ghost"), 0, &SessionId::fresh(), &attributes, None).await.expect("the store answers");
    let alice = waits_for_any(&p1, "alice").await;
    eventually("it is put away", LIMIT, async || matches!(place(&at, "ghost").await, Position::Away { .. })).await;
    assert!(matches!(place(&at, "alice").await, Position::Waiting { position: 1, .. }));
    drop(alice);
}

// an older state of the store comes back, with a ticket of a player who is gone, in a line in which nobody waits any more.
#[tokio::test]
async fn r_2_a_ticket_that_came_back_is_put_away_although_nobody_else_waits() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let p1 = proxy(queueing("p1", &wire.url())).await;
    let attributes = Attributes::of_wish(&RequestId::short(), None, None).expect("short");
    for name in [LineName::wait(), LineName::wait_for(&id("b1"))] {
        let at = line(&store.url(), name.clone()).await;
        at.enter(&holder(&p1), &player("ghost"), 0, &SessionId::fresh(), &attributes, None).await.expect("the store");
    }
    wire.cut_all();
    for name in [LineName::wait(), LineName::wait_for(&id("b1"))] {
        let at = line(&store.url(), name.clone()).await;
        let is_away = async || !matches!(place(&at, "ghost").await, Position::Waiting { .. });
        eventually(&format!("{name}: it is put away"), LIMIT, is_away).await;
    }
}

// QUE-3: the connection drops at the moment when the player enters the line.
#[tokio::test]
async fn que_3_who_drops_while_entering_keeps_the_place() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let p1 = proxy(queueing("p1", &wire.url())).await;
    let p2 = wait_proxy("p2", &store.url()).await;
    let request = Request::new(player("alice"));
    let which = request.id.clone();
    wire.drop_next_reply_of(&format!("EVALSHA {}", scripts::QUEUE_ENTER.pinned()), Action::Cut);
    let drops = async {
        while !p1.away(&player("alice"), &which).await.expect("the store answers") {
            tokio::task::yield_now().await;
        }
    };
    let (outcome, ()) = tokio::join!(p1.dispatch(request), drops);
    assert!(matches!(&outcome, Outcome::Refused(refusal) if refusal.reason == Reason::Cancelled), "{outcome:?}");
    let at = line(&store.url(), LineName::wait()).await;
    eventually("the place is kept", LIMIT, async || matches!(place(&at, "alice").await, Position::Away { .. })).await;
    let _bob = waits_for_any(&p2, "bob").await;
    assert_eq!(waits_for_any(&p2, "alice").await.position(), Some(1));
}

// DSP-1: the reason that a player is told is the true one although a reply was lost.
#[tokio::test]
async fn dsp_1_who_waited_too_long_hears_that_although_the_answer_was_lost() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let mut short = queueing("p1", &wire.url());
    short.wait.max_wait_ms = 300;
    let p1 = proxy(short).await;
    let mut alice = waits_for_any(&p1, "alice").await;
    wire.drop_next_reply_of(&format!("EVALSHA {}", scripts::QUEUE_LEAVE.pinned()), Action::Cut);
    let told = turned_away(&mut alice).await;
    assert_eq!((told.reason, wire.dropped()), (Reason::WaitedTooLong, 1), "{told:?}");
}

// QUE-1: the player asks again at the moment of the turn. What came of that is given up, and with it went the ticket.
#[tokio::test]
async fn que_1_who_asks_again_at_the_turn_does_not_go_to_the_end_of_the_line() {
    let store = TestStore::start();
    let mut conn = store.conn().await;
    let wire = FaultProxy::start(&store);
    let p1 = proxy(queueing("p1", &wire.url())).await;
    let p2 = wait_proxy("p2", &store.url()).await;
    let at = line(&store.url(), LineName::wait()).await;
    deafen(&mut conn, &wire, 1).await;
    let mut kept = false;
    for n in 0..20 {
        let name = format!("u{n}");
        let mut first = waits_for_any(&p1, &name).await;
        let _behind = waits_for_any(&p2, &format!("behind{n}")).await;
        goes(&at, &p1, &first).await;
        let again = waits_for_any(&p1, &name).await;
        // The look of every second may have been faster: then the player was told, and stands at the end by right.
        if turned_away(&mut first).await.reason == Reason::Replaced {
            assert_eq!(again.position(), Some(1), "behind one who came later");
            kept = true;
            break;
        }
    }
    assert!(kept);
}

// QUE-9: the operator who reads the audit looks for somebody who writes into the store.
#[tokio::test]
async fn que_9_nobody_is_accused_of_a_ticket_that_another_backend_served() {
    let store = TestStore::start();
    let mut servers = Vec::new();
    for name in ["b1", "b2", "b3"] {
        let stock = Stock::new(0, 0);
        servers.push((backend(config(name, "backend", &store.url()), &stock).await, stock));
    }
    let p1 = wait_proxy("p1", &store.url()).await;
    sees(&p1, &servers.iter().map(|(server, _)| server).collect::<Vec<_>>()).await;
    let mut waiting = Vec::new();
    for n in 0..60 {
        waiting.push(waits_for_any(&p1, &format!("u{n:02}")).await);
    }
    for (server, stock) in &servers {
        stock.restock(20);
        server.restocked();
    }
    for waiting in &mut waiting {
        served(waiting).await;
    }
    for (server, _) in &servers {
        assert_eq!(server.agent().verifier().audit().count(AuditReason::Malformed), 0);
    }
}

// STO-16: a zone whose servers come and go by the hundred would keep a key of each for ever.
#[tokio::test]
async fn sto_16_nothing_of_a_wait_line_is_left_when_the_last_one_is_served_or_leaves() {
    let mut fleet = Fleet::new().backend("b1", 0).queueing_proxy("p1").up().await;
    let (b1, p1) = (fleet.backend("b1"), fleet.proxy("p1"));
    let stock = b1.inventory().clone();
    let mut conn = fleet.store.conn().await;
    let mut alice = waits_for_any(&p1, "alice").await;
    let bob = waits(&p1, Request::new(player("bob")).on_server(id("b1"))).await;
    drop(bob);
    stock.restock(1);
    b1.restocked();
    served(&mut alice).await;
    lands(&b1, "alice").await;
    eventually("the gates are gone", LIMIT, async || {
        let keys: Vec<String> = redis::cmd("KEYS").arg(key("*wait*")).query_async(&mut conn).await.expect("KEYS");
        keys.is_empty()
    })
    .await;
}

// QUE-9: the server died with the player on the way, and nobody gave the claim up. Until the token's time is over no request
// of the player would have waited.
#[tokio::test]
async fn que_9_whose_claimed_place_died_with_its_server_may_wait_for_another() {
    let store = TestStore::start();
    let stock = Stock::new(1, 1);
    let mut patient = config("b1", "backend", &store.url());
    patient.tokens.ttl_ms = 600_000;
    let b1 = backend(patient, &stock).await;
    let (p1, p2) = (wait_proxy("p1", &store.url()).await, wait_proxy("p2", &store.url()).await);
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let moved = transfer(&p1, "alice").await;
    assert_eq!(refused(&p2, Request::new(player("alice"))).await.reason, Reason::Lost, "{} moves her", moved.server);
    drop(b1);
    let mut alice = eventually("she waits", LIMIT, async || match p2.dispatch(Request::new(player("alice"))).await {
        Outcome::Waiting(waiting) => Some(waiting),
        _ => None,
    })
    .await;
    let b2 = backend(config("b2", "backend", &store.url()), &Stock::new(1, 1)).await;
    b2.restocked();
    assert_eq!(served(&mut alice).await.server, id("b2"));
}
