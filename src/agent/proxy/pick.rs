//! A proxy's choice of backends: the pure ranking of `select` with what this proxy knows.

use crate::ids::NodeId;
use crate::select::{Ask, LOCALITY, Order, RankContext, Ranking, Setting, rank};
use crate::store::boot_ms;

use super::state::Proxy;

impl Proxy {
    /// The `most` best backends for `ask`, out of one snapshot. The first one counts as picked from here on: of many
    /// requests at the same moment each sees the picks of those before it.
    pub fn choose(&self, ask: &Ask, most: usize) -> Ranking {
        let (core, config) = (&self.core, self.core.config());
        let selector = &config.selector;
        let by_kept = ask.is_bare() && (config.routing.lobby_mode || self.is_lobby);
        let setting = Setting {
            rules: &selector.metrics,
            weights: &selector.backends,
            halflife_ms: selector.recent_picks.halflife_ms,
            own: &core.identity.id,
            locality: config.node.labels.get(LOCALITY).map(String::as_str),
        };
        let (snapshot, switches) = (core.directory.recent_snapshot(), core.control.switches());
        let mut candidates = self.candidates();
        let now_ms = boot_ms();
        candidates.take_in(&snapshot, &switches, &setting, now_ms);
        let context = RankContext {
            ask,
            order: if by_kept { Order::MostKept } else { Order::Score },
            stale_after_ms: config.stale_after_ms(),
            now_ms,
        };
        let ranking = rank(&candidates, &context, most);
        if let Some(best) = ranking.picks.first() {
            candidates.picked(&best.node.id, now_ms, selector.recent_picks.shared);
        }
        ranking
    }

    /// A backend further down the ranking is asked.
    pub fn picked(&self, id: &NodeId) {
        let shared = self.core.config().selector.recent_picks.shared;
        self.candidates().picked(id, boot_ms(), shared);
    }

    /// Leaves a backend out for the configured time.
    pub fn cool(&self, id: &NodeId) {
        let cooldown_ms = self.core.config().dispatch.cooldown_ms;
        self.candidates().cool(id, boot_ms().saturating_add(cooldown_ms));
    }
}
