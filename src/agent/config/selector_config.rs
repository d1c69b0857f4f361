use std::collections::BTreeMap;

use crate::ids::NodeId;
use crate::select::Rule;

/// `selector`: how a backend is chosen (SEL-1).
#[derive(Debug, Clone, PartialEq)]
pub struct SelectorConfig {
    /// What happens to a request for which no backend comes into question (SEL-7).
    pub on_no_candidate: OnNoCandidate,
    /// Recent picks.
    pub recent_picks: RecentPicksConfig,
    /// The rows of the score, by name: at most 32. A file changes single values of the default ones and adds others; to
    /// take one out it gives it the weight 0.
    pub metrics: BTreeMap<String, Rule>,
    /// The weight of single backends, 0.001 to 1,000, at most 512 of them; the others weigh 1. A score is divided by it.
    pub backends: BTreeMap<NodeId, f64>,
}

/// What happens to a request for which no backend comes into question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnNoCandidate {
    /// It ends, with the text `texts.noCandidate`.
    #[default]
    Refuse,
    /// Its player waits in a line until a backend has a place (QUE-9); also where every backend that was asked had none.
    Queue,
}

/// `selector.recentPicks`: what keeps a crowd from going to one backend between two of its beats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentPicksConfig {
    /// Time in which a pick loses half of its weight, in ms: 100 to 600,000.
    pub halflife_ms: u64,
    /// True: all proxies with this setting count each other's picks, by way of the store (SEL-9).
    pub shared: bool,
}

impl Default for SelectorConfig {
    fn default() -> Self {
        Self {
            on_no_candidate: OnNoCandidate::default(),
            recent_picks: RecentPicksConfig::default(),
            metrics: Rule::defaults(),
            backends: BTreeMap::new(),
        }
    }
}

impl Default for RecentPicksConfig {
    fn default() -> Self {
        Self { halflife_ms: 10_000, shared: false }
    }
}
