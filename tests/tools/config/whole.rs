//! The config as a whole: texts that are no YAML, the default file, the environment, files, passwords.

use maitred::Error;
use maitred::agent::config::{Config, ENV_NODE_ADDR, ENV_NODE_ID, ENV_STORE, ENV_ZONE, FILE_MAX_BYTES, SecretUrl};
use proptest::prelude::*;

use super::{NUMBERS, file, problems};

#[test]
fn pol_1_texts_that_are_no_yaml_are_errors_with_their_place() {
    let deep = "[".repeat(5_000);
    let deep_block = (0..200).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>();
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n";
    for text in [
        "node:\n\tid: a\n",
        "a: b: c",
        "zone: \"eu",
        "{",
        "[",
        "}",
        "node: {id: a",
        "zone: eu\n---\nzone: us\n",
        "zone: eu\n---\n",
        "zone: eu\n...\n@ [",
        "---\r---\rzone: eu",
        "zone: eu\n\u{0}x: 1\n",
        "zone: \u{7}",
        bomb,
        "zone: &z eu\n",
        "zone: *z\n",
        "node: {id: &a x, role: *a}",
        "node: {<<: {id: x}}",
        "\u{0}",
        "zone: @a",
        "!!binary x: \u{7f}",
        &deep,
        &deep_block,
        "zone: !!binary \"////\"",
    ] {
        let found = problems(Config::from_yaml(text));
        assert!(found[0].contains("; allowed: "), "{text} {found:?}");
    }
    let tab = problems(Config::from_yaml("node:\n\tid: a\n"));
    assert!(tab[0].starts_with("(file): ") && tab[0].contains("(line 2, column "), "{tab:?}");
    let long = "#".repeat(usize::try_from(FILE_MAX_BYTES).expect("small") + 1);
    assert!(problems(Config::from_yaml(&long))[0].contains("too long"));
}

/// Path and comment of every value in the default text; a key without a comment of its own has that of its section.
fn commented_keys(text: &str) -> Vec<(String, String)> {
    let (mut keys, mut comment) = (Vec::new(), String::new());
    // The sections that are open, each with its comment.
    let mut open: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let words = line.trim_start();
        if let Some(words) = words.strip_prefix('#') {
            comment.push_str(words);
            continue;
        }
        let mut own = std::mem::take(&mut comment);
        let Some((name, value)) = words.split_once(':') else { continue };
        open.truncate((line.len() - words.len()) / 2);
        let section = open.last();
        let path = section.map_or(name.to_owned(), |(section, _)| format!("{section}.{name}"));
        if let Some((section, _)) = section.filter(|(section, _)| Config::keys().any(|(key, _)| key == *section)) {
            // Names of the file's own, below a key that is one mapping.
            assert_eq!(keys.last().map(|(key, _): &(String, String)| key), Some(section));
            continue;
        }
        if own.is_empty() {
            own = section.map(|(_, comment)| comment.clone()).unwrap_or_default();
        }
        if !value.is_empty() || Config::keys().any(|(key, _)| key == path) {
            keys.push((path.clone(), own.clone()));
        }
        if value.is_empty() {
            open.push((path, own));
        }
    }
    keys
}

#[test]
fn pol_1_the_default_text_is_the_default_config_and_explains_every_key() {
    let text = Config::default_yaml();
    assert_eq!(Config::from_yaml(text).expect("the default text"), Config::default());
    let keys = commented_keys(text);
    let paths: Vec<&str> = keys.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, Config::keys().map(|(path, _)| path).collect::<Vec<_>>());
    for (path, comment) in &keys {
        assert!(!comment.is_empty(), "{path} is not explained");
        let bounds = NUMBERS.iter().find(|(known, ..)| known == path);
        if let Some((_, min, max)) = bounds {
            let said = comment.contains(&format!(" {min} ")) && comment.contains(&format!("to {max}"));
            assert!(said, "{path}: {comment} should say {min} to {max}");
        }
    }
}

#[test]
fn pol_1_every_value_reaches_its_own_field() {
    let text = "enabled: true\nzone: eu\n\
        node: { id: n-1, role: proxy, addr: 'h:1', labels: { locality: x } }\n\
        store: { url: 'unix:///s', commandTimeoutMs: 101, connectTimeoutMs: 102, operationTimeoutMs: 103 }\n\
        security: { secretEnv: ONE, secretAlsoEnv: TWO }\nheartbeat: { intervalMs: 104 }\n\
        directory: { refreshMs: 301, suspectMs: 302, offlineMs: 303, removedMs: 304 }\n\
        tokens: { ttlMs: 306, claimReanimateMs: 305, auditMs: 307, reapIntervalMs: 308, reapBatch: 9 }\n\
        dispatch: { maxRetries: 10, attemptTimeoutMs: 311, cooldownMs: 312, staleAfterMs: 313 }\n\
        routing: { lobbyMode: true }\n\
        selector: { recentPicks: { halflifeMs: 317, shared: true }, backends: { b1: { weight: 1.5 } }, metrics: \
        { heap: { weight: 2.25 }, own: { source: tps5m, normalize: { min: 5, max: 20.5 }, invert: true } } }\n\
        messages: { maxBodyBytes: 314, maxConcurrent: 315, callTimeoutMs: 316 }\n\
        routes: { lockTimeoutMs: 10401, freeMs: 5402, cacheUpdateMs: 1403, cacheFreeMs: 1404, saveMs: 405, \
        downgradeMs: 1406 }\n\
        triggers: { command: false, join: true, firstJoin: true, event: true, other: false }\n\
        texts: { noCandidate: t1, refused: t2, notAllowed: t8, killSwitch: t3, lost: t4, storeDown: t5, limited: t6, draining: t7 }\n";
    let seen = format!("{:?}", Config::from_yaml(text).expect(text));
    for part in [
        "enabled: true, zone: \"eu\"",
        "id: Some(\"n-1\"), role: \"proxy\", addr: \"h:1\", labels: {\"locality\": \"x\"}",
        "url: Some(SecretUrl(unix:///s)), command_timeout_ms: 101, connect_timeout_ms: 102, operation_timeout_ms: 103",
        "secret_env: \"ONE\", secret_also_env: \"TWO\"",
        "interval_ms: 104",
        "refresh_ms: 301, suspect_ms: 302, offline_ms: 303, removed_ms: 304",
        "ttl_ms: 306, claim_reanimate_ms: 305, audit_ms: 307, reap_interval_ms: 308, reap_batch: 9",
        "max_retries: 10, attempt_timeout_ms: 311, cooldown_ms: 312, stale_after_ms: 313",
        "lobby_mode: true",
        "halflife_ms: 317, shared: true",
        "\"heap\": Rule { source: HeapUsedPerMax, weight: 2.25, min: 0.0, max: 1.0, invert: false, \
         curve: Sigmoid { k: 10.0 } }",
        "\"own\": Rule { source: Tps5m, weight: 1.0, min: 5.0, max: 20.5, invert: true, curve: Linear }",
        "backends: {\"b1\": 1.5}",
        "max_body_bytes: 314, max_concurrent: 315, call_timeout_ms: 316",
        "lock_timeout_ms: 10401, free_ms: 5402, cache_update_ms: 1403, cache_free_ms: 1404, save_ms: 405, downgrade_ms: 1406",
        "command: false, join: true, first_join: true, event: true, other: false",
        "no_candidate: \"t1\", refused: \"t2\", not_allowed: \"t8\", kill_switch: \"t3\", lost: \"t4\", store_down: \"t5\", limited: \"t6\", draining: \"t7\"",
    ] {
        assert!(seen.contains(part), "{part} is not in {seen}");
    }
}

#[test]
fn pol_2_nothing_given_is_a_valid_config_that_is_switched_off() {
    for text in ["", "\n\n", "# only a comment\n", "---\n", "{}", "~", "\u{feff}"] {
        let config = Config::from_yaml(text).unwrap_or_else(|error| panic!("{text:?} {error}"));
        assert_eq!(config, Config::default());
        assert!(!config.enabled);
        config.check_enabled().expect("a disabled config needs nothing");
    }
    assert_eq!(Config::default().lease_ms(), 3_500);
}

#[test]
fn pol_1_an_enabled_config_needs_id_and_store() {
    let mut config = Config::from_yaml("enabled: true\nstore: {url: \"\"}\n").expect("readable");
    let Err(Error::Config { problems }) = config.check_enabled() else { panic!("nothing was missing") };
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("node.id: ") && problems[0].contains(ENV_NODE_ID), "{problems:?}");
    assert!(problems[1].starts_with("store.url: ") && problems[1].contains(ENV_STORE), "{problems:?}");
    assert!(config.node_id().is_err() && config.store_url().is_err());

    let env = |name: &str| match name {
        ENV_NODE_ID => Some("b-1".to_owned()),
        ENV_NODE_ADDR => Some("10.0.0.7:25565".to_owned()),
        ENV_STORE => Some("redis://h".to_owned()),
        _ => None,
    };
    config.apply_env(env).expect("good values");
    config.check_enabled().expect("complete");
    assert_eq!(config.node.addr, "10.0.0.7:25565");
    // Code may set fields, too.
    config.tokens.ttl_ms = 1;
    assert!(config.check_enabled().expect_err("out of range").to_string().contains("tokens.ttlMs: 1 is out of range"));
}

#[test]
fn pol_1_the_environment_goes_before_the_file_and_is_checked_like_it() {
    let mut config = Config::from_yaml("zone: eu\nnode: {id: from-file}\n").expect("readable");
    config.apply_env(|_| None).expect("nothing to take");
    config.apply_env(|_| Some(String::new())).expect("empty counts as not set");
    assert_eq!((config.zone.as_str(), config.node_id().expect("set").as_str()), ("eu", "from-file"));

    let values = [(ENV_NODE_ID, "from-env"), (ENV_STORE, "unix:///run/store.sock"), (ENV_ZONE, "us")];
    let lookup = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    config.apply_env(lookup).expect("good values");
    assert_eq!((config.zone.as_str(), config.node_id().expect("set").as_str()), ("us", "from-env"));
    assert_eq!(config.store_url().expect("set").expose(), "unix:///run/store.sock");

    let before = config.clone();
    let error = config.apply_env(|name| Some(format!("http://:hunter2@{name} x"))).expect_err("bad values");
    for variable in [ENV_NODE_ADDR, ENV_NODE_ID, ENV_STORE, ENV_ZONE] {
        assert!(error.to_string().contains(&format!("\n{variable}: does not fit ")), "{error}");
    }
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert_eq!(config, before, "a refused environment changes nothing");
}

#[test]
fn pol_1_errors_of_a_file_name_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("network.yml");
    let missing = Config::load(&path).expect_err("no file").to_string();
    assert!(missing.contains("network.yml: (file): cannot be read: "), "{missing}");
    assert!(Config::load(dir.path()).is_err(), "a directory is no file");

    for (bytes, said) in [
        (b"zone: eu\nnode: {id: \"\xff\"}\n".to_vec(), "network.yml: (file): is not UTF-8 in line 2"),
        (b"\xff\xfez\0o\0n\0e\0".to_vec(), "network.yml: (file): is not UTF-8 in line 1"),
        (b"zone: a b\n".to_vec(), "network.yml: zone: does not fit (line 1, column 7)"),
        (vec![b'#'; 300_000], "network.yml: (file): is too long"),
    ] {
        std::fs::write(&path, bytes).expect("written");
        let error = Config::load(&path).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    std::fs::write(&path, Config::default_yaml()).expect("written");
    assert_eq!(Config::load(&path).expect("the default"), Config::default());
}

#[test]
fn sto_12_the_password_is_in_no_debug_output_and_no_error() {
    let url = "redis://user:hunter2@host:6379/0";
    let config = Config::from_yaml(&file("store.url", url)).expect("readable");
    assert_eq!(config.store_url().expect("set").expose(), url);
    assert!(!format!("{config:?} {config:#?}").contains("hunter2"));
    assert!(!SecretUrl::new(url).expect("a URL").to_string().contains("hunter2"));
    // A URL in a wrong place, or broken.
    for (path, _) in Config::keys() {
        for value in
            [format!("\"{url}\""), url.to_owned(), format!("[{url}]"), format!("{{{url}: 1}}"), format!("\"{url} x\"")]
        {
            if let Err(error) = Config::from_yaml(&file(path, &value)) {
                assert!(!format!("{error} {error:?}").contains("hunter2"), "{path} {error}");
            }
        }
    }
    for text in [
        format!("{url}: 1"),
        url.to_owned(),
        format!("store: {url}"),
        format!("store: {{ {url} }}"),
        format!("\"{url}"),
    ] {
        let found = problems(Config::from_yaml(&text));
        assert!(!found.join(" ").contains("hunter2"), "{found:?}");
    }
}

/// Texts that look like YAML more often than random ones do.
fn yaml_like() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "zone", "node", "tokens", "ttlMs", ":", ": ", "\n", "\n  ", "\t", "- ", "[", "]", "{", "}", ",", "\"",
        "'", "&a", "*a", "<<", "!", "!!str ", "|", ">", "?", "#", "%", "---\n", "...\n", "1", "-1", "1e9", "0x1", "~",
        "true", "\u{feff}", "\\", "é", "\r", "\u{0}",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    // POL-1, POL-3: whatever stands in the file, the host gets an answer and no panic.
    #[test]
    fn pol_1_no_text_makes_it_panic(text in prop_oneof![any::<String>(), "\\PC{0,200}", yaml_like()]) {
        let _ = Config::from_yaml(&text);
    }

    // POL-1: nothing in a file is left unread. `@` at the start of a line is no YAML, wherever it stands.
    #[test]
    fn pol_1_no_part_of_a_file_is_ignored(front in yaml_like()) {
        let text = format!("{front}\n@");
        prop_assert!(Config::from_yaml(&text).is_err(), "{:?}", text);
    }

    // STO-12: a file that was broken by an edit does not give its password away.
    #[test]
    fn sto_12_no_broken_file_shows_its_password(at in 0_usize..400, gone in 0_usize..4, put in yaml_like()) {
        let good = "enabled: true\nzone: eu\nnode:\n  id: b-1\nstore:\n  url: redis://user:hunter2@host:6379/0\n\
                    tokens: { ttlMs: 1000, claimReanimateMs: 500 }\ntexts:\n  lost: \"gone\"\n";
        let (start, end) = (at.min(good.len()), (at + gone).min(good.len()));
        let text = format!("{}{put}{}", &good[..start], &good[end..]);
        let result = Config::from_yaml(&text);
        prop_assert!(!format!("{result:?}").contains("hunter2"), "{:?}", result);
    }
}
