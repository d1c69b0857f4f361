use std::collections::BTreeMap;

use crate::ids::NodeId;
use crate::node::NodeRecord;

use super::choose::Ask;
use super::curve::Bend;
use super::memory::Known;
use super::metric::{MetricSource, Rule};

/// The rules of a config made ready for a choice. Rules of weight 0 cost nothing.
#[derive(Debug)]
pub struct Scorer<'a> {
    /// All but recent picks, in the order of their names.
    plain: Vec<(Rule, Bend)>,
    /// Recent picks: what counts as many is known only when all candidates are.
    picks: Vec<(Rule, Bend)>,
    weights: &'a BTreeMap<NodeId, f64>,
    halflife_ms: u64,
}

/// What a score is made from besides the backend's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub ask: &'a Ask,
    pub locality: Option<&'a str>,
}

impl<'a> Scorer<'a> {
    /// `rules` by name, the weights of single backends (1 where there is none), and how fast recent picks are forgotten.
    pub fn new<'r>(
        rules: impl IntoIterator<Item = &'r Rule>,
        weights: &'a BTreeMap<NodeId, f64>,
        halflife_ms: u64,
    ) -> Self {
        let weighed = rules.into_iter().filter(|rule| rule.weight > 0.0).map(|rule| (*rule, Bend::new(rule.curve)));
        let (picks, plain) = weighed.partition(|(rule, _)| rule.source == MetricSource::RecentPicks);
        Self { plain, picks, weights, halflife_ms }
    }

    pub(super) fn recent(&self, known: Option<&Known>, now_ms: u64) -> f64 {
        match known {
            Some(known) if !self.picks.is_empty() => known.picks.at(now_ms, self.halflife_ms),
            _ => 0.0,
        }
    }

    /// Σ weight × curve(normalise(metric)) over all but recent picks.
    pub(super) fn plain(&self, record: &NodeRecord, known: Option<&Known>, around: Circumstances<'_>) -> f64 {
        let value = |source| match source {
            MetricSource::RttMs => known.and_then(|known| known.rtt_ms),
            MetricSource::StickyRegion => sticky(record, around.ask),
            MetricSource::Locality => locality(record, around.locality),
            published => published.published(record),
        };
        self.plain.iter().fold(0.0, |sum, (rule, bend)| sum + rule.weight * bend.at(rule.normalise(value(rule.source))))
    }

    /// The whole score: `plain` and the recent picks, by the backend's own weight. `highest` is the most recent picks that
    /// any candidate has.
    pub(super) fn whole(&self, plain: f64, picks: f64, highest: f64, id: &NodeId) -> f64 {
        let sum = self.picks.iter().fold(plain, |sum, (rule, bend)| {
            sum + rule.weight * bend.at(rule.normalise_to(Some(picks), rule.max.max(highest)))
        });
        if self.weights.is_empty() { sum } else { sum / self.weights.get(id).copied().unwrap_or(1.0) }
    }
}

fn sticky(record: &NodeRecord, ask: &Ask) -> Option<f64> {
    let wanted = ask.prefer.as_ref().or(ask.region.as_ref())?;
    Some(f64::from(u8::from(!record.load.regions.contains_key(wanted))))
}

fn locality(record: &NodeRecord, own: Option<&str>) -> Option<f64> {
    let theirs = record.labels.get(LOCALITY)?;
    Some(f64::from(u8::from(own? != theirs)))
}

/// The label that says where a node is.
pub const LOCALITY: &str = "locality";
