//! Every answer of the scripts of routes.

use maitred::store::{Script, scripts};

use super::calls::{Ready, key, settle};
use super::reply::Reply;
use super::twin::Twin;

/// Stands for the store's time at the run.
const NOW: &str = "NOW";
const LOCK_MS: &str = "1500000";
const OBJECT: &str = "island:i1";

fn ready(script: &'static Script, names: &[&str], args: &[&str]) -> Ready {
    Ready(script, names.iter().map(key).collect(), args.iter().map(|arg| (*arg).to_owned()).collect())
}

/// Two nodes and the epoch that both have.
fn fleet() -> (Twin, String) {
    let mut twin = Twin::start();
    let now = twin.now();
    for id in ["b1", "b2"] {
        settle(&mut twin, id, "backend", now);
    }
    (twin, now.to_string())
}

fn field(twin: &mut Twin, name: &str) -> String {
    match twin.look(["HGET", &key(format!("route:{OBJECT}")), name]) {
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    }
}

fn set(twin: &mut Twin, key_name: &str, name: &str, value: &str) {
    twin.seed(["HSET", &key(key_name), name, value]);
}

fn members(twin: &mut Twin, name: &str) -> Vec<String> {
    twin.look(["SMEMBERS", &key(name)]).texts().expect("texts")
}

fn acquire(node: &str, epoch: &str, version: &str, fenced: &str, owner: &str) -> Ready {
    let behind = if owner.is_empty() { node } else { owner };
    let [row, owned, owner_row, owner_owned] =
        [format!("node:{node}"), format!("owned:{node}"), format!("node:{behind}"), format!("owned:{behind}")];
    let route = format!("route:{OBJECT}");
    let names = [&*route, &*row, &*owned, "owned", &*owner_row, &*owner_owned];
    let args = [OBJECT, node, epoch, version, "1", "5ebd00f2.mine", LOCK_MS, fenced, owner];
    ready(&scripts::ROUTE_ACQUIRE, &names, &args)
}

fn renew(node: &str, epoch: &str, version: &str, sig: &str) -> Ready {
    let (route, row) = (format!("route:{OBJECT}"), format!("node:{node}"));
    ready(&scripts::ROUTE_RENEW, &[&route, &row], &[node, epoch, version, sig, NOW])
}

fn save(node: &str, epoch: &str, version: &str, sig: &str, cas: u64, data: &str, op: &str) -> Ready {
    let (route, object, row) = (format!("route:{OBJECT}"), format!("object:{OBJECT}"), format!("node:{node}"));
    let (read, written) = (cas.to_string(), (cas + 1).to_string());
    let args = [node, epoch, version, sig, NOW, &read, &written, data, op, "1", "5ebd00f2.bytes"];
    ready(&scripts::ROUTE_SAVE, &[&route, &object, &row], &args)
}

fn release(node: &str, epoch: &str, version: &str, new: &str, delete: &str) -> Ready {
    let (route, owned, object) = (format!("route:{OBJECT}"), format!("owned:{node}"), format!("object:{OBJECT}"));
    let args = [OBJECT, node, epoch, version, "5ebd00f2.mine", new, "1", "5ebd00f2.free", "60000", delete];
    ready(&scripts::ROUTE_RELEASE, &[&route, &owned, "owned", &object], &args)
}

fn transfer(node: &str, epoch: &str, version: &str, target: (&str, &str), new: &str) -> Ready {
    let (route, owned) = (format!("route:{OBJECT}"), format!("owned:{node}"));
    let (row, target_owned) = (format!("node:{}", target.0), format!("owned:{}", target.0));
    let names = [&*route, &*owned, "owned", &*row, &*target_owned];
    let args = [OBJECT, node, epoch, version, "5ebd00f2.mine", target.0, target.1, new, "1", "5ebd00f2.moved"];
    ready(&scripts::ROUTE_TRANSFER, &names, &args)
}

/// `objects`: which, version as read, version of the free record.
fn sweep(node: &str, dry: &str, objects: &[(&str, &str, &str)]) -> Ready {
    let mut names = vec![format!("owned:{node}"), "owned".to_owned(), format!("node:{node}")];
    names.extend(objects.iter().map(|(object, ..)| format!("route:{object}")));
    let mut args = vec![node, LOCK_MS, "60000", "1", dry];
    for (object, read, new) in objects {
        args.extend([*object, *read, *new, "5ebd00f2.free"]);
    }
    ready(&scripts::ROUTE_SWEEP, &names.iter().map(String::as_str).collect::<Vec<_>>(), &args)
}

/// `number`: the field that grows, and its value as read.
fn sign(name: &str, number: (&str, &str), read: &str, new: &str) -> Ready {
    ready(&scripts::ROUTE_SIGN, &[name], &[number.0, number.1, read, new])
}

#[test]
fn sto_4_route_acquire() {
    let (mut twin, epoch) = fleet();
    assert_eq!(acquire("b9", &epoch, NOW, "1", "").run(&mut twin), ["NO_LEASE"]);
    assert_eq!(acquire("b1", "7", NOW, "1", "").run(&mut twin), ["FENCED", &epoch]);
    // R-7's rule: not too old, not ahead of the store's clock.
    for wrong in ["1000", "9999999999999"] {
        assert_eq!(acquire("b1", &epoch, wrong, "1", "").run(&mut twin)[0], "VERSION");
    }
    assert_eq!(acquire("b1", &epoch, NOW, "1", "").run(&mut twin)[0], "ACQUIRED");
    let version = field(&mut twin, "version");
    assert_eq!(field(&mut twin, "saved_at"), version);
    let again = acquire("b1", &epoch, &version, "1", "");
    assert_eq!(again.run(&mut twin), ["ACQUIRED", &version], "STO-10: the reply was lost");
    assert_eq!(
        acquire("b1", &epoch, NOW, "1", "").run(&mut twin),
        ["ACQUIRED", &version],
        "it is the caller's already"
    );
    assert_eq!((members(&mut twin, "owned:b1"), members(&mut twin, "owned")), (vec![OBJECT.into()], vec!["b1".into()]));

    // RTE-2, R-31
    assert_eq!(acquire("b2", &epoch, NOW, "1", "").run(&mut twin), ["NEED", "b1"]);
    assert_eq!(acquire("b2", &epoch, NOW, "1", "b1").run(&mut twin), ["OWNED", "b1", &epoch, &version]);
    set(&mut twin, "node:b1", "beat_at", "1000");
    assert_eq!(
        acquire("b2", &epoch, NOW, "0", "b1").run(&mut twin)[0],
        "OWNED",
        "without a fence the lock timeout counts"
    );
    assert_eq!(acquire("b2", &epoch, NOW, "1", "b1").run(&mut twin)[0], "ACQUIRED", "R-4");
    assert_eq!((members(&mut twin, "owned:b1"), members(&mut twin, "owned")), (vec![], vec!["b2".into()]), "STO-16");
    set(&mut twin, &format!("route:{OBJECT}"), "saved_at", "1000");
    assert_eq!(acquire("b1", &epoch, NOW, "0", "b2").run(&mut twin)[0], "ACQUIRED", "b2 saved nothing for too long");

    // RTE-1: the version grows although the clock stepped back, and the saved time is no time to come.
    set(&mut twin, &format!("route:{OBJECT}"), "version", "9999999999999");
    set(&mut twin, &format!("route:{OBJECT}"), "owner_epoch", "7");
    assert_eq!(acquire("b1", &epoch, NOW, "1", "").run(&mut twin)[..2], ["VERSION", "10000000000000"]);
    assert_eq!(acquire("b1", &epoch, "10000000000000", "1", "").run(&mut twin), ["ACQUIRED", "10000000000000"]);
    assert_ne!(field(&mut twin, "saved_at"), "10000000000000");
    twin.covered(&scripts::ROUTE_ACQUIRE);
}

#[test]
fn sto_4_route_renew() {
    let (mut twin, epoch) = fleet();
    assert_eq!(renew("b1", &epoch, "5", "5ebd00f2.mine").run(&mut twin), ["LOST", "", "0", "0"]);
    acquire("b1", &epoch, NOW, "1", "").run(&mut twin);
    let version = field(&mut twin, "version");
    set(&mut twin, &format!("route:{OBJECT}"), "saved_at", "1000");
    assert_eq!(renew("b1", &epoch, &version, "5ebd00f2.mine").run(&mut twin), ["RENEWED"]);
    assert_ne!(field(&mut twin, "saved_at"), "1000");
    assert_eq!(renew("b1", &epoch, &version, "old.sig").run(&mut twin), ["RENEWED"], "R-29: signed again meanwhile");
    //
    for (node, version) in [("b2", &*version), ("b1", "5")] {
        assert_eq!(renew(node, &epoch, version, "other").run(&mut twin)[..2], ["LOST", "b1"]);
    }
    assert_eq!(renew("b1", "7", &version, "5ebd00f2.mine").run(&mut twin), ["FENCED", &epoch]);
    assert_eq!(renew("b9", &epoch, &version, "5ebd00f2.mine").run(&mut twin), ["NO_LEASE"]);
    twin.covered(&scripts::ROUTE_RENEW);
}

#[test]
fn sto_4_route_save() {
    let (mut twin, epoch) = fleet();
    acquire("b1", &epoch, NOW, "1", "").run(&mut twin);
    let version = field(&mut twin, "version");
    let mine = |cas, data, op| save("b1", &epoch, &version, "5ebd00f2.mine", cas, data, op);
    // RTE-3
    assert_eq!(mine(0, "{\"n\":1}", "op1").run(&mut twin), ["SAVED"]);
    assert_eq!(mine(0, "{\"n\":1}", "op1").run(&mut twin), ["SAVED"], "STO-10: the reply was lost");
    assert_eq!(mine(0, "{\"n\":9}", "op2").run(&mut twin), ["CAS", "1"]);
    assert_eq!(mine(1, "ü", "op3").run(&mut twin), ["SAVED"]);
    assert_eq!(save("b1", "7", &version, "5ebd00f2.mine", 2, "x", "op4").run(&mut twin), ["FENCED", &epoch]);
    assert_eq!(save("b9", &epoch, &version, "5ebd00f2.mine", 2, "x", "op4").run(&mut twin), ["NO_LEASE"]);
    assert_eq!(save("b1", &epoch, &version, "old.sig", 2, "x", "op5").run(&mut twin), ["SAVED"], "R-29");
    assert_eq!(save("b2", &epoch, &version, "other", 3, "x", "op6").run(&mut twin)[..2], ["LOST", "b1"]);
    let object = twin.look(["HGET", &key(format!("object:{OBJECT}")), "cas"]);
    assert_eq!(object, Reply::Bulk(b"3".to_vec()));
    twin.covered(&scripts::ROUTE_SAVE);
}

#[test]
fn sto_4_route_release() {
    let (mut twin, epoch) = fleet();
    acquire("b1", &epoch, NOW, "1", "").run(&mut twin);
    let version = field(&mut twin, "version");
    save("b1", &epoch, &version, "5ebd00f2.mine", 0, "x", "op1").run(&mut twin);
    for wrong in ["1000", "9999999999999", &*version] {
        assert_eq!(release("b1", &epoch, &version, wrong, "0").run(&mut twin)[0], "VERSION");
    }
    let next = (version.parse::<u64>().expect("a number") + 1).max(twin.now()).to_string();
    let freed = release("b1", &epoch, &version, &next, "0").run(&mut twin);
    // On a machine that stood still meanwhile the store asks for another number.
    let next = if freed[0] == "VERSION" { freed[1].clone() } else { next };
    assert_eq!(release("b1", &epoch, &version, &next, "0").run(&mut twin), ["RELEASED"], "STO-10 where it was done");
    assert_eq!((members(&mut twin, "owned:b1").len(), members(&mut twin, "owned").len()), (0, 0), "STO-16");
    let Reply::Int(ttl) = twin.look(["PTTL", &key(format!("route:{OBJECT}"))]) else { panic!("PTTL") };
    assert!(ttl > 0, "R-17");
    assert_eq!(release("b1", &epoch, &version, NOW, "0").run(&mut twin)[..2], ["LOST", ""]);
    assert_eq!(acquire("b2", &epoch, NOW, "1", "").run(&mut twin)[0], "ACQUIRED");
    assert_eq!(
        twin.look(["PTTL", &key(format!("route:{OBJECT}"))]),
        Reply::Int(-1),
        "an owned record does not run out"
    );
    // The free record of another release in the same version deleted nothing.
    set(&mut twin, &format!("route:{OBJECT}"), "owner", "");
    set(&mut twin, &format!("route:{OBJECT}"), "sig", "5ebd00f2.free");
    let free = field(&mut twin, "version");
    assert_eq!(release("b1", &epoch, "5", &free, "1").run(&mut twin), ["LOST", "", &epoch, &free]);
    assert_eq!(twin.look(["EXISTS", &key(format!("object:{OBJECT}"))]), Reply::Int(1));
    set(&mut twin, &format!("route:{OBJECT}"), "owner", "b2");
    let version = field(&mut twin, "version");
    set(&mut twin, &format!("route:{OBJECT}"), "version", "9999999999999");
    let deleted = release("b2", &epoch, "9999999999999", "10000000000000", "1");
    assert_eq!(deleted.run(&mut twin), ["RELEASED"], "{version}");
    assert_eq!(twin.look(["EXISTS", &key(format!("object:{OBJECT}"))]), Reply::Int(0));
    twin.covered(&scripts::ROUTE_RELEASE);
}

#[test]
fn sto_4_route_transfer() {
    let (mut twin, epoch) = fleet();
    acquire("b1", &epoch, NOW, "1", "").run(&mut twin);
    let version = field(&mut twin, "version");
    assert_eq!(transfer("b1", &epoch, &version, ("b9", &epoch), NOW).run(&mut twin), ["TARGET_GONE"], "R-20");
    assert_eq!(transfer("b1", &epoch, &version, ("b2", "7"), NOW).run(&mut twin), ["TARGET_GONE"]);
    assert_eq!(transfer("b1", &epoch, &version, ("b2", &epoch), "1000").run(&mut twin)[0], "VERSION");
    set(&mut twin, &format!("route:{OBJECT}"), "version", "9999999999999");
    let moved = transfer("b1", &epoch, "9999999999999", ("b2", &epoch), "10000000000000");
    assert_eq!(moved.run(&mut twin), ["MOVED"]);
    assert_eq!(moved.run(&mut twin), ["MOVED"], "STO-10: the reply was lost");
    assert_eq!((members(&mut twin, "owned:b2").len(), members(&mut twin, "owned")), (1, vec!["b2".to_owned()]));
    assert_eq!((field(&mut twin, "owner"), field(&mut twin, "state")), ("b2".into(), "MOVED".into()));
    assert_eq!(transfer("b1", &epoch, &version, ("b2", &epoch), NOW).run(&mut twin)[..2], ["LOST", "b2"]);
    assert_eq!(acquire("b2", &epoch, NOW, "1", "").run(&mut twin), ["ACQUIRED", "10000000000000"], "confirmed");
    assert_eq!(field(&mut twin, "state"), "OWNED");
    twin.covered(&scripts::ROUTE_TRANSFER);
}

#[test]
fn sto_4_route_sweep() {
    let (mut twin, epoch) = fleet();
    acquire("b1", &epoch, NOW, "1", "").run(&mut twin);
    twin.seed(["SADD", &key("owned:b1"), "island:none", "island:of-b2"]);
    set(&mut twin, "route:island:of-b2", "owner", "b2");
    let version = field(&mut twin, "version");
    set(&mut twin, &format!("route:{OBJECT}"), "saved_at", "1000");
    let all = [(OBJECT, &*version, NOW), ("island:none", "0", NOW), ("island:of-b2", "0", NOW)];
    let swept = sweep("b1", "1", &all).run(&mut twin);
    assert_eq!(swept, ["SWEPT", "KEPT", "HEALED", "HEALED"], "its owner lives");
    assert_eq!(members(&mut twin, "owned:b1").len(), 3, "a dry run changes nothing");
    set(&mut twin, "node:b1", "beat_at", "1000");
    assert_eq!(sweep("b1", "0", &all[1..]).run(&mut twin), ["SWEPT", "HEALED", "HEALED"]);
    assert_eq!(
        sweep("b1", "0", &[(OBJECT, "5", NOW)]).run(&mut twin),
        ["SWEPT", "SKIPPED"],
        "changed since it was read"
    );
    set(&mut twin, &format!("route:{OBJECT}"), "version", "9999999999999");
    let late = [(OBJECT, "9999999999999", "10000000000000")];
    assert_eq!(sweep("b1", "0", &late).run(&mut twin), ["SWEPT", "RELEASED"]);
    assert_eq!(sweep("b1", "0", &late).run(&mut twin), ["SWEPT", "HEALED"], "STO-10");
    assert_eq!((field(&mut twin, "owner"), field(&mut twin, "state")), (String::new(), "FREE".into()));
    assert!(members(&mut twin, "owned").is_empty(), "STO-16");
    twin.covered(&scripts::ROUTE_SWEEP);
}

//
#[test]
fn sto_4_route_sign() {
    let (mut twin, epoch) = fleet();
    acquire("b1", &epoch, NOW, "1", "").run(&mut twin);
    let version = field(&mut twin, "version");
    save("b1", &epoch, &version, "5ebd00f2.mine", 0, "x", "op1").run(&mut twin);
    let (route, object) = (format!("route:{OBJECT}"), format!("object:{OBJECT}"));
    let before = twin.look(["HGETALL", &key(&route)]);
    for (number, read) in [("7", "5ebd00f2.mine"), (&*version, "5ebd00f2.other")] {
        assert_eq!(sign(&route, ("version", number), read, "8d1f3a07.new").run(&mut twin), ["CHANGED"]);
    }
    assert_eq!(sign("route:island:none", ("version", "0"), "", "8d1f3a07.new").run(&mut twin), ["CHANGED"]);
    assert_eq!(twin.look(["HGETALL", &key(&route)]), before, "nothing was written");
    for (name, number, read) in
        [(&route, ("version", &*version), "5ebd00f2.mine"), (&object, ("cas", "1"), "5ebd00f2.bytes")]
    {
        let again = sign(name, number, read, "8d1f3a07.new");
        assert_eq!(again.run(&mut twin), ["SIGNED"]);
        assert_eq!(again.run(&mut twin), ["SIGNED"], "STO-10: the reply was lost");
        assert_eq!(twin.look(["HGET", &key(name), "sig"]), Reply::Bulk(b"8d1f3a07.new".to_vec()));
    }
    assert_eq!(twin.look(["EXISTS", &key("route:island:none")]), Reply::Int(0));
    assert_eq!(renew("b1", &epoch, &version, "5ebd00f2.mine").run(&mut twin), ["RENEWED"], "its owner goes on");
    twin.covered(&scripts::ROUTE_SIGN);
}
