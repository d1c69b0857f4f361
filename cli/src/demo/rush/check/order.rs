use std::collections::{BTreeMap, BTreeSet};

/// A time during which a player certainly stood in the line: from the answer that said so until whatever may have ended
/// it was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::demo::rush) struct Stand {
    pub player: String,
    pub lane: u16,
    pub seq: u64,
    pub from_us: u64,
    pub until_us: u64,
}

/// A player was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::demo::rush) struct Admission {
    pub player: String,
    pub lane: u16,
    pub seq: u64,
    pub at_us: u64,
}

/// A player's first entry: when it was asked, when it was answered, and which place that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::demo::rush) struct Joining {
    pub player: String,
    pub asked_us: u64,
    pub told_us: u64,
    pub seq: u64,
}

/// Admissions while somebody of the same lane with an earlier place stood in the line, one text each.
pub(in crate::demo::rush) fn overtaken(stands: &[Stand], admissions: &[Admission]) -> Vec<String> {
    enum What<'a> {
        Goes(&'a Stand),
        Admitted(&'a Admission),
        Comes(&'a Stand),
    }
    // At the same moment whoever goes is gone already, and whoever comes is not there yet: only what is certain counts.
    let mut steps: Vec<(u64, u8, What<'_>)> = Vec::new();
    for stand in stands.iter().filter(|stand| stand.from_us < stand.until_us) {
        steps.push((stand.until_us, 0, What::Goes(stand)));
        steps.push((stand.from_us, 2, What::Comes(stand)));
    }
    steps.extend(admissions.iter().map(|admission| (admission.at_us, 1, What::Admitted(admission))));
    steps.sort_by_key(|(at_us, order, _)| (*at_us, *order));
    let mut lanes: BTreeMap<u16, BTreeSet<(u64, &str)>> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, _, what) in steps {
        match what {
            What::Comes(stand) => {
                lanes.entry(stand.lane).or_default().insert((stand.seq, &stand.player));
            }
            What::Goes(stand) => {
                lanes.entry(stand.lane).or_default().remove(&(stand.seq, stand.player.as_str()));
            }
            What::Admitted(admission) => {
                let first = lanes.get(&admission.lane).and_then(|lane| lane.first());
                if let Some((seq, player)) = first
                    && *seq < admission.seq
                {
                    found.push(format!(
                        "{} (place {}) was admitted while {player} (place {seq}) stood in lane {}",
                        admission.player, admission.seq, admission.lane
                    ));
                }
            }
        }
    }
    found
}

/// Players with a later place than somebody who asked only after they had been answered, one text each.
pub(in crate::demo::rush) fn joined_out_of_turn(joinings: &[Joining]) -> Vec<String> {
    let mut ordered: Vec<&Joining> = joinings.iter().collect();
    ordered.sort_by_key(|joining| joining.seq);
    let mut latest: Option<&Joining> = None;
    let mut found = Vec::new();
    for joining in ordered {
        if let Some(before) = latest {
            if joining.told_us < before.asked_us {
                let (late, early) = (&joining.player, &before.player);
                found.push(format!("{late} had been answered before {early} asked, and stands behind"));
            } else if joining.seq == before.seq {
                found.push(format!("{} and {} have the same place", joining.player, before.player));
            }
        }
        if latest.is_none_or(|before| joining.asked_us > before.asked_us) {
            latest = Some(joining);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(player: &str, seq: u64, from_us: u64, until_us: u64) -> Stand {
        Stand { player: player.to_owned(), lane: 0, seq, from_us, until_us }
    }

    fn admission(player: &str, seq: u64, at_us: u64) -> Admission {
        Admission { player: player.to_owned(), lane: 0, seq, at_us }
    }

    // QUE-1, QUE-6: a check that cannot fail would show nothing.
    #[test]
    fn que_6_who_is_overtaken_in_the_line_is_found() {
        let stands = [stand("ann", 1, 10, 100), stand("bob", 2, 10, 200), stand("cid", 3, 10, 300)];
        let fair = [admission("ann", 1, 100), admission("bob", 2, 200), admission("cid", 3, 300)];
        assert_eq!(overtaken(&stands, &fair), Vec::<String>::new());

        let stands = [stand("ann", 1, 10, 200), stand("bob", 2, 10, 100)];
        let unfair = [admission("bob", 2, 100), admission("ann", 1, 200)];
        let found = overtaken(&stands, &unfair);
        assert!(found.len() == 1 && found[0].contains("bob") && found[0].contains("ann"), "{found:?}");
        // Who was forgotten altogether is overtaken by everybody behind.
        assert_eq!(overtaken(&[stand("ann", 1, 10, u64::MAX)], &fair[1..]).len(), 2);
    }

    // QUE-3, QUE-13: who was away may be passed, who is back may not.
    #[test]
    fn que_3_who_was_away_is_passed_and_who_is_back_is_not() {
        let admissions = [admission("bob", 2, 100), admission("cid", 3, 300), admission("ann", 1, 400)];
        let away = [stand("ann", 1, 10, 50), stand("ann", 1, 350, 400)];
        assert_eq!(overtaken(&away, &admissions), Vec::<String>::new());
        let back = [stand("ann", 1, 10, 50), stand("ann", 1, 250, 400)];
        assert!(overtaken(&back, &admissions)[0].starts_with("cid"));
        // Another lane has an order of its own.
        let other = [Stand { lane: 1, ..stand("ann", 1, 10, 400) }];
        assert_eq!(overtaken(&other, &admissions[..2]), Vec::<String>::new());
    }

    fn joining(player: &str, asked_us: u64, told_us: u64, seq: u64) -> Joining {
        Joining { player: player.to_owned(), asked_us, told_us, seq }
    }

    // QUE-1
    #[test]
    fn que_1_who_asked_later_and_stands_before_is_found() {
        let fair = [joining("ann", 0, 10, 1), joining("bob", 5, 8, 2), joining("cid", 11, 20, 3)];
        assert_eq!(joined_out_of_turn(&fair), Vec::<String>::new());
        // Two that were under way at the same time may come in either order.
        let either = [joining("ann", 0, 10, 2), joining("bob", 5, 8, 1)];
        assert_eq!(joined_out_of_turn(&either), Vec::<String>::new());
        let unfair = [joining("ann", 0, 10, 2), joining("dan", 3, 40, 3), joining("bob", 20, 30, 1)];
        assert!(joined_out_of_turn(&unfair)[0].starts_with("ann"));
        let same = [joining("ann", 0, 10, 1), joining("bob", 5, 8, 1)];
        assert_eq!(joined_out_of_turn(&same).len(), 1);
    }
}
