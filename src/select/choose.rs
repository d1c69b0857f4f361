use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use serde::Serialize;

use crate::ids::{NodeId, Region};
use crate::node::NodeRecord;

use super::candidates::Candidates;
use super::row::Row;

/// Backends that were left out and are named in a [`Ranking`]; the others are only counted.
pub const NAMED_MAX: usize = 16;

/// What a request wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ask {
    /// This backend and no other.
    pub server: Option<NodeId>,
    /// A place in this region.
    pub region: Option<Region>,
    /// A backend that has this world loaded.
    pub world: Option<String>,
    /// Rather a backend that serves this region, by the weight of the metric with the source `stickyRegion`.
    pub prefer: Option<Region>,
}

impl Ask {
    /// True where any backend and any region will do.
    pub fn is_bare(&self) -> bool {
        self.server.is_none() && self.region.is_none() && self.world.is_none()
    }
}

/// What one choice is made for and when.
#[derive(Debug, Clone, Copy)]
pub struct RankContext<'a> {
    /// What is wanted.
    pub ask: &'a Ask,
    /// What makes one backend better than another.
    pub order: Order,
    /// Age of a backend's last beat from which it is not picked.
    pub stale_after_ms: u64,
    /// Now, on the clock of the candidates.
    pub now_ms: u64,
}

/// What makes one backend better than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The lowest score (SEL-1), ties by node id.
    Score,
    /// The most kept places in one region (SEL-6), ties by node id, then region. Who publishes no count is left out.
    MostKept,
}

/// Why a node was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Its last beat is late.
    Suspect,
    /// Its row is older than the limit.
    Stale,
    /// Not ready, or on its way out.
    NotReady,
    /// It takes no new players.
    NotAccepting,
    /// A kill switch is on for it.
    Killed,
    /// An operator drains it.
    Draining,
    /// It refused or did not answer a moment ago.
    Cooling,
    /// It does not serve the region, or publishes no kept counts to choose by.
    NoRegion,
    /// It has not loaded the world.
    NoWorld,
}

/// A backend to ask, and for which region.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// Its row in the snapshot.
    pub node: Arc<NodeRecord>,
    /// The region to ask for; `None` leaves it to the backend.
    pub region: Option<Region>,
}

/// Backends in the order to ask them, and why others are not among them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranking {
    /// Best first, no more than were asked for.
    pub picks: Vec<Pick>,
    /// Backends that were left out, the first [`NAMED_MAX`] of them.
    pub excluded: Vec<(NodeId, Exclusion)>,
    /// How many were left out.
    pub left_out: usize,
}

/// The `most` best backends for a request.
///
/// Filters first (SEL-4), then the order of the context. A named backend is never replaced by another one. Nodes of the roles
/// `proxy`, `lobby`, `link` and `service` are never picked, nor is the chooser. The same table and context give the same
/// ranking. Nothing is allocated for a single backend but for the `most` and the [`NAMED_MAX`] that the answer names.
pub fn rank(table: &Candidates, context: &RankContext<'_>, most: usize) -> Ranking {
    match context.order {
        Order::Score => by_score(table, context, most),
        Order::MostKept => by_kept(table, context, most),
    }
}

fn by_score(table: &Candidates, context: &RankContext<'_>, most: usize) -> Ranking {
    let (costs, ask) = (&table.costs, context.ask);
    let mut passing: Vec<&Row> = Vec::with_capacity(table.rows.len());
    let mut highest = 0.0_f64;
    let mut nearest: Option<f64> = None;
    let region = ask.region.as_ref().map(|region| table.regions.serving(region));
    let mut ranking = filter(table, context, |row| {
        if region.is_some_and(|region| !region.is_served_by(row)) {
            return Err(Exclusion::NoRegion);
        }
        highest = highest.max(row.known.picks);
        if let Some(far) = row.far {
            nearest = Some(nearest.map_or(far, |nearest| nearest.min(far)));
        }
        passing.push(row);
        Ok(())
    });
    // Only who is asked is measured: were it bad not to be, one that is new might never be asked.
    let unmeasured = nearest.unwrap_or_else(|| costs.far(0.0));
    let factor = table.decay.factor(context.now_ms);
    let highest = highest * factor;
    let unpicked = costs.recent(0.0, highest);
    let preferred = ask.prefer.as_ref().or(ask.region.as_ref()).map(|region| table.regions.serving(region));
    let (indifferent, there, elsewhere) = (costs.sticky(None), costs.sticky(Some(true)), costs.sticky(Some(false)));
    let sticky = |row: &Row| match preferred {
        None => indifferent,
        Some(region) if region.is_served_by(row) => there,
        Some(_) => elsewhere,
    };
    let mut best = Best::new(most);
    for row in passing {
        let picks = row.known.picks;
        let recent = if picks > 0.0 { costs.recent(picks * factor, highest) } else { unpicked };
        best.offer(Score((row.published + row.far.unwrap_or(unmeasured) + sticky(row) + recent) / row.weight), row);
    }
    ranking.picks = best.into_picks(|_| ask.region.clone());
    ranking
}

fn by_kept(table: &Candidates, context: &RankContext<'_>, most: usize) -> Ranking {
    let mut best = Best::new(most);
    let mut ranking = filter(table, context, |row| {
        best.offer(Reverse(row.kept.ok_or(Exclusion::NoRegion)?), row);
        Ok(())
    });
    ranking.picks = best.into_picks(|row| row.most_kept().cloned());
    ranking
}

/// Shows `take` every backend that passes the filters, in the order of ids; it may leave one out itself.
fn filter<'a>(
    table: &'a Candidates,
    context: &RankContext<'_>,
    mut take: impl FnMut(&'a Row) -> Result<(), Exclusion>,
) -> Ranking {
    let mut ranking = Ranking::default();
    let is_wanted = |row: &&Row| match &context.ask.server {
        Some(server) => row.node.id == *server,
        None => row.is_backend,
    };
    for row in table.rows.iter().filter(is_wanted) {
        if let Err(exclusion) = check(row, context).and_then(|()| take(row)) {
            ranking.left_out += 1;
            if ranking.excluded.len() < NAMED_MAX {
                ranking.excluded.push((row.node.id.clone(), exclusion));
            }
        }
    }
    ranking
}

/// The filters of SEL-4 but for the region.
fn check(row: &Row, context: &RankContext<'_>) -> Result<(), Exclusion> {
    if !row.is_online {
        return Err(Exclusion::Suspect);
    }
    if row.age_ms >= context.stale_after_ms {
        return Err(Exclusion::Stale);
    }
    if row.is_killed {
        return Err(Exclusion::Killed);
    }
    if row.is_draining {
        return Err(Exclusion::Draining);
    }
    if !row.is_ready {
        return Err(Exclusion::NotReady);
    }
    if !row.is_accepting {
        return Err(Exclusion::NotAccepting);
    }
    if row.known.cooling_until_ms > context.now_ms {
        return Err(Exclusion::Cooling);
    }
    if context.ask.world.as_ref().is_some_and(|world| !row.node.load.worlds.contains(world)) {
        return Err(Exclusion::NoWorld);
    }
    Ok(())
}

/// A score as something that can be sorted; none is no number.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The best few of many that come in the order of their ids: of those that are alike the first stays before the others.
struct Best<'a, K> {
    most: usize,
    rows: Vec<(K, &'a Row)>,
}

impl<'a, K: Ord> Best<'a, K> {
    fn new(most: usize) -> Self {
        Self { most, rows: Vec::with_capacity(most.saturating_add(1)) }
    }

    fn offer(&mut self, key: K, row: &'a Row) {
        if self.rows.len() >= self.most && self.rows.last().is_none_or(|(worst, _)| *worst <= key) {
            return;
        }
        let at = self.rows.partition_point(|(better, _)| *better <= key);
        self.rows.insert(at, (key, row));
        self.rows.truncate(self.most);
    }

    fn into_picks(self, region: impl Fn(&Row) -> Option<Region>) -> Vec<Pick> {
        self.rows.into_iter().map(|(_, row)| Pick { node: Arc::clone(&row.node), region: region(row) }).collect()
    }
}
