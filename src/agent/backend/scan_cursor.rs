use std::collections::BTreeSet;

use crate::ids::Region;

/// What a backend may have places of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Offered {
    pub regions: BTreeSet<Region>,
    /// Those that it has loaded.
    pub worlds: BTreeSet<String>,
}

impl Offered {
    /// A wish for this region and world, none for any, can be served here if there is a place.
    pub fn suits(&self, region: Option<&Region>, world: Option<&str>) -> bool {
        region.is_none_or(|region| self.regions.contains(region))
            && world.is_none_or(|world| self.worlds.contains(world))
    }
}

/// How far behind the first of its lines a backend looked for somebody whom it can serve. Each look goes on where the last
/// one stopped, so that whoever stands behind any number of wishes for elsewhere has a turn. Pure.
#[derive(Debug, Default)]
pub(super) struct ScanCursor {
    after: Option<u64>,
    /// What could be served at that time.
    offered: Offered,
    /// Of what there was no place for somebody who was passed over: nobody further back gets one before them.
    passed: BTreeSet<Option<Region>>,
}

impl ScanCursor {
    /// Where a scan of one who has this goes on, the end of the first page being `first`.
    pub fn begin(&mut self, first: u64, offered: Offered) -> u64 {
        if self.offered != offered {
            *self = Self { offered, ..Self::default() };
        }
        self.after.map_or(first, |after| after.max(first))
    }

    /// What somebody in front of this piece waits for.
    pub fn passed(&self) -> &BTreeSet<Option<Region>> {
        &self.passed
    }

    /// Nobody up to `after` could be served, for want of places of these kinds. `None`: the lines end there.
    pub fn pass(&mut self, after: Option<u64>, wanting: impl IntoIterator<Item = Option<Region>>) {
        if after.is_some() {
            self.passed.extend(wanting);
        } else {
            self.passed.clear();
        }
        self.after = after;
    }
}

/// No region has a place left.
pub(super) fn is_sold_out(regions: &BTreeSet<Region>, exhausted: &BTreeSet<Option<Region>>) -> bool {
    let all = || !regions.is_empty() && regions.iter().all(|region| exhausted.contains(&Some(region.clone())));
    exhausted.contains(&None) || all()
}

#[cfg(test)]
mod tests {
    use super::*;

    // QUE-9: without it whoever stands behind many others is never seen, or is served before those in front.
    #[test]
    fn que_9_each_look_goes_on_behind_the_last_and_begins_anew_at_the_end() {
        let (north, south) = (Region::new("north").expect("valid"), Region::new("south").expect("valid"));
        let of = |regions: &[&Region], worlds: &[&str]| Offered {
            regions: regions.iter().map(|region| (*region).clone()).collect(),
            worlds: worlds.iter().map(|world| (*world).to_owned()).collect(),
        };
        let mut cursor = ScanCursor::default();
        assert_eq!(cursor.begin(64, of(&[&south], &[])), 64);
        cursor.pass(Some(1_088), [Some(south.clone())]);
        assert_eq!(cursor.begin(64, of(&[&south], &[])), 1_088);
        assert!(cursor.passed().contains(&Some(south.clone())), "one in front waits for the same");
        for more in [of(&[&north, &south], &[]), of(&[&north, &south], &["nether"])] {
            assert_eq!(cursor.begin(64, more), 64, "who was passed over may be served now");
            assert!(cursor.passed().is_empty());
            cursor.pass(Some(1_088), [Some(south.clone())]);
        }
        cursor.pass(None, []);
        assert!(cursor.passed().is_empty() && cursor.after.is_none());
    }

    // SEL-4: a place on a backend without the world that was asked for is none.
    #[test]
    fn que_9_a_wish_is_served_where_its_region_and_its_world_are() {
        let (north, south) = (Region::new("north").expect("valid"), Region::new("south").expect("valid"));
        let has = Offered { regions: BTreeSet::from([north.clone()]), worlds: BTreeSet::from(["end".to_owned()]) };
        assert!(has.suits(None, None) && has.suits(Some(&north), Some("end")) && has.suits(None, Some("end")));
        assert!(!has.suits(Some(&south), Some("end")) && !has.suits(Some(&north), Some("nether")));
    }

    // QUE-9: whoever waits deep in a long line gets the next place, not that of the next round.
    #[test]
    fn que_9_a_backend_without_places_stays_where_somebody_waits_for_one() {
        let (north, south) = (Region::new("north").expect("valid"), Region::new("south").expect("valid"));
        let both = BTreeSet::from([north.clone(), south.clone()]);
        assert!(is_sold_out(&both, &BTreeSet::from([None])), "not for any region");
        assert!(!is_sold_out(&both, &BTreeSet::from([Some(south.clone())])));
        assert!(is_sold_out(&both, &BTreeSet::from([Some(south), Some(north)])));
        assert!(!is_sold_out(&BTreeSet::new(), &BTreeSet::new()));
    }
}
