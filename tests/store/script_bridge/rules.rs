//! Repeats and late calls, where rules.md decides what a script has to answer.

use super::calls::{Node, Token, cancel, key, reap, settle};
use super::reply::Reply;
use super::twin::Twin;

fn fleet() -> (Twin, u64) {
    let mut twin = Twin::start();
    let now = twin.now();
    for (id, role) in [("b1", "backend"), ("p1", "proxy")] {
        settle(&mut twin, id, role, now);
    }
    (twin, now)
}

#[test]
fn sto_10_a_repeated_cancel_gives_the_same_answer() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    token.issue(&[]).run(&mut twin);
    let released = cancel("alice", "r1", "p1", now, &["b1"]).run(&mut twin);
    assert_eq!(released, ["RELEASED", "t1", "b1"]);
    assert_eq!(cancel("alice", "r1", "p1", now, &["b1"]).run(&mut twin), released, "directly");
    Token { id: "t2", request: "r2", ..token }.issue(&[]).run(&mut twin);
    let late = cancel("alice", "r1", "p1", now, &["b1"]).run(&mut twin);
    assert_eq!(late, ["RELEASED", "t1", "-"], "behind a later token");
}

#[test]
fn sto_10_a_cancel_of_a_landed_request_says_so_behind_a_later_token() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    for call in [token.issue(&[]), token.claim("p1", now, "c1"), token.consume("u1")] {
        call.run(&mut twin);
    }
    assert_eq!(cancel("alice", "r1", "p1", now, &["b1"]).run(&mut twin), ["LANDED"]);
    Token { id: "t2", request: "r2", ..token }.issue(&[]).run(&mut twin);
    assert_eq!(cancel("alice", "r1", "p1", now, &["b1"]).run(&mut twin), ["LANDED"]);
}

#[test]
fn r_12_a_repeated_claim_past_the_expiry_is_expired() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    token.issue(&[]).run(&mut twin);
    token.claim("p1", now, "c1").run(&mut twin);
    twin.seed(["HSET", &key("token:alice"), "expires_at", "1000"]);
    assert_eq!(token.claim("p1", now, "c1").run(&mut twin), ["EXPIRED"]);
}

#[test]
fn r_15_a_dispatch_that_lost_on_the_same_proxy_does_not_release_the_winners_claim() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    token.issue(&[]).run(&mut twin);
    token.claim("p1", now, "c1").run(&mut twin);
    assert_eq!(token.claim("p1", now, "c2").run(&mut twin), ["LOST"]);
    assert_eq!(token.release_of("claimant", "p1", now, "c2").run(&mut twin), ["LOST"], "by the dispatch with c2");
    assert_eq!(token.release_of("claimant", "p1", now, "c1").run(&mut twin), ["RELEASED"]);
}

#[test]
fn sto_10_a_claim_that_was_reopened_twice_ago_is_not_made_again() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    token.issue(&[]).run(&mut twin);
    for op in ["c1", "c2"] {
        assert_eq!(token.claim("router", 0, op).run(&mut twin), ["CLAIMED"]);
        twin.seed(["HSET", &key("token:alice"), "claimed_at", "1000"]);
        twin.seed(["ZADD", &key("due:b1"), "1000", "alice"]);
        assert_eq!(reap("b1", false, &[("alice", "router")]).run(&mut twin), ["REAPED", "REOPENED"]);
    }
    assert_eq!(token.claim("router", 0, "c2").run(&mut twin), ["LOST"]);
    assert_eq!(token.claim("router", 0, "c1").run(&mut twin), ["LOST"]);
}

#[test]
fn r_1_a_fenced_server_is_told_so_before_it_is_accused_of_a_replay() {
    let (mut twin, now) = fleet();
    let token = Token::new("t1", "b1", now, now);
    for call in [token.issue(&[]), token.claim("p1", now, "c1"), token.consume("u1")] {
        call.run(&mut twin);
    }
    let fenced = Token { server_epoch: now - 1, ..token };
    assert_eq!(fenced.consume("u2").run(&mut twin)[0], "FENCED");
}

#[test]
fn sto_10_a_join_that_arrives_late_again_does_not_undo_a_beat() {
    let (mut twin, now) = fleet();
    let node = Node::new("p1", "proxy", now);
    node.beat(1, 7, [""; 4]).run(&mut twin);
    assert_eq!(node.join(0, "", "proxy").run(&mut twin)[0], "JOINED");
    assert_eq!(twin.look(["HGET", &key("node:p1"), "seq"]), Reply::Bulk(b"1".to_vec()));
}

#[test]
fn r_1_a_join_that_is_repeated_after_long_is_told_that_it_stands() {
    let (mut twin, now) = fleet();
    twin.seed(["HSET", &key("node:p1"), "sent_at", &(now - 60_000).to_string()]);
    let node = Node { sent_at: Some(now - 60_000), ..Node::new("p1", "proxy", now) };
    assert_eq!(node.join(0, "", "proxy").run(&mut twin)[0], "JOINED");
}

#[test]
fn r_8_a_process_that_was_replaced_does_not_unlist_its_successor_whose_lease_lapsed() {
    let (mut twin, now) = fleet();
    let new = Node { epoch: now + 1, incarnation: "inc2", ..Node::new("p1", "proxy", now) };
    assert_eq!(new.join(0, "inc1", "proxy").run(&mut twin)[0], "JOINED");
    twin.seed(["DEL", &key("node:p1")]);
    Node::new("p1", "proxy", now).leave().run(&mut twin);
    assert_ne!(twin.look(["ZSCORE", &key("nodes:proxy"), "p1"]), Reply::Nil);
}

#[test]
fn r_7_an_epoch_that_two_processes_had_is_not_resumed() {
    let (mut twin, now) = fleet();
    twin.seed(["FLUSHALL"]);
    let other = Node { incarnation: "inc2", ..Node::new("p1", "proxy", now) };
    // Within the second that a proposed epoch may be old, the same number is free again.
    assert_eq!(other.join(0, "", "proxy").run(&mut twin)[0], "JOINED");
    twin.seed(["DEL", &key("node:p1")]);
    let first = Node::new("p1", "proxy", now);
    assert_eq!(first.join(now, "", "proxy").run(&mut twin)[0], "EPOCH");
}
