//! The scripts against a naive bucket that keeps everything that was ever charged, on a clock that the test moves. The
//! store behind them is one hash with a life: what a real one makes of the same calls is script_bridge's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use maitred::store::{Script, scripts};
use proptest::prelude::*;

use crate::script_bridge::interpreter::{self, Server};
use crate::script_bridge::reply::Reply;

const KEEP_MS: u64 = 75_000;
const START_MS: u64 = 1_796_000_000_000;

#[derive(Debug, Default)]
struct Hash {
    fields: BTreeMap<String, String>,
    ends_ms: u64,
}

#[derive(Debug, Default)]
struct State {
    now_ms: u64,
    hash: Option<Hash>,
}

/// A store with a clock that the test moves.
#[derive(Clone)]
struct Store(Rc<RefCell<State>>);

impl Store {
    fn new() -> Self {
        Self(Rc::new(RefCell::new(State { now_ms: START_MS, hash: None })))
    }

    fn now_ms(&self) -> u64 {
        self.0.borrow().now_ms
    }

    fn set_clock(&self, now_ms: u64) {
        self.0.borrow_mut().now_ms = now_ms;
    }

    fn set(&self, name: &str, value: &str) {
        let mut state = self.0.borrow_mut();
        state.hash.get_or_insert_default().ends_ms = u64::MAX;
        state.hash.get_or_insert_default().fields.insert(name.to_owned(), value.to_owned());
    }

    fn field(&self, name: &str) -> Option<String> {
        self.0.borrow().hash.as_ref()?.fields.get(name).cloned()
    }

    fn is_empty(&self) -> bool {
        let state = self.0.borrow();
        state.hash.as_ref().is_none_or(|hash| hash.ends_ms <= state.now_ms)
    }

    fn run(&self, script: &Script, args: &[String]) -> Vec<String> {
        let state = Rc::clone(&self.0);
        let server: Server = Rc::new(move |command: &[Vec<u8>]| {
            let words: Vec<String> = command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            answer(&mut state.borrow_mut(), &words)
        });
        let reply = interpreter::run(script.source(), &["limit".to_owned()], args, &server).reply;
        reply.expect("no error").texts().expect("texts")
    }

    fn take(&self, op: u64, interval_us: u64, burst: u64) -> Vec<String> {
        let numbers = [interval_us, burst, KEEP_MS].map(|number| number.to_string());
        self.run(&scripts::LIMIT_TAKE, &[vec![format!("op{op}")], numbers.to_vec()].concat())
    }

    fn refund(&self, op: u64, interval_us: u64) -> Vec<String> {
        self.run(&scripts::LIMIT_REFUND, &[format!("op{op}"), interval_us.to_string()])
    }
}

fn answer(state: &mut State, words: &[String]) -> Reply {
    let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    if state.hash.as_ref().is_some_and(|hash| hash.ends_ms <= state.now_ms) {
        state.hash = None;
    }
    match words[0].as_str() {
        "TIME" => {
            let (seconds, micros) = (state.now_ms / 1_000, state.now_ms % 1_000 * 1_000 + 417);
            Reply::Array(vec![bulk(&seconds.to_string()), bulk(&micros.to_string())])
        }
        "HMGET" => {
            let field = |name: &String| state.hash.as_ref()?.fields.get(name).map(|value| bulk(value));
            Reply::Array(words[2..].iter().map(|name| field(name).unwrap_or(Reply::Nil)).collect())
        }
        "HSET" => {
            let hash = state.hash.get_or_insert(Hash { ends_ms: u64::MAX, ..Hash::default() });
            for pair in words[2..].chunks(2) {
                hash.fields.insert(pair[0].clone(), pair[1].clone());
            }
            Reply::Int(1)
        }
        "PTTL" => {
            let left = |hash: &Hash| match hash.ends_ms {
                u64::MAX => -1,
                ends_ms => i64::try_from(ends_ms - state.now_ms).expect("a time"),
            };
            Reply::Int(state.hash.as_ref().map_or(-2, left))
        }
        "PEXPIRE" => {
            let ms: u64 = words[2].parse().expect("whole ms");
            state.hash.as_mut().expect("a key to expire").ends_ms = state.now_ms + ms;
            Reply::Int(1)
        }
        "DEL" => Reply::Int(i64::from(state.hash.take().is_some())),
        other => panic!("{other}"),
    }
}

/// Everything that was ever charged and not refunded, in order.
struct Bucket {
    interval_us: u64,
    burst: u64,
    charged: Vec<(u64, u64)>,
}

impl Bucket {
    /// How full it is at `now_ms`, in µs, after the first `count` charges.
    fn owed(&self, count: usize, now_ms: u64) -> u64 {
        let (mut owed, mut then) = (0_u64, 0);
        for (_, at) in &self.charged[..count] {
            owed = owed.saturating_sub((at - then) * 1_000) + self.interval_us;
            then = *at;
        }
        owed.saturating_sub((now_ms - then) * 1_000)
    }

    fn remaining(&self, index: usize) -> u64 {
        let owed = self.owed(index + 1, self.charged[index].1);
        (self.interval_us * self.burst - owed) / self.interval_us
    }

    fn take(&mut self, op: u64, now_ms: u64) -> Vec<String> {
        let known = self.charged.iter().position(|(known, _)| *known == op);
        if let Some(index) = known {
            return vec!["ALLOWED".to_owned(), self.remaining(index).to_string()];
        }
        let (owed, most) = (self.owed(self.charged.len(), now_ms) + self.interval_us, self.interval_us * self.burst);
        if owed > most {
            return vec!["DENIED".to_owned(), (owed - most).div_ceil(1_000).to_string()];
        }
        self.charged.push((op, now_ms));
        vec!["ALLOWED".to_owned(), self.remaining(self.charged.len() - 1).to_string()]
    }

    fn refund(&mut self, op: u64) -> Vec<String> {
        let before = self.charged.len();
        self.charged.retain(|(known, _)| *known != op);
        vec![if self.charged.len() < before { "REFUNDED" } else { "NONE" }.to_owned()]
    }
}

#[derive(Debug, Clone)]
enum Act {
    Take,
    /// The same operation again, so many takes ago.
    Repeat(u64),
    Refund(u64),
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => Just(Act::Take),
        2 => (0..6_u64).prop_map(Act::Repeat),
        2 => (0..6_u64).prop_map(Act::Refund),
        3 => (0..3_000_u64).prop_map(Act::Wait),
        1 => (0..60_000_u64).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..60)
}

/// What one operation costs, in µs: also parts of a ms, as `count: 7, perMs: 10000` makes them.
fn interval() -> impl Strategy<Value = u64> {
    500_000..10_000_000_u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pol_6_the_script_answers_what_a_naive_bucket_answers(
        acts in acts(), interval_us in interval(), burst in 1..8_u64,
    ) {
        let store = Store::new();
        let mut bucket = Bucket { interval_us, burst, charged: Vec::new() };
        let (mut next, mut taken_at) = (0_u64, Vec::new());
        for act in &acts {
            let now = store.now_ms();
            let recent = |ago: u64| {
                let op = next.checked_sub(1 + ago)?;
                // One that is longer ago is repeated by nobody.
                (now - taken_at[usize::try_from(op).expect("small")] < KEEP_MS).then_some(op)
            };
            match act {
                Act::Wait(ms) => store.set_clock(now + ms),
                Act::Take => {
                    prop_assert_eq!(store.take(next, interval_us, burst), bucket.take(next, now));
                    taken_at.push(now);
                    next += 1;
                }
                Act::Repeat(ago) => if let Some(op) = recent(*ago) {
                    if !bucket.charged.iter().any(|(known, _)| *known == op) {
                        taken_at[usize::try_from(op).expect("small")] = now;
                    }
                    prop_assert_eq!(store.take(op, interval_us, burst), bucket.take(op, now));
                },
                Act::Refund(ago) => if let Some(op) = recent(*ago) {
                    prop_assert_eq!(store.refund(op, interval_us), bucket.refund(op));
                },
            }
            // Over any time at most the burst, and what the rate adds.
            for (first, (_, from)) in bucket.charged.iter().enumerate() {
                for (count, (_, to)) in (1_u64..).zip(&bucket.charged[first..]) {
                    prop_assert!(count <= burst + (to - from) * 1_000 / interval_us);
                }
            }
        }
        store.set_clock(store.now_ms() + KEEP_MS + interval_us * burst / 1_000 + 1);
        prop_assert!(store.is_empty(), "STO-16: something is left behind");
    }

    #[test]
    fn r_4_a_clock_that_jumps_locks_nobody_out_and_gives_nobody_more(
        jumps in prop::collection::vec(-5_000_000..5_000_000_i64, 1..80), interval_us in interval(), burst in 1..8_u64,
    ) {
        let store = Store::new();
        let (mut passed, mut forward_ms) = (0, 0);
        for (op, jump) in (0..).zip(jumps) {
            // Mostly it goes on as it should.
            let step = if op % 4 == 0 { jump } else { jump.rem_euclid(2_000) };
            store.set_clock(store.now_ms().saturating_add_signed(step));
            forward_ms += u64::try_from(step).unwrap_or(0);
            let answer = store.take(op, interval_us, burst);
            if answer[0] == "ALLOWED" {
                passed += 1;
            } else {
                let wait: u64 = answer[1].parse().expect("whole ms");
                prop_assert!((1..=interval_us.div_ceil(1_000)).contains(&wait), "{} ms", wait);
                let before = store.now_ms();
                store.set_clock(before + wait);
                forward_ms += wait;
                let again = store.take(op + 1_000, interval_us, burst);
                prop_assert_eq!(again[0].as_str(), "ALLOWED", "as it was told");
                passed += 1;
            }
            prop_assert!(passed <= burst + forward_ms * 1_000 / interval_us);
        }
    }
}

// STO-8: what one player can put into a row.
#[test]
fn sto_8_a_row_keeps_256_operations_and_the_newest() {
    let store = Store::new();
    let many: Vec<String> = (0..300).map(|n| format!("old{n}:{START_MS}:{}", START_MS * 1_000)).collect();
    store.set("charged", &many.join(" "));
    store.take(1, 1_000_000, 1);
    let charged = store.field("charged").expect("charged");
    assert_eq!(charged.split(' ').count(), 256);
    assert!(charged.starts_with("op1:") && charged.contains(" old0:"), "{charged}");
}
