use std::collections::BTreeMap;

use crate::node::NodeRecord;

use super::curve::Curve;

/// Where a metric's value comes from: a field of a backend's heartbeat, a ratio of two, or what the proxy knows itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricSource {
    /// Players on the backend.
    Players,
    /// Players it wants at most; missing where it has no such number.
    SoftCap,
    /// Players by soft cap.
    PlayersPerSoftCap,
    /// Ticks per second over the last minute; more is better, so it is used with `invert`.
    Tps1m,
    /// Ticks per second over the last 5 minutes.
    Tps5m,
    /// Ticks per second over the last 15 minutes.
    Tps15m,
    /// Milliseconds a tick takes.
    Mspt,
    /// Requests that wait for a place there.
    QueueDepth,
    /// Players on their way there.
    PendingTransfers,
    /// Average time to make a place, in ms.
    AvgPipelineMs,
    /// Chunks that wait to be loaded or generated.
    ChunkBacklog,
    /// Entries of the application's own memory tracker.
    MemoryEntries,
    /// Heap in use, in bytes.
    HeapUsed,
    /// Largest heap, in bytes.
    HeapMax,
    /// Heap in use by largest heap.
    HeapUsedPerMax,
    /// The backend's round trip to the store, in ms.
    StoreLatencyMs,
    /// New players per second.
    NewPlayersPerSecond,
    /// 1 where the backend asks for no more load, else 0.
    Overloaded,
    /// This proxy's smoothed round trip to the backend, in ms. Measured here, never published; a backend that was not
    /// measured yet counts as the best of the other candidates, and as 0 ms where none was.
    RttMs,
    /// 0 where the backend serves the region that the request prefers (or asks for), else 1.
    StickyRegion,
    /// 0 where the backend's label `locality` is this proxy's, else 1.
    Locality,
    /// How often the backend was picked a moment ago, decaying.
    RecentPicks,
}

impl MetricSource {
    /// Every source.
    pub const ALL: [Self; 22] = [
        Self::Players,
        Self::SoftCap,
        Self::PlayersPerSoftCap,
        Self::Tps1m,
        Self::Tps5m,
        Self::Tps15m,
        Self::Mspt,
        Self::QueueDepth,
        Self::PendingTransfers,
        Self::AvgPipelineMs,
        Self::ChunkBacklog,
        Self::MemoryEntries,
        Self::HeapUsed,
        Self::HeapMax,
        Self::HeapUsedPerMax,
        Self::StoreLatencyMs,
        Self::NewPlayersPerSecond,
        Self::Overloaded,
        Self::RttMs,
        Self::StickyRegion,
        Self::Locality,
        Self::RecentPicks,
    ];

    /// The source's name in the config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Players => "players",
            Self::SoftCap => "softCap",
            Self::PlayersPerSoftCap => "players/softCap",
            Self::Tps1m => "tps1m",
            Self::Tps5m => "tps5m",
            Self::Tps15m => "tps15m",
            Self::Mspt => "mspt",
            Self::QueueDepth => "queueDepth",
            Self::PendingTransfers => "pendingTransfers",
            Self::AvgPipelineMs => "avgPipelineMs",
            Self::ChunkBacklog => "chunkBacklog",
            Self::MemoryEntries => "memoryEntries",
            Self::HeapUsed => "heapUsed",
            Self::HeapMax => "heapMax",
            Self::HeapUsedPerMax => "heapUsed/heapMax",
            Self::StoreLatencyMs => "storeLatencyMs",
            Self::NewPlayersPerSecond => "newPlayersPerSecond",
            Self::Overloaded => "overloaded",
            Self::RttMs => "rttMs",
            Self::StickyRegion => "stickyRegion",
            Self::Locality => "locality",
            Self::RecentPicks => "recentPicks",
        }
    }

    /// The source of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }

    /// What the backend's row says; `None` where it says nothing usable, or where the row does not know.
    pub(super) fn published(self, record: &NodeRecord) -> Option<f64> {
        let load = &record.load;
        match self {
            Self::Players => Some(real(record.players)),
            Self::SoftCap => (record.soft_cap > 0).then(|| real(record.soft_cap)),
            Self::PlayersPerSoftCap => ratio(Some(record.players), Some(record.soft_cap)),
            Self::Tps1m => load.tps_1m,
            Self::Tps5m => load.tps_5m,
            Self::Tps15m => load.tps_15m,
            Self::Mspt => load.mspt,
            Self::QueueDepth => load.queue_depth.map(real),
            Self::PendingTransfers => load.pending_transfers.map(real),
            Self::AvgPipelineMs => load.avg_pipeline_ms,
            Self::ChunkBacklog => load.chunk_backlog.map(real),
            Self::MemoryEntries => load.memory_entries.map(real),
            Self::HeapUsed => load.heap_used.map(real),
            Self::HeapMax => load.heap_max.map(real),
            Self::HeapUsedPerMax => ratio(load.heap_used, load.heap_max),
            Self::StoreLatencyMs => load.store_latency_ms,
            Self::NewPlayersPerSecond => load.new_players_per_second,
            Self::Overloaded => load.overloaded.map(|overloaded| f64::from(u8::from(overloaded))),
            Self::RttMs | Self::StickyRegion | Self::Locality | Self::RecentPicks => None,
        }
    }
}

fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0)?;
    Some(real(part?) / real(whole))
}

fn real(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 a load is worst, whatever its last digits")]
    let real = number as f64;
    real
}

/// One row of the score: where the value comes from, how it is normalised and bent, and what it weighs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Where the value comes from.
    pub source: MetricSource,
    /// What it weighs: 0 (nothing) to 1,000.
    pub weight: f64,
    /// The value that counts as best, 0. Below [`max`](Self::max).
    pub min: f64,
    /// The value that counts as worst, 1. For recent picks it grows with the highest count among the candidates.
    pub max: f64,
    /// Turns best and worst round, for values of which more is better.
    pub invert: bool,
    /// How the normalised value becomes a cost.
    pub curve: Curve,
}

impl Rule {
    /// A metric of weight 1 that goes straight from 0 to 1.
    pub fn new(source: MetricSource) -> Self {
        Self { source, weight: 1.0, min: 0.0, max: 1.0, invert: false, curve: Curve::Linear }
    }

    /// The metrics of a config that names none, by name.
    pub fn defaults() -> BTreeMap<String, Self> {
        use MetricSource::{
            AvgPipelineMs, HeapUsedPerMax, Mspt, PlayersPerSoftCap, QueueDepth, RecentPicks, RttMs, StickyRegion,
        };
        let rows = [
            ("playerLoad", PlayersPerSoftCap, 0.0, 1.0, Curve::Logarithmic { k: 9.0 }),
            ("mspt", Mspt, 1.5, 100.0, Curve::Exponential { k: 3.0 }),
            ("queueDepth", QueueDepth, 0.5, 64.0, Curve::Linear),
            ("pipelineMs", AvgPipelineMs, 0.7, 2_000.0, Curve::Sigmoid { k: 8.0 }),
            ("proxyLatency", RttMs, 0.3, 200.0, Curve::Linear),
            ("heap", HeapUsedPerMax, 0.4, 1.0, Curve::Sigmoid { k: 10.0 }),
            ("regionAffinity", StickyRegion, 0.2, 1.0, Curve::Step { threshold: 0.5 }),
            ("recentPicks", RecentPicks, 0.5, 10.0, Curve::Linear),
        ];
        let rule = |source, weight, max, curve| Self { weight, max, curve, ..Self::new(source) };
        rows.into_iter()
            .map(|(name, source, weight, max, curve)| (name.to_owned(), rule(source, weight, max, curve)))
            .collect()
    }

    /// The value as 0 (best) to 1 (worst); one that is missing or no number is worst.
    pub fn normalise(&self, value: Option<f64>) -> f64 {
        self.normalise_to(value, self.max)
    }

    /// [`normalise`](Self::normalise) with another upper end.
    pub(super) fn normalise_to(&self, value: Option<f64>, max: f64) -> f64 {
        let Some(value) = value.filter(|value| !value.is_nan()) else { return 1.0 };
        let x = ((value - self.min) / (max - self.min)).clamp(0.0, 1.0);
        let x = if self.invert { 1.0 - x } else { x };
        // Bounds that are no numbers or the same, which only code can set.
        if x.is_nan() { 1.0 } else { x }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sel_3_values_are_clamped_turned_round_and_worst_where_they_are_missing() {
        let rule = Rule { min: 10.0, max: 20.0, ..Rule::new(MetricSource::Mspt) };
        let turned = Rule { invert: true, ..rule };
        let cases = [
            (Some(10.0), 0.0, 1.0),
            (Some(12.5), 0.25, 0.75),
            (Some(20.0), 1.0, 0.0),
            (Some(-1e300), 0.0, 1.0),
            (Some(f64::INFINITY), 1.0, 0.0),
            (None, 1.0, 1.0),
            (Some(f64::NAN), 1.0, 1.0),
        ];
        for (value, straight, other) in cases {
            assert!((rule.normalise(value) - straight).abs() < f64::EPSILON, "{value:?}");
            assert!((turned.normalise(value) - other).abs() < f64::EPSILON, "{value:?}");
        }
        let broken = Rule { min: 5.0, max: 5.0, ..rule };
        assert!((broken.normalise(Some(5.0)) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn sel_3_every_source_has_a_name_of_its_own() {
        for source in MetricSource::ALL {
            assert_eq!(MetricSource::named(source.name()), Some(source));
        }
        assert_eq!(MetricSource::named("playerCount"), None);
    }
}
