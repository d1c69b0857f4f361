//! Places on one node that several promise to one player: each promise is one place, and the end of one is not the end of
//! another.

use maitred::ids::{LineName, OperationId, Role, SessionId};
use maitred::queue::{Admission, Admitter, Attributes, Choice, Failed, Left, LineOptions, PassRefusal};
use maitred::token::{Book, BookOptions, IssueOrder, IssueOutcome};
use redis::AsyncCommands;

use crate::fixtures::lines::{Member, TestZone, login, names, player, rounds, snapshot};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

/// A second line to the same nodes.
fn vip() -> LineOptions {
    LineOptions { name: LineName::new("vip").unwrap(), ..login(10_000, 1_000) }
}

fn open() -> LineOptions {
    login(10_000, 1_000)
}

async fn waits(p1: &Member, options: &LineOptions, names: &[&str]) -> SessionId {
    let mut session = SessionId::fresh();
    for name in names {
        session = p1.waits(&p1.line(options), name).await.session;
    }
    session
}

/// Whom the line lets in now.
async fn admits(zone: &TestZone, p1: &Member, options: &LineOptions, to: &[&Member]) -> Vec<Admission> {
    zone.open_gate(options.name.as_str()).await;
    let choice = if to.len() > 1 { Choice::BackendAndLink } else { Choice::Backend };
    let mut admitter = Admitter::new(p1.line(options), choice, 1);
    rounds(&mut admitter, &p1.who, &snapshot(to)).await.unwrap().admitted
}

async fn admitted(zone: &TestZone, p1: &Member, options: &LineOptions, to: &[&Member], name: &str) -> Admission {
    waits(p1, options, &[name]).await;
    admits(zone, p1, options, to).await.pop().unwrap_or_else(|| panic!("{name} was not admitted"))
}

async fn redeems(at: &Member, options: &LineOptions, admission: &Admission) -> Result<(), PassRefusal> {
    at.line(options).redeem(&at.who, &admission.pass, &OperationId::fresh()).await.unwrap()
}

/// Waits until the promise of a line with a short `arriveMs` is over.
async fn lapses(zone: &TestZone, since: u64, options: &LineOptions) {
    eventually("the promise is over", LIMIT, async || zone.now().await > since + options.arrive_ms).await;
}

/// What ends the second promise to a player who came by the first.
async fn ends(zone: &TestZone, p1: &Member, second: &Admission, how: &str) {
    let line = p1.line(&vip());
    match how {
        "leave" => {
            let left = line.leave(&p1.holder(), &second.pass.player, &second.session).await.unwrap();
            assert_eq!(left, Left::Left);
        }
        "failed" => {
            let none = Attributes::default();
            let failed = line.failed(&p1.who, second, &SessionId::fresh(), &none, false).await.unwrap();
            assert_eq!(failed, Failed::Back);
        }
        _ => {
            // Nobody came of it: the time of the promise is over.
            let members: Vec<String> = zone.raw.clone().zrange(zone.key("held:b1"), 0, -1).await.unwrap();
            let theirs = members.iter().find(|member| member.contains("vip")).expect("a promise of its own");
            let _: () = zone.raw.clone().zadd(zone.key("held:b1"), theirs, 1_000).await.unwrap();
        }
    }
}

// R-40, QUE-13: the place of a player who is there is sold once more, 3 on a cap of 2.
#[tokio::test]
async fn r_40_the_end_of_one_promise_leaves_the_players_other_place_alone() {
    for how in ["leave", "failed", "no show"] {
        let store = TestStore::start();
        let zone = TestZone::new(&store).await;
        let (p1, mut b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 2).await);
        let first = admitted(&zone, &p1, &open(), &[&b1], "alice").await;
        let second = admitted(&zone, &p1, &vip(), &[&b1], "alice").await;
        waits(&p1, &open(), &["bob", "carol"]).await;
        assert!(admits(&zone, &p1, &open(), &[&b1]).await.is_empty(), "{how}: two promises are two places");
        assert_eq!(redeems(&b1, &open(), &first).await, Ok(()));
        ends(&zone, &p1, &second, how).await;
        assert_eq!(names(&admits(&zone, &p1, &open(), &[&b1]).await), ["bob"], "{how}: one place was given up");
        b1.record.players = 1;
        b1.beat().await;
        b1.beat().await;
        assert!(admits(&zone, &p1, &open(), &[&b1]).await.is_empty(), "{how}: alice is there, and bob on his way");
        let held: u64 = zone.raw.clone().zcount(zone.key("held:b1"), "2000", "+inf").await.unwrap();
        assert_eq!(held, 1, "{how}: she is counted as there, and as nothing else");
    }
}

// who came by a reservation keeps that place, whatever becomes of a line that the player stood in as well.
#[tokio::test]
async fn r_40_the_place_of_a_token_outlives_a_line_that_the_player_leaves() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 2).await);
    let book = |member: &Member| {
        let (store, verifier, control) = (member.store.clone(), member.verifier.clone(), member.control.clone());
        Book::new(store, verifier, control, BookOptions::default()).counting(member.arrivals.clone(), 60_000)
    };
    let now = zone.now().await;
    let mut order = IssueOrder {
        id: maitred::ids::TokenId::fresh(),
        player: player("alice"),
        request: maitred::ids::RequestId::fresh(),
        attempt: 1,
        payload: serde_json::value::RawValue::NULL.to_owned(),
        deadline_ms: now + 5_000,
        earlier: Vec::new(),
        issued_at_ms: now,
    };
    let IssueOutcome::Issued(token) = book(&b1).issue(&b1.who, &mut order).await.unwrap() else { panic!("a token") };
    book(&p1).claim(&token, &p1.who, &OperationId::fresh()).await.unwrap();
    let pass = admitted(&zone, &p1, &open(), &[&b1], "alice").await;
    book(&b1).consume(&token.id, &token.player, &b1.who, &OperationId::fresh()).await.unwrap();
    let left = p1.line(&open()).leave(&p1.holder(), &token.player, &pass.session).await.unwrap();
    assert_eq!(left, Left::Left);
    waits(&p1, &open(), &["bob", "carol"]).await;
    assert_eq!(names(&admits(&zone, &p1, &open(), &[&b1]).await), ["bob"]);
}

// STO-17: a node of an earlier build looks for the player's name alone, and its players would be told that their places are gone.
#[tokio::test]
async fn r_40_a_place_on_a_node_of_an_earlier_build_is_held_as_that_build_holds_it() {
    for (older, taken) in [("b1", "redeem"), ("b1", "leave"), ("p1", "redeem"), ("p1", "leave")] {
        let store = TestStore::start();
        let zone = TestZone::new(&store).await;
        let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 1).await);
        let _: () = zone.raw.clone().hdel(zone.key(&format!("node:{older}")), "claims").await.unwrap();
        let pass = admitted(&zone, &p1, &open(), &[&b1], "alice").await;
        assert_eq!(zone.held("b1").await, ["alice"], "{older}");
        if taken == "redeem" {
            assert_eq!(redeems(&b1, &open(), &pass).await, Ok(()), "{older}: the only place is hers");
            assert_eq!(zone.held("b1").await.len(), 1, "{older}: and is one place still");
        } else {
            p1.line(&open()).leave(&p1.holder(), &pass.pass.player, &pass.session).await.unwrap();
            assert!(zone.held("b1").await.is_empty(), "{older}");
        }
    }
}

// R-40, QUE-15: a promise that is over is not made good with the place that another line holds.
#[tokio::test]
async fn r_40_a_late_pass_takes_no_place_that_another_line_promised() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 2).await);
    let short = LineOptions { arrive_ms: 300, ..open() };
    let late = admitted(&zone, &p1, &short, &[&b1], "alice").await;
    lapses(&zone, zone.now().await, &short).await;
    let theirs = admitted(&zone, &p1, &vip(), &[&b1], "alice").await;
    admitted(&zone, &p1, &vip(), &[&b1], "bob").await;
    assert_eq!(redeems(&b1, &short, &late).await, Err(PassRefusal::PlaceGone));
    assert_eq!(redeems(&b1, &vip(), &theirs).await, Ok(()));
}

// a node that nobody hears of takes nobody; its row is gone together with the number that would stop them.
#[tokio::test]
async fn r_35_a_node_without_a_living_row_has_no_place_for_a_late_pass() {
    for gone in [&["DEL"][..], &["HDEL", "soft_cap"], &["HDEL", "players"], &["HSET", "soft_cap", "nan"]] {
        let store = TestStore::start();
        let zone = TestZone::new(&store).await;
        let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 9).await);
        let l1 = zone.member("l1", Role::link(), 9).await;
        let short = LineOptions { arrive_ms: 300, ..open() };
        let late = admitted(&zone, &p1, &short, &[&b1, &l1], "alice").await;
        lapses(&zone, zone.now().await, &short).await;
        let mut change = redis::cmd(gone[0]);
        change.arg(zone.key("node:l1")).arg(&gone[1..]);
        let _: () = change.query_async(&mut zone.raw.clone()).await.unwrap();
        assert_eq!(redeems(&b1, &short, &late).await, Err(PassRefusal::PlaceGone), "{gone:?}");
        waits(&p1, &short, &["bob"]).await;
        assert!(admits(&zone, &p1, &short, &[&b1, &l1]).await.is_empty(), "{gone:?}: and none for a new one");
    }
}

// else a no-show holds the place for as long as the store's clock went back.
#[tokio::test]
async fn r_34_a_place_from_before_the_stores_clock_stepped_back_is_over() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, b1) = (zone.member("p1", Role::proxy(), 0).await, zone.member("b1", Role::backend(), 1).await);
    admitted(&zone, &p1, &open(), &[&b1], "alice").await;
    waits(&p1, &open(), &["bob"]).await;
    assert!(admits(&zone, &p1, &open(), &[&b1]).await.is_empty());
    let members: Vec<String> = zone.raw.clone().zrange(zone.key("held:b1"), 0, -1).await.unwrap();
    let _: () = zone.raw.clone().zincr(zone.key("held:b1"), &members[0], 600_000).await.unwrap();
    assert_eq!(names(&admits(&zone, &p1, &open(), &[&b1]).await), ["bob"]);
}

// the same for a place in the line.
#[tokio::test]
async fn r_34_a_place_of_one_who_dropped_before_the_clock_stepped_back_is_over() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let line = p1.line(&open());
    for name in ["alice", "bob"] {
        let session = waits(&p1, &open(), &[name]).await;
        line.away(&p1.holder(), &player(name), &session).await.unwrap();
    }
    assert_eq!(line.sweep().await.unwrap().out, 0);
    let _: () = zone.raw.clone().zincr(zone.key("away:login"), "alice", 600_000).await.unwrap();
    assert_eq!(line.sweep_preview().await.unwrap().out, 1);
    assert_eq!(line.sweep().await.unwrap().out, 1);
    assert_eq!(line.view().await.unwrap().away, 1, "bob's is kept");
}
