//! What everybody went through, and what the checks make of it.

use std::collections::BTreeMap;

use super::check::{Admission, Hold, Joining, Stand};
use super::story::{Cut, End, Entry, Stood, Story};

/// Everything that was heard of a rush.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    pub stories: BTreeMap<String, Story>,
    /// The place of everybody who waited when all had come, as the store had it.
    pub places: BTreeMap<String, u64>,
    /// Admissions as the store had them when its channel told of them, by player.
    pub seen: BTreeMap<String, Vec<Entry>>,
    /// Times that the channel told of a player's admission.
    pub told: BTreeMap<String, u64>,
    pub cuts: Vec<Cut>,
    /// How long a promised place is held.
    pub arrive_us: u64,
}

impl History {
    /// All admissions of a player by serial, whoever told of them.
    fn entries(&self, player: &str) -> Vec<&Entry> {
        let heard = self
            .stories
            .get(player)
            .into_iter()
            .flat_map(|story| story.heard.iter().map(|heard| &heard.entry).chain(&story.crossed));
        let all: BTreeMap<u64, &Entry> =
            self.seen.get(player).into_iter().flatten().chain(heard).map(|entry| (entry.serial, entry)).collect();
        all.into_values().collect()
    }

    /// The admissions of a player that were not undone by a goodbye that crossed them.
    fn counted(&self, player: &str) -> Vec<&Entry> {
        let undone = |entry: &Entry| {
            self.stories.get(player).is_some_and(|story| {
                let heard = story.heard.iter().any(|heard| heard.entry.serial == entry.serial);
                !heard && story.stood.iter().any(|stood| stood.gone_us.is_some_and(|gone_us| entry.serial <= gone_us))
            })
        };
        self.entries(player).into_iter().filter(|entry| !undone(entry)).collect()
    }

    /// How often the channel told of an admission of the player that was not undone by a goodbye.
    fn told_of(&self, player: &str) -> u64 {
        let undone = self.entries(player).len().saturating_sub(self.counted(player).len());
        let told = self.told.get(player).copied().unwrap_or(0);
        told.saturating_sub(u64::try_from(undone).unwrap_or(u64::MAX))
    }

    /// All admissions by serial.
    pub fn admissions(&self) -> Vec<Admission> {
        let of = |player: &String| {
            let entries = self.entries(player).into_iter();
            let admission = |entry: &Entry| Admission {
                player: player.clone(),
                lane: entry.lane,
                seq: entry.seq,
                at_us: entry.serial,
            };
            entries.map(admission).collect::<Vec<_>>()
        };
        let mut all: Vec<Admission> = self.stories.keys().flat_map(of).collect();
        all.sort_by_key(|admission| admission.at_us);
        all
    }

    /// The place that a player was given at the first entry, and the lane.
    fn place(&self, player: &str) -> Option<u64> {
        self.places.get(player).copied().or_else(|| self.entries(player).first().map(|entry| entry.seq))
    }

    /// Everybody's times in the line. `lane` is that of a player.
    pub fn stands(&self, lane: impl Fn(&str) -> u16) -> Vec<Stand> {
        let mut stands = Vec::new();
        for (player, story) in &self.stories {
            let Some(seq) = self.place(player) else { continue };
            let entries = self.counted(player);
            let undone = self.entries(player).into_iter().filter(|entry| !entries.contains(entry));
            let undone: Vec<u64> = undone.map(|entry| entry.serial).collect();
            let mut before_us = 0;
            for stood in &story.stood {
                let mut until_us = stood.until_us.unwrap_or(u64::MAX);
                if let Some(entry) = entries.get(stood.after) {
                    until_us = until_us.min(entry.serial);
                }
                if let Some(gone_us) = stood.gone_us {
                    let crossed = undone.iter().filter(|serial| (before_us..=gone_us).contains(*serial));
                    until_us = crossed.fold(until_us, |until_us, serial| until_us.min(*serial));
                    before_us = gone_us;
                }
                for cut in self.cuts.iter().filter(|cut| cut.ends(stood)) {
                    until_us = until_us.min(cut.at_us);
                }
                let (player, lane, from_us) = (player.clone(), lane(player), stood.from_us);
                stands.push(Stand { player, lane, seq, from_us, until_us });
            }
        }
        stands
    }

    /// Everybody's first entry.
    pub fn joinings(&self) -> Vec<Joining> {
        let joining = |(player, story): (&String, &Story)| {
            let (seq, told_us) = (self.place(player)?, story.told_us?);
            Some(Joining { player: player.clone(), asked_us: story.asked_us, told_us, seq })
        };
        self.stories.iter().filter_map(joining).collect()
    }

    /// Every place of a backend that was promised to a player or taken by one.
    pub fn holds(&self) -> Vec<Hold> {
        let mut holds = Vec::new();
        for (player, story) in &self.stories {
            for entry in self.entries(player) {
                let mut hold = |from_us: u64, until_us: u64| {
                    holds.push(Hold { player: player.clone(), server: entry.server.clone(), from_us, until_us });
                };
                let expires_us = entry.serial.saturating_add(self.arrive_us);
                let Some(heard) = story.heard.iter().find(|heard| heard.entry.serial == entry.serial) else {
                    // Nobody came for it: it was given back with the goodbye, or ran out.
                    let goodbye = |stood: &&Stood| stood.gone_us.is_some_and(|gone_us| entry.serial <= gone_us);
                    let goodbye_us = story.stood.iter().find(goodbye).and_then(|stood| stood.until_us);
                    hold(entry.serial, goodbye_us.unwrap_or(expires_us).min(expires_us));
                    continue;
                };
                let freed_us = heard.freed_us.unwrap_or(u64::MAX);
                match heard.redeemed_us {
                    Some(redeemed_us) if redeemed_us > expires_us => {
                        hold(entry.serial, expires_us);
                        hold(redeemed_us, freed_us);
                    }
                    Some(_) => hold(entry.serial, freed_us),
                    None => hold(entry.serial, freed_us.min(expires_us)),
                }
            }
        }
        holds
    }

    /// Players who were let in more often than they were put back for, or came in twice.
    pub fn twice(&self) -> Vec<String> {
        let once = |(player, story): &(&String, &Story)| {
            let entries = u64::try_from(self.counted(player).len()).unwrap_or(u64::MAX);
            self.told_of(player).max(entries) > story.back.saturating_add(1) || story.redeemed > 1
        };
        self.stories.iter().filter(once).map(|(player, _)| player.clone()).collect()
    }

    /// Players who neither got in nor went away.
    pub fn forgotten(&self) -> Vec<String> {
        let open = |story: &Story| match story.end {
            End::Open => true,
            End::Done => story.redeemed == 0,
            End::Quit | End::Vanished => false,
        };
        self.stories.iter().filter(|(_, story)| open(story)).map(|(player, _)| player.clone()).collect()
    }

    /// Players who were not let in from the place that they had been given first.
    pub fn moved(&self) -> Vec<String> {
        let strays = |player: &&String| {
            let place = self.place(player);
            self.entries(player).iter().any(|entry| Some(entry.seq) != place)
        };
        self.stories.keys().filter(strays).cloned().collect()
    }

    /// Admissions that the channel told of and that did not reach their player, though they stayed.
    pub fn unheard(&self) -> u64 {
        let missed = |(player, story): (&String, &Story)| {
            let heard = u64::try_from(story.heard.len()).unwrap_or(u64::MAX);
            if story.end == End::Done { self.told_of(player).abs_diff(heard) } else { 0 }
        };
        self.stories.iter().map(missed).sum()
    }

    /// How long everybody waited until the first admission, in ms, and what they had been told first.
    pub fn waits(&self) -> Vec<(u64, u64)> {
        let wait = |(player, story): (&String, &Story)| {
            let admitted_us = self.entries(player).first()?.serial;
            Some((admitted_us.saturating_sub(story.told_us?) / 1_000, story.estimate_ms?))
        };
        self.stories.iter().filter_map(wait).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{oversold, overtaken};
    use super::super::story::Heard;
    use super::*;

    fn entry(serial: u64, seq: u64) -> Entry {
        Entry { serial, seq, lane: 0, server: "b1".to_owned() }
    }

    fn heard(serial: u64, seq: u64, redeemed_us: u64, freed_us: u64) -> Heard {
        Heard { entry: entry(serial, seq), redeemed_us: Some(redeemed_us), freed_us: Some(freed_us) }
    }

    fn stood(after: usize, from_us: u64, until_us: Option<u64>) -> Stood {
        Stood { node: "p1".to_owned(), after, from_us, until_us, gone_us: until_us.map(|until_us| until_us + 9) }
    }

    fn story(asked_us: u64, stood: Vec<Stood>, heard: Vec<Heard>) -> Story {
        Story {
            asked_us,
            told_us: Some(asked_us + 5),
            estimate_ms: Some(1),
            stood,
            heard,
            redeemed: 1,
            end: End::Done,
            ..Story::default()
        }
    }

    /// Ann and bob come and are let in; cid's first transfer fails; dan drops, is admitted nowhere, and vanishes.
    fn whole() -> History {
        let mut history = History { arrive_us: 1_000, ..History::default() };
        let mut put = |name: &str, story: Story| {
            history.places.insert(name.to_owned(), 0);
            history.told.insert(name.to_owned(), u64::try_from(story.heard.len()).unwrap());
            history.seen.insert(name.to_owned(), story.heard.iter().map(|heard| heard.entry.clone()).collect());
            history.stories.insert(name.to_owned(), story);
        };
        put("ann", story(10, vec![stood(0, 15, None)], vec![heard(100, 1, 120, 500)]));
        put("bob", story(20, vec![stood(0, 25, None)], vec![heard(200, 2, 220, 600)]));
        let mut first = heard(300, 3, 0, 310);
        first.redeemed_us = None;
        let fails = vec![stood(0, 35, None), stood(1, 320, None)];
        put("cid", Story { back: 1, ..story(30, fails, vec![first, heard(400, 3, 420, 700)]) });
        let drops = Story { redeemed: 0, end: End::Vanished, ..story(40, vec![stood(0, 45, Some(90))], Vec::new()) };
        put("dan", drops);
        for (name, seq) in [("ann", 1), ("bob", 2), ("cid", 3), ("dan", 4)] {
            history.places.insert(name.to_owned(), seq);
        }
        history
    }

    fn order(history: &History) -> usize {
        overtaken(&history.stands(|_| 0), &history.admissions()).len()
    }

    fn change(history: &mut History, player: &str, change: impl FnOnce(&mut Story)) {
        change(history.stories.get_mut(player).expect("a player"));
    }

    // QUE-1, QUE-3, QUE-6, QUE-13, QUE-15: exit 0 only where everything holds. A count that cannot fail would prove nothing.
    #[test]
    fn que_6_each_broken_history_is_found() {
        let fine = whole();
        assert_eq!((order(&fine), fine.unheard()), (0, 0));
        for list in [fine.twice(), fine.forgotten(), fine.moved()] {
            assert_eq!(list, Vec::<String>::new());
        }

        let mut early = whole();
        change(&mut early, "bob", |bob| bob.heard[0].entry.serial = 90);
        early.seen.remove("bob");
        assert_eq!(order(&early), 1, "bob went before ann");

        let mut again = whole();
        again.told.insert("ann".to_owned(), 2);
        assert_eq!((again.twice(), again.unheard()), (vec!["ann".to_owned()], 1));
        let mut unasked = whole();
        change(&mut unasked, "cid", |cid| cid.back = 0);
        assert_eq!(unasked.twice(), ["cid"], "nobody had put cid back");
        let mut inside = whole();
        change(&mut inside, "bob", |bob| bob.redeemed = 2);
        assert_eq!(inside.twice(), ["bob"]);

        let mut lost = whole();
        change(&mut lost, "ann", |ann| ann.end = End::Open);
        change(&mut lost, "bob", |bob| bob.redeemed = 0);
        assert_eq!(lost.forgotten(), ["ann", "bob"]);

        let mut moved = whole();
        moved.places.insert("cid".to_owned(), 2_000);
        assert_eq!(moved.moved(), ["cid"], "cid came back behind the others");
    }

    // QUE-3: what is not certain is not held against anybody.
    #[test]
    fn que_3_players_of_a_dead_proxy_may_be_passed_until_they_are_back() {
        let mut history = whole();
        change(&mut history, "ann", |ann| {
            ann.stood = vec![stood(0, 15, None), stood(0, 350, None)];
            ann.heard = vec![heard(380, 1, 390, 500)];
        });
        history.seen.remove("ann");
        assert_eq!(order(&history), 2, "bob and cid passed ann, who stood there");
        history.cuts.push(Cut { node: "p1".to_owned(), at_us: 60, for_good: false });
        assert_eq!(order(&history), 0);
        // Back in the line they go first again.
        change(&mut history, "ann", |ann| ann.stood[1].from_us = 290);
        assert_eq!(order(&history), 1, "cid passed ann");
        // What a proxy had answered right before it died was heard after that.
        history.cuts[0].for_good = true;
        assert_eq!(order(&history), 0);
    }

    // QUE-15
    #[test]
    fn que_15_places_are_counted_from_the_promise_to_the_goodbye() {
        let caps = |places| [super::super::check::Cap { server: "b1".to_owned(), places }];
        let history = whole();
        let peak = oversold(&history.holds(), &caps(3))["b1"];
        assert_eq!((peak.used, peak.oversold), (3, 0));
        assert_eq!(oversold(&history.holds(), &caps(2))["b1"].oversold, 2, "cid's two promises");
        // A promise that nobody came for ends by itself, and one that was taken late is taken twice.
        let mut late = whole();
        change(&mut late, "dan", |dan| dan.end = End::Vanished);
        late.seen.insert("dan".to_owned(), vec![entry(5_000, 4)]);
        change(&mut late, "ann", |ann| ann.heard[0] = heard(100, 1, 4_000, 9_000));
        let holds = late.holds();
        let of = |name: &str| -> Vec<(u64, u64)> {
            holds.iter().filter(|hold| hold.player == name).map(|hold| (hold.from_us, hold.until_us)).collect()
        };
        assert_eq!((of("dan"), of("ann")), (vec![(5_000, 6_000)], vec![(100, 1_100), (4_000, 9_000)]));
        // A goodbye that crossed an admission frees its place, and the admission is not held against the player.
        late.seen.insert("dan".to_owned(), vec![entry(80, 4), entry(6_000, 4)]);
        late.told.insert("dan".to_owned(), 2);
        // Also where the store's row was read too late, and only the proxy told of it.
        let told = late.seen.insert("dan".to_owned(), vec![entry(6_000, 4)]);
        change(&mut late, "dan", |dan| dan.crossed = told.into_iter().flatten().collect());
        assert_eq!(late.holds().iter().find(|hold| hold.player == "dan").map(|hold| hold.until_us), Some(90));
        assert_eq!(late.twice(), Vec::<String>::new());
        let stands = late.stands(|_| 0);
        assert_eq!(stands.iter().find(|stand| stand.player == "dan").map(|stand| stand.until_us), Some(80));
    }
}
