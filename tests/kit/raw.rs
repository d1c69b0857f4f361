//! Calls of the node scripts by hand: what they decide does not depend on signatures.

use maitred::store::{Answer, Invocation, Store, scripts};

use super::{LONG_MS, node, role};

/// One call of node/join.
pub struct Join {
    pub id: &'static str,
    pub incarnation: &'static str,
    pub epoch: u64,
    pub own: u64,
    pub lease_ms: u64,
}

impl Join {
    pub async fn ask(&self, store: &Store) -> Answer {
        let (keys, id, proxy) = (store.keys(), node(self.id), role("proxy"));
        let key_list = [keys.node(&id), keys.roster(&proxy), keys.roles(), keys.epochs(), keys.roster(&proxy)];
        let mut call = Invocation::new(&scripts::NODE_JOIN, &key_list);
        let sent_at = store.clock().now_ms().to_string();
        let (epoch, own, lease) = (self.epoch.to_string(), self.own.to_string(), self.lease_ms.to_string());
        for arg in [self.id, "proxy", "a:1", &epoch, self.incarnation, "0", &sent_at, "ready", "1", "1", "0", "0", "{}"]
        {
            call = call.arg(arg);
        }
        for arg in ["[]", "{}", "1", "sig", "", &own, &lease, "proxy"] {
            call = call.arg(arg);
        }
        store.run(&call.arg(keys.node_events()).arg("row")).await.unwrap()
    }
}

/// One call of node/beat, of `p1`.
pub async fn beat(store: &Store, epoch: u64, incarnation: &str, seq: u64, players: &str) -> Answer {
    let (keys, id, proxy) = (store.keys(), node("p1"), role("proxy"));
    let key_list = [keys.node(&id), keys.roster(&proxy), keys.roles(), keys.control(), keys.held(&id)];
    let mut call = Invocation::new(&scripts::NODE_BEAT, &key_list);
    let (epoch, seq, sent_at) = (epoch.to_string(), seq.to_string(), store.clock().now_ms().to_string());
    for arg in ["p1", "proxy", &epoch, incarnation, &seq, &sent_at, "ready", "1", "1", players, "0", "{}", "[]", "{}"] {
        call = call.arg(arg);
    }
    call = call.arg("sig").arg(LONG_MS).arg(keys.node_events()).arg("row");
    store.run(&call.arg("").arg("").arg("").arg("").arg("")).await.unwrap()
}
