//! `lines`: the login lines of a fleet. When one of these fails, a line runs at another rate than its operator wrote down, or
//! a file that cannot work is found out on opening day.

use maitred::agent::config::{Config, LineConfig};
use maitred::ids::{LineName, Role};
use maitred::queue::Choice;

use super::problems;

fn login() -> LineName {
    LineName::new("login").expect("a name")
}

#[test]
fn que_1_lines_are_read_with_their_defaults() {
    assert!(Config::from_yaml("lines:\n").expect("nothing").lines.is_empty());
    let bare = Config::from_yaml("lines: { login: {}, vip.2: }\n").expect("defaults");
    assert_eq!(bare.lines[&login()], LineConfig::default());
    assert_eq!(bare.lines.len(), 2);
    let options = LineConfig::default().options(&login());
    assert_eq!(options, maitred::queue::LineOptions::new(login()), "the same defaults on both floors");

    let text = "lines:\n  login: { pick: link, maxWaiting: 7, lanes: [3, 1], maxOnlineNew: 8, fixedPerSecond: 9, burst: 10, \
        reconnectGraceMs: 111, arriveMs: 2112, passMs: 2113, maxFailures: 4, tickMs: 114 }\n";
    let line = Config::from_yaml(text).expect(text).lines[&login()].clone();
    assert_eq!(line.choice(), Choice::LinkOnly);
    let options = line.options(&login());
    let gate = &options.gate;
    assert_eq!((gate.per_backend, gate.fixed_per_second, gate.burst), (8, Some(9), Some(10)));
    // QUE-4: a line that leads to links counts links.
    assert_eq!(gate.counted, Role::link());
    assert_eq!((options.max_waiting, options.lanes, options.max_failures), (7, vec![3, 1], 4));
    assert_eq!(
        (options.reconnect_grace_ms, options.arrive_ms, options.pass_ms, line.tick_ms),
        (111, 2_112, 2_113, 114)
    );
    for (pick, choice) in [("backend", Choice::Backend), ("both", Choice::BackendAndLink)] {
        let text = format!("lines: {{ login: {{ pick: {pick}, fixedPerSecond: null, burst: null }} }}");
        let line = Config::from_yaml(&text).expect(&text).lines[&login()].clone();
        assert_eq!(line, LineConfig { pick: choice, ..LineConfig::default() });
        assert_eq!(line.options(&login()).gate.counted, Role::backend());
    }
}

#[test]
fn que_1_what_is_wrong_with_a_line_is_said_with_its_path_and_line() {
    for (name, value, path, what) in [
        ("wait", "{}", "lines.wait", "wait lines of backends"),
        ("wait.b1", "{}", "lines.wait.b1", "wait lines of backends"),
        ("\"a b\"", "{}", "lines.(a key that is no name)", "does not fit"),
        ("login", "5", "lines.login", "expected a mapping"),
        ("login", "{ rate: 5 }", "lines.login.rate", "unknown key"),
        ("login", "{ pick: proxy }", "lines.login.pick", "does not fit"),
        ("login", "{ pick: 5 }", "lines.login.pick", "expected text"),
        ("login", "{ lanes: 3 }", "lines.login.lanes", "expected a list"),
        ("login", "{ lanes: [] }", "lines.login.lanes", "0 lanes do not fit"),
        ("login", "{ lanes: [1, 0] }", "lines.login.lanes[1]", "0 is out of range"),
        ("login", "{ lanes: [1001] }", "lines.login.lanes[0]", "1001 is out of range"),
        ("login", "{ maxWaiting: 0 }", "lines.login.maxWaiting", "0 is out of range"),
        ("login", "{ maxWaiting: 10000001 }", "lines.login.maxWaiting", "out of range"),
        ("login", "{ maxWaiting: null }", "lines.login.maxWaiting", "expected a whole number"),
        ("login", "{ maxOnlineNew: 100001 }", "lines.login.maxOnlineNew", "out of range"),
        ("login", "{ fixedPerSecond: 0 }", "lines.login.fixedPerSecond", "0 is out of range"),
        ("login", "{ burst: \"5\" }", "lines.login.burst", "expected a whole number, found text"),
        ("login", "{ reconnectGraceMs: 99 }", "lines.login.reconnectGraceMs", "out of range"),
        ("login", "{ arriveMs: 3600001 }", "lines.login.arriveMs", "out of range"),
        ("login", "{ passMs: 999 }", "lines.login.passMs", "out of range"),
        ("login", "{ maxFailures: 101 }", "lines.login.maxFailures", "out of range"),
        ("login", "{ tickMs: 99 }", "lines.login.tickMs", "out of range"),
        ("login", "{ tickMs: 100, tickMs: 100 }", "lines.login.tickMs", "given twice"),
    ] {
        let text = format!("zone: eu\nlines:\n  {name}: {value}\n");
        let found = problems(Config::from_yaml(&text));
        assert_eq!(found.len(), 1, "{text}{found:#?}");
        assert!(found[0].starts_with(&format!("{path}: ")) && found[0].contains(what), "{text}{}", found[0]);
        assert!(found[0].contains("(line 3, ") && found[0].contains("maxOnlineNew: 1 to 100000"), "{}", found[0]);
    }
    let many: String = (0..17).map(|n| format!("  l{n}: {{}}\n")).collect();
    assert!(problems(Config::from_yaml(&format!("lines:\n{many}")))[0].contains("17 lines are too many"));
    // A name that only looks alike is free.
    Config::from_yaml("lines: { waiting: {}, wait-2: {} }").expect("names of their own");
}

#[test]
fn que_1_lines_of_code_are_held_against_the_same_bounds() {
    type Change = fn(&mut LineConfig);
    let changes: [(Change, &str); 4] = [
        (|line| line.tick_ms = 1, "lines.login.tickMs: 1 is out of range"),
        (|line| line.burst = Some(0), "lines.login.burst: 0 is out of range"),
        (|line| line.lanes.clear(), "lines.login.lanes: the lanes do not fit"),
        (|line| line.max_waiting = 0, "lines.login.maxWaiting: 0 is out of range"),
    ];
    for (change, want) in changes {
        let mut config = Config { enabled: true, ..Config::default() };
        config.node.id = Some(maitred::ids::NodeId::new("p1").expect("an id"));
        let mut line = LineConfig::default();
        change(&mut line);
        config.lines.insert(login(), line);
        let text = config.check_enabled().expect_err(want).to_string();
        assert!(text.contains(want), "{text}");
    }
}

// QUE-1, POL-5: an operator who pushes a slower gate must not reset the rest of the line.
#[test]
fn que_1_a_push_changes_single_values_of_a_line() {
    let file = Config::from_yaml("lines: { login: { maxWaiting: 7, fixedPerSecond: 50 } }").expect("a file");
    let slower = file.with_push(r#"{"lines":{"login":{"fixedPerSecond":5}}}"#).expect("a push");
    let line = &slower.lines[&login()];
    assert_eq!((line.max_waiting, line.fixed_per_second), (7, Some(5)));
    let nominal = file.with_push(r#"{"lines":{"login":{"fixedPerSecond":null},"vip":{}}}"#).expect("a push");
    assert_eq!((nominal.lines[&login()].fixed_per_second, nominal.lines.len()), (None, 2));
    assert_eq!(file.changed(&nominal), ["lines"]);
    let push = maitred::agent::config::Push::from_yaml("lines: { login: { burst: null, lanes: [1, 2] } }");
    let push = push.expect("a file that can be pushed");
    assert_eq!(push.keys(), ["lines.login"]);
    assert_eq!(file.with_push(push.text()).expect("it fits").lines[&login()].lanes, [1, 2]);
}
