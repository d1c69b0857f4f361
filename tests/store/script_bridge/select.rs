//! Every answer of the script of shared recent picks.

use maitred::store::scripts;

use super::calls::{bump, key};
use super::reply::Reply;
use super::twin::Twin;

/// A half-life that no test outlives by a noticeable part.
const HALFLIFE_MS: u64 = 600_000;
const LIFE_MS: u64 = 6_060_000;

fn entry(twin: &mut Twin, field: &str) -> Option<(u64, u64)> {
    let Reply::Bulk(bytes) = twin.look(["HGET", &key("picks"), field]) else { return None };
    let text = String::from_utf8(bytes).expect("a text");
    let (value, at) = text.split_once(' ').expect("two numbers");
    Some((value.parse().expect("a whole number"), at.parse().expect("a time")))
}

#[test]
fn sto_4_select_bump() {
    let mut twin = Twin::start();
    let add = |twin: &mut Twin, proxy, op, picks, gone| {
        let answer = bump(proxy, op, HALFLIFE_MS, LIFE_MS, picks, gone).run(twin);
        assert_eq!(answer[0], "BUMPED");
        answer[1].parse::<u64>().expect("a time")
    };
    let now = add(&mut twin, "p1", "op1", "b1=3 b.2=1", "");
    assert_eq!(entry(&mut twin, "b1"), Some((3_000, now)));
    assert_eq!(entry(&mut twin, "b.2"), Some((1_000, now)));
    let Reply::Int(life) = twin.look(["PTTL", &key("picks")]) else { panic!("STO-16: it stays for ever") };
    assert!(life > 6_000_000, "{life}");

    add(&mut twin, "p1", "op1", "b1=3 b.2=1", "");
    assert_eq!(entry(&mut twin, "b1"), Some((3_000, now)), "STO-10: the reply was lost");
    add(&mut twin, "p1", "op2", "b1=1", "");
    let (value, _) = entry(&mut twin, "b1").expect("there");
    assert!((3_900..=4_000).contains(&value), "{value}");

    // A half-life later half is left; what is not an entry counts as nothing; nothing grows without end.
    let past = (now - HALFLIFE_MS).to_string();
    twin.seed(["HSET", &key("picks"), "b1", &format!("8000 {past}"), "b2", "many of them", "b3", "7 99999999999999"]);
    twin.seed(["HSET", &key("picks"), "b4", &format!("{} {past}", "9".repeat(30))]);
    add(&mut twin, "p1", "op3", "b1=1 b2=2 b3 b4", "");
    let (value, _) = entry(&mut twin, "b1").expect("there");
    assert!((4_900..=5_000).contains(&value), "{value}");
    assert_eq!(entry(&mut twin, "b2").map(|(value, _)| value), Some(2_000));
    assert_eq!(entry(&mut twin, "b3").map(|(value, _)| value), Some(1_000), "a time that never comes");
    assert!(entry(&mut twin, "b4").is_some_and(|(value, _)| value < 1_000_000_002_000));

    // R-4, SEL-9: the store's clock went back by a half-life. What was picked before does not stand still until then.
    let ahead = (now + HALFLIFE_MS).to_string();
    twin.seed(["HSET", &key("picks"), "b6", &format!("8000 {ahead}")]);
    add(&mut twin, "p1", "op4", "b6=1", "");
    let (value, at) = entry(&mut twin, "b6").expect("there");
    assert!((4_990..=5_050).contains(&value) && at < now + HALFLIFE_MS, "{value} at {at}");

    // What is forgotten goes, and only that: a backend that decayed, a proxy that is long gone.
    twin.seed(["HSET", &key("picks"), "old", "9 1000", "@p9", "op 1000", "@p8", &format!("op {now}")]);
    add(&mut twin, "p2", "op1", "", "old @p9 @p8 @p2 b1 nobody");
    assert_eq!((entry(&mut twin, "old"), twin.look(["HGET", &key("picks"), "@p9"])), (None, Reply::Nil));
    for stays in ["@p8", "@p1", "@p2", "b1"] {
        assert_ne!(twin.look(["HGET", &key("picks"), stays]), Reply::Nil, "{stays}");
    }
    twin.covered(&scripts::SELECT_BUMP);
}

#[test]
fn sto_8_select_bump_takes_no_more_than_its_bound() {
    let mut twin = Twin::start();
    let list = |count: usize, text: &str| (0..count).map(|n| format!("b{n}{text}")).collect::<Vec<_>>().join(" ");
    let call = bump("p1", "op1", HALFLIFE_MS, LIFE_MS, &list(64, "=1"), &list(64, ""));
    assert_eq!(call.run(&mut twin)[0], "BUMPED");
    for (picks, gone) in [
        (list(65, "=1"), String::new()),
        (String::new(), list(65, "")),
        ("b1=-1".to_owned(), String::new()),
        ("@p1=1".to_owned(), String::new()),
        ("b1=1234567890".to_owned(), String::new()),
    ] {
        let call = bump("p2", "op1", HALFLIFE_MS, LIFE_MS, &picks, &gone);
        let text = twin.refused(call.0, &call.1, &call.2);
        assert!(text.starts_with("ARGUMENT select/bump: "), "{text}");
    }
    assert_eq!(twin.look(["HGET", &key("picks"), "@p2"]), Reply::Nil);
}
