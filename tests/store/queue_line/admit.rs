use std::time::Duration;

use maitred::ids::{LineName, NodeId, Role};
use maitred::node::{KILL, NodeState, drain_name};
use maitred::queue::{Admitter, Attributes, Choice, Entered, GateOptions, LineOptions, LineSweepReport, Stop};
use redis::AsyncCommands;

use crate::fixtures::lines::{Member, TestZone, login, names, player, rounds, snapshot};
use maitred_testkit::store::TestStore;

// QUE-2: nobody waits and nothing holds them back, so nobody is made to wait, and it costs one call.
#[tokio::test]
async fn que_2_an_empty_line_with_an_open_gate_admits_in_the_same_call() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 2).await;
    let line = p1.line(&login(1, 2));
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    zone.open_gate("login").await;
    let enter = async |admitter: &mut Admitter, name: &str| {
        let (session, offer) = (maitred::ids::SessionId::fresh(), admitter.offer(&snapshot(&[&b1])));
        line.enter(&p1.who, &player(name), 0, &session, &Attributes::default(), offer.as_ref()).await.unwrap()
    };
    let Entered::Admitted(first) = enter(&mut admitter, "alice").await else { panic!("she is in") };
    assert_eq!(first.pass.server, Some(b1.who.id.clone()));
    // a live pass is given again.
    let Entered::Admitted(again) = enter(&mut admitter, "alice").await else { panic!("she is in") };
    assert_eq!((&again.pass, again.seq), (&first.pass, first.seq));
    assert_ne!(again.session, first.session);
    let Entered::Admitted(second) = enter(&mut admitter, "bob").await else { panic!("he is in") };
    assert!(second.pass.serial > first.pass.serial);
    assert!(matches!(enter(&mut admitter, "carol").await, Entered::Waiting(_)), "gate and backend are used up");
    let row = line.pass_of(&player("alice")).await.unwrap().expect("a pass");
    assert_eq!((row.pass, row.void, row.redeemed_at_ms), (first.pass, false, None));
    assert_eq!(zone.raw.clone().zcard::<_, u64>(zone.key("held:b1")).await.unwrap(), 2);
}

/// Nobody may be admitted now, and the line is as it was.
async fn nobody(admitter: &mut Admitter, p1: &Member, b1: &Member, why: &str) {
    let before = admitter.line().positions(100).await.unwrap();
    let round = rounds(admitter, &p1.who, &snapshot(&[b1])).await.unwrap();
    assert!(round.admitted.is_empty() && round.stop == Stop::Full, "{why}: {round:?}");
    assert_eq!(admitter.line().positions(100).await.unwrap(), before, "{why}");
    assert_eq!(round.pause(Duration::from_secs(1)), Duration::from_secs(1), "{why}: looked at again in a tick");
}

// QUE-5, QUE-14
#[tokio::test]
async fn que_5_with_every_backend_out_nobody_is_admitted_and_the_line_stays() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let mut b1 = zone.member("b1", Role::backend(), 5).await;
    let line = p1.line(&login(10_000, 1_000));
    for n in 0..20 {
        p1.waits(&line, &format!("p{n}")).await;
    }
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    zone.open_gate("login").await;

    b1.record.load.overloaded = Some(true);
    nobody(&mut admitter, &p1, &b1, "overloaded").await;
    b1.record.load.overloaded = None;
    b1.record.load.new_players_per_second = Some(151.0);
    nobody(&mut admitter, &p1, &b1, "over the limit of new players").await;
    b1.record.load.new_players_per_second = None;
    b1.record.players = 5;
    nobody(&mut admitter, &p1, &b1, "full").await;
    b1.record.players = 0;
    p1.control.put(&p1.store, &p1.verifier, &drain_name(&b1.who.id), "on", "test").await.unwrap();
    nobody(&mut admitter, &p1, &b1, "draining").await;
    p1.control.put(&p1.store, &p1.verifier, &drain_name(&b1.who.id), "off", "test").await.unwrap();

    // What the directory does not know yet the script sees.
    b1.record.accepting = false;
    b1.beat().await;
    b1.record.accepting = true;
    nobody(&mut admitter, &p1, &b1, "not accepting").await;
    b1.record.state = NodeState::ShuttingDown;
    b1.beat().await;
    b1.record.state = NodeState::Ready;
    nobody(&mut admitter, &p1, &b1, "on its way out").await;
    b1.record.players = 5;
    b1.beat().await;
    b1.record.players = 0;
    nobody(&mut admitter, &p1, &b1, "full by its row").await;
    let _: () = zone.raw.clone().hset(zone.key("node:b1"), "beat_at", 1_000).await.unwrap();
    nobody(&mut admitter, &p1, &b1, "silent").await;

    // It comes back, and no event says so: the next tick finds it.
    b1.beat().await;
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!((round.admitted.len(), round.waiting), (5, 15), "{round:?}");
    assert_eq!(names(&round.admitted), ["p0", "p1", "p2", "p3", "p4"]);

    // POL-4
    let operator = zone.member("op", Role::new("service").unwrap(), 0).await;
    operator.control.put(&operator.store, &operator.verifier, KILL, "on", "test").await.unwrap();
    let killed = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await;
    assert!(matches!(killed, Err(maitred::Error::KillSwitch { .. })), "{killed:?}");
}

// QUE-15: promised places count at once, for every admitter, until a beat counts the player.
#[tokio::test]
async fn que_15_promised_places_are_taken_until_a_beat_counts_the_player() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let mut b1 = zone.member("b1", Role::backend(), 3).await;
    let line = p1.line(&login(10_000, 1_000));
    for n in 0..6 {
        p1.waits(&line, &format!("p{n}")).await;
    }
    zone.open_gate("login").await;
    let (mut one, mut two) =
        (Admitter::new(line.clone(), Choice::Backend, 1), Admitter::new(line.clone(), Choice::Backend, 2));
    let round = rounds(&mut one, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!((round.admitted.len(), round.stop), (3, Stop::Full));
    assert!(rounds(&mut two, &p1.who, &snapshot(&[&b1])).await.unwrap().admitted.is_empty());

    // p0 arrives. Until a beat names the arrival the place is held, then it is counted by the beat.
    let pass = &round.admitted[0].pass;
    assert!(line.arrived(pass).await.unwrap() && line.arrived(pass).await.unwrap());
    let at_b1 = b1.line(&login(10_000, 1_000));
    at_b1.redeem(&b1.who, pass, &maitred::ids::OperationId::fresh()).await.unwrap().expect("she comes in");
    b1.record.players = 1;
    for _ in 0..3 {
        b1.beat().await;
        assert!(
            rounds(&mut two, &p1.who, &snapshot(&[&b1])).await.unwrap().admitted.is_empty(),
            "still three places taken"
        );
    }
    let held = zone.held("b1").await;
    let players: Vec<&str> = held.iter().filter_map(|claim| claim.split(' ').next()).collect();
    assert_eq!(players, ["p1", "p2"]);

    // Those who do not come: their places are used again.
    for claim in &held {
        let _: () = zone.raw.clone().zadd(zone.key("held:b1"), claim, 1_000).await.unwrap();
    }
    b1.beat().await;
    let round = rounds(&mut two, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!(names(&round.admitted), ["p3", "p4"]);
}

// the beat that counts an arrival must not take a place away that the player was promised anew since.
#[tokio::test]
async fn r_25_a_player_who_came_and_went_keeps_the_place_promised_anew() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let mut b1 = zone.member("b1", Role::backend(), 3).await;
    let line = p1.line(&login(10_000, 1_000));
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    for visit in 0..2 {
        p1.waits(&line, "p0").await;
        zone.open_gate("login").await;
        let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
        assert_eq!(names(&round.admitted), ["p0"], "visit {visit}");
        if visit == 0 {
            let (at_b1, op) = (b1.line(&login(10_000, 1_000)), maitred::ids::OperationId::fresh());
            at_b1.redeem(&b1.who, &round.admitted[0].pass, &op).await.unwrap().expect("p0 comes in");
        }
    }
    let anew = zone.held("b1").await.pop().expect("a promise");
    for _ in 0..3 {
        b1.beat().await;
        assert!(zone.held("b1").await.contains(&anew), "the second visit's place");
    }
    assert_eq!(zone.held("b1").await, [anew], "and the first one's is counted");
}

// QUE-5: a link is a place of its own, and a player without one is not sent off with half of a pick.
#[tokio::test]
async fn que_5_backend_and_link_are_both_promised_and_link_only_picks_a_link() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 50).await;
    let k1 = zone.member("k1", Role::link(), 2).await;
    let line = p1.line(&login(10_000, 1_000));
    for n in 0..6 {
        p1.waits(&line, &format!("p{n}")).await;
    }
    zone.open_gate("login").await;
    let mut both = Admitter::new(line.clone(), Choice::BackendAndLink, 1);
    assert_eq!(rounds(&mut both, &p1.who, &snapshot(&[&b1])).await.unwrap().stop, Stop::Full, "no link is there");
    let round = rounds(&mut both, &p1.who, &snapshot(&[&b1, &k1])).await.unwrap();
    assert_eq!((round.admitted.len(), round.stop), (2, Stop::Full), "{round:?}");
    let pass = &round.admitted[0].pass;
    assert_eq!((&pass.server, &pass.link), (&Some(b1.who.id.clone()), &Some(k1.who.id.clone())));
    let k2 = zone.member("k2", Role::link(), 3).await;
    let mut link_only = Admitter::new(line.clone(), Choice::LinkOnly, 1);
    let round = rounds(&mut link_only, &p1.who, &snapshot(&[&b1, &k2])).await.unwrap();
    assert_eq!(round.admitted.len(), 3);
    assert!(round.admitted.iter().all(|a| a.pass.server.is_none() && a.pass.link == Some(NodeId::new("k2").unwrap())));
}

// QUE-4, R-24: the rate is that of the backends that beat, and a gate that was lost starts empty.
#[tokio::test]
async fn que_4_the_gate_counts_live_backends_and_starts_empty() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let gate = GateOptions { per_backend: 40, ..GateOptions::default() };
    let line = p1.line(&LineOptions { gate, ..login(1, 1) });
    for n in 0..100 {
        p1.waits(&line, &format!("p{n}")).await;
    }
    // Last, for who beat 3 s ago counts no more.
    let mut backends = Vec::new();
    for n in 0..3 {
        backends.push(zone.member(&format!("b{n}"), Role::backend(), 1_000).await);
    }
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    let view: Vec<&Member> = backends.iter().collect();
    let round = rounds(&mut admitter, &p1.who, &snapshot(&view)).await.unwrap();
    assert_eq!((round.stop, round.admitted.len(), round.rate), (Stop::Gate, 0, 120), "{round:?}");
    assert!(round.gate_opens_in.is_some_and(|wait| wait <= Duration::from_millis(9)));
    zone.open_gate("login").await;
    assert_eq!(
        rounds(&mut admitter, &p1.who, &snapshot(&view)).await.unwrap().admitted.len(),
        30,
        "a quarter of a second"
    );
    let _: () = zone.raw.clone().zadd(zone.key("nodes:backend"), "b2", 1_000).await.unwrap();
    assert_eq!(rounds(&mut admitter, &p1.who, &snapshot(&view)).await.unwrap().rate, 80, "one is silent");

    // TIME back by less than a second: the gate holds; by more: it starts there without credit.
    let now = zone.now().await;
    let set = async |bucket: u64, refilled_at_ms: u64| {
        let fields = [("bucket", format!("{bucket}")), ("refilled_at", format!("{refilled_at_ms}000"))];
        let _: () = zone.raw.clone().hset_multiple(zone.key("gate:login"), &fields).await.unwrap();
    };
    set(2_000_000, now + 900).await;
    assert_eq!(
        rounds(&mut admitter, &p1.who, &snapshot(&view)).await.unwrap().admitted.len(),
        2,
        "what was there, no more"
    );
    set(9_000_000, now + 60_000).await;
    assert!(rounds(&mut admitter, &p1.who, &snapshot(&view)).await.unwrap().admitted.is_empty());
}

// a ticket that nobody signed is put out; one of a later version waits for who understands it.
#[tokio::test]
async fn r_22_forged_heads_are_put_out_and_strange_ones_wait() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 100).await;
    let line = p1.line(&login(10_000, 1_000));
    for name in ["forged", "missing", "binary", "alice", "strange", "bob"] {
        p1.waits(&line, name).await;
    }
    let mut raw = zone.raw.clone();
    let tickets = zone.key("tickets:login");
    let text: String = raw.hget(&tickets, "alice").await.unwrap();
    let _: () = raw.hset(&tickets, "forged", &text).await.unwrap();
    let _: () = raw.hdel(&tickets, "missing").await.unwrap();
    let _: () = raw.hset(&tickets, "binary", &b"1 0 p1 1 s 1 1 x \xc3\x28"[..]).await.unwrap();
    let text: String = raw.hget(&tickets, "strange").await.unwrap();
    let _: () = raw.hset(&tickets, "strange", text.replacen(" 1 5ebd00f2", " 2 5ebd00f2", 1)).await.unwrap();
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    zone.open_gate("login").await;
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!(names(&round.admitted), ["alice"]);
    assert_eq!((round.evicted, round.stop), (["forged", "missing", "binary"].map(player).to_vec(), Stop::Blocked));
    let first = line.positions(10).await.unwrap();
    assert_eq!(first, [player("strange"), player("bob")]);
}

// QUE-15: promises of a line whose players have a minute must not end with those of a line whose players have a second.
#[tokio::test]
async fn que_15_promises_of_one_line_outlive_shorter_ones_of_another() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 2).await;
    for (name, arrive_ms) in [("login", 60_000), ("vip", 200)] {
        let line = LineName::new(name).unwrap();
        let line = p1.line(&LineOptions { name: line, arrive_ms, ..login(1_000, 10) });
        let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
        p1.waits(&line, name).await;
        zone.open_gate(name).await;
        assert_eq!(rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap().admitted.len(), 1, "{name}");
    }
    let left: i64 = zone.raw.clone().pttl(zone.key("held:b1")).await.unwrap();
    assert!(left > 10_000, "the first promise would end in {left} ms");
}

// one entry that no player can have must not hold up everybody behind it, nor be read for ever.
#[tokio::test]
async fn r_6_what_is_no_players_name_holds_nobody_up() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 5).await;
    let line = p1.line(&login(1_000, 10));
    let long = "x".repeat(129);
    let junk: [&[u8]; 6] = [b"a b", b"", b"\xff\xfe", "\u{2003}".as_bytes(), b"\xed\xa0\x80", long.as_bytes()];
    let mut raw = zone.raw.clone();
    for name in junk {
        let _: () = raw.zadd(zone.key("line:login"), name, 1).await.unwrap();
        // With a ticket the counts of the indexes agree.
        let _: () = raw.hset(zone.key("tickets:login"), name, "1 0 p1 1 s 1 1 x ").await.unwrap();
    }
    for name in ["alice", "bj\u{f6}rn", "\u{1f600}"] {
        p1.waits(&line, name).await;
    }
    zone.open_gate("login").await;
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
    assert_eq!(names(&round.admitted), ["alice", "bj\u{f6}rn", "\u{1f600}"], "{round:?}");
    assert_eq!((round.stop, round.waiting), (Stop::Empty, 0));
    assert!(!zone.keys().await.contains(&"tickets:login".to_owned()));

    // Where nobody admits the sweep finds it.
    for name in junk {
        let _: () = raw.zadd(zone.key("line:login"), name, 9).await.unwrap();
        let _: () = raw.zadd(zone.key("away:login"), name, 9).await.unwrap();
    }
    assert!(line.sweep().await.unwrap().healed > 0);
    assert_eq!(line.sweep().await.unwrap(), LineSweepReport::default());
    assert!(zone.keys().await.iter().all(|key| !key.starts_with("line:") && !key.starts_with("away:")));
}

// a gate that was written over by hand may be open or shut for a moment, and not for good.
#[tokio::test]
async fn r_6_numbers_that_are_none_do_not_end_a_line() {
    let store = TestStore::start();
    let zone = TestZone::new(&store).await;
    let p1 = zone.member("p1", Role::proxy(), 0).await;
    let b1 = zone.member("b1", Role::backend(), 50).await;
    let line = p1.line(&login(1, 1));
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    let mut raw = zone.raw.clone();
    for (field, value) in [("seq", "1e30"), ("serial", "1e30"), ("serial", "nan"), ("seq", "-7")] {
        let name = format!("{field}{value}");
        zone.open_gate("login").await;
        let _: () = raw.hset(zone.key("gate:login"), field, value).await.unwrap();
        p1.waits(&line, &name).await;
        let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
        assert_eq!(names(&round.admitted), [name]);
    }
    for field in ["bucket", "refilled_at"] {
        for value in ["nan", "-nan", "1e300"] {
            zone.open_gate("login").await;
            let _: () = raw.hset(zone.key("gate:login"), field, value).await.unwrap();
            for n in 0..3 {
                p1.waits(&line, &format!("{field}{value}{n}")).await;
            }
            let round = rounds(&mut admitter, &p1.who, &snapshot(&[&b1])).await.unwrap();
            assert!(round.admitted.len() <= 1, "a burst of one: {round:?}");
            assert!(round.gate_opens_in.is_some(), "it opens again: {round:?}");
            assert!(line.clear().await.unwrap().out >= 2);
        }
    }
}
