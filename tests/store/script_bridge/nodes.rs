//! Every answer of the scripts of nodes and control entries.

use maitred::store::scripts;

use super::calls::{LEASE_MS, Node, forget, key, put, remove, settle};
use super::reply::Reply;
use super::twin::Twin;

const NO_CONTROL: [&str; 4] = [""; 4];

fn exists(twin: &mut Twin, name: &str) -> bool {
    twin.look(["EXISTS", &key(name)]) == Reply::Int(1)
}

fn bulk(text: impl Into<String>) -> Reply {
    Reply::Bulk(text.into().into_bytes())
}

#[test]
fn sto_4_node_join() {
    let mut twin = Twin::start();
    let now = twin.now();
    let node = Node::new("p1", "proxy", now);
    assert_eq!(node.join(0, "", "proxy").run(&mut twin)[0], "JOINED");
    let epoch = twin.look(["HGET", &key("node:p1"), "epoch"]);
    assert_eq!(epoch, bulk(now.to_string()), "a number of 13 digits is written as such");
    assert_eq!(node.join(0, "", "proxy").run(&mut twin)[0], "JOINED", "STO-10: the reply was lost");

    // R-7
    let other = Node { incarnation: "inc2", ..node.clone() };
    let held = other.join(0, "", "proxy").run(&mut twin);
    assert_eq!(held[..2], ["DUPLICATE", "10.0.0.1:25577"]);
    assert!(held[2].parse::<u64>().expect("a whole number") <= LEASE_MS);
    let asked = other.join(0, "inc1", "proxy").run(&mut twin);
    assert_eq!(asked[0], "EPOCH", "the epoch was given already");
    let next: u64 = asked[1].parse().expect("a whole number");
    assert!(next > now);
    let taken = Node { epoch: next, ..other };
    assert_eq!(taken.join(0, "inc1", "proxy").run(&mut twin)[0], "JOINED", "takes over by `replaces`");
    let ahead = Node { epoch: now + 60_000, ..taken.clone() };
    assert_eq!(ahead.join(now + 49_999, "", "proxy").run(&mut twin)[..2], ["EPOCH".into(), (now + 50_000).to_string()]);

    // R-7: a lapsed process whose epoch is still the last one given keeps it.
    twin.seed(["DEL", &key("node:p1")]);
    assert_eq!(taken.join(next, "", "proxy").run(&mut twin)[0], "JOINED");
    // R-4: a row whose beat is too old keeps nobody out.
    twin.seed(["HSET", &key("node:p1"), "beat_at", "1000"]);
    let late = Node { incarnation: "inc3", epoch: twin.now().max(next + 1), ..node.clone() };
    assert_eq!(late.join(0, "", "proxy").run(&mut twin)[0], "JOINED");

    // R-31
    let moved = Node { role: "backend", epoch: twin.now().max(late.epoch + 1), ..late };
    assert_eq!(moved.join(0, "", "backend").run(&mut twin), ["NEED", "proxy"]);
    assert_eq!(moved.join(0, "", "proxy").run(&mut twin)[0], "JOINED");
    assert_eq!(twin.look(["SMEMBERS", &key("roles")]), Reply::Array(vec![bulk("backend")]), "STO-16");

    let skewed = Node { sent_at: Some(now - 60_000), epoch: moved.epoch + 1, ..moved };
    assert_eq!(skewed.join(0, "", "backend").run(&mut twin)[0], "SKEW");
    twin.covered(&scripts::NODE_JOIN);
}

#[test]
fn sto_4_node_beat() {
    let mut twin = Twin::start();
    let now = twin.now();
    let node = Node::new("p1", "proxy", now);
    assert_eq!(node.beat(1, 3, NO_CONTROL).run(&mut twin)[0], "GONE");
    assert!(!exists(&mut twin, "node:p1"), "R-8: a beat never creates a row");
    node.join(0, "", "proxy").run(&mut twin);
    let beat = node.beat(1, 3, NO_CONTROL).run(&mut twin);
    assert_eq!((beat[0].as_str(), beat[2].as_str()), ("BEAT", "0"));
    assert_eq!(node.beat(1, 3, NO_CONTROL).run(&mut twin)[0], "BEAT", "R-8: the same beat again");
    let stale = Node { sent_at: Some(now - 60_000), ..node.clone() };
    assert_eq!(stale.beat(1, 9, NO_CONTROL).run(&mut twin)[0], "BEAT", "R-1: done already, whatever the clock says");
    assert_eq!(stale.beat(2, 9, NO_CONTROL).run(&mut twin)[0], "SKEW");
    assert_eq!(twin.look(["HGET", &key("node:p1"), "players"]), bulk("3"));

    twin.seed(["HSET", &key("control"), "drain:p1", "{entry}"]);
    let beat = node.beat(2, 3, NO_CONTROL).run(&mut twin);
    assert_eq!((beat[0].as_str(), beat[2].as_str()), ("BEAT", "1"), "NOD-13: there is a drain to read");
    assert_eq!(node.beat(3, 3, ["", "", "{entry}", ""]).run(&mut twin)[2], "0");
    // POL-5: a config of 64 KiB is compared by its end, where the signature stands.
    let (long, tail) = (format!("{{{}", "x".repeat(65_536)), format!("{}}}", "s".repeat(63)));
    twin.seed(["HSET", &key("control"), "config", &format!("{long}{tail}")]);
    assert_eq!(node.beat(4, 3, ["", "", "{entry}", ""]).run(&mut twin)[2], "1", "there is a config to read");
    assert_eq!(node.beat(5, 3, ["", "", "{entry}", &tail]).run(&mut twin)[2], "0");

    let old = Node { epoch: now - 1, ..node.clone() };
    assert_eq!(old.beat(6, 3, NO_CONTROL).run(&mut twin), ["FENCED", &now.to_string(), "10.0.0.1:25577"]);
    let twice = Node { incarnation: "inc2", ..node };
    assert_eq!(twice.beat(6, 3, NO_CONTROL).run(&mut twin)[0], "FENCED", "R-7: the same number, another process");
    twin.covered(&scripts::NODE_BEAT);
}

#[test]
fn sto_4_node_leave() {
    let mut twin = Twin::start();
    let node = Node::new("p1", "proxy", twin.now());
    node.join(0, "", "proxy").run(&mut twin);
    let old = Node { epoch: node.epoch - 1, ..node.clone() };
    assert_eq!(old.leave().run(&mut twin), ["FENCED", &node.epoch.to_string()]);
    let other = Node { incarnation: "inc2", ..node.clone() };
    assert_eq!(other.leave().run(&mut twin)[0], "FENCED");
    assert_eq!(node.leave().run(&mut twin), ["LEFT"]);
    for gone in ["node:p1", "nodes:proxy", "roles"] {
        assert!(!exists(&mut twin, gone), "STO-16: {gone} stays behind");
    }
    let entry = twin.look(["HGET", &key("epochs"), "p1"]);
    let Reply::Bulk(entry) = entry else { panic!("R-8: the last epoch is kept: {entry:?}") };
    assert!(String::from_utf8_lossy(&entry).starts_with(&format!("{} ", node.epoch)));
    assert_eq!(node.leave().run(&mut twin), ["LEFT"], "STO-10");
    twin.covered(&scripts::NODE_LEAVE);
}

#[test]
fn sto_4_node_remove() {
    let mut twin = Twin::start();
    let now = twin.now();
    assert_eq!(remove("proxy", 1_000, &[]).run(&mut twin), ["REMOVED", "0"]);
    for id in ["p1", "p2", "p3"] {
        settle(&mut twin, id, "proxy", now);
    }
    let old = (now - 700_000).to_string();
    twin.seed(["DEL", &key("node:p1")]);
    twin.seed(["ZADD", &key("nodes:proxy"), &old, "p1", &old, "p2"]);
    twin.seed(["HSET", &key("node:p3"), "role", "backend"]);
    let gone = remove("proxy", 600_000, &["p1", "p2", "p3", "p4"]).run(&mut twin);
    assert_eq!(gone, ["REMOVED", "2", "p1", "p3"], "p2 has a row still, p4 is not listed");
    assert_eq!(remove("proxy", 600_000, &["p1", "p3"]).run(&mut twin), ["REMOVED", "0"], "STO-10");
    twin.seed(["DEL", &key("node:p2")]);
    assert_eq!(remove("proxy", 600_000, &["p2"]).run(&mut twin), ["REMOVED", "1", "p2"]);
    assert!(!exists(&mut twin, "roles"), "STO-16: a role without a roster stays behind");
    twin.covered(&scripts::NODE_REMOVE);
}

#[test]
fn sto_4_node_forget() {
    let mut twin = Twin::start();
    let now = twin.now();
    Node::new("p1", "proxy", now).join(0, "", "proxy").run(&mut twin);
    let day_old = format!("{} {}", now - 90_000_000, now - 90_000_000);
    let young = format!("{now} {now}");
    for (id, entry) in [("p1", &day_old), ("p2", &day_old), ("p3", &young), ("p4", &day_old)] {
        twin.seed(["HSET", &key("epochs"), id, entry]);
    }
    let entries = [("p1", &*day_old), ("p2", &*day_old), ("p3", &*young), ("p4", "other bytes"), ("p5", &*day_old)];
    assert_eq!(forget(86_400_000, &[], &entries).run(&mut twin), ["NEED", "proxy"], "R-31");
    assert_eq!(forget(86_400_000, &["proxy", "link"], &entries).run(&mut twin), ["FORGOTTEN", "1"], "R-8");
    let left = twin.look(["HKEYS", &key("epochs")]).texts().expect("texts");
    assert_eq!(left.len(), 3, "only p2 is old, unlisted and as it was read: {left:?}");
    assert_eq!(forget(86_400_000, &["proxy"], &entries).run(&mut twin), ["FORGOTTEN", "0"], "STO-10");
    twin.covered(&scripts::NODE_FORGET);
}

#[test]
fn sto_4_control_put() {
    let mut twin = Twin::start();
    let now = twin.now();
    let first = r#"{"value":"on","version":1,"sig":"a"}"#;
    assert_eq!(put("kill", first, now, 0, "").run(&mut twin)[0], "PUT");
    assert_eq!(put("kill", first, now, 0, "").run(&mut twin)[0], "PUT", "STO-10: the reply was lost");
    assert_eq!(put("kill", "{}", now + 1, now, "").run(&mut twin), ["CHANGED", first]);
    // R-3
    let low = put("kill", "{}", now, now, first).run(&mut twin);
    assert_eq!(low[0], "VERSION");
    assert!(low[1].parse::<u64>().expect("a whole number") > now);
    let far = put("kill", "{}", now + 90_000, now, first).run(&mut twin);
    assert_eq!(far[0], "VERSION");
    assert_eq!(put("kill", "{}", now + 90_000, now + 89_999, first).run(&mut twin)[0], "PUT", "one above a later one");
    twin.covered(&scripts::CONTROL_PUT);
}
