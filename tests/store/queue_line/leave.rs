use maitred::ids::{Role, SessionId};
use maitred::queue::{Admitter, Attributes, Choice, Entered, Failed, Left, LineOptions, Position, Stop};
use redis::AsyncCommands;

use crate::fixtures::lines::{HOUR_MS, TestZone, login, names, player, rounds, snapshot};
use maitred_testkit::store::TestStore;

// QUE-1
#[tokio::test]
async fn que_1_a_join_repeated_through_another_proxy_keeps_the_place() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, p2) = (zone.member("p1", Role::proxy(), 0).await, zone.member("p2", Role::proxy(), 0).await);
    let options = login(500, 100);
    let (l1, l2) = (p1.line(&options), p2.line(&options));
    let first = p1.waits(&l1, "alice").await;
    for (n, name) in ["bob", "carol", "dave"].iter().enumerate() {
        assert_eq!(p2.waits(&l2, name).await.position, n as u64 + 2);
    }
    let again = p2.waits(&l2, "alice").await;
    assert_eq!((again.seq, again.position), (first.seq, 1));
    let ticket = l1.ticket_of(&player("alice")).await.unwrap().expect("a ticket");
    assert_eq!((&ticket.holder, &ticket.session), (&p2.holder(), &again.session), "p2 holds it now");
    assert!(!zone.keys().await.contains(&format!("via:login:p1:{}", p1.who.epoch)), "STO-16");

    // the late leave of the connection that p1 had does nothing.
    assert_eq!(l1.leave(&p1.holder(), &player("alice"), &first.session).await.unwrap(), Left::Other);
    assert_eq!(l1.away(&p1.holder(), &player("alice"), &first.session).await.unwrap(), Left::Other);
    let Position::Waiting { position, .. } = l1.position(&player("alice")).await.unwrap() else { panic!("she waits") };
    assert_eq!(position, 1);
    assert_eq!(l2.leave(&p2.holder(), &player("alice"), &again.session).await.unwrap(), Left::Left);
    assert_eq!(l2.leave(&p2.holder(), &player("alice"), &again.session).await.unwrap(), Left::None);
    let Position::Waiting { position, .. } = l1.position(&player("bob")).await.unwrap() else { panic!("he waits") };
    assert_eq!(position, 1);
}

#[tokio::test]
async fn que_1_a_full_line_says_so_and_keeps_whoever_is_in_it() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let line = p1.line(&LineOptions { max_waiting: 2, ..login(500, 100) });
    let alice = p1.waits(&line, "alice").await;
    p1.waits(&line, "bob").await;
    assert_eq!(p1.enter(&line, "carol").await.0, Entered::Full);
    assert_eq!(p1.waits(&line, "alice").await.seq, alice.seq);
}

// QUE-3: who dropped at the head does not hold up the next, and stands where they stood when they come back.
#[tokio::test]
async fn que_3_who_drops_keeps_the_place_and_holds_nobody_up() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 100).await;
    let line = p1.line(&login(1_000, 1));
    let mut sessions = Vec::new();
    for name in ["alice", "bob", "carol"] {
        sessions.push(p1.waits(&line, name).await);
    }
    let dropped = line.away(&p1.holder(), &player("alice"), &sessions[0].session).await.unwrap();
    assert_eq!(dropped, Left::Away);
    assert!(matches!(line.position(&player("alice")).await.unwrap(), Position::Away { left_ms } if left_ms > 20_000));

    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    zone.open_gate("login").await;
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!(names(&round.admitted), ["bob"], "{round:?}");
    let back = p1.waits(&line, "alice").await;
    assert_eq!((back.position, back.seq), (1, sessions[0].seq), "before carol again");
    zone.open_gate("login").await;
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!(names(&round.admitted), ["alice"]);
}

#[tokio::test]
async fn que_3_after_the_grace_the_place_is_gone() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let line = p1.line(&login(500, 1));
    let alice = p1.waits(&line, "alice").await;
    p1.waits(&line, "bob").await;
    line.away(&p1.holder(), &player("alice"), &alice.session).await.unwrap();
    assert_eq!(line.sweep().await.unwrap(), maitred::queue::LineSweepReport::default(), "the grace is not over");
    let _: () = zone.raw.clone().zadd(zone.key("away:login"), "alice", 1_000).await.unwrap();
    assert_eq!(p1.waits(&line, "alice").await.position, 2, "behind bob now, swept or not");
    let alice = p1.waits(&line, "alice").await;
    line.away(&p1.holder(), &player("alice"), &alice.session).await.unwrap();
    let _: () = zone.raw.clone().zadd(zone.key("away:login"), "alice", 1_000).await.unwrap();
    assert_eq!(line.sweep().await.unwrap().out, 1);
    assert_eq!(line.position(&player("alice")).await.unwrap(), Position::None);
}

// QUE-3: the players of a proxy that died keep their places; without this a crash sends thousands to the end.
#[tokio::test]
async fn que_3_the_players_of_a_dead_proxy_keep_their_places() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let (p1, p2) = (zone.member("p1", Role::proxy(), 0).await, zone.member("p2", Role::proxy(), 0).await);
    let b1 = zone.member("b1", Role::backend(), 100).await;
    let options = login(1_000, 10);
    let (l1, l2) = (p1.line(&options), p2.line(&options));
    for name in ["a1", "a2"] {
        p1.waits(&l1, name).await;
    }
    let behind = p2.waits(&l2, "b").await;
    for name in ["a3", "a4"] {
        p1.waits(&l1, name).await;
    }
    let _: () = zone.raw.clone().del(zone.key("node:p1")).await.unwrap();

    // the admission itself meets the dead holder.
    zone.open_gate("login").await;
    let mut admitter = Admitter::new(l2.clone(), Choice::Backend, 1);
    let round = rounds(&mut admitter, &p2.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!((names(&round.admitted), round.away.len(), round.stop), (vec!["b".to_owned()], 4, Stop::Empty));
    let returned = p2.waits(&l2, "a2").await;
    assert!(returned.seq < behind.seq);
    p2.waits(&l2, "a1").await;
    assert_eq!(p2.waits(&l2, "a1").await.position, 1);

    // So does the sweep, for those whom no admission reaches.
    let mut p3 = zone.member("p3", Role::proxy(), 0).await;
    let l3 = p3.line(&options);
    p3.waits(&l3, "c").await;
    p3.leave().await;
    assert_eq!(l2.sweep().await.unwrap().away, 1);
    assert!(matches!(l2.position(&player("c")).await.unwrap(), Position::Away { .. }));
}

// QUE-13
#[tokio::test]
async fn que_13_a_failed_transfer_goes_back_to_the_front_and_frees_the_place() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 1).await;
    let line = p1.line(&login(1_000, 10));
    for name in ["alice", "bob"] {
        p1.waits(&line, name).await;
    }
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    for attempt in 1..=3 {
        zone.open_gate("login").await;
        let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
        assert_eq!(names(&round.admitted), ["alice"], "attempt {attempt}: the one place was free again");
        let admission = round.admitted[0].clone();
        let (session, attributes) = (SessionId::fresh(), Attributes::default());
        let failed = line.failed(&p1.who, &admission, &session, &attributes, false).await.unwrap();
        assert_eq!(failed, if attempt < 3 { Failed::Back } else { Failed::Out });
        let again = line.failed(&p1.who, &admission, &session, &attributes, false).await.unwrap();
        assert_eq!(again, failed, "STO-10");
        // another report about the same pass is late.
        let late = line.failed(&p1.who, &admission, &SessionId::fresh(), &attributes, false).await.unwrap();
        assert_eq!(late, Failed::Late);
        if attempt < 3 {
            let Position::Waiting { position, .. } = line.position(&player("alice")).await.unwrap() else { panic!() };
            assert_eq!(position, 1, "before bob");
        }
    }
    zone.open_gate("login").await;
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!(names(&round.admitted), ["bob"]);

    // of a player who is gone the place is kept, and the next does not wait for it.
    let failed = line.failed(&p1.who, &round.admitted[0], &SessionId::fresh(), &Attributes::default(), true).await;
    assert_eq!(failed.unwrap(), Failed::Away);
    assert!(matches!(line.position(&player("bob")).await.unwrap(), Position::Away { .. }));
}

// QUE-12
#[tokio::test]
async fn que_12_an_operator_pauses_resumes_and_empties_a_line_that_runs() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 1_000).await;
    let line = p1.line(&login(1_000, 2));
    for n in 0..300 {
        p1.waits(&line, &format!("p{n}")).await;
    }
    line.pause().await.unwrap();
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    zone.open_gate("login").await;
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!((round.stop, round.admitted.len(), round.waiting), (Stop::Paused, 0, 300));
    assert!(line.view().await.unwrap().paused);
    p1.waits(&line, "later").await;
    line.resume().await.unwrap();
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!((round.stop, names(&round.admitted)), (Stop::Gate, vec!["p0".to_owned(), "p1".to_owned()]));
    let view = line.view().await.unwrap();
    assert_eq!((view.waiting, view.paused, view.rate, view.lanes), (299, false, 1_000, vec![299]));
    let cleared = line.clear().await.unwrap();
    assert_eq!(cleared.out, 299);
    assert_eq!(line.view().await.unwrap().waiting, 0);
    line.sweep().await.unwrap();
    let left: Vec<String> = zone.keys().await.into_iter().filter(|key| key.contains("login")).collect();
    assert_eq!(left, ["gate:login", "pass:login:p0", "pass:login:p1"], "STO-16");
}

// STO-16: nothing of a line stays but its gate, and that of a line nobody configured goes too.
#[tokio::test]
async fn sto_16_after_everyone_has_left_no_key_of_the_line_is_there() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let mut p1 = zone.member("p1", Role::proxy(), 0).await;
    let wait = LineOptions::wait_line(maitred::ids::LineName::wait());
    let lines = [p1.line(&login(500, 1)), p1.line(&wait)];
    for line in &lines {
        for name in ["leaves", "drops", "orphan"] {
            let waiting = p1.waits(line, name).await;
            match name {
                "leaves" => drop(line.leave(&p1.holder(), &player(name), &waiting.session).await.unwrap()),
                "drops" => drop(line.away(&p1.holder(), &player(name), &waiting.session).await.unwrap()),
                _ => {}
            }
        }
    }
    assert_eq!(maitred::queue::lines(&p1.store).await.unwrap().len(), 2);
    // Entries of each index whose row is gone, and a row without an index.
    let mut raw = zone.raw.clone();
    for line in ["login", "wait"] {
        let _: () = raw.zadd(zone.key(&format!("line:{line}")), "ghost1", 1).await.unwrap();
        let _: () = raw.zadd(zone.key(&format!("away:{line}")), "ghost2", 1e15).await.unwrap();
        let _: () = raw.sadd(zone.key(&format!("vias:{line}")), "p9:1").await.unwrap();
        let _: () = raw.sadd(zone.key(&format!("via:{line}:p8:1")), "ghost3").await.unwrap();
        let _: () = raw.sadd(zone.key(&format!("vias:{line}")), "p8:1").await.unwrap();
        let _: () = raw.zrem(zone.key(&format!("line:{line}")), "orphan").await.unwrap();
    }
    p1.leave().await;
    for line in &lines {
        let report = line.sweep().await.unwrap();
        assert!(report.healed >= 3, "{report:?}");
        let away: Vec<String> = raw.zrange(zone.key(&format!("away:{}", line.name())), 0, -1).await.unwrap();
        assert_eq!(away, ["drops", "orphan"], "a row without an index entry keeps its place for the grace");
        for name in away {
            let _: () = raw.zadd(zone.key(&format!("away:{}", line.name())), name, 1_000).await.unwrap();
        }
        assert_eq!(line.sweep().await.unwrap().out, 2);
    }
    lines[1].sweep().await.unwrap();
    assert_eq!(zone.keys().await, ["epochs", "gate:login"]);
}

// QUE-12: a line is emptied and put right in steps, so that its length is no question of the operator's memory.
#[tokio::test]
async fn que_12_a_line_of_many_steps_is_healed_and_emptied() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    // However long the steps take, nobody's grace ends between them.
    let line = p1.line(&LineOptions { reconnect_grace_ms: HOUR_MS, ..login(1_000, 10) });
    p1.waits(&line, "alice").await;
    let many: Vec<(u64, String)> = (0..5_000).map(|n| (n / 1_000, format!("p{n}"))).collect();
    let fields: Vec<(&String, &str)> = many.iter().map(|(_, name)| (name, "not a ticket")).collect();
    let mut raw = zone.raw.clone();
    let _: () = raw.hset_multiple(zone.key("tickets:login"), &fields).await.unwrap();
    // Of some an index knows, a thousand with one score; of the others none does.
    let _: () = raw.zadd_multiple(zone.key("line:login"), &many[..3_000]).await.unwrap();
    let ghosts: Vec<(u64, String)> = (0..1_000).map(|n| (1_000, format!("ghost{n}"))).collect();
    let _: () = raw.zadd_multiple(zone.key("away:login"), &ghosts).await.unwrap();
    assert_eq!(line.heal().await.unwrap().healed, 3_000, "2,000 without an entry, 1,000 without a ticket");
    assert_eq!(line.heal().await.unwrap(), maitred::queue::LineSweepReport::default());
    let counts = |view: maitred::queue::LineView| (view.waiting, view.away);
    assert_eq!(counts(line.view().await.unwrap()), (3_001, 2_000));
    assert_eq!(line.clear().await.unwrap().out, 5_001);
    assert_eq!(counts(line.view().await.unwrap()), (0, 0));
    let keys = zone.keys().await;
    assert!(["line:", "tickets:", "away:", "via"].iter().all(|kind| !keys.iter().any(|key| key.starts_with(kind))));
}
