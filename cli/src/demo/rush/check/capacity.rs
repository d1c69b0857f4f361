use std::collections::BTreeMap;

/// A place of a backend that is promised to a player or taken by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::demo::rush) struct Hold {
    pub player: String,
    pub server: String,
    pub from_us: u64,
    pub until_us: u64,
}

/// How many places a backend has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::demo::rush) struct Cap {
    pub server: String,
    pub places: u64,
}

/// How full a backend was at its fullest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::demo::rush) struct Peak {
    pub places: u64,
    pub used: u64,
    /// Places that went to somebody while none was free.
    pub oversold: u64,
}

/// Walks through the history: at no moment may a backend have more players, promised and there, than places.
/// A player counts once, however often a place was given.
pub(in crate::demo::rush) fn oversold(holds: &[Hold], caps: &[Cap]) -> BTreeMap<String, Peak> {
    let mut peaks: BTreeMap<String, Peak> =
        caps.iter().map(|cap| (cap.server.clone(), Peak { places: cap.places, ..Peak::default() })).collect();
    // Of what happens at the same moment, the place that is freed comes first.
    let mut steps: Vec<(u64, bool, &Hold)> = Vec::new();
    for hold in holds.iter().filter(|hold| hold.from_us < hold.until_us) {
        steps.push((hold.from_us, true, hold));
        steps.push((hold.until_us, false, hold));
    }
    steps.sort_by_key(|(at_us, takes, _)| (*at_us, *takes));
    let mut inside: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (_, takes, hold) in steps {
        let players = inside.entry(&hold.server).or_default();
        let times = players.entry(&hold.player).or_default();
        if !takes {
            *times = times.saturating_sub(1);
            if *times == 0 {
                players.remove(hold.player.as_str());
            }
            continue;
        }
        *times += 1;
        // A backend that nobody knows has no places at all.
        let peak = peaks.entry(hold.server.clone()).or_default();
        let used = u64::try_from(players.len()).unwrap_or(u64::MAX);
        peak.used = peak.used.max(used);
        if used > peak.places {
            peak.oversold += 1;
        }
    }
    peaks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(player: &str, from_us: u64, until_us: u64) -> Hold {
        Hold { player: player.to_owned(), server: "b1".to_owned(), from_us, until_us }
    }

    fn caps() -> Vec<Cap> {
        vec![Cap { server: "b1".to_owned(), places: 2 }]
    }

    // QUE-15: a check that cannot fail would show nothing.
    #[test]
    fn que_15_a_place_that_is_sold_twice_is_found() {
        let fair = [hold("ann", 10, 50), hold("bob", 20, 80), hold("cid", 50, 90), hold("dan", 80, 99)];
        let peak = oversold(&fair, &caps())["b1"];
        assert_eq!(peak, Peak { places: 2, used: 2, oversold: 0 });

        let early = [hold("ann", 10, 50), hold("bob", 20, 80), hold("cid", 49, 90)];
        assert_eq!(oversold(&early, &caps())["b1"], Peak { places: 2, used: 3, oversold: 1 });
        // The same player with a promise and an arrival is one.
        let again = [hold("ann", 10, 50), hold("ann", 30, 90), hold("bob", 20, 80)];
        assert_eq!(oversold(&again, &caps())["b1"].oversold, 0);
        // Who never left takes a place for good.
        let stays = [hold("ann", 10, u64::MAX), hold("bob", 20, 80), hold("cid", 80, 90), hold("dan", 85, 90)];
        assert_eq!(oversold(&stays, &caps())["b1"].oversold, 1);
        // Places that nobody offered.
        let strange = [Hold { server: "b9".to_owned(), ..hold("ann", 1, 2) }];
        assert_eq!(oversold(&strange, &caps())["b9"].oversold, 1);
    }
}
