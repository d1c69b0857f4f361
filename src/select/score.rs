use std::collections::BTreeMap;

use crate::node::NodeRecord;

use super::curve::Bend;
use super::metric::{MetricSource, Rule};

/// The label that says where a node is.
pub const LOCALITY: &str = "locality";

/// Some rules of a config, ready to be worked out again and again. Rules of weight 0 are not among them.
type Rules = Vec<(Rule, Bend)>;

/// The rules of a config by when their value is known. A score is the sum of the four parts, in this order, each in the
/// order of its rules' names, by the backend's own weight.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// With a heartbeat: what a backend publishes.
    published: Rules,
    /// With an answer: the round trip.
    far: Rules,
    /// With a request: whether the backend serves the region it prefers.
    sticky: Rules,
    /// With all candidates: the recent picks, because the highest of them counts as worst.
    recent: Rules,
}

fn sum(rules: &Rules, cost: impl Fn(&Rule, &Bend) -> f64) -> f64 {
    rules.iter().fold(0.0, |sum, (rule, bend)| sum + rule.weight * cost(rule, bend))
}

impl Costs {
    pub(super) fn new(rules: &BTreeMap<String, Rule>) -> Self {
        let mut costs = Self::default();
        for rule in rules.values().filter(|rule| rule.weight > 0.0) {
            let part = match rule.source {
                MetricSource::RttMs => &mut costs.far,
                MetricSource::StickyRegion => &mut costs.sticky,
                MetricSource::RecentPicks => &mut costs.recent,
                _ => &mut costs.published,
            };
            part.push((*rule, Bend::new(rule.curve)));
        }
        costs
    }

    /// What the row of a backend costs; `locality` is the chooser's.
    pub(super) fn published(&self, record: &NodeRecord, locality: Option<&str>) -> f64 {
        sum(&self.published, |rule, bend| {
            let value = match rule.source {
                MetricSource::Locality => elsewhere(record, locality),
                source => source.published(record),
            };
            bend.at(rule.normalise(value))
        })
    }

    /// What a round trip costs.
    pub(super) fn far(&self, rtt_ms: f64) -> f64 {
        sum(&self.far, |rule, bend| bend.at(rule.normalise(Some(rtt_ms))))
    }

    /// What it costs to serve the region that a request prefers, or not to; `None` where it prefers none.
    pub(super) fn sticky(&self, serves: Option<bool>) -> f64 {
        let value = serves.map(|serves| f64::from(u8::from(!serves)));
        sum(&self.sticky, |rule, bend| bend.at(rule.normalise(value)))
    }

    /// What recent picks cost where the most that any candidate has is `highest`.
    pub(super) fn recent(&self, picks: f64, highest: f64) -> f64 {
        sum(&self.recent, |rule, bend| bend.at(rule.normalise_to(Some(picks), rule.max.max(highest))))
    }
}

fn elsewhere(record: &NodeRecord, own: Option<&str>) -> Option<f64> {
    let theirs = record.labels.get(LOCALITY)?;
    Some(f64::from(u8::from(own? != theirs)))
}
