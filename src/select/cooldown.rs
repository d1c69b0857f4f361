use std::collections::HashMap;

use crate::ids::NodeId;

/// Backends that refused or did not answer a moment ago. Times are in ms of any one clock that only goes forward.
#[derive(Debug, Default)]
pub struct Cooldowns {
    until: HashMap<NodeId, u64>,
}

impl Cooldowns {
    /// Leaves `id` out until `until_ms`; forgets what is over at `now_ms`.
    pub fn start(&mut self, id: &NodeId, until_ms: u64, now_ms: u64) {
        self.until.retain(|_, until| *until > now_ms);
        self.until.insert(id.clone(), until_ms);
    }

    /// True while `id` is left out.
    pub fn is_cooling(&self, id: &NodeId, now_ms: u64) -> bool {
        self.until.get(id).is_some_and(|until| *until > now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sel_5_a_backend_is_out_for_its_cooldown_and_no_longer() {
        let id = NodeId::new("b1").expect("valid");
        let mut cooldowns = Cooldowns::default();
        cooldowns.start(&id, 2_100, 100);
        assert!(cooldowns.is_cooling(&id, 2_099) && !cooldowns.is_cooling(&id, 2_100));
        cooldowns.start(&NodeId::new("b2").expect("valid"), 9_000, 5_000);
        assert_eq!(cooldowns.until.len(), 1, "what is over takes no memory");
    }
}
