use std::collections::BTreeSet;

use crate::ids::Region;

/// What is waited for at one backend, as its last poll of the lines found it: wishes that it could serve if it had a place.
/// Pure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UnmetDemand {
    any: bool,
    regions: BTreeSet<Region>,
}

impl UnmetDemand {
    /// Somebody waits for a place in `region`; none for any.
    pub fn add(&mut self, region: Option<&Region>) {
        match region {
            Some(region) => drop(self.regions.insert(region.clone())),
            None => self.any = true,
        }
    }

    /// A place for a fresh request in `region` (none for any) could be one that somebody waits for.
    pub fn comes_before(&self, region: Option<&Region>) -> bool {
        self.any || region.map_or(!self.regions.is_empty(), |region| self.regions.contains(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // QUE-9: without it whoever asks at the right moment goes before all who wait.
    #[test]
    fn que_9_a_fresh_request_is_overtaking_where_it_could_take_what_somebody_waits_for() {
        let (north, south) = (Region::new("north").expect("valid"), Region::new("south").expect("valid"));
        let mut unmet = UnmetDemand::default();
        assert!(!unmet.comes_before(None) && !unmet.comes_before(Some(&north)));
        unmet.add(Some(&north));
        assert!(unmet.comes_before(Some(&north)) && !unmet.comes_before(Some(&south)));
        assert!(unmet.comes_before(None), "it might be given the place in the north");
        unmet.add(None);
        assert!(unmet.comes_before(Some(&south)), "any place will do for whoever waits");
    }
}
