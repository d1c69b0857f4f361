//! A proxy's choice of backends: the pure ranking of `select` with what this proxy knows.

use crate::ids::NodeId;
use crate::select::{Ask, LOCALITY, Order, Ranking, Scene, Scorer, rank};
use crate::store::boot_ms;

use super::proxy::Proxy;

impl Proxy {
    /// The `most` best backends for `ask`, out of one snapshot. The first one counts as picked from here on: of many
    /// requests at the same moment each sees the picks of those before it.
    pub fn choose(&self, ask: &Ask, most: usize) -> Ranking {
        let (core, config) = (&self.core, self.core.config());
        let selector = &config.selector;
        let snapshot = core.directory.recent_snapshot();
        let switches = core.control.switches();
        let halflife_ms = selector.recent_picks.halflife_ms;
        let scorer = Scorer::new(selector.metrics.values(), &selector.backends, halflife_ms);
        let by_kept = ask.is_bare() && (config.routing.lobby_mode || self.is_lobby);
        let order = if by_kept { Order::MostKept } else { Order::Score(&scorer) };
        let mut memory = self.memory();
        let now_ms = boot_ms();
        memory.prune(|id| snapshot.get(id).is_some(), now_ms, halflife_ms);
        let scene = Scene {
            snapshot: &snapshot,
            ask,
            own: &core.identity.id,
            locality: config.node.labels.get(LOCALITY).map(String::as_str),
            stale_after_ms: config.dispatch.stale_after_ms,
            switches: &switches,
            memory: &memory,
            now_ms,
        };
        let ranking = rank(&scene, order, most);
        if let Some(best) = ranking.picks.first() {
            memory.picked(&best.node.id, now_ms, halflife_ms, selector.recent_picks.shared);
        }
        ranking
    }

    /// A backend further down the ranking is asked.
    pub fn picked(&self, id: &NodeId) {
        let config = self.core.config();
        let picks = &config.selector.recent_picks;
        self.memory().picked(id, boot_ms(), picks.halflife_ms, picks.shared);
    }

    /// Leaves a backend out for the configured time.
    pub fn cool(&self, id: &NodeId) {
        self.memory().cool(id, boot_ms().saturating_add(self.core.config().dispatch.cooldown_ms));
    }
}
