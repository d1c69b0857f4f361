//! Two lines to one backend against naive ones in memory: random operations by two proxies and two admitters, players who
//! stand in both lines, and after each of them the order, the answers and the promised places have to be the same. What
//! fails shrinks to a short list.
//!
//! If this fails, some sequence of ordinary events loses, doubles or reorders somebody.

use std::collections::BTreeMap;

use crate::fixtures::lines::{Member, TestZone, login, player, rounds, snapshot};
use maitred::ids::{LineName, OperationId, Role, SessionId};
use maitred::queue::{
    Admission, Admitter, Attributes, Choice, Entered, Failed, Left, Line, LineOptions, PassRefusal, Position,
};
use maitred_testkit::store::TestStore;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::AsyncCommands;

mod naive;

use naive::{Naive, Where};

const NAMES: [&str; 5] = ["ann", "ben", "cem", "dot", "eve"];
const LINES: [&str; 2] = ["login", "vip"];
const CAPACITY: usize = 3;
const MOST: usize = 4;

/// A player of a line: the number of the line times that of the names, and the number of the name.
type Visitor = usize;

fn line_of(visitor: Visitor) -> usize {
    visitor / NAMES.len()
}

fn name_of(visitor: Visitor) -> &'static str {
    NAMES[visitor % NAMES.len()]
}

#[derive(Debug, Clone)]
enum Op {
    Enter(Visitor, usize),
    Leave(Visitor),
    Away(Visitor),
    /// The grace of everybody who is away is over.
    Graces,
    /// An admitter of a line, and at most so many through its gate.
    Admit(usize, usize, usize),
    Failed(Visitor, bool),
    Redeem(Visitor),
    /// The promise to this player ends.
    NoShow(Visitor),
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..LINES.len() * NAMES.len();
    prop_oneof![
        5 => (name.clone(), 0..2_usize).prop_map(|(name, proxy)| Op::Enter(name, proxy)),
        1 => name.clone().prop_map(Op::Leave),
        2 => name.clone().prop_map(Op::Away),
        1 => Just(Op::Graces),
        3 => (0..LINES.len(), 0..2_usize, 1..3_usize).prop_map(|(line, admitter, most)| Op::Admit(line, admitter, most)),
        2 => (name.clone(), any::<bool>()).prop_map(|(name, gone)| Op::Failed(name, gone)),
        1 => name.clone().prop_map(Op::Redeem),
        1 => name.prop_map(Op::NoShow),
    ]
}

/// The real lines with what its callers would remember.
struct World {
    zone: TestZone,
    proxies: Vec<Member>,
    backend: Member,
    /// By line, then by proxy.
    lines: Vec<Vec<Line>>,
    /// By line, then by proxy.
    admitters: Vec<Vec<Admitter>>,
    sessions: BTreeMap<usize, (usize, SessionId)>,
    admissions: BTreeMap<usize, Admission>,
    naive: Naive,
}

impl World {
    async fn new(store: &TestStore, zone: &str) -> Self {
        let zone = TestZone::in_zone(store, zone).await;
        let proxies = vec![zone.member("p0", Role::proxy(), 0).await, zone.member("p1", Role::proxy(), 0).await];
        let backend = zone.member("b1", Role::backend(), CAPACITY as u64).await;
        let lines: Vec<Vec<Line>> = LINES
            .map(|name| LineOptions {
                name: LineName::new(name).unwrap(),
                max_waiting: MOST as u64,
                ..login(1_000_000, 2)
            })
            .iter()
            .map(|options| proxies.iter().map(|proxy| proxy.line(options)).collect())
            .collect();
        let admitter = |line: &Line| Admitter::new(line.clone(), Choice::Backend, 1);
        let admitters = lines.iter().map(|lines| lines.iter().map(admitter).collect()).collect();
        let (sessions, admissions, naive) = Default::default();
        Self { zone, proxies, backend, lines, admitters, sessions, admissions, naive }
    }

    /// As what the place is held that the visitor was admitted to.
    async fn claim(&self, visitor: Visitor) -> Option<String> {
        let serial = self.admissions.get(&visitor)?.pass.serial;
        let claim = format!("{} {}:{serial} ", name_of(visitor), LINES[line_of(visitor)]);
        self.zone.held("b1").await.into_iter().find(|held| held.starts_with(&claim))
    }

    /// The promise is over, as if by time.
    async fn lapse(&self, visitor: Visitor) {
        if let Some(claim) = self.claim(visitor).await {
            let _: () = self.zone.raw.clone().zrem(self.zone.key("held:b1"), claim).await.unwrap();
        }
    }

    async fn gate(&self, line: usize, most: usize) {
        // As many as the model lets through, and nothing comes in by time: the gate was last looked at a moment ahead.
        let now = self.zone.now().await;
        let fields = [("bucket", format!("{most}000000")), ("refilled_at", format!("{}000", now + 900))];
        let _: () = self
            .zone
            .raw
            .clone()
            .hset_multiple(self.zone.key(&format!("gate:{}", LINES[line])), &fields)
            .await
            .unwrap();
    }

    async fn apply(&mut self, op: &Op) {
        match op {
            Op::Enter(name, proxy) => {
                let want = self.naive.enter(*name);
                let (entered, session) =
                    self.proxies[*proxy].enter(&self.lines[line_of(*name)][*proxy], name_of(*name)).await;
                let got = match entered {
                    Entered::Waiting(_) => "waiting",
                    Entered::Admitted(admission) => {
                        // From now on the pass is this visit's.
                        self.admissions.insert(*name, admission);
                        "admitted"
                    }
                    Entered::Full => "full",
                };
                assert_eq!(got, want, "{op:?}");
                if got != "full" {
                    self.sessions.insert(*name, (*proxy, session));
                }
            }
            Op::Leave(name) => {
                let Some((proxy, session)) = self.sessions.get(name) else { return };
                let holder = self.proxies[*proxy].holder();
                let left =
                    self.lines[line_of(*name)][*proxy].leave(&holder, &player(name_of(*name)), session).await.unwrap();
                let want = match self.naive.players.get(name) {
                    Some(Where::Gone { .. }) | None => Left::None,
                    Some(_) => {
                        self.naive.players.remove(name);
                        self.naive.fails.remove(name);
                        Left::Left
                    }
                };
                assert_eq!(left, want, "{op:?}");
            }
            Op::Away(name) => {
                let Some((proxy, session)) = self.sessions.get(name) else { return };
                let holder = self.proxies[*proxy].holder();
                let left =
                    self.lines[line_of(*name)][*proxy].away(&holder, &player(name_of(*name)), session).await.unwrap();
                let want = match self.naive.players.get(name).cloned() {
                    Some(Where::Waiting(seq) | Where::Away(seq)) => {
                        self.naive.players.insert(*name, Where::Away(seq));
                        Left::Away
                    }
                    _ => Left::None,
                };
                assert_eq!(left, want, "{op:?}");
            }
            Op::Graces => {
                let mut raw = self.zone.raw.clone();
                let mut dropped = 0;
                for (line, lines) in LINES.iter().zip(&self.lines) {
                    let key = self.zone.key(&format!("away:{line}"));
                    let away: Vec<String> = raw.zrange(&key, 0, -1).await.unwrap();
                    for name in &away {
                        let _: () = raw.zadd(&key, name, 1_000).await.unwrap();
                    }
                    assert_eq!(lines[0].sweep().await.unwrap().out as usize, away.len());
                    dropped += away.len();
                }
                let gone: Vec<usize> = self
                    .naive
                    .players
                    .iter()
                    .filter(|(_, at)| matches!(at, Where::Away(_)))
                    .map(|(name, _)| *name)
                    .collect();
                assert_eq!(gone.len(), dropped);
                self.naive.players.retain(|name, _| !gone.contains(name));
            }
            Op::Admit(line, admitter, most) => {
                self.backend.record.seq += 1;
                self.gate(*line, *most).await;
                let who = self.proxies[*admitter].who.clone();
                let nodes = snapshot(&[&self.backend]);
                let round = rounds(&mut self.admitters[*line][*admitter], &who, &nodes).await.unwrap();
                let names: Vec<&str> = round.admitted.iter().map(|a| a.pass.player.as_str()).collect();
                let want: Vec<&str> = self.naive.admit(*line, *most).into_iter().map(name_of).collect();
                assert_eq!(names, want, "{op:?}");
                for admission in round.admitted {
                    let name = NAMES.iter().position(|name| *name == admission.pass.player.as_str()).unwrap();
                    self.admissions.insert(line * NAMES.len() + name, admission);
                }
            }
            Op::Failed(name, gone) => {
                let Some(admission) = self.admissions.get(name).cloned() else { return };
                let proxy = &self.proxies[0];
                let (session, none) = (SessionId::fresh(), Attributes::default());
                let failed =
                    self.lines[line_of(*name)][0].failed(&proxy.who, &admission, &session, &none, *gone).await.unwrap();
                let want = match self.naive.players.get(name).cloned() {
                    Some(Where::Admitted { seq, fails, .. } | Where::Gone { seq, fails }) => {
                        let here = matches!(self.naive.players.get(name), Some(Where::Admitted { .. }));
                        let fails = fails + u32::from(here);
                        if fails >= 3 {
                            self.naive.players.remove(name);
                            Failed::Out
                        } else {
                            self.naive.fails.insert(*name, fails);
                            let (at, word) = if *gone {
                                (Where::Away(seq), Failed::Away)
                            } else {
                                (Where::Waiting(seq), Failed::Back)
                            };
                            self.naive.players.insert(*name, at);
                            word
                        }
                    }
                    _ => Failed::Late,
                };
                // A pass that was spent answers that the player landed, until the next one.
                if want == Failed::Late {
                    assert!(matches!(failed, Failed::Late | Failed::Landed | Failed::Out), "{op:?}: {failed:?}");
                } else {
                    assert_eq!(failed, want, "{op:?}");
                    self.sessions.insert(*name, (0, session));
                }
            }
            Op::Redeem(name) => {
                let Some(admission) = self.admissions.get(name).cloned() else { return };
                let at = self.backend.line(self.lines[line_of(*name)][0].options());
                let redeemed = at.redeem(&self.backend.who, &admission.pass, &OperationId::fresh()).await.unwrap();
                match self.naive.players.get(name).cloned() {
                    Some(Where::Admitted { held, seq, fails }) => {
                        if held || self.naive.used() < CAPACITY {
                            assert_eq!(redeemed, Ok(()), "{op:?}");
                            self.naive.players.remove(name);
                            // The place stays held until a beat: here for good.
                            self.seat(*name).await;
                        } else {
                            assert_eq!(redeemed, Err(PassRefusal::PlaceGone), "{op:?}");
                            self.naive.players.insert(*name, Where::Gone { seq, fails });
                        }
                    }
                    _ => assert!(redeemed.is_err(), "{op:?}: {redeemed:?}"),
                }
            }
            Op::NoShow(name) => {
                if let Some(Where::Admitted { held, .. }) = self.naive.players.get_mut(name) {
                    *held = false;
                    self.lapse(*name).await;
                }
            }
        }
    }

    /// The player is counted by the backend from now on, so the place is not held any more.
    async fn seat(&mut self, name: usize) {
        self.naive.seated += 1;
        self.lapse(name).await;
        self.backend.record.players += 1;
        self.backend.beat().await;
    }

    async fn compare(&self) {
        for (line, lines) in self.lines.iter().enumerate() {
            let order: Vec<String> = lines[1].positions(100).await.unwrap().iter().map(ToString::to_string).collect();
            let want: Vec<&str> = self.naive.waiting(line).into_iter().map(name_of).collect();
            assert_eq!(order, want);
            for (at, name) in NAMES.iter().enumerate() {
                let at = self.naive.players.get(&(line * NAMES.len() + at));
                let place = lines[0].position(&player(name)).await.unwrap();
                let same = match at {
                    Some(Where::Waiting(_)) => matches!(place, Position::Waiting { position, .. }
                        if want.get(position as usize - 1) == Some(name)),
                    Some(Where::Away(_)) => matches!(place, Position::Away { .. }),
                    _ => place == Position::None,
                };
                assert!(same, "{name}: {place:?}, expected {at:?}");
            }
        }
        let held = self.zone.held("b1").await;
        assert_eq!(held.len() + self.naive.seated, self.naive.used());
        assert!(self.naive.used() <= CAPACITY, "oversold");
    }
}

// QUE-1, QUE-3, QUE-6, QUE-13, QUE-15, REL-1
#[test]
fn que_6_a_line_does_what_the_naive_line_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = TestStore::start();
    let zones = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 90, max_shrink_iters: 200, ..Config::default() });
    let lists = prop::collection::vec(op(), 1..40);
    runner
        .run(&lists, |ops| {
            zones.set(zones.get() + 1);
            runtime.block_on(async {
                let mut world = World::new(&store, &format!("z{}", zones.get())).await;
                for op in &ops {
                    world.apply(op).await;
                    world.compare().await;
                }
            });
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}
