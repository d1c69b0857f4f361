use std::collections::BTreeMap;
use std::time::Duration;

use super::super::verdict::{self, Check, Proof, equal, least, most};
use super::check::{Cap, Pace, Peak, joined_out_of_turn, oversold, overtaken, pace};
use super::ears::Noted;
use super::history::History;
use super::players::{Guest, Plan};
use super::story::{End, Story};
use super::summary::{Spread, Summary};
use super::watch::Samples;
use crate::view::{ago, line};
use maitred::store::ServerInfo;

/// Findings that are told one by one.
const SHOWN: usize = 5;

/// What everybody and the store said.
pub(in crate::demo) struct Evidence {
    pub(super) guests: Vec<Guest>,
    pub(super) history: History,
    pub(super) caps: Vec<Cap>,
    pub(super) samples: Samples,
    pub(super) noted: Noted,
    pub(super) rate: u64,
    pub(super) burst: u64,
    /// Proxies that SIGKILL ended, and how many players waited there.
    pub(super) killed: u64,
    pub(super) stranded: u64,
    /// Keys of lines that are left at the end, the gate's apart.
    pub(super) keys_left: Vec<String>,
    pub(super) retries: u64,
    /// Gaps of the channel.
    pub(super) missed: u64,
    pub(super) elapsed: Duration,
    pub(super) info: ServerInfo,
}

/// What the checks found.
struct Findings {
    overtaken: Vec<String>,
    out_of_turn: Vec<String>,
    moved: Vec<String>,
    pace: Pace,
    twice: Vec<String>,
    forgotten: Vec<String>,
    peaks: BTreeMap<String, Peak>,
    admissions: u64,
}

impl Evidence {
    fn findings(&self) -> Findings {
        let lanes: BTreeMap<&str, u16> = self.guests.iter().map(|guest| (guest.name.as_str(), guest.lane)).collect();
        let stands = self.history.stands(|player| lanes.get(player).copied().unwrap_or(0));
        let admissions = self.history.admissions();
        let serials: Vec<u64> = admissions.iter().map(|admission| admission.at_us).collect();
        Findings {
            overtaken: overtaken(&stands, &admissions),
            out_of_turn: joined_out_of_turn(&self.history.joinings()),
            moved: self.history.moved(),
            pace: pace(&serials, self.rate, self.burst),
            twice: self.history.twice(),
            forgotten: self.history.forgotten(),
            peaks: oversold(&self.history.holds(), &self.caps),
            admissions: count(admissions.len()),
        }
    }

    fn ended(&self, end: End) -> u64 {
        count(self.history.stories.values().filter(|story| story.end == end).count())
    }

    fn sum(&self, of: impl Fn(&Story) -> u64) -> u64 {
        self.history.stories.values().map(of).sum()
    }

    /// How far the first estimate was off, for those who only waited.
    fn estimate_off_percent(&self) -> u64 {
        let mut off = Vec::new();
        for guest in self.guests.iter().filter(|guest| guest.plan == Plan::Comes) {
            let Some(story) = self.history.stories.get(&guest.name).filter(|story| story.changed == 0) else {
                continue;
            };
            let waited = story.heard.first().map(|heard| heard.entry.serial.saturating_sub(story.told_us.unwrap_or(0)));
            // Under a second a per cent says nothing.
            if let (Some(waited), Some(told)) = (waited.filter(|waited| *waited >= 1_000_000), story.estimate_ms) {
                off.push((told * 1_000).abs_diff(waited) * 100 / waited);
            }
        }
        Spread::of(off).p50
    }

    fn summary(&self, ok: bool, found: &Findings) -> Summary {
        let (waited, told): (Vec<u64>, Vec<u64>) = self.history.waits().into_iter().unzip();
        Summary {
            ok,
            players: count(self.guests.len()),
            landed: self.ended(End::Done),
            quit: self.ended(End::Quit),
            vanished: self.ended(End::Vanished),
            admissions: found.admissions,
            transfers_failed: self.sum(|story| story.back),
            proxy_changes: self.sum(|story| story.changed),
            proxies_killed: self.killed,
            stranded: self.stranded,
            overtaken: count(found.overtaken.len()),
            joined_out_of_turn: count(found.out_of_turn.len()),
            moved: count(found.moved.len()),
            too_fast: found.pace.too_fast,
            busiest_second: found.pace.busiest_second,
            rate_per_second: self.rate,
            burst: self.burst,
            admitted_twice: count(found.twice.len()),
            forgotten: count(found.forgotten.len()),
            unheard: self.history.unheard(),
            oversold: found.peaks.values().map(|peak| peak.oversold).sum(),
            looks: self.samples.looks,
            looks_full: self.samples.full,
            looks_oversold: self.samples.oversold,
            keys_left: count(self.keys_left.len()),
            waited_ms: Spread::of(waited),
            told_first_ms: Spread::of(told),
            estimate_off_percent: self.estimate_off_percent(),
            elapsed_ms: ms(self.elapsed),
            store: self.info.clone(),
        }
    }

    fn checks(&self, found: &Findings) -> Vec<Check> {
        let sum = self.summary(false, found);
        let strange = self.noted.odd + self.noted.missed + self.missed + self.samples.failed;
        vec![
            equal("players who got in, gave up or never came back", sum.landed + sum.quit + sum.vanished, sum.players),
            equal("players forgotten", sum.forgotten, 0),
            equal("players admitted twice for one entry", sum.admitted_twice, 0),
            equal("admissions that did not reach their player", sum.unheard, 0),
            equal("players with a place before somebody who had joined earlier", sum.joined_out_of_turn, 0),
            equal("players admitted before somebody of their lane who stood before them", sum.overtaken, 0),
            equal("players who did not keep their place", sum.moved, 0),
            equal("admissions above rate × time + burst, in any window", sum.too_fast, 0),
            most("admissions in the busiest second", sum.busiest_second, self.rate + self.burst),
            equal("places sold that were not free, by the history", sum.oversold, 0),
            equal("backends seen with more players than places", sum.looks_oversold, 0),
            least("looks at the places of a backend", sum.looks, 10),
            equal("proxies killed (SIGKILL)", sum.proxies_killed, 1),
            least("players who waited at the killed proxy", sum.stranded, 1),
            least("transfers that failed", sum.transfers_failed, 1),
            equal("keys of the line that are left, without its gate", sum.keys_left, 0),
            equal("things unheard or not believed", strange, 0),
        ]
    }

    /// Some of what does not hold, by name.
    fn shown(&self, found: &Findings) -> Vec<String> {
        let named = |what: &str, list: &[String]| -> Vec<String> {
            list.iter().take(SHOWN).map(|text| format!("{what}: {text}")).collect()
        };
        [
            named("overtaken", &found.overtaken),
            named("joined out of turn", &found.out_of_turn),
            named("moved", &found.moved),
            named("twice", &found.twice),
            named("forgotten", &found.forgotten),
            named("left", &self.keys_left),
            named("odd", &self.noted.odd_lines),
        ]
        .concat()
    }
}

impl Proof for Evidence {
    type Summary = Summary;

    fn print(&self) -> bool {
        let found = self.findings();
        let (checks, sum) = (self.checks(&found), self.summary(false, &found));
        verdict::print(&checks);
        let spread = |spread: Spread| {
            format!("half within {}, 95 % within {}, all within {}", ago(spread.p50), ago(spread.p95), ago(spread.max))
        };
        line(&format!("Waited:     {}.", spread(sum.waited_ms)));
        line(&format!(
            "Told first: {}; off by {} % in the middle, for those who stayed.",
            spread(sum.told_first_ms),
            sum.estimate_off_percent
        ));
        let peaks: Vec<String> =
            found.peaks.iter().map(|(id, peak)| format!("{id} {} of {}", peak.used, peak.places)).collect();
        line(&format!(
            "Places: at most {} used; {} of {} looks found a backend with nothing to give.",
            peaks.join(", "),
            sum.looks_full,
            sum.looks
        ));
        line(&format!(
            "On the way: {} admissions of {} players, {} put back, {} changes to another proxy, {} gave up, {} never came \
             back, {} position lines, {} asked again.",
            sum.admissions,
            sum.players,
            sum.transfers_failed,
            sum.proxy_changes,
            sum.quit,
            sum.vanished,
            self.noted.positions,
            self.retries
        ));
        for text in self.shown(&found) {
            line(&text);
        }
        let ok = checks.iter().all(|check| check.ok);
        let verdict = if ok { "Everything holds" } else { "NOT everything holds" };
        let seconds = self.elapsed.as_secs_f64();
        line(&format!("{verdict}, in {seconds:.1} s on {} {}.", self.info.name, self.info.version));
        ok
    }

    fn for_programs(&self) -> (bool, Summary) {
        let found = self.findings();
        let ok = self.checks(&found).iter().all(|check| check.ok);
        (ok, self.summary(ok, &found))
    }

    fn failures(&self) -> Vec<String> {
        let found = self.findings();
        let checks = self.checks(&found);
        let mut lines: Vec<String> = verdict::failures(&checks).collect();
        lines.extend(self.shown(&found));
        lines
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Entry, Heard, Stood};
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn entry(serial: u64, seq: u64) -> Entry {
        Entry { serial, seq, lane: 0, server: "b1".to_owned() }
    }

    fn story(number: u64) -> Story {
        let (asked_us, serial) = (number, (10 + number) * SECOND_US);
        let stood = vec![Stood { node: "p1".to_owned(), after: 0, from_us: 50, until_us: None, gone_us: None }];
        let (redeemed_us, freed_us) = (Some(serial + 10), Some(serial + SECOND_US / 4));
        let heard = vec![Heard { entry: entry(serial, number), redeemed_us, freed_us }];
        let (told_us, estimate_ms) = (Some(40), Some(11_000));
        Story { asked_us, told_us, estimate_ms, stood, heard, redeemed: 1, end: End::Done, ..Story::default() }
    }

    /// Three players who are let in one after the other; the first transfer of the second one fails.
    fn whole() -> Evidence {
        let mut history = History { arrive_us: SECOND_US, ..History::default() };
        let mut guests = Vec::new();
        for number in 1..=3 {
            let name = format!("g{number}");
            let mut story = story(number);
            if number == 2 {
                let mut first = story.heard[0].clone();
                first.entry.serial -= SECOND_US / 2;
                (first.redeemed_us, first.freed_us) = (None, Some(first.entry.serial + 5));
                story.stood.push(Stood { after: 1, from_us: first.entry.serial + 9, ..story.stood[0].clone() });
                story.heard.insert(0, first);
                story.back = 1;
            }
            history.places.insert(name.clone(), number);
            history.told.insert(name.clone(), count(story.heard.len()));
            history.seen.insert(name.clone(), story.heard.iter().map(|heard| heard.entry.clone()).collect());
            history.stories.insert(name.clone(), story);
            guests.push(Guest { name, lane: 0, home: 0, plan: Plan::Comes });
        }
        Evidence {
            guests,
            history,
            caps: vec![Cap { server: "b1".to_owned(), places: 1 }],
            samples: Samples { looks: 10, ..Samples::default() },
            noted: Noted::default(),
            rate: 2,
            burst: 1,
            killed: 1,
            stranded: 1,
            keys_left: Vec::new(),
            retries: 0,
            missed: 0,
            elapsed: Duration::from_millis(7),
            info: ServerInfo { name: "redis".to_owned(), version: "7".to_owned() },
        }
    }

    fn of<'a>(evidence: &'a mut Evidence, player: &str) -> &'a mut Story {
        evidence.history.stories.get_mut(player).expect("a player")
    }

    /// Moves a player's last admission by so many µs.
    fn shift(evidence: &mut Evidence, player: &str, by_us: i64) {
        evidence.history.seen.remove(player);
        let entry = &mut of(evidence, player).heard.last_mut().expect("admitted").entry;
        entry.serial = entry.serial.checked_add_signed(by_us).expect("a time");
    }

    // CLI-2: exit 0 only when all invariants hold. A count that cannot fail would prove nothing.
    #[test]
    fn cli_2_each_broken_promise_of_a_rush_is_found() {
        assert_eq!(whole().failures(), Vec::<String>::new());
        type Break = fn(&mut Evidence);
        let table: [(&str, Break); 19] = [
            ("gave up or never", |e| of(e, "g1").end = End::Open),
            ("forgotten", |e| of(e, "g1").redeemed = 0),
            ("admitted twice", |e| of(e, "g2").back = 0),
            ("admitted twice", |e| of(e, "g1").redeemed = 2),
            ("did not reach", |e| e.history.told.extend([("g3".to_owned(), 2)])),
            ("joined earlier", |e| of(e, "g1").asked_us = 45),
            ("stood before them", |e| shift(e, "g1", 2_500_000)),
            ("keep their place", |e| e.history.places.extend([("g3".to_owned(), 9)])),
            ("in any window", |e| shift(e, "g3", -900_000)),
            ("busiest second", |e| e.rate = 0),
            ("by the history", |e| of(e, "g1").heard[0].freed_us = None),
            ("by the history", |e| e.caps.clear()),
            ("more players than places", |e| e.samples.oversold = 1),
            ("looks at the places", |e| e.samples.looks = 9),
            ("killed (SIGKILL)", |e| e.killed = 0),
            ("killed proxy", |e| e.stranded = 0),
            ("transfers that failed", |e| of(e, "g2").back = 0),
            ("are left", |e| e.keys_left.push("away:login".to_owned())),
            ("unheard or not believed", |e| e.noted.missed = 1),
        ];
        for (what, break_it) in table {
            let mut evidence = whole();
            break_it(&mut evidence);
            let failures = evidence.failures();
            assert!(failures.iter().any(|failure| failure.contains(what)), "{what}: {failures:?}");
            assert!(!evidence.for_programs().0);
        }
    }

    #[test]
    fn que_8_waits_and_estimates_are_told_side_by_side() {
        let (_, summary) = whole().for_programs();
        assert_eq!((summary.waited_ms.max, summary.told_first_ms.max), (12_999, 11_000));
        assert_eq!(summary.estimate_off_percent, 4, "11 s told, 10.999 s, 11.499 s and 12.999 s waited");
    }
}
