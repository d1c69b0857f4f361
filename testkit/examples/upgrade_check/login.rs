//! A login line whose admitters are proxies of both builds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::fleet::{BOTH, Build, Builds, Fleet, LOGIN};
use super::peer::{LIMIT, Peer};

/// As `fleet::LOGIN` says, and one for whoever was let in as the second began.
const MOST_A_SECOND: usize = 20 + 4 + 1;
/// Long enough for four beats, and for five rounds of an admitter.
const QUIET: Duration = Duration::from_secs(2);

/// Players of the line: who came through which proxy, and what became of them.
struct Line {
    fleet: Fleet,
    proxies: [Peer; 2],
    backends: [Peer; 2],
    waiting: BTreeMap<String, usize>,
    admitted: BTreeMap<String, (usize, Value)>,
}

impl Line {
    async fn new(builds: Builds, places: u64) -> Self {
        let fleet = Fleet::new(builds, LOGIN);
        let (proxies, backends) = fleet.four().await;
        let mut line = Self { fleet, proxies, backends, waiting: BTreeMap::new(), admitted: BTreeMap::new() };
        for at in 0..2 {
            line.load(at, 0, places).await;
        }
        line
    }

    async fn load(&mut self, at: usize, players: u64, places: u64) {
        self.fleet.load(&mut self.backends[at], players, places).await;
    }

    /// Players enter, in turns through the two proxies.
    async fn enter(&mut self, names: &str, count: usize) {
        for n in 0..count {
            let (at, player) = (n % 2, format!("{names}-{n}"));
            let answer = self.proxies[at].ask(json!({"op": "enter", "player": player, "line": "login"})).await;
            match answer["outcome"].as_str() {
                Some("waiting") => drop(self.waiting.insert(player, at)),
                Some("admitted") => drop(self.admitted.insert(player, (at, answer))),
                _ => panic!("{player} at {}: {answer}", self.proxies[at].id),
            }
        }
    }

    /// Reads events until so many are in, or panics.
    async fn until(&mut self, admitted: usize) {
        while self.admitted.len() < admitted {
            let mut some = false;
            for at in 0..2 {
                some |= self.read(at, Duration::from_millis(50)).await;
            }
            if !some {
                self.stuck(admitted).await;
            }
        }
    }

    /// Waits for one more admission through either proxy.
    async fn stuck(&mut self, wanted: usize) {
        let end = tokio::time::Instant::now() + LIMIT;
        while tokio::time::Instant::now() < end {
            for at in 0..2 {
                if self.read(at, Duration::from_millis(50)).await {
                    return;
                }
            }
        }
        panic!(
            "{} of {wanted} are in, and for {LIMIT:?} nobody more; waiting: {:?}",
            self.admitted.len(),
            self.waiting
        );
    }

    async fn read(&mut self, at: usize, time: Duration) -> bool {
        let Some(told) = self.proxies[at].event_within(time, |line| line["event"] == "admitted").await else {
            return false;
        };
        let player = told["player"].as_str().expect("a player").to_owned();
        assert_eq!(self.waiting.remove(&player), Some(at), "waits at another proxy, or does not wait: {told}");
        assert!(self.admitted.insert(player, (at, told)).is_none(), "let in twice");
        true
    }

    /// Panics if somebody is let in within a while: every place is taken.
    async fn quiet(&mut self, why: &str) {
        let end = tokio::time::Instant::now() + QUIET;
        while tokio::time::Instant::now() < end {
            for at in 0..2 {
                assert!(
                    !self.read(at, Duration::from_millis(100)).await,
                    "oversold: {why}; in: {}",
                    self.admitted.len()
                );
            }
        }
    }

    /// How many were let in to each backend.
    fn taken(&self) -> [usize; 2] {
        [0, 1].map(|at| {
            self.admitted.values().filter(|(_, told)| told["server"] == self.backends[at].id.as_str()).count()
        })
    }

    /// All that are in come with their pass, and the proxy says so. Answers with the pairs of builds that this was.
    async fn land(&mut self) -> BTreeSet<(Build, Build)> {
        let mut pairs = BTreeSet::new();
        for (player, (at, told)) in std::mem::take(&mut self.admitted) {
            let to = usize::from(told["server"] == self.backends[1].id.as_str());
            let pass = json!({"op": "redeem", "player": player, "pass": told["pass"]});
            let redeemed = self.backends[to].must(pass.clone(), "redeemed").await;
            assert_eq!(redeemed["serial"], told["serial"], "{redeemed}");
            self.backends[to].must(pass, "refused").await;
            let arrived = json!({"op": "arrived", "player": player, "line": "login", "serial": told["serial"]});
            self.proxies[at].must(arrived, "arrived").await;
            pairs.insert((BOTH[at], BOTH[to]));
        }
        pairs
    }

    /// The most that were let in within any second, by the store's clock: a serial is a time in µs.
    fn fastest_second(&self) -> usize {
        let mut serials: Vec<u64> = self.admitted.values().filter_map(|(_, told)| told["serial"].as_u64()).collect();
        serials.sort_unstable();
        let within = |from: &u64| serials.iter().filter(|serial| (*from..from + 1_000_000).contains(*serial)).count();
        serials.iter().map(within).max().unwrap_or_default()
    }
}

/// Each build admits alone, players of both; then both together keep to the one rate.
pub async fn admitted(builds: Builds) -> String {
    let mut line = Line::new(builds, 100).await;
    for (at, build) in BOTH.into_iter().enumerate() {
        line.proxies[1 - at].must(json!({"op": "admits", "on": false}), "ok").await;
        // The first is let in by its own enter where the line is empty and the gate is open, so somebody waits first.
        line.enter(&format!("only-{build}"), 30).await;
        line.until(30 * (at + 1)).await;
        line.proxies[1 - at].must(json!({"op": "admits", "on": true}), "ok").await;
    }
    line.enter("both", 60).await;
    line.until(120).await;
    let fastest = line.fastest_second();
    assert!(fastest <= MOST_A_SECOND, "{fastest} were let in within one second, at 20/s and a burst of 4");
    let taken = line.taken();
    format!("120 players, {} and {} places, at most {fastest} in a second", taken[0], taken[1])
}

/// Places are promised, taken, counted and given back; at no moment is one of them there twice.
pub async fn sold(builds: Builds) -> String {
    const PLACES: u64 = 16;
    let all = usize::try_from(PLACES).expect("few") * 2;
    let mut line = Line::new(builds, PLACES).await;
    line.enter("first", all + 10).await;
    line.until(all).await;
    line.quiet("all places are promised").await;
    let taken = line.taken();
    assert_eq!(taken, [all / 2, all / 2], "places of the old and the new backend");
    let pairs = line.land().await;
    assert_eq!(pairs.len(), 4, "builds of proxies and backends that a pass went between: {pairs:?}");
    line.quiet("all places are taken").await;
    for at in 0..2 {
        line.load(at, PLACES, PLACES).await;
    }
    line.quiet("the beats have counted them").await;
    for (at, gone) in [(0, 4), (1, 6)] {
        line.load(at, PLACES - gone, PLACES).await;
    }
    // Long before a place that was counted and is held still would go by itself.
    line.until(10).await;
    assert_eq!(line.taken(), [4, 6], "as many as have left");
    line.land().await;
    for at in 0..2 {
        line.load(at, 0, PLACES).await;
    }
    line.enter("second", all).await;
    line.until(all).await;
    line.enter("last", 1).await;
    line.quiet("all places are promised again").await;
    format!("{all} places, sold to the last one three times")
}
