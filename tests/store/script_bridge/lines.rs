//! Every answer of the scripts of lines.

use maitred::store::scripts;

use super::calls::{Node, Token, key, settle};
use super::queue::{
    EPOCH, Guest, admit, exists, open_gate, pause, peek, position, sweep, texts, ticket, twin_with_line,
};
use super::reply::Reply;
use super::twin::Twin;

#[test]
fn sto_4_queue_enter() {
    let (mut twin, now) = twin_with_line();
    let alice = Guest::new("alice", now);
    let waiting = alice.enter().run(&mut twin);
    assert_eq!((waiting[0].as_str(), waiting[3].as_str(), waiting.len()), ("WAITING", "0", 11), "{waiting:?}");
    assert_eq!(alice.enter().run(&mut twin)[..3], waiting[..3], "STO-10");
    let moved = Guest { lane: "1", ..alice.clone() };
    assert_eq!(moved.enter().run(&mut twin), ["LANE", "0"]);
    settle(&mut twin, "p2", "proxy", now);
    let other = Guest { proxy: "p2", session: "s2", ..alice.clone() };
    assert_eq!(other.enter().run(&mut twin), ["NEED", &alice.holder()], "R-31");
    let other = Guest { old_holder: alice.holder(), ..other };
    assert_eq!(other.enter().run(&mut twin)[..3], waiting[..3], "QUE-1");
    let full = Guest { most: "1", ..Guest::new("bob", now) };
    assert_eq!(full.enter().run(&mut twin), ["FULL"]);
    let skewed = Guest { joined_at: "1000", ..Guest::new("bob", now) };
    assert_eq!(skewed.enter().run(&mut twin)[0], "SKEW");
    let nobody = Guest { proxy: "p9", ..Guest::new("bob", now) };
    assert_eq!(nobody.enter().run(&mut twin), ["NO_LEASE"]);
    let old = Guest { epoch: now - 1, ..Guest::new("bob", now) };
    assert_eq!(old.enter().run(&mut twin), ["FENCED", &now.to_string()]);
    twin.seed(["HSET", &key("control"), "kill", "{entry}"]);
    assert_eq!(Guest::new("bob", now).enter().run(&mut twin), ["CONTROL"]);
    twin.seed(["DEL", &key("control")]);

    twin.seed(["DEL", &key("line:login"), &key("tickets:login")]);
    open_gate(&mut twin);
    let bob = Guest { server: "b1", ..Guest::new("bob", now) };
    let admitted = bob.enter().run(&mut twin);
    assert_eq!(admitted[0], "ADMITTED", "{admitted:?}");
    assert!(!exists(&mut twin, "line:login") && exists(&mut twin, "held:b1"));
    let pass = bob.enter().run(&mut twin);
    assert_eq!((pass[0].as_str(), &pass[1], pass[2].as_str()), ("PASS", &admitted[1], "b1"), "STO-10");
    let again = Guest { session: "s9", op: "op9", ..bob.clone() };
    assert_eq!(again.enter().run(&mut twin), pass, "R-23");
    // a pass whose place is gone gives the place in the line back.
    twin.seed(["HSET", &key("pass:login:bob"), "void", "1"]);
    let back = Guest { server: "", ..again }.enter().run(&mut twin);
    assert_eq!((back[0].as_str(), &back[1]), ("WAITING", &admitted[2]));

    // QUE-9: whose turn had come without a place at the end of it stands in front again, and never where nobody stood.
    let seq = |answer: &[String]| answer[1].parse::<u64>().unwrap();
    let before = seq(&Guest::new("eve", now).enter().run(&mut twin));
    twin.seed(["DEL", &key("tickets:login"), &key("line:login"), &key("gate:login")]);
    let again = Guest { kept: Box::leak(before.to_string().into_boxed_str()), ..Guest::new("eve", now) };
    assert_eq!(seq(&again.enter().run(&mut twin)), before);
    let ahead = Guest { kept: "9000000000000", ..Guest::new("frank", now) };
    assert_ne!(seq(&ahead.enter().run(&mut twin)), 9_000_000_000_000);
    twin.covered(&scripts::QUEUE_ENTER);
}

#[test]
fn sto_4_queue_leave() {
    let (mut twin, now) = twin_with_line();
    let alice = Guest::new("alice", now);
    assert_eq!(alice.leave("0", "").run(&mut twin), ["NONE"]);
    alice.enter().run(&mut twin);
    let late = Guest { session: "s0", ..alice.clone() };
    assert_eq!(late.leave("0", "").run(&mut twin), ["OTHER"], "R-21");
    let other = Guest { proxy: "p2", ..alice.clone() };
    assert_eq!(other.leave("0", "").run(&mut twin), ["NEED", "holder", &alice.holder()]);
    assert_eq!(alice.leave("30000", "").run(&mut twin), ["AWAY"]);
    assert_eq!(alice.leave("30000", "").run(&mut twin), ["AWAY"], "STO-10");
    assert!(!exists(&mut twin, "vias:login") && exists(&mut twin, "tickets:login"));
    assert_eq!(alice.leave("0", "").run(&mut twin), ["LEFT"]);
    assert!(!exists(&mut twin, "lines"), "STO-16");

    open_gate(&mut twin);
    let bob = Guest { server: "b1", ..Guest::new("bob", now) };
    bob.enter().run(&mut twin);
    assert_eq!(bob.leave("30000", "").run(&mut twin), ["NONE"], "a pass is no place to keep");
    assert_eq!(bob.leave("0", "").run(&mut twin), ["NEED", "places", "b1", ""], "R-31");
    assert_eq!(bob.leave("0", "b1").run(&mut twin), ["LEFT"]);
    assert!(!exists(&mut twin, "held:b1"));
    twin.covered(&scripts::QUEUE_LEAVE);
}

#[test]
fn sto_4_queue_peek_position_and_pause() {
    let (mut twin, now) = twin_with_line();
    assert_eq!(peek().run(&mut twin)[..2], ["PEEK", "0"]);
    assert_eq!(position("alice").run(&mut twin), ["NONE"]);
    for (player, lane) in [("a", "0"), ("b", "0"), ("c", "0"), ("x", "1"), ("y", "1")] {
        Guest { lane, ..Guest::new(player, now) }.enter().run(&mut twin);
    }
    let peeked = peek().run(&mut twin);
    let order: Vec<&str> = peeked[3..].chunks(3).map(|head| head[1].as_str()).collect();
    assert_eq!(order, ["a", "x", "b", "c", "y"], "two of the first lane for one of the second");
    let y = position("y").run(&mut twin);
    assert_eq!((y[0].as_str(), y[2].as_str(), y[3].as_str(), &y[9..]), ("WAITING", "1", "1", &texts(["3", "2"])[..]));
    Guest::new("a", now).leave("30000", "").run(&mut twin);
    assert_eq!(position("a").run(&mut twin)[0], "AWAY");
    let line = position("").run(&mut twin);
    assert_eq!((line[..4].to_vec(), &line[11..]), (texts(["LINE", "4", "1", "100"]), &texts(["2", "2"])[..]));
    twin.covered(&scripts::QUEUE_PEEK);
    twin.covered(&scripts::QUEUE_POSITION);
    assert_eq!(pause("1").run(&mut twin)[0], "PAUSED");
    assert_eq!(position("").run(&mut twin)[8], "1");
    assert_eq!(position("b").run(&mut twin)[4], "0", "paused: no rate to be told of");
    assert_eq!(pause("0").run(&mut twin)[0], "RESUMED");
    assert_eq!(position("b").run(&mut twin)[4], "100");
    twin.covered(&scripts::QUEUE_PAUSE);
}

#[test]
fn sto_4_queue_admit() {
    let (mut twin, now) = twin_with_line();
    const OFF: [&str; 4] = ["", "off", "", "off"];
    let expires_at = now + 1_800_000;
    let empty = admit(now, expires_at, OFF, &[]).run(&mut twin);
    assert_eq!((empty[0].as_str(), empty[1].as_str()), ("ROUND", "EMPTY"));
    assert!(exists(&mut twin, "gate:login"), "R-24: else it never opens");
    let guests: Vec<Guest> = ["a", "b", "c"].map(|name| Guest::new(name, now)).into();
    for guest in &guests {
        guest.enter().run(&mut twin);
    }
    let tickets: Vec<String> = guests.iter().map(|guest| ticket(&mut twin, guest.player)).collect();
    let heads = |verdict: &'static str, server: &'static str| -> Vec<(Guest, String, &'static str, &'static str)> {
        guests.iter().zip(&tickets).map(|(guest, ticket)| (guest.clone(), ticket.clone(), verdict, server)).collect()
    };
    let run = |twin: &mut Twin, heads: &[(Guest, String, &str, &str)], ops: [&str; 3]| {
        let list: Vec<(&Guest, &str, &str, &str, &str)> = heads
            .iter()
            .zip(ops)
            .map(|((guest, ticket, verdict, server), op)| (guest, ticket.as_str(), *verdict, *server, op))
            .collect();
        admit(now, expires_at, OFF, &list).run(twin)
    };
    let ops = ["o1", "o2", "o3"];
    twin.seed(["HSET", &key("gate:login"), "refilled_at", &format!("{}000", now + 60_000)]);
    let gate = run(&mut twin, &heads("ok", "1"), ops);
    assert_eq!((gate[1].as_str(), &gate[5..]), ("GATE", &texts(["10", "KEPT", "KEPT", "KEPT"])[..]), "{gate:?}");
    assert!(gate[2].parse::<u64>().expect("a time") <= 2);
    open_gate(&mut twin);
    assert_eq!(run(&mut twin, &heads("strange", "1"), ops)[1], "BLOCKED");
    assert_eq!(run(&mut twin, &heads("ok", "0"), ops)[1], "FULL");
    pause("1").run(&mut twin);
    assert_eq!(run(&mut twin, &heads("ok", "1"), ops)[1], "PAUSED");
    pause("0").run(&mut twin);
    let mut changed = heads("ok", "1");
    changed[0].1.push('x');
    assert_eq!(run(&mut twin, &changed, ops)[1], "CHANGED");
    let first = run(&mut twin, &heads("ok", "1")[..1], ops);
    assert_eq!((first[1].as_str(), first[4].as_str(), first[5].as_str()), ("MORE", "2", "9"));
    assert!(first[6].starts_with("ADMITTED:"), "{first:?}");
    let repeat = run(&mut twin, &heads("ok", "1"), ops);
    assert_eq!((repeat[1].as_str(), &repeat[6], repeat[7].as_str()), ("DONE", &first[6], "KEPT"), "STO-10");
    twin.seed(["HSET", &key("node:b1"), "players", "9"]);
    assert_eq!(run(&mut twin, &heads("ok", "1")[1..], ops)[1], "FULL", "QUE-15");
    let evicted = run(&mut twin, &heads("forged", "1")[1..2], ops);
    assert_eq!(evicted[6], "EVICTED");
    let mut gone = heads("ok", "1")[2..].to_vec();
    gone[0].0.proxy = "p2";
    let away = run(&mut twin, &gone, ops);
    assert_eq!((away[1].as_str(), away[6].as_str()), ("EMPTY", "AWAY"), "R-22");

    assert_eq!(admit(now - 1, expires_at, OFF, &[]).run(&mut twin), ["FENCED", &now.to_string()]);
    assert_eq!(admit(now, expires_at - 60_000, OFF, &[]).run(&mut twin)[0], "SKEW");
    twin.seed(["HSET", &key("control"), "kill", "{entry}"]);
    assert_eq!(admit(now, expires_at, OFF, &[]).run(&mut twin), ["CONTROL"]);
    assert_eq!(admit(now, expires_at, ["{entry}", "on", "", "off"], &[]).run(&mut twin), ["KILLED", "kill"]);
    twin.seed(["DEL", &key("node:p1")]);
    assert_eq!(admit(now, expires_at, OFF, &[]).run(&mut twin), ["NO_LEASE"]);
    twin.covered(&scripts::QUEUE_ADMIT);
}

/// Alice with a pass for b1; its serial.
fn admitted(twin: &mut Twin, now: u64) -> (Guest, String) {
    open_gate(twin);
    let alice = Guest { server: "b1", ..Guest::new("alice", now) };
    let answer = alice.enter().run(twin);
    assert_eq!(answer[0], "ADMITTED");
    (alice, answer[1].clone())
}

#[test]
fn sto_4_queue_failed() {
    let (mut twin, now) = twin_with_line();
    let (alice, serial) = admitted(&mut twin, now);
    let back = Guest { session: "s2", ..alice.clone() };
    assert_eq!(back.failed("1", "0", "b1").run(&mut twin), ["LATE"], "R-21");
    twin.seed(["HSET", &key("pass:login:alice"), "session", "s9"]);
    assert_eq!(back.failed(&serial, "0", "b1").run(&mut twin), ["LATE"], "R-21: a later visit has the pass");
    twin.seed(["HSET", &key("pass:login:alice"), "session", "s1"]);
    assert_eq!(Guest { joined_at: "1000", ..back.clone() }.failed(&serial, "0", "b1").run(&mut twin)[0], "SKEW");
    assert_eq!(Guest { lane: "1", ..back.clone() }.failed(&serial, "0", "b1").run(&mut twin), ["LANE", "0"]);
    assert_eq!(Guest { proxy: "p9", ..back.clone() }.failed(&serial, "0", "b1").run(&mut twin), ["NO_LEASE"]);
    let old = Guest { epoch: now - 1, ..back.clone() };
    assert_eq!(old.failed(&serial, "0", "b1").run(&mut twin), ["FENCED", &now.to_string()]);
    assert_eq!(back.failed(&serial, "0", "").run(&mut twin), ["NEED", "b1", ""]);
    let answer = back.failed(&serial, "0", "b1").run(&mut twin);
    assert_eq!(answer[0], "BACK");
    assert_eq!(back.failed(&serial, "0", "b1").run(&mut twin), answer, "STO-10");
    assert!(!exists(&mut twin, "held:b1"));

    twin.seed(["DEL", &key("line:login"), &key("tickets:login"), &key("pass:login:alice")]);
    let (_, serial) = admitted(&mut twin, now);
    assert_eq!(back.failed(&serial, "30000", "b1").run(&mut twin)[0], "AWAY", "R-23");
    twin.seed(["DEL", &key("away:login"), &key("tickets:login")]);
    twin.seed(["HDEL", &key("pass:login:alice"), "void", "failed_op"]);
    twin.seed(["HSET", &key("pass:login:alice"), "fails", "2"]);
    let last = Guest { session: "s3", ..alice.clone() };
    assert_eq!(last.failed(&serial, "0", "b1").run(&mut twin), ["OUT"]);
    assert_eq!(last.failed(&serial, "0", "b1").run(&mut twin), ["OUT"], "STO-10");
    twin.seed(["DEL", &key("pass:login:alice")]);
    let (_, serial) = admitted(&mut twin, now);
    twin.seed(["HSET", &key("pass:login:alice"), "redeemed_at", "1"]);
    assert_eq!(last.failed(&serial, "0", "b1").run(&mut twin), ["LANDED"]);
    twin.covered(&scripts::QUEUE_FAILED);
}

#[test]
fn sto_4_queue_arrived_and_redeem() {
    let (mut twin, now) = twin_with_line();
    let epoch: u64 = EPOCH.parse().expect("a number");
    let (alice, serial) = admitted(&mut twin, now);
    assert_eq!(alice.arrived("1", "b1").run(&mut twin), ["LATE"]);
    assert_eq!(alice.arrived(&serial, "").run(&mut twin), ["NEED", "b1", ""]);
    assert_eq!(alice.arrived(&serial, "b1").run(&mut twin), ["ARRIVED"]);
    assert_eq!(alice.arrived(&serial, "b1").run(&mut twin), ["ARRIVED"], "STO-10");
    twin.covered(&scripts::QUEUE_ARRIVED);

    assert_eq!(alice.redeem(&serial, "r1", "b2", epoch).run(&mut twin), ["NO_LEASE"]);
    assert_eq!(alice.redeem(&serial, "r1", "b1", 1).run(&mut twin), ["FENCED", EPOCH]);
    assert_eq!(alice.redeem("1", "r1", "b1", epoch).run(&mut twin), ["VOID"]);
    assert_eq!(alice.redeem(&serial, "r1", "p1", now).run(&mut twin), ["NOT_YOURS"]);
    twin.seed(["DEL", &key("held:b1")]);
    twin.seed(["HSET", &key("node:b1"), "players", "10"]);
    assert_eq!(alice.redeem(&serial, "r1", "b1", epoch).run(&mut twin), ["PLACE_GONE"]);
    assert_eq!(alice.redeem(&serial, "r1", "b1", epoch).run(&mut twin), ["PLACE_GONE"], "STO-10");
    twin.seed(["HDEL", &key("pass:login:alice"), "void"]);
    twin.seed(["HSET", &key("node:b1"), "players", "9"]);
    let redeemed = alice.redeem(&serial, "r1", "b1", epoch).run(&mut twin);
    let held = twin.look(["ZRANGE", &key("held:b1"), "0", "-1", "WITHSCORES"]).texts().expect("held").remove(1);
    let claim = format!("alice login:{serial} 60000");
    assert_eq!(redeemed, ["REDEEMED", &held, &claim]);
    assert_eq!(alice.redeem(&serial, "r1", "b1", epoch).run(&mut twin), redeemed, "STO-10");
    assert_eq!(alice.arrived(&serial, "b1").run(&mut twin), ["ARRIVED"], "and the place is held as it was");
    assert_eq!(alice.redeem(&serial, "r2", "b1", epoch).run(&mut twin), ["SPENT"]);
    twin.seed(["HDEL", &key("pass:login:alice"), "redeemed_at", "redeem_op"]);
    twin.seed(["HSET", &key("pass:login:alice"), "expires_at", "1000"]);
    assert_eq!(alice.redeem(&serial, "r3", "b1", epoch).run(&mut twin), ["EXPIRED"]);
    twin.covered(&scripts::QUEUE_REDEEM);

    // the beat that counts her takes the place off the held ones.
    let b1 = Node { epoch, ..Node::new("b1", "backend", epoch) };
    twin.seed(["HSET", &key("node:b1"), "incarnation", "inc1"]);
    twin.seed([
        "ZADD",
        &key("held:b1"),
        "1000",
        "late",
        "9000000000000",
        "bob",
        "9000000000001",
        "alice login:5 60000",
    ]);
    let arrivals = format!("{claim}\ncarol t9 60000");
    assert_eq!(b1.beat_of(1, 10, [""; 4], &arrivals).run(&mut twin)[0], "BEAT");
    let left = twin.look(["ZRANGE", &key("held:b1"), "0", "-1"]).texts();
    assert_eq!(left, Some(vec!["bob".to_owned(), "alice login:5 60000".to_owned()]), "R-40: she has another promise");
}

#[test]
fn r_25_a_consumed_token_becomes_a_held_place() {
    let mut twin = Twin::start();
    let now = twin.now();
    for (id, role) in [("b1", "backend"), ("p1", "proxy")] {
        settle(&mut twin, id, role, now);
    }
    let token = Token::new("t1", "b1", now, now);
    token.issue(&[]).run(&mut twin);
    token.claim("p1", now, "c1").run(&mut twin);
    let consumed = token.consume_held("u1", 60_000).run(&mut twin);
    let held = twin.look(["ZRANGE", &key("held:b1"), "0", "-1", "WITHSCORES"]).texts().expect("held").remove(1);
    assert_eq!(consumed, ["CONSUMED", &held, "alice t1 60000"]);
    assert_eq!(token.consume_held("u1", 60_000).run(&mut twin), consumed, "STO-10");
    assert!(!exists(&mut twin, "due:b1"));
}

#[test]
fn sto_4_queue_sweep() {
    let (mut twin, now) = twin_with_line();
    for player in ["alice", "bob", "carol"] {
        Guest::new(player, now).enter().run(&mut twin);
    }
    let holder = format!("p1:{now}");
    assert_eq!(sweep(&holder, "0", "1", "alice bob").run(&mut twin), ["SWEPT", "ALIVE", "KEPT", "KEPT"]);
    twin.seed(["ZREM", &key("line:login"), "bob"]);
    twin.seed(["ZADD", &key("line:login"), "7", "ghost"]);
    twin.seed(["SREM", &key(format!("via:login:{holder}")), "alice"]);
    let healed = sweep(&holder, "0", "1", "alice bob ghost").run(&mut twin);
    assert_eq!(healed[2..], ["KEPT", "HEALED", "HEALED"]);
    twin.seed(["DEL", &key("node:p1")]);
    let dead = sweep(&holder, "0", "1", "alice bob carol").run(&mut twin);
    assert_eq!(dead[1..], ["DEAD", "AWAY", "KEPT", "AWAY"]);
    for player in ["alice", "bob"] {
        twin.seed(["ZADD", &key("away:login"), "1000", player]);
    }
    assert_eq!(sweep("", "0", "1", "alice bob carol").run(&mut twin)[2..], ["OUT", "OUT", "KEPT"]);
    twin.seed(["HSET", &key("gate:login"), "seq", "1000"]);
    assert_eq!(sweep("", "1", "0", "carol").run(&mut twin)[2..], ["OUT"]);
    for gone in ["lines", "line:login", "tickets:login", "away:login", "gate:login"] {
        assert!(!exists(&mut twin, gone), "STO-16: {gone}");
    }
    sweep(&holder, "0", "0", "").run(&mut twin);
    assert!(!exists(&mut twin, "vias:login"));
    twin.covered(&scripts::QUEUE_SWEEP);
}

#[test]
fn sto_4_queue_drain() {
    let mut twin = Twin::start();
    let now = twin.now();
    for (id, role) in [("p1", "proxy"), ("p2", "proxy"), ("b1", "backend"), ("b2", "backend")] {
        settle(&mut twin, id, role, now);
    }
    let guests: Vec<Guest> = ["alice", "bob", "carol", "dave", "eve"].map(|name| Guest::new(name, now)).into();
    for guest in &guests {
        guest.enter().run(&mut twin);
    }
    let tickets: Vec<String> = guests.iter().map(|guest| ticket(&mut twin, guest.player)).collect();
    let token = |id: &'static str, player: &'static str| Token { player, ..Token::new(id, "b1", now, now) };
    let t1 = token("t1", "alice");
    let alice = |ticket: &str, token: &Token| guests[0].drain(ticket, token, "0", "");
    assert_eq!(alice("other", &t1).run(&mut twin), ["GONE"]);
    let nobody = Token { server: "b9", ..t1.clone() };
    assert_eq!(alice(&tickets[0], &nobody).run(&mut twin), ["NO_LEASE"]);
    let old = Token { server_epoch: now - 1, ..t1.clone() };
    assert_eq!(alice(&tickets[0], &old).run(&mut twin), ["FENCED", &now.to_string()]);
    let skewed = Guest { joined_at: "1000", ..guests[0].clone() };
    assert_eq!(skewed.drain(&tickets[0], &t1, "0", "").run(&mut twin)[0], "SKEW");
    twin.seed(["HSET", &key("control"), "kill", "{entry}"]);
    assert_eq!(alice(&tickets[0], &t1).run(&mut twin), ["CONTROL"]);
    let killed = Token { control: [("{entry}", "on"), ("", "off"), ("", "off")], ..t1.clone() };
    assert_eq!(alice(&tickets[0], &killed).run(&mut twin), ["KILLED", "kill"]);
    twin.seed(["DEL", &key("control")]);
    // QUE-15: a place for one, and a line has promised it.
    let counted = Token { arrive_ms: 60_000, ..t1.clone() };
    twin.seed(["HSET", &key("node:b1"), "players", "9", "soft_cap", "10"]);
    twin.seed(["ZADD", &key("held:b1"), &(now + 50_000).to_string(), "zoe login:1 60000"]);
    assert_eq!(alice(&tickets[0], &counted).run(&mut twin), ["NO_PLACE"]);
    twin.seed(["DEL", &key("held:b1")]);
    let until = t1.expires_at.to_string();
    assert_eq!(alice(&tickets[0], &counted).run(&mut twin), ["DRAINED", &until]);
    let later = Token { expires_at: t1.expires_at + 1, ..t1.clone() };
    assert_eq!(alice(&tickets[0], &later).run(&mut twin), ["DRAINED", &until], "STO-10");
    assert_eq!(twin.look(["ZCARD", &key("due:b1")]), Reply::Int(1));

    // Alice waits again: with a live token of a live server she needs no place.
    guests[0].enter().run(&mut twin);
    let again = ticket(&mut twin, "alice");
    let t2 = Token { server: "b2", ..token("t2", "alice") };
    assert_eq!(alice(&again, &t2).run(&mut twin), ["NEED", "b1"], "R-31");
    assert_eq!(guests[0].drain(&again, &t2, "0", "b1").run(&mut twin), ["TAKEN"]);
    guests[0].enter().run(&mut twin);
    let again = ticket(&mut twin, "alice");
    twin.seed(["DEL", &key("node:b1")]);
    assert_eq!(guests[0].drain(&again, &t2, "0", "b1").run(&mut twin)[0], "DRAINED", "its server is gone");
    assert!(!exists(&mut twin, "due:b1"));
    assert_eq!(guests[0].drain(&again, &Token { server: "b2", ..t1.clone() }, "0", "").run(&mut twin), ["ENDED"]);

    let at_b2 = |id: &'static str, player: &'static str| Token { server: "b2", ..token(id, player) };
    twin.seed(["HSET", &key("token:bob"), "cancelled", "r1@5"]);
    assert_eq!(guests[1].drain(&tickets[1], &at_b2("t3", "bob"), "0", "").run(&mut twin), ["CANCELLED"]);
    twin.seed(["HSET", &key("token:carol"), "cancelled", "r9@5"]);
    assert_eq!(guests[2].drain(&tickets[2], &at_b2("t4", "carol"), "0", "").run(&mut twin)[0], "DRAINED");
    assert_eq!(guests[3].drain(&tickets[3], &at_b2("t5", "dave"), "1", "").run(&mut twin), ["EVICTED"]);
    twin.seed(["DEL", &key("node:p1")]);
    assert_eq!(guests[4].drain(&tickets[4], &at_b2("t6", "eve"), "0", "").run(&mut twin), ["AWAY"]);
    twin.covered(&scripts::QUEUE_DRAIN);
}
