//! POL-6: the limit's scripts, with every answer they have.

use maitred::store::scripts;

use super::calls::{key, refund, take};
use super::reply::Reply;
use super::twin::Twin;

fn field(twin: &mut Twin, name: &str) -> String {
    match twin.look(["HGET", &key("limit:command:alice"), name]) {
        Reply::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn sto_4_limit_take() {
    let mut twin = Twin::start();
    assert_eq!(take("op1", 60_000, 2).run(&mut twin), ["ALLOWED", "1"]);
    assert_eq!(take("op2", 60_000, 2).run(&mut twin), ["ALLOWED", "0"]);
    assert_eq!(take("op1", 60_000, 2).run(&mut twin), ["ALLOWED", "1"], "STO-10: as it was answered");
    let denied = take("op3", 60_000, 2).run(&mut twin);
    assert_eq!(denied[0], "DENIED");
    let wait: u64 = denied[1].parse().expect("a whole number");
    assert!((1..=60_000).contains(&wait), "{wait}");
    assert_eq!(take("op2", 60_000, 2).run(&mut twin), ["ALLOWED", "0"], "a denial forgets nobody");
    let Reply::Int(ttl) = twin.look(["PTTL", &key("limit:command:alice")]) else { panic!("PTTL") };
    assert!((60_000..=120_000).contains(&ttl), "STO-16: it goes with the debt: {ttl} ms");
    twin.covered(&scripts::LIMIT_TAKE);
}

#[test]
fn sto_4_limit_refund() {
    let mut twin = Twin::start();
    assert_eq!(refund("op1", 60_000).run(&mut twin), ["NONE"]);
    for op in ["op1", "op2", "op3"] {
        assert_eq!(take(op, 60_000, 3).run(&mut twin)[0], "ALLOWED");
    }
    assert_eq!(refund("op2", 60_000).run(&mut twin), ["REFUNDED"], "one from the middle");
    assert_eq!(refund("op2", 60_000).run(&mut twin), ["NONE"], "STO-10");
    assert_eq!(take("op4", 60_000, 3).run(&mut twin), ["ALLOWED", "0"]);
    assert_eq!(take("op5", 60_000, 3).run(&mut twin)[0], "DENIED", "one place was given back, not two");
    for op in ["op4", "op3", "op1"] {
        assert_eq!(refund(op, 60_000).run(&mut twin), ["REFUNDED"]);
    }
    assert_eq!(twin.look(["DBSIZE"]), Reply::Int(0), "STO-16");
    assert_eq!(take("op6", 60_000, 3).run(&mut twin), ["ALLOWED", "2"], "as if nothing had been charged");
    twin.covered(&scripts::LIMIT_REFUND);
}

#[test]
fn r_4_a_clock_that_stepped_back_locks_nobody_out_and_gives_nobody_more() {
    let mut twin = Twin::start();
    take("op1", 60_000, 2).run(&mut twin);
    let now = twin.now();
    // An hour of debt, as a clock leaves it that was ahead by an hour.
    twin.seed(["HSET", &key("limit:command:alice"), "tat", &((now + 3_600_000) * 1_000).to_string()]);
    let denied = take("op2", 60_000, 2).run(&mut twin);
    assert_eq!(denied, ["DENIED", "60000"], "the whole burst is owed from now on, and no more");
    let tat: u64 = field(&mut twin, "tat").parse().expect("a whole number");
    assert!(tat <= (twin.now() + 120_000) * 1_000, "the next look would find an hour again");
    assert_eq!(take("op2", 60_000, 2).run(&mut twin)[0], "DENIED");
    twin.seed(["HSET", &key("limit:command:alice"), "tat", &((now - 1) * 1_000).to_string()]);
    assert_eq!(take("op2", 60_000, 2).run(&mut twin)[0], "ALLOWED");
}

#[test]
fn sto_8_operations_that_nobody_repeats_any_more_are_forgotten() {
    let mut twin = Twin::start();
    let now = twin.now();
    let charged = format!("young:{}:1 old:{}:1 older:1:1", now - 60_000, now - 75_000);
    twin.seed(["HSET", &key("limit:command:alice"), "tat", "1", "charged", &charged]);
    take("op1", 1_000, 1).run(&mut twin);
    let left = field(&mut twin, "charged");
    assert!(left.starts_with("op1:") && left.split(' ').count() == 2 && left.contains(" young:"), "{left}");
}
