//! What two values may not say against each other. A config or push that is accepted works.

use maitred::agent::config::Config;

use super::problems;

// R-49, R-25: a promise that ends before a heartbeat can count the player is sold twice.
#[test]
fn r_49_a_promise_outlives_two_beats_and_a_pass_the_promise() {
    for (lines, path, what) in [
        ("{ login: { arriveMs: 2000 } }", "lines.login.arriveMs", "heartbeat.intervalMs"),
        ("{ login: { arriveMs: 100 } }", "lines.login.arriveMs", "heartbeat.intervalMs"),
        ("{ login: { passMs: 59999 } }", "lines.login.passMs", "lines.login.arriveMs"),
        ("{ login: { arriveMs: 90000, passMs: 80000 } }", "lines.login.passMs", "lines.login.arriveMs"),
    ] {
        let found = problems(Config::from_yaml(&format!("lines: {lines}")));
        assert_eq!(found.len(), 1, "{lines}: {found:#?}");
        assert!(found[0].starts_with(path) && found[0].contains(what), "{lines}: {}", found[0]);
    }
    for lines in ["{ login: { arriveMs: 2001, passMs: 2001 } }", "{ login: {} }", "{ login: { passMs: 60000 } }"] {
        Config::from_yaml(&format!("lines: {lines}")).unwrap_or_else(|error| panic!("{lines}: {error}"));
    }
    // A value that is wrong by itself is named once.
    let found = problems(Config::from_yaml("lines: { login: { arriveMs: 9 } }"));
    assert_eq!(found.len(), 1, "{found:#?}");
}

// R-49, POL-5: nor does a push make such a config.
#[test]
fn r_49_a_push_is_held_against_the_file_that_it_goes_before() {
    let slow = "heartbeat: { intervalMs: 4000 }\ndirectory: { suspectMs: 10000, offlineMs: 14000 }\n";
    let file = Config::from_yaml(&format!("{slow}lines: {{ login: {{ arriveMs: 20000 }} }}")).expect("a file");
    let pushed = |text: &str| file.with_push(text);
    pushed(r#"{"lines":{"login":{"arriveMs":8001}}}"#).expect("more than two beats of 4 s");
    assert!(problems(pushed(r#"{"lines":{"login":{"arriveMs":8000}}}"#))[0].starts_with("lines.login.arriveMs"));
    assert!(problems(pushed(r#"{"lines":{"login":{"passMs":19000}}}"#))[0].starts_with("lines.login.passMs"));
    assert!(problems(pushed(r#"{"lines":{"vip":{"arriveMs":1000}}}"#))[0].starts_with("lines.vip.arriveMs"));
}

// R-49: lines of code are held against the same relations.
#[test]
fn r_49_a_config_of_code_is_checked_too() {
    let mut config = Config { enabled: true, ..Config::default() };
    config.node.id = Some(maitred::ids::NodeId::new("p1").expect("an id"));
    let line = maitred::agent::config::LineConfig { arrive_ms: 1_000, ..Default::default() };
    config.lines.insert(maitred::ids::LineName::new("login").expect("a name"), line);
    let text = config.check_enabled().expect_err("below a beat").to_string();
    assert!(text.contains("lines.login.arriveMs"), "{text}");
}
