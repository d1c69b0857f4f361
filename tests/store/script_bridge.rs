//! STO-4: every script under Lua 5.4, with an interpreter that refuses an undeclared key, against what the server's own
//! Lua 5.1 makes of the same call.
//!
//! A key that is not declared is an error on Dragonfly after half of the script has been written, and on a cluster it
//! reads and writes on the wrong node. A number that one Lua writes as `1796000000000` and another as `1.796e+12`
//! breaks every signature over it.

mod calls;
pub mod contents;
mod errors;
#[path = "../tools/script_headers/header.rs"]
#[allow(dead_code, reason = "script_headers uses the rest of it")]
mod header;
pub mod interpreter;
mod limits;
mod lines;
mod nodes;
mod queue;
pub mod reply;
mod routes;
mod rules;
mod select;
mod tokens;
mod twin;

use std::rc::Rc;

use maitred::store::{Script, scripts};

use header::Header;
use interpreter::Server;
use reply::Reply;
use twin::Twin;

/// Scripts that take more keys and arguments for each entry of a list: keys and arguments an entry, and the most
/// entries (STO-8).
const LISTS: [(&str, usize, usize, usize); 5] = [
    ("node/remove", 1, 1, 256),
    ("route/sweep", 1, 4, 256),
    ("token/cancel", 1, 1, 16),
    ("token/issue", 2, 1, 16),
    ("token/reap", 2, 2, 256),
];

/// Whether the script takes that many keys and arguments; nothing behind the arity check is of interest.
fn takes(script: &Script, keys: usize, args: &[String]) -> bool {
    let server: Server = Rc::new(|_| Reply::Error("far enough".to_owned()));
    let keys: Vec<String> = (0..keys).map(|at| format!("key {at}")).collect();
    match interpreter::run(script.source(), &keys, args, &server).reply {
        Ok(Reply::Error(text)) => {
            assert!(text.starts_with(&format!("ARITY {} takes ", script.name())), "{text}");
            false
        }
        Ok(other) => panic!("{} answered {other:?} without a look at the store", script.name()),
        Err(_) => true,
    }
}

fn ones(count: usize) -> Vec<String> {
    vec!["1".to_owned(); count]
}

#[test]
fn sto_8_a_script_takes_what_its_header_says_and_lists_no_longer_than_its_bound() {
    for script in scripts::all() {
        let name = script.name();
        let header = Header::parse(script.source()).unwrap_or_else(|why| panic!("{name}: {why}"));
        let (keys, args) = (header.keys.fixed, header.args.fixed);
        if matches!(name, "node/forget" | "queue/admit") {
            continue;
        }
        let list = LISTS.iter().find(|(listed, ..)| *listed == name);
        assert_eq!(list.is_some(), header.keys.repeats, "{name}");
        for wrong in 0..=keys + 1 {
            assert_eq!(takes(script, wrong, &ones(args)), wrong == keys, "{name} with {wrong} keys, {args} arguments");
        }
        for wrong in 0..=args + 1 {
            assert_eq!(takes(script, keys, &ones(wrong)), wrong == args, "{name} with {keys} keys, {wrong} arguments");
        }
        let Some((_, keys_each, args_each, most)) = list else { continue };
        assert!(script.source().contains(&format!(" to {most}")), "{name}: its header does not say its bound");
        for (count, taken) in [(1, true), (*most, true), (most + 1, false)] {
            let (keys, args) = (keys + keys_each * count, args + args_each * count);
            assert_eq!(takes(script, keys, &ones(args)), taken, "{name} with {count} entries");
            assert!(!takes(script, keys + 1, &ones(args)) && !takes(script, keys, &ones(args + 1)), "{name}");
        }
    }
}

#[test]
fn sto_8_forget_takes_a_roster_a_role_and_pairs() {
    let call = |roles: usize, rosters: usize, ids: usize| {
        let mut args = vec!["1".to_owned(), roles.to_string()];
        args.extend(ones(roles + ids));
        takes(&scripts::NODE_FORGET, 2 + rosters, &args)
    };
    assert!(call(0, 0, 0) && call(3, 3, 4) && call(32, 32, 128));
    for (roles, rosters, ids) in [(33, 33, 0), (3, 2, 4), (3, 4, 4), (3, 3, 5), (3, 3, 130)] {
        assert!(!call(roles, rosters, ids), "{roles} roles, {rosters} rosters, {ids} ids and entries");
    }
    assert!(!takes(&scripts::NODE_FORGET, 2, &ones(1)) && !takes(&scripts::NODE_FORGET, 1, &ones(2)));
}

#[test]
fn sto_8_admit_takes_pairs_threes_and_candidates() {
    let call = |keys: usize, holders: usize, targets: usize, candidates: usize, more: usize| {
        let mut args = ones(13);
        args.extend([holders.to_string(), targets.to_string()]);
        args.extend(ones(4 + holders + 4 * targets + 9 * candidates + more));
        takes(&scripts::QUEUE_ADMIT, keys, &args)
    };
    assert!(call(9, 0, 0, 0, 0) && call(9 + 2 + 3 + 1, 1, 1, 1, 0) && call(9 + 32 + 48 + 64, 16, 16, 64, 0));
    for (keys, holders, targets, candidates, more) in [
        (8, 0, 0, 0, 0),
        (11, 0, 0, 1, 0),
        (10, 0, 0, 1, 1),
        (9 + 34, 17, 0, 0, 0),
        (9 + 51, 0, 17, 0, 0),
        (74, 0, 0, 65, 0),
    ] {
        assert!(!call(keys, holders, targets, candidates, more), "{keys} {holders} {targets} {candidates}");
    }
}

#[test]
fn sto_7_a_call_of_the_wrong_arity_is_refused_alike_and_changes_nothing() {
    let mut twin = Twin::start();
    for script in scripts::all() {
        let text = twin.refused(script, &[calls::key("control")], &[]);
        assert!(text.starts_with(&format!("ARITY {} takes ", script.name())), "{text}");
    }
    assert_eq!(twin.look(["DBSIZE"]), Reply::Int(0));
}

#[test]
fn the_example_of_every_header_runs() {
    let mut twin = Twin::start();
    for script in scripts::all() {
        let (keys, args) = Header::parse(script.source()).and_then(|header| header.example()).expect("checked");
        twin.call(script, &keys, &args);
    }
}

/// What the bridge is for: it refuses.
mod refusals {
    use super::{Reply, Server, interpreter};
    use std::rc::Rc;

    fn run(source: &str) -> Result<Reply, String> {
        let server: Server = Rc::new(|command: &[Vec<u8>]| match command[0].as_slice() {
            b"HMGET" => Reply::Array(vec![Reply::Nil, Reply::Bulk(b"x".to_vec()), Reply::Int(7)]),
            b"HSET" => Reply::Error("WRONGTYPE not a hash".to_owned()),
            b"DEL" => Reply::Status("OK".to_owned()),
            _ => Reply::Nil,
        });
        interpreter::run(source, &["k1".to_owned(), "k2".to_owned()], &["a".to_owned()], &server).reply
    }

    #[test]
    fn sto_4_an_undeclared_key_is_refused() {
        assert_eq!(run("return redis.call('HGET', KEYS[1], 'f')"), Ok(Reply::Nil));
        for source in ["return redis.call('HGET', 'k3', 'f')", "return redis.call('DEL', KEYS[1], KEYS[1] .. 'x')"] {
            assert!(run(source).expect_err(source).contains("which is not in KEYS"));
        }
        assert_eq!(run("return redis.call('PUBLISH', 'channel', 'text')"), Ok(Reply::Nil), "a channel is no key");
    }

    #[test]
    fn sto_6_what_another_server_or_another_lua_would_do_otherwise_is_refused() {
        for (source, why) in [
            ("return redis.call('GETEX', KEYS[1])", "not one that every server has"),
            ("return redis.call('PEXPIRE', KEYS[1], 7 / 2)", "number as an argument"),
            ("return redis.call('PEXPIRE', KEYS[1], 6 / 2)", "number as an argument"),
            ("return { 6 / 2 }", "an answer with a number"),
            ("forgotten = 1", "creation of the global variable"),
            ("return forgotten", "reading of the global variable"),
            ("return os.time()", "reading of the global variable"),
            ("return redis.call('HSET', KEYS[1], 'f', 'v')", "WRONGTYPE"),
        ] {
            let error = run(source).expect_err(source);
            assert!(error.contains(why), "{source}: {error}");
        }
    }

    #[test]
    fn replies_are_turned_as_servers_do() {
        let source = "local r = redis.call('HMGET', KEYS[1], 'a', 'b', 'c')\n\
            return { tostring(r[1]), r[2], r[3], redis.call('DEL', KEYS[1]).ok, true, r[1], 1, nil, 2 }";
        let bulk = |text: &str| Reply::Bulk(text.into());
        let expected = [bulk("false"), bulk("x"), Reply::Int(7), bulk("OK"), Reply::Int(1), Reply::Nil, Reply::Int(1)];
        assert_eq!(run(source), Ok(Reply::Array(expected.to_vec())));
        assert_eq!(run("return redis.error_reply('CODE text')"), Ok(Reply::Error("CODE text".to_owned())));
        assert_eq!(run("return redis.status_reply('FINE')"), Ok(Reply::Status("FINE".to_owned())));
        assert_eq!(run("return false"), Ok(Reply::Nil));
    }
}
