use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::NodeId;
use crate::node::{NodeView, Snapshot, Switches};

use super::metric::Rule;
use super::picks::Decay;
use super::row::{Known, Regions, Row};
use super::score::Costs;

/// Share of a new round trip in the smoothed one, as TCP has it (RFC 6298).
const RTT_SHARE: f64 = 0.125;
/// A count below this is as good as none.
const PICKS_MIN: f64 = 0.01;

/// What a config and the chooser itself say about every choice.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The rules of the score, by name.
    pub rules: &'a BTreeMap<String, Rule>,
    /// The weights of single backends; the others weigh 1.
    pub weights: &'a BTreeMap<NodeId, f64>,
    /// Time in which a pick loses half of its weight.
    pub halflife_ms: u64,
    /// Who chooses: never picked.
    pub own: &'a NodeId,
    /// Where it is: its label `locality`.
    pub locality: Option<&'a str>,
}

/// The nodes as one proxy sees them at one moment, with what it knows of them by itself: who refused or did not answer a
/// moment ago, who was picked, how far away each is. None of that is published.
///
/// [`take_in`](Self::take_in) brings it to a snapshot and works out what every choice would have to work out again; of an
/// earlier snapshot only what changed is looked at. Times are in ms of any one clock that only goes forward.
#[derive(Debug)]
pub struct Candidates {
    /// In the order of ids.
    pub(super) rows: Vec<Row>,
    pub(super) costs: Costs,
    pub(super) regions: Regions,
    pub(super) decay: Decay,
    /// Nodes that are not in view.
    absent: BTreeMap<NodeId, Known>,
    snapshot: Arc<Snapshot>,
    switches: Arc<Switches>,
    rules: BTreeMap<String, Rule>,
    weights: BTreeMap<NodeId, f64>,
    own: Option<NodeId>,
    locality: Option<String>,
}

impl Default for Candidates {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            costs: Costs::default(),
            regions: Regions::default(),
            decay: Decay::new(0, 1),
            absent: BTreeMap::new(),
            snapshot: Arc::default(),
            switches: Arc::default(),
            rules: BTreeMap::new(),
            weights: BTreeMap::new(),
            own: None,
            locality: None,
        }
    }
}

impl Candidates {
    /// Brings the table to `snapshot`, `switches` and `setting` at `now_ms`. Costs next to nothing where they are those of
    /// the last time.
    pub fn take_in(&mut self, snapshot: &Arc<Snapshot>, switches: &Arc<Switches>, setting: &Setting<'_>, now_ms: u64) {
        self.keep_counts_as_of(now_ms, setting.halflife_ms);
        let is_set = self.own.as_ref() == Some(setting.own)
            && self.locality.as_deref() == setting.locality
            && self.rules == *setting.rules;
        if !is_set {
            self.own = Some(setting.own.clone());
            self.locality = setting.locality.map(str::to_owned);
            self.rules.clone_from(setting.rules);
            self.costs = Costs::new(setting.rules);
        }
        let has_same_nodes = Arc::ptr_eq(&self.snapshot, snapshot) || self.update(snapshot);
        if !has_same_nodes {
            self.rebuild(snapshot, now_ms);
        }
        self.snapshot = Arc::clone(snapshot);
        if !is_set || !has_same_nodes {
            self.regions = Regions::default();
            for row in &mut self.rows {
                row.read(&self.costs, &mut self.regions, setting.locality, setting.own);
                row.far = row.known.rtt_ms.map(|rtt_ms| self.costs.far(rtt_ms));
            }
        }
        if !has_same_nodes || !Arc::ptr_eq(&self.switches, switches) {
            self.switches = Arc::clone(switches);
            self.rows.iter_mut().for_each(|row| row.switch(switches));
        }
        if !has_same_nodes || self.weights != *setting.weights {
            self.weights.clone_from(setting.weights);
            for row in &mut self.rows {
                row.weight =
                    if self.weights.is_empty() { None } else { self.weights.get(&row.node.id).copied() }.unwrap_or(1.0);
            }
        }
    }

    /// Takes in a snapshot of the same nodes as before, reading only the records that are new. False where the nodes are
    /// others; then some rows may be of the new snapshot already.
    fn update(&mut self, snapshot: &Snapshot) -> bool {
        if self.rows.len() != snapshot.nodes.len() {
            return false;
        }
        let (Some(own), locality) = (&self.own, self.locality.as_deref()) else { return false };
        for (row, view) in self.rows.iter_mut().zip(&snapshot.nodes) {
            if !Arc::ptr_eq(&row.node, &view.record) {
                if row.node.id != view.record.id {
                    return false;
                }
                row.node = Arc::clone(&view.record);
                row.read(&self.costs, &mut self.regions, locality, own);
                row.switch(&self.switches);
            }
            row.judge(view);
        }
        true
    }

    /// Makes the rows anew and carries over what is known; forgets what is of no use any more.
    fn rebuild(&mut self, snapshot: &Snapshot, now_ms: u64) {
        let old = self.rows.drain(..).map(|row| (row.node.id.clone(), row.known));
        self.absent.extend(old);
        // They are in this order already where a directory made them.
        let mut views: Vec<&NodeView> = snapshot.nodes.iter().collect();
        views.sort_by(|a, b| a.record.id.cmp(&b.record.id));
        let absent = &mut self.absent;
        let row = |view: &NodeView| Row::new(view, absent.remove(&view.record.id).unwrap_or_default());
        self.rows = views.into_iter().map(row).collect();
        let factor = self.decay.factor(now_ms);
        self.absent.retain(|_, known| {
            known.cooling_until_ms > now_ms
                || known.picks * factor > PICKS_MIN
                || known.unshared > 0
                || known.in_flight > 0
        });
    }

    /// Writes the counts as of now where the moment they are kept for is long ago, or the half-life is another. Needed
    /// before anything is added to them: after a long silence the factor is 0, and nothing can be divided by it.
    fn keep_counts_as_of(&mut self, now_ms: u64, halflife_ms: u64) {
        if !self.decay.is_over(now_ms, halflife_ms) {
            return;
        }
        let factor = self.decay.factor(now_ms);
        self.all_known().for_each(|(_, known)| known.picks = countable(known.picks * factor));
        self.decay = Decay::new(now_ms, halflife_ms);
    }

    fn all_known(&mut self) -> impl Iterator<Item = (&NodeId, &mut Known)> {
        let here = self.rows.iter_mut().map(|row| (&row.node.id, &mut row.known));
        here.chain(self.absent.iter_mut())
    }

    fn at(&self, id: &NodeId) -> Option<usize> {
        self.rows.binary_search_by(|row| row.node.id.cmp(id)).ok()
    }

    fn known(&self, id: &NodeId) -> Option<&Known> {
        match self.at(id).and_then(|at| self.rows.get(at)) {
            Some(row) => Some(&row.known),
            None => self.absent.get(id),
        }
    }

    fn known_mut(&mut self, id: &NodeId) -> &mut Known {
        match self.at(id).and_then(|at| self.rows.get_mut(at)) {
            Some(row) => &mut row.known,
            None => self.absent.entry(id.clone()).or_default(),
        }
    }

    /// Leaves `id` out until `until_ms`.
    pub fn cool(&mut self, id: &NodeId, until_ms: u64) {
        self.known_mut(id).cooling_until_ms = until_ms;
    }

    /// True while `id` is left out.
    pub fn is_cooling(&self, id: &NodeId, now_ms: u64) -> bool {
        self.known(id).is_some_and(|known| known.cooling_until_ms > now_ms)
    }

    /// `id` was picked once more. With `share` the pick is counted for [`take_unshared`](Self::take_unshared).
    pub fn picked(&mut self, id: &NodeId, now_ms: u64, share: bool) {
        self.keep_counts_as_of(now_ms, self.decay.halflife_ms());
        let more = self.decay.kept(1.0, now_ms);
        let known = self.known_mut(id);
        known.picks += more;
        known.unshared = if share { known.unshared.saturating_add(1) } else { 0 };
    }

    /// Recent picks of `id`.
    pub fn picks(&self, id: &NodeId, now_ms: u64) -> f64 {
        self.known(id).map_or(0.0, |known| known.picks * self.decay.factor(now_ms))
    }

    /// A call of `id` took `rtt_ms` from the question to the answer.
    pub fn answered(&mut self, id: &NodeId, rtt_ms: f64) {
        let known = self.known_mut(id);
        let smoothed = known.rtt_ms.map_or(rtt_ms, |rtt| rtt + RTT_SHARE * (rtt_ms - rtt));
        known.rtt_ms = Some(smoothed);
        let far = Some(self.costs.far(smoothed));
        if let Some(row) = self.at(id).and_then(|at| self.rows.get_mut(at)) {
            row.far = far;
        }
    }

    /// The smoothed round trip to `id`, in ms.
    pub fn rtt_ms(&self, id: &NodeId) -> Option<f64> {
        self.known(id)?.rtt_ms
    }

    /// Picks that the other proxies were not told of, at most `most` backends; they count as under way until
    /// [`told`](Self::told).
    pub fn take_unshared(&mut self, most: usize) -> Vec<(NodeId, u32)> {
        let waiting = self.all_known().filter(|(_, known)| known.unshared > 0).take(most);
        waiting
            .map(|(id, known)| {
                known.in_flight = std::mem::take(&mut known.unshared);
                (id.clone(), known.in_flight)
            })
            .collect()
    }

    /// The other proxies can know of what was taken.
    pub fn told(&mut self) {
        self.all_known().for_each(|(_, known)| known.in_flight = 0);
    }

    /// The picks of all proxies as they were read at `now_ms`; this proxy's own that they do not hold are added. A backend
    /// that is not among them was not picked by anybody; one that is not known here is not remembered.
    pub fn take_shared_picks(&mut self, shared: &BTreeMap<NodeId, f64>, now_ms: u64) {
        // Every count is another now, so they can be kept as of now.
        self.decay = Decay::new(now_ms, self.decay.halflife_ms());
        for (id, known) in self.all_known() {
            let all = shared.get(id).copied().map_or(0.0, countable);
            known.picks = all + f64::from(known.unshared) + f64::from(known.in_flight);
        }
    }
}

/// A count; nothing where it is no number that could be one.
fn countable(count: f64) -> f64 {
    if count.is_finite() { count.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> NodeId {
        NodeId::new(name).expect("valid")
    }

    /// A table that was set once at `now_ms`, with nobody in view.
    fn table(now_ms: u64, halflife_ms: u64) -> Candidates {
        let mut table = Candidates::default();
        set(&mut table, now_ms, halflife_ms);
        table
    }

    fn set(table: &mut Candidates, now_ms: u64, halflife_ms: u64) {
        let (rules, weights, own) = (Rule::defaults(), BTreeMap::new(), id("own"));
        let setting = Setting { rules: &rules, weights: &weights, halflife_ms, own: &own, locality: None };
        table.take_in(&Arc::default(), &Arc::default(), &setting, now_ms);
    }

    #[test]
    fn sel_5_a_backend_is_out_for_its_cooldown_and_no_longer() {
        let mut table = table(0, 10_000);
        table.cool(&id("b1"), 2_100);
        assert!(table.is_cooling(&id("b1"), 2_099) && !table.is_cooling(&id("b1"), 2_100));
        assert!(!table.is_cooling(&id("b2"), 0));
    }

    #[test]
    fn sel_3_the_round_trip_is_smoothed() {
        let mut table = table(0, 10_000);
        assert_eq!(table.rtt_ms(&id("b1")), None);
        table.answered(&id("b1"), 80.0);
        table.answered(&id("b1"), 160.0);
        assert_eq!(table.rtt_ms(&id("b1")), Some(90.0), "an eighth of the way");
    }

    #[test]
    fn sel_3_counts_decay_on_while_they_are_written_anew_and_by_the_halflife_of_now() {
        let mut table = table(0, 1_000);
        for _ in 0..4 {
            table.picked(&id("b1"), 0, false);
        }
        assert!((table.picks(&id("b1"), 1_000) - 2.0).abs() < 1e-9);
        set(&mut table, 1_000, 500);
        assert!((table.picks(&id("b1"), 1_000) - 2.0).abs() < 1e-9, "a change of the half-life takes nothing back");
        assert!((table.picks(&id("b1"), 1_500) - 1.0).abs() < 1e-9);
        table.picked(&id("b1"), 1_500, false);
        set(&mut table, 1_000_000, 500);
        assert!(table.picks(&id("b1"), 1_000_000) < 1e-9);
        table.picked(&id("b1"), 1_000_000, false);
        assert!((table.picks(&id("b1"), 1_000_500) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn sel_9_picks_of_all_proxies_and_those_they_do_not_know_of_yet_count_once() {
        let mut table = table(0, 10_000);
        for _ in 0..3 {
            table.picked(&id("b1"), 0, true);
        }
        assert_eq!(table.take_unshared(8), [(id("b1"), 3)]);
        table.picked(&id("b1"), 0, true);
        table.cool(&id("b2"), 0);
        // What is under way may or may not be in the store: counted until it is known.
        table.take_shared_picks(&BTreeMap::from([(id("b2"), 5.0)]), 0);
        assert!((table.picks(&id("b1"), 0) - 4.0).abs() < 1e-9);
        assert!((table.picks(&id("b2"), 0) - 5.0).abs() < 1e-9);
        table.told();
        table.take_shared_picks(&BTreeMap::from([(id("b1"), 3.0)]), 0);
        assert!((table.picks(&id("b1"), 0) - 4.0).abs() < 1e-9);
        assert!(table.picks(&id("b2"), 0) < 1e-9, "nobody picks it any more");
        assert_eq!(table.take_unshared(8), [(id("b1"), 1)]);
        assert_eq!(table.take_unshared(8), []);
    }
}
