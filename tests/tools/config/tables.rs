//! `limits` (POL-6) and `peers` (NOD-12): sections whose keys are the operator's own names.

use maitred::agent::config::{Config, PeerConfig};
use maitred::ids::{LimitName, NodeId, Role};
use maitred::limit::Limit;

use super::problems;

#[test]
fn pol_6_limits_are_read_in_both_forms() {
    let text = "limits:\n  command: { cooldownMs: 10000 }\n  join: { count: 5, perMs: 60000, burst: 2 }\n  \
        a.b-c_9: { count: 100, perMs: 3600000 }\n";
    let config = Config::from_yaml(text).expect(text);
    let limit = |name: &str| config.limits.get(&LimitName::new(name).expect("a name")).copied().expect(name);
    assert_eq!(limit("command"), Limit::cooldown(10_000).expect("valid"));
    assert_eq!(limit("join"), Limit::new(5, 60_000, 2).expect("valid"));
    assert_eq!(limit("a.b-c_9"), Limit::new(100, 3_600_000, 64).expect("valid"), "as many at once as are allowed");
    assert!(Config::from_yaml("limits:\n").expect("nothing").limits.is_empty());
}

#[test]
fn pol_6_what_is_wrong_with_a_limit_is_said_with_its_path_and_line() {
    for (value, path, what) in [
        ("{ cooldownMs: 499 }", "limits.x", "499 ms is too short"),
        ("{ cooldownMs: 0 }", "limits.x.cooldownMs", "0 is out of range"),
        ("{ cooldownMs: 2592000001 }", "limits.x.cooldownMs", "out of range"),
        ("{ cooldownMs: 500, burst: 1 }", "limits.x", "stands alone"),
        ("{ count: 5 }", "limits.x", "count and perMs are needed"),
        ("{}", "limits.x", "count and perMs are needed"),
        ("", "limits.x", "count and perMs are needed"),
        ("{ count: 0, perMs: 60000 }", "limits.x.count", "0 is out of range"),
        ("{ count: 10001, perMs: 60000000 }", "limits.x.count", "out of range"),
        ("{ count: 1, perMs: -1 }", "limits.x.perMs", "-1 is out of range"),
        ("{ count: 1, perMs: 60000, burst: 65 }", "limits.x.burst", "65 is out of range"),
        ("{ count: 3, perMs: 1499 }", "limits.x", "more than one each 500 ms"),
        ("{ count: 1, perMs: 2592000000, burst: 2 }", "limits.x", "30 days"),
        ("{ count: \"1\", perMs: 60000 }", "limits.x.count", "expected a whole number, found text"),
        ("{ count: 1, perMs: 60000, rate: 3 }", "limits.x.rate", "unknown key"),
        ("{ count: 1, count: 1, perMs: 60000 }", "limits.x.count", "given twice"),
        ("5", "limits.x", "expected a mapping"),
    ] {
        let text = format!("zone: eu\nlimits:\n  x: {value}\n");
        let found = problems(Config::from_yaml(&text));
        assert_eq!(found.len(), 1, "{text}{found:#?}");
        assert!(found[0].starts_with(&format!("{path}: ")) && found[0].contains(what), "{text}{}", found[0]);
        assert!(found[0].contains("(line 3, ") && found[0].contains("cooldownMs: 500 to 2592000000"), "{}", found[0]);
    }
    let secret = problems(Config::from_yaml("limits: { \"redis://u:hunter2@h\": { cooldownMs: 500 } }"));
    assert!(secret[0].contains("does not fit") && !secret[0].contains("hunter2"), "STO-12: {secret:?}");
    assert!(problems(Config::from_yaml("limits: 5"))[0].starts_with("limits: expected a mapping"));
    let many: String = (0..65).map(|n| format!("  l{n}: {{ cooldownMs: 500 }}\n")).collect();
    assert!(problems(Config::from_yaml(&format!("limits:\n{many}")))[0].contains("65 limits are too many"));
}

#[test]
fn nod_12_peers_are_read_and_what_is_wrong_is_said_with_its_path_and_line() {
    let text = "peers:\n  b1: { role: lobby, addr: \"10.0.0.7:25565\" }\n  b2: { addr: \"[::1]:1\" }\n";
    let config = Config::from_yaml(text).expect(text);
    let peer = |id: &str| config.peers.get(&NodeId::new(id).expect("an id")).cloned().expect(id);
    assert_eq!(peer("b1"), PeerConfig { role: Role::new("lobby").expect("a role"), addr: "10.0.0.7:25565".to_owned() });
    assert_eq!(peer("b2").role, Role::backend());
    for (value, path, what) in [
        ("{ role: backend }", "peers.b1", "addr is needed"),
        ("{ addr: nowhere }", "peers.b1.addr", "does not fit"),
        ("{ addr: \"h:1\", role: \"a b\" }", "peers.b1.role", "does not fit"),
        ("{ addr: 1 }", "peers.b1.addr", "expected text"),
        ("{ addr: \"h:1\", port: 1 }", "peers.b1.port", "unknown key"),
        ("here", "peers.b1", "expected a mapping"),
    ] {
        let text = format!("peers:\n  b1: {value}\n");
        let found = problems(Config::from_yaml(&text));
        assert!(found[0].starts_with(&format!("{path}: ")) && found[0].contains(what), "{text}{found:?}");
        assert!(found[0].contains("(line 2, "), "{found:?}");
    }
    let mut config = Config { enabled: true, ..Config::default() };
    config.node.id = Some(NodeId::new("p1").expect("an id"));
    let wrong = PeerConfig { role: Role::backend(), addr: "nowhere".to_owned() };
    config.peers.insert(NodeId::new("b1").expect("an id"), wrong);
    let text = config.check_enabled().expect_err("an address of code's own").to_string();
    assert!(text.contains("peers.b1.addr: does not fit"), "{text}");
}
