//! The scripts as texts: what their headers say is what their code does, and what is pinned is what runs.
//!
//! An operator reads a header before typing EVALSHA into a live store, and a client in another language is written
//! after it: a header that drifted from its code costs them a wrong call.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred::store::scripts;
use sha1::{Digest, Sha1};

mod code;
mod header;
mod lexer;

use code::Code;
use header::Header;

/// STO-6: what Redis 6.2, 7 and 8, Valkey 9, KeyDB 6.3 and Dragonfly all have, in the form the scripts use it. All but
/// those of [`WITHOUT_KEY`] take a key first.
const COMMANDS: [&str; 23] = [
    "DEL",
    "EXISTS",
    "HDEL",
    "HGET",
    "HLEN",
    "HMGET",
    "HSET",
    "PEXPIRE",
    "PEXPIREAT",
    "PTTL",
    "PUBLISH",
    "SADD",
    "SCARD",
    "SMEMBERS",
    "SREM",
    "TIME",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZRANGEBYSCORE",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "ZSCORE",
];
const WITHOUT_KEY: [&str; 2] = ["PUBLISH", "TIME"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a two-storey folder as `<system>/<verb>` → path, each with the ending taken off.
fn files(folder: &str, ending: &str) -> BTreeMap<String, PathBuf> {
    let entries = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        entries.map(|entry| entry.expect("readable").path()).collect()
    };
    let mut found = BTreeMap::new();
    // Parts are no scripts: they stand inside those that name them.
    let systems = entries(&root().join(folder)).into_iter().filter(|system| !system.ends_with("parts"));
    for path in systems.flat_map(|system| entries(&system)) {
        let name = path.strip_prefix(root().join(folder)).expect("inside").to_string_lossy().into_owned();
        let name = name.strip_suffix(ending).unwrap_or_else(|| panic!("{} does not end in {ending}", path.display()));
        found.insert(name.to_owned(), path.clone());
    }
    found
}

/// Every script on disk with its header and code.
fn all() -> Vec<(String, Header, Code)> {
    let read = |(name, path): (String, PathBuf)| {
        let source = fs::read_to_string(&path).expect("UTF-8");
        let header = Header::parse(&source).unwrap_or_else(|why| panic!("the header of lua/{name}.lua: {why}"));
        let code = Code::read(&source).unwrap_or_else(|why| panic!("lua/{name}.lua: {why}"));
        (name, header, code)
    };
    files("lua", ".lua").into_iter().map(read).collect()
}

fn script(name: &str) -> &'static scripts::Script {
    scripts::all().iter().find(|script| script.name() == name).unwrap_or_else(|| panic!("{name} is in no build"))
}

#[test]
fn sto_1_every_script_file_has_its_pin_and_its_static_and_nothing_else_has() {
    let sources: BTreeSet<String> = files("lua", ".lua").into_keys().collect();
    let pins: BTreeSet<String> = files("sha1", ".lua.sha1").into_keys().collect();
    assert_eq!(sources, pins, "a script without a pin was reviewed by nobody; a pin without a script pins nothing");
    let built: Vec<&str> = scripts::all().iter().map(|script| script.name()).collect();
    assert_eq!(
        sources.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        built.iter().copied().collect::<BTreeSet<_>>(),
        "scripts::all() and lua/ differ: `open` would not load it, and `scripts verify` would not look at it"
    );
    assert_eq!(built.len(), sources.len(), "a script stands in scripts::all() twice");
}

#[test]
fn sto_1_pins_are_what_sha1sum_writes_and_sha1sum_agrees() {
    for (name, path) in files("sha1", ".lua.sha1") {
        let source = fs::read(root().join("lua").join(format!("{name}.lua"))).expect("readable");
        assert!(
            !source.contains(&b'\r'),
            "STO-2: lua/{name}.lua has CR line ends, so its hash depends on the checkout"
        );
        let pin = fs::read_to_string(path).expect("UTF-8");
        let expected = format!("{}  lua/{name}.lua\n", hex::encode(Sha1::digest(&source)));
        assert_eq!(pin, expected, "the pin of {name} is not of the file beside it");
        assert_eq!(script(name.as_str()).pinned(), &pin[..40], "the build carries another pin of {name}");
    }
    let pins = files("sha1", ".lua.sha1");
    let relative = pins.values().map(|path| path.strip_prefix(root()).expect("inside"));
    match Command::new("sha1sum").arg("-c").args(relative).current_dir(root()).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        // macOS has none; the digests are compared above.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "sha1sum: {error}"),
    }
}

#[test]
fn sto_2_the_source_that_was_compiled_in_is_the_file_on_disk() {
    for (name, path) in files("lua", ".lua") {
        let source = fs::read_to_string(path).expect("UTF-8");
        assert_eq!(script(name.as_str()).source(), source, "the build carries another lua/{name}.lua");
        assert_eq!(script(name.as_str()).computed(), script(name.as_str()).pinned(), "{name}");
    }
}

// `make script` leaves a skeleton; what it says to be filled in is nothing that a reader may be given.
#[test]
fn no_script_is_a_skeleton_still() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut left = Vec::new();
    let scripts = files("lua", ".lua").into_keys().map(|name| format!("lua/{name}.lua"));
    for path in scripts.chain(["src/store/scripts.rs", "docs/contract.md"].map(str::to_owned)) {
        let text = read(&path);
        let open = text.lines().enumerate().filter(|(_, line)| line.contains("FILL"));
        left.extend(open.map(|(at, line)| format!("{path}:{}: {}", at + 1, line.trim())));
    }
    assert_eq!(left, Vec::<String>::new(), "to be filled in");
}

#[test]
fn the_contract_has_a_row_for_every_script_and_for_nothing_else() {
    let contract = fs::read_to_string(root().join("docs/contract.md")).expect("the contract");
    let rows = contract.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: BTreeSet<&str> = rows.filter(|name| name.contains('/') && !name.contains(' ')).collect();
    let sources = files("lua", ".lua");
    assert_eq!(
        listed,
        sources.keys().map(String::as_str).collect(),
        "listed in docs/contract.md (left), in lua/ (right)"
    );
}

#[test]
fn a_header_names_its_script_and_says_its_purpose_in_one_line() {
    for (name, header, _) in all() {
        assert_eq!(header.name, name, "the header of lua/{name}.lua is of another script");
        assert!(header.purpose.ends_with('.') && header.purpose.len() > 20, "{name}: {:?}", header.purpose);
    }
}

#[test]
fn a_headers_numbers_are_those_that_the_code_checks_and_uses() {
    for (name, header, code) in all() {
        for (table, count) in [("KEYS", header.keys), ("ARGV", header.args)] {
            let used = code.indexes(table);
            let numbered: BTreeSet<usize> = (1..=count.fixed).collect();
            assert!(
                used.is_subset(&numbered),
                "{name} uses {table} {:?}, which its header does not have",
                used.difference(&numbered).collect::<Vec<_>>()
            );
            assert_eq!(used, numbered, "{name} documents {table} that its code never looks at");
            if !(header.keys.repeats || header.args.repeats) {
                assert_eq!(code.arity(table), Some(count.fixed), "the arity check of {name} for {table}");
            }
        }
        assert_eq!(header.keys.repeats, header.args.repeats, "{name}: keys that repeat come with arguments that do");
        assert_eq!(code.indexes("KEYS").len(), header.keys.fixed, "{name}");
    }
}

#[test]
fn a_headers_answers_are_those_of_the_code_and_those_of_the_build() {
    for (name, header, code) in all() {
        let listed: BTreeSet<String> = header.answers.iter().cloned().collect();
        assert_eq!(listed.len(), header.answers.len(), "{name} lists an answer twice");
        let (words, errors) = code.answers().unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(words, listed, "what {name} can answer (left) and what its header says (right)");
        let built: BTreeSet<String> = script(name.as_str()).answers().iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(built, listed, "an answer that the build does not know (left) ends a call with a protocol error");
        let (arity, argument) = (format!("ARITY {name} takes "), format!("ARGUMENT {name}: "));
        assert!(
            errors.iter().any(|text| text.starts_with(&arity))
                && errors.iter().all(|text| text.starts_with(&arity) || text.starts_with(&argument)),
            "{name} has no arity check that names it: {errors:?}"
        );
    }
}

// STO-4, STO-5: on a cluster and on Dragonfly a key that was built in the script is an error in front of players.
#[test]
fn sto_4_no_script_builds_a_key() {
    for (name, _, code) in all() {
        assert!(code.texts().all(|text| !text.contains("maitred")), "{name} has a key in its text");
        assert_eq!(code.concatenated_keys(), Vec::<String>::new(), "{name} builds a text from a key");
        for call in code.calls() {
            assert!(
                WITHOUT_KEY.contains(&call.command.as_str()) || call.first_is_key,
                "{name} calls {} with a key that is not out of KEYS",
                call.command
            );
        }
    }
}

#[test]
fn sto_6_scripts_use_only_what_every_server_has_and_read_the_time_once() {
    let mut used = BTreeSet::new();
    for (name, _, code) in all() {
        let functions = code.redis_functions();
        assert!(
            functions.iter().all(|function| matches!(function.as_str(), "call" | "pcall" | "error_reply")),
            "{name} uses redis.{functions:?}, which not every server has"
        );
        let commands: Vec<String> = code.calls().into_iter().map(|call| call.command).collect();
        for command in &commands {
            assert!(COMMANDS.contains(&command.as_str()), "{name} calls {command:?}, which is not on the list");
        }
        assert!(
            commands.iter().filter(|command| *command == "TIME").count() <= 1,
            "{name}: KeyDB does not freeze TIME, so a second look may contradict the first"
        );
        used.extend(commands);
    }
    assert_eq!(
        used.iter().map(String::as_str).collect::<Vec<_>>(),
        COMMANDS,
        "the list of commands (right) is longer than need be, so the ACL line would be too"
    );
}

#[test]
fn sto_8_every_header_says_a_bound_and_why_a_repeat_is_safe() {
    for (name, header, _) in all() {
        assert!(
            header.text("Bound").contains(|c: char| c.is_ascii_digit()) || header.text("Bound").contains("one "),
            "{name}"
        );
        assert!(header.text("Repeat").len() > 20, "STO-10: {name} does not say why a repeat is safe");
    }
}

#[test]
fn a_headers_example_is_a_call_that_its_own_numbers_allow() {
    for (name, header, _) in all() {
        let (keys, args) = header.example().unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(keys.iter().all(|key| key.starts_with("maitred:{eu}:")), "STO-5: {name}: {keys:?}");
        for (what, count, given) in [("keys", header.keys, keys.len()), ("arguments", header.args, args.len())] {
            let fits = if count.repeats { given >= count.fixed } else { given == count.fixed };
            assert!(fits, "the example of {name} has {given} {what}, its header {count:?}");
        }
    }
}

/// The checks above are worth what they refuse.
mod checks {
    use super::{Code, Header};

    const GOOD: &str = "-- a/b: does one thing to another.\n--\n-- KEYS 1 x  hash\n--      2.. y  set, one for each of ARGV 3..\n\
        -- ARGV 1 id (of 2, not 3), 2 now,\n--      3.. ids (0 to 9)\n-- Answers DONE <n>  it is\n--                   done\n\
        --         NOT       it is not\n-- Events  none\n-- Bound   one row.\n-- Repeat  nothing happens.\n\
        -- Example EVALSHA <sha> 1 maitred:{eu}:x {\"a\":1} \"\" \"two words\"\nlocal x = 1\n";

    #[test]
    fn a_header_is_read_as_it_stands() {
        let header = Header::parse(GOOD).expect("good");
        assert_eq!((header.name.as_str(), header.keys.fixed, header.keys.repeats), ("a/b", 1, true));
        assert_eq!((header.args.fixed, header.args.repeats), (2, true));
        assert_eq!(header.answers, ["DONE", "NOT"]);
        let (keys, args) = header.example().expect("good");
        assert_eq!(
            (keys, args),
            (vec!["maitred:{eu}:x".into()], vec!["{\"a\":1}".into(), "".into(), "two words".into()])
        );
    }

    #[test]
    fn a_crooked_header_is_refused() {
        for (from, to, why) in [
            ("-- a/b: ", "-- a/b ", "purpose"),
            ("2 now", "3 now", "number 3 where 2"),
            ("2 now", "now", "without a number"),
            ("2.. y", "3.. y", "number 3 where 2"),
            ("-- Bound   one row.\n", "", "sections are"),
            ("-- Events  none", "-- Evens   none", "no section"),
            ("NOT       it is not", "Not       it is not", "no answer"),
        ] {
            let error = Header::parse(&GOOD.replace(from, to)).expect_err(to);
            assert!(error.contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn keys_that_are_built_or_come_from_elsewhere_are_found() {
        let calls = |source: &str| -> Vec<bool> {
            Code::read(source).expect("reads").calls().iter().map(|call| call.first_is_key).collect()
        };
        assert_eq!(calls("redis.call('HGET', KEYS[1], ARGV[1])"), [true]);
        assert_eq!(calls("redis.call('HGET', ARGV[1], KEYS[1])"), [false]);
        assert_eq!(calls("local a, b = KEYS[1], ARGV[1]\nredis.call('DEL', a)\nredis.call('DEL', b)"), [true, false]);
        assert_eq!(calls("local a = KEYS[1]\nif x then\n  a = ARGV[1]\nend\nredis.call('DEL', a)"), [false]);
        assert_eq!(calls("local a = KEYS[1] .. 'x'\nredis.call('DEL', a)"), [false]);
        assert_eq!(
            calls("local s = { k = KEYS[2 + i], p = 1 }\nredis.call('DEL', s.k)\nredis.call('DEL', s.p)"),
            [true, false]
        );
        let function = "local function f(key)\n  return redis.call('GET', key)\nend\n";
        assert_eq!(calls(&format!("{function}f(KEYS[1])")), [true]);
        assert_eq!(calls(&format!("{function}f(KEYS[1])\nf(ARGV[1])")), [false]);
        let built =
            Code::read("local a = KEYS[1]\nlocal b = a .. ':x'\nlocal c = KEYS[2] .. 'x' .. KEYS[1]").expect("reads");
        assert_eq!(built.concatenated_keys(), ["a", "KEYS", "KEYS"]);
    }

    #[test]
    fn the_words_of_every_form_of_answer_are_found() {
        let code = "local function f(x)\n  if x then\n    return false, 'GONE'\n  end\n  return true, 'OLD'\nend\n\
            local ok, why = f(1)\nif not ok then\n  return { why, 1 }\nend\n\
            local answer = 'A'\nif ok then\n  answer = 'B'\nend\nif ok then\n  return { answer, 'NOT_A_WORD' }\nend\n\
            if ok then\n  return { ok == 1 and 'C' or 'D' }\nend\nlocal list = { 'E' }\nreturn list";
        let (words, _) = Code::read(code).expect("reads").answers().expect("tells");
        assert_eq!(words.into_iter().collect::<Vec<_>>(), ["A", "B", "C", "D", "E", "GONE", "OLD"]);
        assert!(Code::read("return 1 + 1").expect("reads").answers().is_err());
    }
}
