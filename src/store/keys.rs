use std::fmt;

use redis::{RedisWrite, ToRedisArgs};

use crate::ids::{LineName, NodeId, ObjectKey, Player, Role, Zone};

/// Every key and channel of one zone. All of them carry the hash tag `{zone}`, so that a script may join any of them.
#[derive(Debug, Clone)]
pub struct Keys {
    zone: Zone,
    prefix: String,
}

/// One key or channel, written straight into the command: no text is built for it on the way.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    prefix: &'a str,
    kind: &'static str,
    name: &'a str,
}

impl Keys {
    /// The keys of `zone`.
    pub fn new(zone: Zone) -> Self {
        let prefix = format!("maitred:{{{zone}}}:");
        Self { zone, prefix }
    }

    /// The zone.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// What every key and channel of the zone starts with: `maitred:{zone}:`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn key<'a>(&'a self, kind: &'static str, name: &'a str) -> Key<'a> {
        Key { prefix: &self.prefix, kind, name }
    }

    /// `node:<id>`: hash, one node's row.
    pub fn node<'a>(&'a self, id: &'a NodeId) -> Key<'a> {
        self.key("node:", id.as_str())
    }

    /// `nodes:<role>`: zset, the roster of a role, scored with the last beat.
    pub fn roster<'a>(&'a self, role: &'a Role) -> Key<'a> {
        self.key("nodes:", role.as_str())
    }

    /// `roles`: set, the roles that have a roster.
    pub fn roles(&self) -> Key<'_> {
        self.key("roles", "")
    }

    /// `epochs`: hash, id -> last epoch and when it was last seen.
    pub fn epochs(&self) -> Key<'_> {
        self.key("epochs", "")
    }

    /// `control`: hash, kill switch, drain and pushed config.
    pub fn control(&self) -> Key<'_> {
        self.key("control", "")
    }

    /// `picks`: hash, recent picks of all proxies, a backend.
    pub fn picks(&self) -> Key<'_> {
        self.key("picks", "")
    }

    /// `token:<player>`: hash, the player's reservation.
    pub fn token<'a>(&'a self, player: &'a Player) -> Key<'a> {
        self.key("token:", player.as_str())
    }

    /// `due:<server>`: zset, player -> next time someone must look at the token.
    pub fn due<'a>(&'a self, server: &'a NodeId) -> Key<'a> {
        self.key("due:", server.as_str())
    }

    /// `due`: set, the servers that have a `due:` set.
    pub fn due_servers(&self) -> Key<'_> {
        self.key("due", "")
    }

    /// `lines`: set, the lines that hold tickets.
    pub fn lines(&self) -> Key<'_> {
        self.key("lines", "")
    }

    /// `line:<name>`: zset, player -> lane × 2^42 + sequence.
    pub fn line<'a>(&'a self, line: &'a LineName) -> Key<'a> {
        self.key("line:", line.as_str())
    }

    /// `tickets:<name>`: hash, player -> ticket.
    pub fn tickets<'a>(&'a self, line: &'a LineName) -> Key<'a> {
        self.key("tickets:", line.as_str())
    }

    /// `away:<name>`: zset, players that dropped -> when their place goes.
    pub fn away<'a>(&'a self, line: &'a LineName) -> Key<'a> {
        self.key("away:", line.as_str())
    }

    /// `gate:<name>`: hash, the gate of a line.
    pub fn gate<'a>(&'a self, line: &'a LineName) -> Key<'a> {
        self.key("gate:", line.as_str())
    }

    /// `vias:<name>`: set, the holders of tickets of a line, `<proxy>:<epoch>`.
    pub fn vias<'a>(&'a self, line: &'a LineName) -> Key<'a> {
        self.key("vias:", line.as_str())
    }

    /// `via:<name>:<proxy>:<epoch>`: set, the players whose ticket one incarnation holds. `name` is all behind `via:`.
    pub fn via<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.key("via:", name)
    }

    /// `pass:<line>:<player>`: hash, an admission. `name` is all behind `pass:`.
    pub fn pass<'a>(&'a self, name: &'a str) -> Key<'a> {
        self.key("pass:", name)
    }

    /// `held:<server>`: zset, players promised or arrived whom the node's own count does not include yet.
    pub fn held<'a>(&'a self, server: &'a NodeId) -> Key<'a> {
        self.key("held:", server.as_str())
    }

    /// `events:line`: channel of what happens in lines.
    pub fn line_events(&self) -> Key<'_> {
        self.key("events:line", "")
    }

    /// `limit:<name>:<player>`: hash, what a player owes a limit. `subject` is `<name>:<player>`.
    pub fn limit<'a>(&'a self, subject: &'a str) -> Key<'a> {
        self.key("limit:", subject)
    }

    /// `route:<kind>:<object>`: hash, who owns the object.
    pub fn route<'a>(&'a self, object: &'a ObjectKey) -> Key<'a> {
        self.key("route:", object.as_str())
    }

    /// `object:<kind>:<object>`: hash, the object's bytes in the built-in object store.
    pub fn object<'a>(&'a self, object: &'a ObjectKey) -> Key<'a> {
        self.key("object:", object.as_str())
    }

    /// `owned:<node>`: set, the objects that a node owns.
    pub fn owned<'a>(&'a self, owner: &'a NodeId) -> Key<'a> {
        self.key("owned:", owner.as_str())
    }

    /// `owned`: set, the nodes that have an `owned:` set.
    pub fn owners(&self) -> Key<'_> {
        self.key("owned", "")
    }

    /// `events:node`: channel of beats, leaves and removals.
    pub fn node_events(&self) -> Key<'_> {
        self.key("events:node", "")
    }

    /// `events:token`: channel of tokens that ended or were reopened.
    pub fn token_events(&self) -> Key<'_> {
        self.key("events:token", "")
    }

    /// `events:control`: channel of control entries that were written.
    pub fn control_events(&self) -> Key<'_> {
        self.key("events:control", "")
    }

    /// `inbox:<node>`: channel of the messages to one node.
    pub fn inbox<'a>(&'a self, id: &'a NodeId) -> Key<'a> {
        self.key("inbox:", id.as_str())
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix)?;
        f.write_str(self.kind)?;
        f.write_str(self.name)
    }
}

impl ToRedisArgs for Key<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sto_5_every_key_carries_the_hash_tag_of_its_zone() {
        let keys = Keys::new(Zone::new("eu").expect("valid"));
        let id = NodeId::new("p1").expect("valid");
        let player = Player::new("al}ice{").expect("valid");
        assert_eq!(keys.node(&id).to_string(), "maitred:{eu}:node:p1");
        assert_eq!(keys.token(&player).to_string(), "maitred:{eu}:token:al}ice{");
        assert_eq!(keys.roster(&Role::proxy()).to_string(), "maitred:{eu}:nodes:proxy");
        for key in [keys.roles(), keys.epochs(), keys.control(), keys.due(&id), keys.due_servers(), keys.inbox(&id)] {
            assert!(key.to_string().starts_with("maitred:{eu}:"), "{key}");
        }
    }
}
