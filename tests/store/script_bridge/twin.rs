//! Two servers that are told the same. On one a script runs as it will in production, by EVALSHA on the server's own
//! Lua 5.1; on the other under Lua 5.4 by the bridge, at the same millisecond. Answers, events and what is in the store
//! afterwards have to be the same to the digit.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use maitred::store::Script;
use redis::{Cmd, Connection};

use super::contents::{Contents, ask, ask_all, contents, keys_of, same, words};
use super::header::Header;
use super::interpreter::{self, Call, Effect, Server};
use super::reply::Reply;
use maitred_testkit::store::TestStore;

/// STO-7: reads that may follow a write, because they are about what the write left: is the index empty now, and how
/// long does the row live. Nothing but the upkeep of that index or that time hangs on them.
const UPKEEP: [(&str, &str); 23] = [
    ("node/join", "EXISTS"),
    ("node/leave", "EXISTS"),
    ("node/remove", "EXISTS"),
    ("queue/admit", "EXISTS"),
    ("queue/admit", "PTTL"),
    ("queue/arrived", "PTTL"),
    ("queue/drain", "EXISTS"),
    ("queue/enter", "EXISTS"),
    ("queue/enter", "PTTL"),
    ("queue/leave", "EXISTS"),
    ("queue/redeem", "PTTL"),
    ("queue/sweep", "EXISTS"),
    ("route/acquire", "EXISTS"),
    ("route/release", "EXISTS"),
    ("route/sweep", "EXISTS"),
    ("route/transfer", "EXISTS"),
    ("token/cancel", "EXISTS"),
    ("token/cancel", "PTTL"),
    ("token/consume", "EXISTS"),
    ("token/consume", "PTTL"),
    ("token/issue", "EXISTS"),
    ("token/reap", "EXISTS"),
    ("token/release", "EXISTS"),
];
const SAME_MS_TRIES: usize = 200;
const SENTINEL: &str = "test:sentinel";

/// The pair of servers.
pub struct Twin {
    // The servers end on drop.
    _stores: [TestStore; 2],
    bridged: Rc<RefCell<Connection>>,
    plain: Connection,
    feed: Connection,
    answered: BTreeMap<&'static str, BTreeSet<String>>,
    upkeep: BTreeSet<(&'static str, String)>,
}

impl Twin {
    /// Two empty servers.
    pub fn start() -> Self {
        let stores = [TestStore::start(), TestStore::start()];
        let connect = |store: &TestStore| {
            let client = redis::Client::open(store.url()).expect("a URL");
            let connection = client.get_connection().expect("the store listens");
            connection.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
            connection
        };
        let bridged = Rc::new(RefCell::new(connect(&stores[0])));
        let (plain, mut feed) = (connect(&stores[1]), connect(&stores[1]));
        ask(&mut feed, &words(["PSUBSCRIBE", "*"]));
        Self { bridged, plain, feed, _stores: stores, answered: BTreeMap::new(), upkeep: BTreeSet::new() }
    }

    /// Runs one command on both servers.
    pub fn seed<const N: usize>(&mut self, command: [&str; N]) {
        for reply in [ask(&mut self.bridged.borrow_mut(), &words(command)), ask(&mut self.plain, &words(command))] {
            assert!(!matches!(reply, Reply::Error(_)), "{command:?}: {reply:?}");
        }
    }

    /// What one command answers on the server that runs EVALSHA.
    pub fn look<const N: usize>(&mut self, command: [&str; N]) -> Reply {
        ask(&mut self.plain, &words(command))
    }

    /// The store's time in ms.
    pub fn now(&mut self) -> u64 {
        ms_of(&ask(&mut self.plain, &words(["TIME"])))
    }

    /// Runs a script on both and hands back its answer. Panics where they differ.
    pub fn call(&mut self, script: &'static Script, keys: &[String], args: &[String]) -> Vec<String> {
        let reply = self.both(script, keys, args);
        let answer = reply.texts().unwrap_or_else(|| panic!("{} answered {reply:?}", script.name()));
        let word = answer.first().unwrap_or_else(|| panic!("{} answered nothing", script.name()));
        assert!(script.answers().contains(&word.as_str()), "{} answered {answer:?}", script.name());
        self.answered.entry(script.name()).or_default().insert(word.clone());
        answer
    }

    /// Runs a script on both that has to refuse the call with an error answer, which is handed back.
    pub fn refused(&mut self, script: &'static Script, keys: &[String], args: &[String]) -> String {
        match self.both(script, keys, args) {
            Reply::Error(text) => text,
            other => panic!("{} took a call that it had to refuse: {other:?}", script.name()),
        }
    }

    /// Runs a script by EVALSHA alone. `None` where it answers; where an error ends it, the error and whether the store
    /// is as it was before. The two servers are told apart after this.
    pub fn breaks(&mut self, script: &'static Script, keys: &[String], args: &[String]) -> Option<(String, bool)> {
        let before = contents(&mut self.plain);
        let (_, reply, _) = self.by_evalsha(script, keys, args);
        match reply {
            Reply::Error(text) => Some((text, same(&before, &contents(&mut self.plain)).is_ok())),
            _ => None,
        }
    }

    fn both(&mut self, script: &'static Script, keys: &[String], args: &[String]) -> Reply {
        let name = script.name();
        let before = contents(&mut self.plain);
        let (time, plain, events) = self.by_evalsha(script, keys, args);
        let time = self.microsecond_of(time);
        let server = self.server_at(time);
        let bridged = interpreter::run(script.source(), keys, args, &server);
        let reply = bridged.reply.unwrap_or_else(|error| panic!("{name} under Lua 5.4: {error}\nEVALSHA: {plain:?}"));
        assert_eq!(reply, plain, "{name} answers under Lua 5.4 (left) what it does not by EVALSHA (right)");
        self.check_order(name, &bridged.calls);

        let published = bridged.calls.iter().filter(|call| call.effect == Effect::Publish);
        let published: Vec<(String, String)> =
            published.map(|call| (call.args[0].clone(), call.args[1].clone())).collect();
        assert_eq!(published, events, "{name} publishes under Lua 5.4 (left) what it does not by EVALSHA (right)");
        check_events(script, &published);

        let after = contents(&mut self.plain);
        same_contents(name, &contents(&mut self.bridged.borrow_mut()), &after);
        if !bridged.calls.iter().any(|call| call.effect == Effect::Write) {
            assert_eq!(same(&before, &after), Ok(()), "{name} wrote nothing and changed the store");
        }
        reply
    }

    /// EVALSHA between two looks at the clock, repeated from the same state until both show the same millisecond: then
    /// it is known which time the script read.
    fn by_evalsha(
        &mut self,
        script: &Script,
        keys: &[String],
        args: &[String],
    ) -> (Reply, Reply, Vec<(String, String)>) {
        let loaded = ask(&mut self.plain, &words(["SCRIPT", "LOAD", script.source()]));
        assert_eq!(loaded, Reply::Bulk(script.pinned().as_bytes().to_vec()), "STO-2: {}", script.name());
        let saved = dump(&mut self.plain);
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(script.pinned()).arg(keys.len()).arg(keys).arg(args);
        for _ in 0..SAME_MS_TRIES {
            let around = [words(["MULTI"]), words(["TIME"]), evalsha.clone(), words(["TIME"]), words(["EXEC"])];
            let replies = ask_all(&mut self.plain, &around);
            let Some(Reply::Array(replies)) = replies.last() else { panic!("EXEC answered {replies:?}") };
            let [begin, reply, end] = replies.as_slice() else { panic!("EXEC answered {replies:?}") };
            let events = self.drain_feed();
            if ms_of(begin) == ms_of(end) {
                return (begin.clone(), reply.clone(), events);
            }
            restore(&mut self.plain, &saved);
        }
        panic!("{}: no run within one millisecond in {SAME_MS_TRIES}", script.name());
    }

    /// The gate of a line notes the microsecond of the run; where it was noted in that millisecond, it is the time.
    fn microsecond_of(&mut self, time: Reply) -> Reply {
        match self.look(["HGET", "maitred:{eu}:gate:login", "refilled_at"]) {
            Reply::Bulk(noted) if noted.len() == 16 && noted.starts_with(ms_of(&time).to_string().as_bytes()) => {
                let (seconds, micros) = noted.split_at(10);
                Reply::Array(vec![Reply::Bulk(seconds.to_vec()), Reply::Bulk(micros.to_vec())])
            }
            _ => time,
        }
    }

    /// The server behind the bridge, with its clock standing still.
    fn server_at(&self, time: Reply) -> Server {
        let connection = Rc::clone(&self.bridged);
        Rc::new(move |command: &[Vec<u8>]| {
            if command[0] == b"TIME" {
                return time.clone();
            }
            let mut packed = Cmd::new();
            for arg in command {
                packed.arg(arg.as_slice());
            }
            ask(&mut connection.borrow_mut(), &packed)
        })
    }

    fn drain_feed(&mut self) -> Vec<(String, String)> {
        ask(&mut self.plain, &words(["PUBLISH", SENTINEL, ""]));
        let mut events = Vec::new();
        loop {
            let message = self.feed.recv_response().expect("a message");
            let texts = Reply::of(&message).texts().unwrap_or_else(|| panic!("no message: {message:?}"));
            let [_, _, channel, payload] = texts.as_slice() else { panic!("no message: {texts:?}") };
            if channel == SENTINEL {
                return events;
            }
            events.push((channel.clone(), payload.clone()));
        }
    }

    // STO-7: a script that still decides after its first write leaves half a change when that decision fails.
    fn check_order(&mut self, name: &'static str, calls: &[Call]) {
        let times = calls.iter().filter(|call| call.command == "TIME").count();
        assert!(times <= 1, "STO-6: {name} looked at the clock {times} times");
        let written = calls.iter().position(|call| call.effect != Effect::Read).unwrap_or(calls.len());
        for call in calls[written..].iter().filter(|call| call.effect == Effect::Read) {
            assert!(
                UPKEEP.contains(&(name, call.command.as_str())),
                "STO-7: {name} reads by {} {:?} after it has written: {calls:#?}",
                call.command,
                call.args
            );
            self.upkeep.insert((name, call.command.clone()));
        }
    }

    /// Panics unless every answer of the script was seen, and every read after a write that it is allowed.
    pub fn covered(&self, script: &Script) {
        let listed: BTreeSet<String> = script.answers().iter().map(|word| (*word).to_owned()).collect();
        let seen = self.answered.get(script.name()).cloned().unwrap_or_default();
        assert_eq!(seen, listed, "answers of {} that were seen (left) and that it has (right)", script.name());
        for (_, command) in UPKEEP.iter().filter(|(name, _)| *name == script.name()) {
            let used = self.upkeep.contains(&(script.name(), (*command).to_owned()));
            assert!(used, "{} is allowed {command} after a write and was not seen to use it", script.name());
        }
    }
}

/// What is told to subscribers is what the header says, because other languages listen by it.
fn check_events(script: &Script, published: &[(String, String)]) {
    let text = Header::parse(script.source()).expect("script_headers checks it").text("Events");
    for (channel, payload) in published {
        let word = payload.split(' ').next().unwrap_or_default();
        let told = text.starts_with("the row in wire form") || text.split([' ', ',']).any(|known| known == word);
        assert!(told && text != "none", "{} publishes {payload:?}, its header says {text:?}", script.name());
        assert!(channel.starts_with("maitred:{eu}:events:"), "STO-5: {channel}");
    }
}

fn same_contents(name: &str, left: &Contents, right: &Contents) {
    if let Err(why) = same(left, right) {
        panic!("{name} leaves another store under Lua 5.4 (left) than by EVALSHA (right): {why}");
    }
}

fn dump(connection: &mut Connection) -> Vec<(String, Vec<u8>, i64)> {
    let mut saved = Vec::new();
    for key in keys_of(connection) {
        let (Reply::Bulk(bytes), Reply::Int(ttl)) =
            (ask(connection, &words(["DUMP", &key])), ask(connection, &words(["PTTL", &key])))
        else {
            continue;
        };
        saved.push((key, bytes, ttl));
    }
    saved
}

fn restore(connection: &mut Connection, saved: &[(String, Vec<u8>, i64)]) {
    ask(connection, &words(["FLUSHALL"]));
    for (key, bytes, ttl) in saved {
        let done = ask(connection, redis::cmd("RESTORE").arg(key).arg((*ttl).max(0)).arg(bytes.as_slice()));
        assert_eq!(done, Reply::Status("OK".to_owned()), "RESTORE {key}");
    }
}

fn ms_of(time: &Reply) -> u64 {
    let texts = time.texts().expect("TIME answers two texts");
    let number = |text: &String| text.parse::<u64>().expect("a number");
    number(&texts[0]) * 1_000 + number(&texts[1]) / 1_000
}
