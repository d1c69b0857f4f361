//! The config (POL-1, the default of POL-2, the part of STO-12 that is about it). When one of these fails, operators get
//! a config that is not what they wrote, no hint where it is wrong, or their store's password in a log.

mod initial_routing;
mod lines;
mod relations;
mod selector;
mod tables;
mod whole;

use std::collections::BTreeSet;

use maitred::agent::config::Config;
use maitred::{Error, Result};

/// Numbers with their bounds, written down independently of the code.
const NUMBERS: &[(&str, u64, u64)] = &[
    ("store.commandTimeoutMs", 50, 10_000),
    ("store.connectTimeoutMs", 50, 10_000),
    ("store.operationTimeoutMs", 100, 60_000),
    ("heartbeat.intervalMs", 50, 60_000),
    ("directory.refreshMs", 100, 600_000),
    ("directory.suspectMs", 101, 86_400_000),
    ("directory.offlineMs", 102, 86_400_000),
    ("directory.removedMs", 103, 86_400_000),
    ("tokens.ttlMs", 200, 600_000),
    ("tokens.claimReanimateMs", 100, 600_000),
    ("tokens.auditMs", 100, 3_600_000),
    ("tokens.reapIntervalMs", 50, 60_000),
    ("tokens.reapBatch", 1, 256),
    ("dispatch.maxRetries", 0, 16),
    ("dispatch.attemptTimeoutMs", 50, 60_000),
    ("dispatch.cooldownMs", 0, 600_000),
    ("dispatch.staleAfterMs", 100, 600_000),
    ("initialRouting.timeoutSeconds", 1, 120),
    ("selector.recentPicks.halflifeMs", 100, 600_000),
    ("wait.maxWaiting", 1, 1_000_000),
    ("wait.reconnectGraceMs", 0, 3_600_000),
    ("wait.maxWaitMs", 0, 86_400_000),
    ("messages.maxBodyBytes", 64, 1_048_576),
    ("messages.maxConcurrent", 1, 65_536),
    ("messages.callTimeoutMs", 10, 29_000),
    ("routes.lockTimeoutMs", 10_000, 86_400_000),
    ("routes.freeMs", 5_000, 86_400_000),
    ("routes.cacheUpdateMs", 1_000, 86_400_000),
    ("routes.cacheFreeMs", 1_000, 86_400_000),
    ("routes.saveMs", 100, 86_400_000),
    ("routes.downgradeMs", 1_000, 86_400_000),
];

const FLAGS: &[&str] = &[
    "enabled",
    "routing.lobbyMode",
    "selector.recentPicks.shared",
    "triggers.command",
    "triggers.join",
    "triggers.firstJoin",
    "triggers.event",
    "triggers.other",
];

/// Texts: part of what is said to be allowed, good values, values that do not fit.
const TEXTS: &[(&str, &str, &[&str], &[&str])] = &[
    ("zone", "1 to 64 characters", &["eu", "no", "\"17\""], &["\"\"", "a b", "ä", "\"{eu}\"", "\"a:b\""]),
    ("node.id", "1 to 59 characters", &["\"\"", "backend-1", "\"17\""], &["a b", "\"a\\n\"", "a/b"]),
    ("node.role", "1 to 64 characters", &["proxy", "lobby"], &["\"\"", "a b", "a/b"]),
    (
        "node.addr",
        "port from 1 to 65535",
        &["\"play.example:1\"", "\"10.0.0.7:65535\"", "\"[::1]:25565\""],
        &[
            "\"\"",
            "host",
            "\":1\"",
            "\"h:\"",
            "\"h:0\"",
            "\"h:65536\"",
            "\"h:+1\"",
            "\"h i:1\"",
            "\"::1:1\"",
            "\"[x]:1\"",
        ],
    ),
    (
        "store.url",
        "redis://",
        &["\"\"", "redis://h", "\"redis://u:p@h:1/2\"", "\"unix:///run/s?db=2\""],
        &["localhost", "\"http://h\"", "\"redis://\"", "\"redis://a b\"", "\"unix://s\"", "\"rediss+x://h\""],
    ),
    ("security.secretEnv", "environment variable", &["A", "_X9"], &["\"\"", "a", "9A", "A-B", "\"c2VjcmV0Cg==\""]),
    ("security.secretAlsoEnv", "environment variable", &["B"], &["\"\"", "b", "A B"]),
    ("selector.onNoCandidate", "refuse or queue", &["refuse", "queue"], &["\"\"", "Refuse", "wait"]),
    ("texts.noCandidate", "512 bytes", &["\"\"", "full"], &[]),
    ("texts.refused", "512 bytes", &["\"\"", "full"], &[]),
    ("texts.notAllowed", "512 bytes", &["\"\"", "no"], &[]),
    ("texts.killSwitch", "512 bytes", &["\"\"", "off"], &[]),
    ("texts.lost", "512 bytes", &["\"\"", "gone"], &[]),
    ("texts.storeDown", "512 bytes", &["\"\"", "down"], &[]),
    ("texts.limited", "512 bytes", &["\"\"", "\"wait {seconds}\""], &[]),
    ("texts.draining", "512 bytes", &["\"\"", "emptied"], &[]),
    ("texts.queueFull", "512 bytes", &["\"\"", "full"], &[]),
    ("texts.waitEnded", "512 bytes", &["\"\"", "over"], &[]),
    ("texts.waitedTooLong", "512 bytes", &["\"\"", "late"], &[]),
    ("texts.noEntry", "512 bytes", &["\"\"", "none"], &[]),
    ("texts.notPlaced", "512 bytes", &["\"\"", "down"], &[]),
];

/// Longest value of texts that are bounded by their length only, and the key.
const LENGTHS: &[(&str, usize)] = &[
    ("zone", 64),
    ("node.id", 59),
    ("node.role", 64),
    ("security.secretEnv", 64),
    ("security.secretAlsoEnv", 64),
    ("texts.noCandidate", 512),
    ("texts.refused", 512),
    ("texts.notAllowed", 512),
    ("texts.killSwitch", 512),
    ("texts.lost", 512),
    ("texts.storeDown", 512),
    ("texts.limited", 512),
    ("texts.draining", 512),
    ("texts.queueFull", 512),
    ("texts.waitEnded", 512),
    ("texts.waitedTooLong", 512),
    ("texts.noEntry", 512),
    ("texts.notPlaced", 512),
];

fn all_paths() -> BTreeSet<&'static str> {
    let numbers = NUMBERS.iter().map(|(path, ..)| *path);
    let texts = TEXTS.iter().map(|(path, ..)| *path);
    let others =
        ["node.labels", "selector.metrics", "selector.backends", "limits", "lines", "peers", "initialRouting.servers"];
    numbers.chain(texts).chain(FLAGS.iter().copied()).chain(others).collect()
}

/// A file that gives one key.
fn file(path: &str, value: &str) -> String {
    let names: Vec<&str> = path.split('.').collect();
    let mut text = String::new();
    for (depth, name) in names.iter().enumerate() {
        let value = if depth + 1 < names.len() { "" } else { value };
        text.push_str(&format!("{}{name}: {value}\n", "  ".repeat(depth)));
    }
    text
}

fn problems(result: Result<Config>) -> Vec<String> {
    match result {
        Err(Error::Config { problems }) => problems,
        other => panic!("expected config problems, got {other:?}"),
    }
}

/// The file has exactly one problem: it names the path, the place and what is allowed.
fn refused(path: &str, value: &str, allowed: &str) {
    let text = file(path, value);
    let found = problems(Config::from_yaml(&text));
    assert_eq!(found.len(), 1, "{text}{found:#?}");
    let line = &found[0];
    assert!(line.starts_with(&format!("{path}: ")), "{text}{line}");
    assert!(line.contains("(line "), "{text}{line}");
    let said = line.split_once("; allowed: ").unwrap_or_else(|| panic!("{line}")).1;
    assert!(said.contains(allowed), "{text}{line}");
}

fn taken(path: &str, value: &str) {
    let text = file(path, value);
    Config::from_yaml(&text).unwrap_or_else(|error| panic!("{text}{error}"));
}

#[test]
fn pol_1_every_key_has_its_row_in_the_tables_of_this_test() {
    assert_eq!(Config::keys().map(|(path, _)| path).collect::<BTreeSet<_>>(), all_paths());
}

#[test]
fn pol_1_wrong_numbers_are_errors_with_path_and_bounds() {
    for (path, min, max) in NUMBERS {
        let allowed = format!("from {min} to {max}");
        if *min > 0 {
            refused(path, &(min - 1).to_string(), &allowed);
        }
        for value in ["-1", "-9223372036854775808", "18446744073709551615"] {
            refused(path, value, &allowed);
        }
        refused(path, &(max + 1).to_string(), &allowed);
        for value in
            ["\"1000\"", "1000.0", "1e3", "true", "~", "", "[1000]", "{a: 1}", "much", ".inf", "99999999999999999999"]
        {
            refused(path, value, &allowed);
        }
    }
}

#[test]
fn pol_1_bounds_belong_to_the_allowed_values() {
    for (path, min, max) in NUMBERS {
        for value in [min, max] {
            let text = match *path {
                // Four keys that have to stay apart: below.
                "directory.suspectMs" | "directory.offlineMs" | "directory.removedMs" => continue,
                "heartbeat.intervalMs" => {
                    format!(
                        "heartbeat: {{ intervalMs: {value} }}\ndirectory: {{ suspectMs: 200000, offlineMs: 300000 }}\n"
                    )
                }
                "tokens.ttlMs" => format!("tokens: {{ ttlMs: {value}, claimReanimateMs: 100 }}\n"),
                "tokens.claimReanimateMs" => format!("tokens: {{ ttlMs: 600000, claimReanimateMs: {value} }}\n"),
                path => file(path, &value.to_string()),
            };
            Config::from_yaml(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        }
    }
    for text in [
        "heartbeat: {intervalMs: 50}\ndirectory: {suspectMs: 101, offlineMs: 102, removedMs: 103}\n",
        "directory: {suspectMs: 86399998, offlineMs: 86399999, removedMs: 86400000}\n",
    ] {
        Config::from_yaml(text).unwrap_or_else(|error| panic!("{text}{error}"));
    }
}

#[test]
fn pol_1_wrong_flags_are_errors_with_path_and_allowed_values() {
    for path in FLAGS {
        for value in ["yes", "on", "1", "0", "\"true\"", "~", "[true]", "{}", "1.0", "maybe"] {
            refused(path, value, "true or false");
        }
        taken(path, "true");
        taken(path, "false");
    }
}

#[test]
fn pol_1_wrong_texts_are_errors_with_path_and_allowed_values() {
    for (path, allowed, good, bad) in TEXTS {
        for value in *good {
            taken(path, value);
        }
        for value in *bad {
            refused(path, value, allowed);
        }
        for value in ["17", "1.5", "true", "~", "[a]", "{a: b}", "inf", ".nan"] {
            refused(path, value, allowed);
        }
    }
    for (path, max) in LENGTHS {
        taken(path, &"X".repeat(*max));
        refused(path, &"X".repeat(max + 1), &max.to_string());
    }
    taken("node.addr", &format!("\"{}:1\"", "h".repeat(253)));
    refused("node.addr", &format!("\"{}:1\"", "h".repeat(254)), "255 bytes");
}

#[test]
fn pol_1_wrong_labels_are_errors_with_path_and_allowed_values() {
    let many = |count: usize| {
        let labels: Vec<String> = (0..count).map(|n| format!("l{n}: x")).collect();
        format!("{{{}}}", labels.join(", "))
    };
    let full = Config::from_yaml(&file("node.labels", &many(16))).expect("16 labels");
    assert_eq!(full.node.labels.len(), 16);
    refused("node.labels", &many(17), "at most 16");
    for value in ["17", "text", "[a]", "true"] {
        refused("node.labels", value, "a mapping");
    }
    let long = format!("{{locality: {}}}", "x".repeat(129));
    for (value, path) in [
        ("{locality: 5}", "node.labels.locality"),
        ("{locality: \"a\\tb\"}", "node.labels.locality"),
        (long.as_str(), "node.labels.locality"),
        ("{locality: a, locality: b}", "node.labels.locality"),
        ("{\"a b\": c}", "node.labels.(a key that is no name)"),
        ("{5: c}", "node.labels"),
    ] {
        let found = problems(Config::from_yaml(&file("node.labels", value)));
        assert!(found.len() == 1 && found[0].starts_with(&format!("{path}: ")), "{value} {found:?}");
    }
}

#[test]
fn pol_1_unknown_keys_beside_every_key_are_errors_that_name_the_known_ones() {
    for path in all_paths() {
        let found = problems(Config::from_yaml(&file(&format!("{path}X"), "1")));
        let name = path.rsplit('.').next().expect("a name");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{path}X: unknown key (line ")), "{found:?}");
        let (_, allowed) = found[0].split_once("; allowed: ").expect("the allowed keys");
        assert!(allowed.split(", ").any(|known| known == name), "{found:?}");
    }
    for text in ["tokens.ttlMs: 5000", "? [a]\n: 1", "5: 1", "~: 1", "\"\": 1", "tokens: {\"\": 1}", "<<: {zone: eu}"] {
        let found = problems(Config::from_yaml(text));
        assert!(found[0].contains("; allowed: "), "{text} {found:?}");
    }
}

#[test]
fn pol_1_sections_of_another_type_are_errors_and_empty_ones_are_the_defaults() {
    for (path, _) in Config::keys() {
        let Some((section, name)) = path.rsplit_once('.') else { continue };
        for value in ["5", "text", "[a]", "true", "1.5"] {
            refused(section, value, name);
        }
        assert_eq!(Config::from_yaml(&file(section, "")).expect(section), Config::default());
    }
    for text in ["5", "text", "[a]", "true"] {
        assert!(problems(Config::from_yaml(text))[0].starts_with("(file): expected a mapping"), "{text}");
    }
}

#[test]
fn nod_7_two_beats_suspect_offline_removed_have_to_grow() {
    for (text, path, said) in [
        ("directory: {suspectMs: 2000}", "directory.suspectMs", "= 2000"),
        ("heartbeat: {intervalMs: 1250}", "directory.suspectMs", "= 2500"),
        ("directory: {suspectMs: 3500}", "directory.offlineMs", "directory.suspectMs (3500)"),
        ("directory: {offlineMs: 2500}", "directory.offlineMs", "directory.suspectMs (2500)"),
        ("directory: {removedMs: 3500}", "directory.removedMs", "directory.offlineMs (3500)"),
        ("tokens: {ttlMs: 4999}", "tokens.claimReanimateMs", "tokens.ttlMs (4999)"),
        ("tokens: {claimReanimateMs: 30001}", "tokens.claimReanimateMs", "tokens.ttlMs (30000)"),
    ] {
        let found = problems(Config::from_yaml(text));
        assert_eq!(found.len(), 1, "{text} {found:?}");
        assert!(found[0].starts_with(path) && found[0].contains(said), "{found:?}");
        assert!(found[0].contains("(line 1, column ") && found[0].contains("; allowed: "), "{found:?}");
    }
    // A value that is wrong by itself does not make its neighbours wrong.
    assert_eq!(problems(Config::from_yaml("heartbeat: {intervalMs: 70000}")).len(), 1);
}

#[test]
fn pol_1_all_problems_come_at_once_in_the_order_of_the_file() {
    let text = "zone: a b\ntokens:\n  ttlMs: 5\n  life: 3\nenabled: 1\nmessages:\n  maxConcurrent: 0\nzone: eu\n";
    let found = problems(Config::from_yaml(text));
    let starts: Vec<&str> = found.iter().map(|line| line.split(';').next().unwrap_or_default()).collect();
    assert_eq!(
        starts,
        [
            "zone: does not fit (line 1, column 7)",
            "tokens.ttlMs: 5 is out of range (line 3, column 10)",
            "tokens.life: unknown key (line 4, column 3)",
            "enabled: expected true or false, found a whole number (line 5, column 10)",
            "messages.maxConcurrent: 0 is out of range (line 7, column 18)",
            "zone: given twice (line 8, column 1)",
        ]
    );
}
