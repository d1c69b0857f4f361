//! Every answer of the scripts of tokens.

use maitred::store::scripts;

use super::calls::{Node, Token, cancel, key, reap, settle};
use super::reply::Reply;
use super::twin::Twin;

const KILL: &str = r#"{"value":"on"}"#;

/// Two backends, two proxies, and the epoch that all of them have.
fn fleet() -> (Twin, u64) {
    let mut twin = Twin::start();
    let now = twin.now();
    for (id, role) in [("b1", "backend"), ("b2", "backend"), ("p1", "proxy"), ("p2", "proxy")] {
        settle(&mut twin, id, role, now);
    }
    (twin, now)
}

fn field(twin: &mut Twin, name: &str) -> Option<String> {
    match twin.look(["HGET", &key("token:alice"), name]) {
        Reply::Bulk(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    }
}

fn set(twin: &mut Twin, name: &str, value: &str) {
    twin.seed(["HSET", &key("token:alice"), name, value]);
}

fn past(twin: &mut Twin) -> String {
    (twin.now() - 10).to_string()
}

fn is_indexed(twin: &mut Twin, server: &str) -> bool {
    let scored = twin.look(["ZSCORE", &key(format!("due:{server}")), "alice"]) != Reply::Nil;
    let listed = twin.look(["SISMEMBER", &key("due"), server]) == Reply::Int(1);
    assert_eq!(scored, listed, "STO-16: due and due:{server} do not agree");
    scored
}

#[test]
fn sto_4_token_issue() {
    let (mut twin, now) = fleet();
    let t1 = Token::new("t1", "b1", now, now);
    // TOK-2, R-1
    assert_eq!(t1.issue(&[]).run(&mut twin), ["ISSUED"]);
    assert_eq!(t1.issue(&[]).run(&mut twin), ["ISSUED"], "STO-10: the reply was lost");
    assert!(is_indexed(&mut twin, "b1"));
    let t2 = Token { id: "t2", request: "r2", ..t1.clone() };
    assert_eq!(t2.issue(&[]).run(&mut twin), ["TAKEN"]);
    let t3 = Token { id: "t3", server: "b2", attempt: 2, ..t1.clone() };
    assert_eq!(t3.issue(&[]).run(&mut twin), ["NEED", "b1"], "R-31");
    assert_eq!(t3.issue(&["p9", "b1"]).run(&mut twin), ["ISSUED"], "the higher attempt supersedes a PENDING one");
    assert!(!is_indexed(&mut twin, "b1") && is_indexed(&mut twin, "b2"));
    assert_eq!(t1.issue(&[]).run(&mut twin), ["ENDED", "SUPERSEDED"]);

    // R-15: attempts are compared on ended rows too.
    t3.release("server", "b2", now).run(&mut twin);
    assert_eq!(t3.issue(&[]).run(&mut twin), ["ENDED", "RELEASED"]);
    for attempt in [1, 2] {
        assert_eq!(Token { id: "t4", attempt, ..t1.clone() }.issue(&[]).run(&mut twin), ["ATTEMPT"]);
    }
    cancel("alice", "r5", "p1", now, &[]).run(&mut twin);
    let t5 = Token { id: "t5", request: "r5", ..t1.clone() };
    assert_eq!(t5.issue(&[]).run(&mut twin), ["CANCELLED"]);
    assert_eq!(Token { request: "r6", deadline: now, ..t5.clone() }.issue(&[]).run(&mut twin), ["LATE"]);
    assert_eq!(Token { request: "r6", expires_at: now, ..t5.clone() }.issue(&[]).run(&mut twin), ["LATE"]);
    assert_eq!(Token { issued_at: Some(now - 60_000), ..t5.clone() }.issue(&[]).run(&mut twin)[0], "SKEW");

    // POL-4, R-32
    let t6 = Token { id: "t6", request: "r6", ..t1.clone() };
    twin.seed(["HSET", &key("control"), "kill", KILL]);
    assert_eq!(t6.issue(&[]).run(&mut twin), ["CONTROL"]);
    let obeys = |fleet, own| Token { control: [(KILL, fleet), own, ("", "off")], ..t6.clone() };
    assert_eq!(obeys("on", ("", "off")).issue(&[]).run(&mut twin), ["KILLED", "kill"]);
    twin.seed(["HSET", &key("control"), "kill:b1", KILL]);
    assert_eq!(obeys("off", (KILL, "on")).issue(&[]).run(&mut twin), ["KILLED", "kill:b1"]);
    let t6 = obeys("off", (KILL, "off"));
    assert_eq!(t6.issue(&[]).run(&mut twin), ["ISSUED"], "a forged entry stops nobody");
    twin.seed(["DEL", &key("control")]);

    // The issuer's lease, and what becomes of the token of a server that is gone.
    let fenced = Token { id: "t7", server_epoch: now - 1, request: "r7", ..t1.clone() };
    assert_eq!(fenced.issue(&[]).run(&mut twin), ["FENCED", &now.to_string()]);
    let nobody = Token { server: "b3", ..fenced };
    assert_eq!(nobody.issue(&["b1"]).run(&mut twin), ["NO_LEASE"]);
    twin.seed(["HSET", &key("node:b1"), "beat_at", "1000"]);
    assert_eq!(Token { id: "t7", request: "r7", ..t1.clone() }.issue(&[]).run(&mut twin), ["NO_LEASE"], "R-4");
    let t7 = Token { id: "t7", server: "b2", request: "r7", ..t1.clone() };
    assert_eq!(t7.issue(&["b1"]).run(&mut twin), ["ISSUED"], "the server of t6 is gone");
    assert_eq!(t6.issue(&[]).run(&mut twin)[0], "ENDED");

    // TOK-3: past its time it is expired, swept or not.
    let old = past(&mut twin);
    set(&mut twin, "expires_at", &old);
    assert_eq!(t7.issue(&[]).run(&mut twin), ["ENDED", "EXPIRED"]);
    let t8 = Token { id: "t8", request: "r8", ..t7.clone() };
    assert_eq!(t8.issue(&[]).run(&mut twin), ["ISSUED"]);
    let previous = field(&mut twin, "previous").expect("ended tokens are kept");
    assert_eq!(previous.split(' ').count(), 4, "STO-10: the last four: {previous}");
    assert!(previous.starts_with("t7:EXPIRED:-:r7:1 t6:SERVER_GONE:-:r6:1 "), "{previous}");
    // QUE-15: the only place is promised; a token that is replaced gives its own.
    let counted = |id, player| Token { player, arrive_ms: 60_000, ..Token::new(id, "b7", now, now) };
    settle(&mut twin, "b7", "backend", now);
    twin.seed(["HSET", &key("node:b7"), "players", "9", "soft_cap", "11"]);
    twin.seed(["ZADD", &key("held:b7"), &(now + 50_000).to_string(), "zoe login:1 60000"]);
    assert_eq!(counted("q1", "quinn").issue(&[]).run(&mut twin), ["ISSUED"], "one of two");
    assert_eq!(counted("q2", "rob").issue(&[]).run(&mut twin), ["NO_PLACE"]);
    let again = Token { attempt: 2, ..counted("q3", "quinn") };
    assert_eq!(again.issue(&[]).run(&mut twin), ["ISSUED"]);
    twin.seed(["HDEL", &key("node:b7"), "soft_cap"]);
    assert_eq!(counted("q2", "rob").issue(&[]).run(&mut twin), ["NO_PLACE"], "R-35");
    twin.seed(["HSET", &key("node:b7"), "soft_cap", "0"]);
    assert_eq!(counted("q2", "rob").issue(&[]).run(&mut twin), ["ISSUED"], "without a limit");
    twin.covered(&scripts::TOKEN_ISSUE);
}

#[test]
fn sto_4_token_claim() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    assert_eq!(token.claim("p1", now, "c1").run(&mut twin), ["NONE"]);
    token.issue(&[]).run(&mut twin);
    // TOK-3, POL-4
    assert_eq!(token.claim("p1", now - 1, "c1").run(&mut twin), ["FENCED", &now.to_string()]);
    assert_eq!(token.claim("p9", now, "c1").run(&mut twin), ["NO_LEASE"]);
    assert_eq!(Token { server: "b2", ..token.clone() }.claim("p1", now, "c1").run(&mut twin), ["NEED", "b1"]);
    twin.seed(["HSET", &key("control"), "kill", KILL, "kill:p1", KILL, "kill:b1", KILL]);
    assert_eq!(token.claim("p1", now, "c1").run(&mut twin), ["CONTROL"]);
    let obeys =
        |verdicts: [&'static str; 3]| Token { control: verdicts.map(|verdict| (KILL, verdict)), ..token.clone() };
    assert_eq!(obeys(["on", "off", "off"]).claim("p1", now, "c1").run(&mut twin), ["KILLED", "kill"]);
    assert_eq!(obeys(["off", "on", "off"]).claim("p1", now, "c1").run(&mut twin), ["KILLED", "kill:p1"]);
    assert_eq!(obeys(["off", "off", "on"]).claim("p1", now, "c1").run(&mut twin), ["KILLED", "kill:b1"]);
    twin.seed(["DEL", &key("control")]);
    // R-12
    let beat_at = twin.look(["HGET", &key("node:b1"), "beat_at"]).clone();
    twin.seed(["HSET", &key("node:b1"), "beat_at", "1000"]);
    assert_eq!(token.claim("p1", now, "c1").run(&mut twin), ["SERVER_GONE"]);
    let Reply::Bulk(beat_at) = beat_at else { panic!("b1 has joined") };
    twin.seed(["HSET", &key("node:b1"), "beat_at", &String::from_utf8_lossy(&beat_at)]);

    assert_eq!(token.claim("p1", now, "c1").run(&mut twin), ["CLAIMED"]);
    assert_eq!(token.claim("p1", now, "c1").run(&mut twin), ["CLAIMED"], "STO-10: the reply was lost");
    assert_eq!(token.claim("p2", now, "c2").run(&mut twin), ["LOST"]);
    assert_eq!(token.claim("router", 0, "c3").run(&mut twin), ["LOST"]);
    // R-13: reopened; the old operation must not take it a second time.
    let old = past(&mut twin);
    let early = (now - 60_000).to_string();
    set(&mut twin, "claimed_at", &early);
    twin.seed(["ZADD", &key("due:b1"), &old, "alice"]);
    twin.seed(["DEL", &key("node:p1")]);
    assert_eq!(reap("b1", false, &[("alice", "p1")]).run(&mut twin), ["REAPED", "REOPENED"]);
    Node::new("p1", "proxy", now).join(now, "", "proxy").run(&mut twin);
    assert_eq!(token.claim("p1", now, "c1").run(&mut twin), ["LOST"]);
    assert_eq!(token.claim("router", 0, "c3").run(&mut twin), ["CLAIMED"], "a router that is no member");

    let expires_at = field(&mut twin, "expires_at").expect("a token");
    set(&mut twin, "expires_at", &old);
    assert_eq!(token.claim("p2", now, "c2").run(&mut twin), ["EXPIRED"]);
    set(&mut twin, "expires_at", &expires_at);
    assert_eq!(token.consume("u1").run(&mut twin), ["CONSUMED"]);
    assert_eq!(token.claim("p2", now, "c2").run(&mut twin), ["ENDED", "CONSUMED"]);
    Token { id: "t2", request: "r2", ..token.clone() }.issue(&[]).run(&mut twin);
    assert_eq!(token.claim("p2", now, "c2").run(&mut twin), ["ENDED", "CONSUMED"], "also behind a later token");
    twin.covered(&scripts::TOKEN_CLAIM);
}

#[test]
fn sto_4_token_consume() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    assert_eq!(token.consume("u1").run(&mut twin), ["NONE"]);
    token.issue(&[]).run(&mut twin);
    assert_eq!(token.consume("u1").run(&mut twin), ["NOT_CLAIMED"]);
    token.claim("p1", now, "c1").run(&mut twin);
    assert_eq!(Token { server: "b2", ..token.clone() }.consume("u1").run(&mut twin), ["NOT_YOURS"]);
    assert_eq!(
        Token { server_epoch: now - 1, ..token.clone() }.consume("u1").run(&mut twin),
        ["FENCED", &now.to_string()]
    );
    assert_eq!(Token { server: "b3", ..token.clone() }.consume("u1").run(&mut twin), ["NO_LEASE"]);
    let (expires_at, old) = (field(&mut twin, "expires_at").expect("a token"), past(&mut twin));
    set(&mut twin, "expires_at", &old);
    assert_eq!(token.consume("u1").run(&mut twin), ["EXPIRED"], "R-12");
    set(&mut twin, "expires_at", &expires_at);
    // TOK-4
    assert_eq!(token.consume("u1").run(&mut twin), ["CONSUMED"]);
    assert!(!is_indexed(&mut twin, "b1"));
    assert_eq!(token.consume("u1").run(&mut twin), ["CONSUMED"], "STO-10: the reply was lost");
    assert_eq!(token.consume("u2").run(&mut twin), ["REPLAY"]);
    Token { id: "t2", request: "r2", ..token.clone() }.issue(&[]).run(&mut twin);
    assert_eq!(token.consume("u1").run(&mut twin), ["CONSUMED"], "STO-10: also behind a later token");
    assert_eq!(token.consume("u2").run(&mut twin), ["REPLAY"]);
    let t2 = Token { id: "t2", ..token };
    t2.release("operator", "cli", 0).run(&mut twin);
    assert_eq!(t2.consume("u3").run(&mut twin), ["ENDED", "RELEASED"]);
    let t3 = Token { id: "t3", request: "r3", ..t2 };
    for call in [t3.issue(&[]), t3.claim("p1", now, "c3"), t3.consume_held("u3", 60_000)] {
        call.run(&mut twin);
    }
    twin.covered(&scripts::TOKEN_CONSUME);
}

#[test]
fn sto_4_token_release() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    assert_eq!(token.release("operator", "cli", 0).run(&mut twin), ["NONE"]);
    token.issue(&[]).run(&mut twin);
    // TOK-5
    assert_eq!(token.release("claimant", "p1", now).run(&mut twin), ["LOST"], "PENDING is nobody's");
    assert_eq!(token.release("server", "b2", now).run(&mut twin), ["LOST"]);
    token.claim("p1", now, "c1").run(&mut twin);
    assert_eq!(token.release("claimant", "p2", now).run(&mut twin), ["LOST"], "R-15: the loser frees nothing");
    assert_eq!(Token { server: "b2", ..token.clone() }.release("claimant", "p1", now).run(&mut twin), ["NEED", "b1"]);
    assert_eq!(token.release("claimant", "p1", now).run(&mut twin), ["RELEASED"]);
    assert!(!is_indexed(&mut twin, "b1"));
    assert_eq!(token.release("claimant", "p1", now).run(&mut twin), ["RELEASED"], "STO-10: the reply was lost");
    let t2 = Token { id: "t2", request: "r2", ..token.clone() };
    t2.issue(&[]).run(&mut twin);
    assert_eq!(token.release("claimant", "p1", now).run(&mut twin), ["RELEASED"], "STO-10: also behind a later token");
    let old = past(&mut twin);
    set(&mut twin, "expires_at", &old);
    assert_eq!(t2.release("server", "b1", now).run(&mut twin), ["ENDED", "EXPIRED"], "TOK-3");
    assert_eq!(t2.release("server", "b1", now).run(&mut twin), ["ENDED", "EXPIRED"]);
    let t3 = Token { id: "t3", request: "r3", ..token };
    for call in [t3.issue(&[]), t3.claim("p1", now, "c3"), t3.consume("u3")] {
        call.run(&mut twin);
    }
    assert_eq!(t3.release("claimant", "p1", now).run(&mut twin), ["LANDED"], "R-13");
    assert_eq!(t2.release("server", "b1", now).run(&mut twin), ["ENDED", "EXPIRED"]);
    twin.covered(&scripts::TOKEN_RELEASE);
}

#[test]
fn sto_4_token_cancel() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    // R-15, DSP-8
    assert_eq!(cancel("alice", "r0", "p1", now, &[]).run(&mut twin), ["CANCELLED"]);
    token.issue(&[]).run(&mut twin);
    assert_eq!(
        field(&mut twin, "cancelled").map(|marks| marks.starts_with("r0@")),
        Some(true),
        "the issue kept the mark"
    );
    assert_eq!(cancel("alice", "r1", "p1", now, &["b2"]).run(&mut twin), ["NEED", "b1"]);
    assert_eq!(cancel("alice", "r1", "p1", now, &["b2", "b1"]).run(&mut twin), ["RELEASED", "t1", "b1"]);
    assert!(!is_indexed(&mut twin, "b1"));
    let t2 = Token { id: "t2", request: "r2", ..token.clone() };
    t2.issue(&[]).run(&mut twin);
    t2.claim("p1", now, "c2").run(&mut twin);
    assert_eq!(cancel("alice", "r2", "p2", now, &["b1"]).run(&mut twin), ["LOST"]);
    assert_eq!(field(&mut twin, "state").as_deref(), Some("CLAIMED"));
    t2.consume("u2").run(&mut twin);
    assert_eq!(cancel("alice", "r2", "p1", now, &["b1"]).run(&mut twin), ["LANDED"]);
    for request in ["r3", "r4", "r5"] {
        assert_eq!(cancel("alice", request, "p1", now, &[]).run(&mut twin), ["CANCELLED"]);
    }
    let marks = field(&mut twin, "cancelled").expect("marks");
    let marks: Vec<&str> = marks.split(' ').map(|mark| mark.split('@').next().expect("a request")).collect();
    assert_eq!(marks, ["r5", "r4", "r3", "r2"], "the last four");
    twin.covered(&scripts::TOKEN_CANCEL);
}

#[test]
fn sto_4_token_reap() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    let players = ["early", "old", "pending", "slow", "dead", "router", "other", "ended", "none"];
    for player in players {
        let token = Token { player, ..token.clone() };
        if player != "none" {
            token.issue(&[]).run(&mut twin);
        }
        match player {
            "slow" | "other" => drop(token.claim("p1", now, "c1").run(&mut twin)),
            "dead" => drop(token.claim("p2", now, "c1").run(&mut twin)),
            "router" => drop(token.claim("router", 0, "c1").run(&mut twin)),
            "ended" => drop(token.release("operator", "cli", 0).run(&mut twin)),
            _ => {}
        }
        twin.seed(["HSET", &key("token:old"), "expires_at", "1000"]);
        if player != "early" {
            twin.seed(["ZADD", &key("due:b1"), "1000", player]);
        }
    }
    for player in ["slow", "dead", "router"] {
        twin.seed(["HSET", &key(format!("token:{player}")), "claimed_at", "1000"]);
    }
    twin.seed(["DEL", &key("token:none"), &key("node:p2")]);
    let read = players.map(|player| {
        let claimant = match player {
            "slow" => "p1",
            "dead" => "p2",
            "router" => "router",
            // R-16: claimed since it was read.
            _ => "",
        };
        (player, claimant)
    });
    let expected =
        ["REAPED", "SKIPPED", "EXPIRED", "KEPT", "KEPT", "REOPENED", "REOPENED", "SKIPPED", "HEALED", "HEALED"];
    assert_eq!(reap("b1", true, &read).run(&mut twin), expected, "a dry run says what it would do");
    assert_eq!(reap("b1", false, &read).run(&mut twin), expected);
    let again = reap("b1", false, &read).run(&mut twin);
    assert!(again[1..].iter().all(|word| word == "SKIPPED"), "STO-10: {again:?}");
    let Reply::Bulk(score) = twin.look(["ZSCORE", &key("due:b1"), "slow"]) else { panic!("slow is looked at again") };
    assert_eq!(score.len(), 13, "whole ms, no exponent: {}", String::from_utf8_lossy(&score));

    twin.seed(["DEL", &key("token:x")]);
    twin.seed(["SADD", &key("due"), "b9"]);
    assert_eq!(reap("b9", true, &[]).run(&mut twin), ["REAPED"]);
    assert_eq!(reap("b9", false, &[]).run(&mut twin), ["REAPED"]);
    assert_eq!(twin.look(["SISMEMBER", &key("due"), "b9"]), Reply::Int(0), "STO-16");
    twin.covered(&scripts::TOKEN_REAP);
}
