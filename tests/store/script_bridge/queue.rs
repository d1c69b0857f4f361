//! Calls of the scripts of lines as a client writes them.

use maitred::store::scripts;

use super::calls::{Ready, Token, key, settle};
use super::reply::Reply;
use super::twin::Twin;

const NOW: &str = "NOW";

pub fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

/// A player at a proxy, for the line `login`.
#[derive(Clone)]
pub struct Guest {
    pub player: &'static str,
    pub lane: &'static str,
    pub proxy: &'static str,
    pub epoch: u64,
    pub session: &'static str,
    pub joined_at: &'static str,
    pub most: &'static str,
    pub rate: &'static str,
    pub old_holder: String,
    pub server: &'static str,
    pub link: &'static str,
    pub op: &'static str,
    pub kill: (&'static str, &'static str),
    pub expires_at: u64,
    pub kept: &'static str,
}

impl Guest {
    pub fn new(player: &'static str, epoch: u64) -> Self {
        Self {
            player,
            lane: "0",
            proxy: "p1",
            epoch,
            session: "s1",
            joined_at: NOW,
            most: "100",
            rate: "500",
            old_holder: String::new(),
            server: "",
            link: "",
            op: "op1",
            kill: ("", "off"),
            expires_at: epoch + 1_800_000,
            kept: "0",
        }
    }

    pub fn holder(&self) -> String {
        format!("{}:{}", self.proxy, self.epoch)
    }

    fn via(&self) -> String {
        key(format!("via:login:{}", self.holder()))
    }

    fn pass(&self) -> String {
        key(format!("pass:login:{}", self.player))
    }

    fn ticket_args(&self) -> Vec<String> {
        texts([
            self.lane,
            self.proxy,
            &self.epoch.to_string(),
            self.session,
            self.joined_at,
            "1",
            "5ebd00f2.t",
            "vip 1",
        ])
    }

    fn held(&self, id: &str) -> String {
        if id.is_empty() { key("away:login") } else { key(format!("held:{id}")) }
    }

    pub fn enter(&self) -> Ready {
        let mut keys: Vec<String> =
            ["lines", "line:login", "tickets:login", "away:login", "gate:login", "vias:login"].map(key).into();
        keys.extend([
            self.via(),
            key(format!("node:{}", self.proxy)),
            self.pass(),
            key("control"),
            key("nodes:backend"),
        ]);
        let old = if self.old_holder.is_empty() { self.holder() } else { self.old_holder.clone() };
        keys.push(key(format!("via:login:{old}")));
        for id in [self.server, self.link] {
            let node = if id.is_empty() { self.proxy } else { id };
            let due = if id.is_empty() { key("away:login") } else { key(format!("due:{id}")) };
            keys.extend([key(format!("node:{node}")), self.held(id), due]);
        }
        let mut args = texts(["login", self.player]);
        args.extend(self.ticket_args());
        args.extend(texts([self.most, "2 1", self.rate, "100", "0", "1800000", &self.old_holder]));
        for id in [self.server, self.link] {
            args.extend(texts([id, if id.is_empty() { "0" } else { EPOCH }]));
        }
        args.extend(texts([&self.expires_at.to_string(), self.op, "5ebd00f2.p", "60000"]));
        args.push(key("events:line"));
        args.extend(texts([self.kill.0, self.kill.1, "", "off", "", "off", self.kept]));
        Ready(&scripts::QUEUE_ENTER, keys, args)
    }

    pub fn leave(&self, grace: &str, server: &str) -> Ready {
        let mut keys: Vec<String> =
            ["lines", "line:login", "tickets:login", "away:login", "vias:login"].map(key).into();
        keys.extend([self.via(), self.pass(), self.held(server), key("away:login")]);
        let mut args = texts(["login", self.player, self.session, &self.holder(), grace, server, ""]);
        args.push(key("events:line"));
        Ready(&scripts::QUEUE_LEAVE, keys, args)
    }

    pub fn failed(&self, serial: &str, grace: &str, server: &str) -> Ready {
        let mut keys: Vec<String> =
            ["lines", "line:login", "tickets:login", "away:login", "vias:login"].map(key).into();
        keys.extend([self.via(), key(format!("node:{}", self.proxy)), self.pass()]);
        keys.extend([self.held(server), key("away:login"), key("gate:login")]);
        let mut args = texts(["login", self.player]);
        args.extend(self.ticket_args());
        args.extend(texts([serial, grace, server, "", "3"]));
        args.push(key("events:line"));
        args.push("s1".to_owned());
        Ready(&scripts::QUEUE_FAILED, keys, args)
    }

    pub fn arrived(&self, serial: &str, server: &str) -> Ready {
        let keys = vec![self.pass(), self.held(server), self.held("")];
        Ready(&scripts::QUEUE_ARRIVED, keys, texts([self.player, serial, server, "", "60000", "login"]))
    }

    pub fn redeem(&self, serial: &str, op: &str, me: &str, epoch: u64) -> Ready {
        let mut keys = vec![self.pass(), key(format!("node:{me}"))];
        keys.extend(["node:b1", "held:b1", "due:b1"].map(key));
        keys.extend([key(format!("node:{me}")), self.pass(), self.pass()]);
        let args = texts([self.player, serial, op, me, &epoch.to_string(), "b1", "", self.op, "60000", "login"]);
        Ready(&scripts::QUEUE_REDEEM, keys, args)
    }

    pub fn drain(&self, ticket: &str, token: &Token, forged: &str, other: &str) -> Ready {
        let mut keys: Vec<String> =
            ["lines", "line:login", "tickets:login", "away:login", "vias:login"].map(key).into();
        let other_id = if other.is_empty() { token.server } else { other };
        keys.extend([self.via(), key(format!("node:{}", self.proxy)), key(format!("token:{}", self.player))]);
        keys.extend([key(format!("node:{}", token.server)), key(format!("due:{}", token.server)), key("due")]);
        keys.extend([key("control"), key(format!("node:{other_id}")), key(format!("due:{other_id}"))]);
        keys.push(key(format!("held:{}", token.server)));
        let mut args = texts(["login", self.player, &self.holder(), ticket, token.id, token.server]);
        args.extend(texts([&token.server_epoch.to_string(), token.request, "1000", "{}", self.joined_at]));
        args.extend(texts([&token.expires_at.to_string(), "1", "5ebd00f2.d", forged, other, "30000", "5000", "60000"]));
        args.extend([key("events:line"), key("events:token")]);
        args.extend(token.control[..2].iter().flat_map(|(bytes, verdict)| texts([bytes, verdict])));
        args.push(token.arrive_ms.to_string());
        Ready(&scripts::QUEUE_DRAIN, keys, args)
    }
}

/// The epoch of every backend and link in these tests.
pub const EPOCH: &str = "1796000000000";

/// One round of the admitter `p1` over `guests` (with ticket, verdict, number of the server and op).
pub fn admit(epoch: u64, expires_at: u64, kill: [&str; 4], guests: &[(&Guest, &str, &str, &str, &str)]) -> Ready {
    let mut keys: Vec<String> =
        ["lines", "line:login", "tickets:login", "away:login", "gate:login", "vias:login", "node:p1", "control"]
            .map(key)
            .into();
    keys.push(key("nodes:backend"));
    let holder = format!("p1:{epoch}");
    keys.extend([key("node:p1"), key(format!("via:login:{holder}"))]);
    keys.extend(["node:p2", "via:login:p2:5"].map(key));
    keys.extend(["node:b1", "held:b1", "due:b1"].map(key));
    keys.extend(guests.iter().map(|(guest, ..)| guest.pass()));
    let mut args = texts(["login", "p1", &epoch.to_string(), "2 1", "500", "100", "0", "1800000"]);
    args.extend(texts([&expires_at.to_string(), "60000", "30000", "1"]));
    args.push(key("events:line"));
    args.extend(texts(["2", "1"]));
    args.extend(texts(kill));
    args.extend([holder, "p2:5".to_owned()]);
    args.extend(texts(["b1", EPOCH, "", "off"]));
    for (guest, ticket, verdict, server, op) in guests {
        let holder = if guest.proxy == "p1" { "1" } else { "2" };
        args.extend(texts([guest.lane, guest.player, ticket, verdict, holder, server, "0", op, "5ebd00f2.p"]));
    }
    Ready(&scripts::QUEUE_ADMIT, keys, args)
}

pub fn sweep(holder: &str, empty: &str, keep: &str, players: &str) -> Ready {
    let mut keys: Vec<String> =
        ["lines", "line:login", "tickets:login", "away:login", "gate:login", "vias:login"].map(key).into();
    let via = if holder.is_empty() { key("vias:login") } else { key(format!("via:login:{holder}")) };
    let proxy = holder.split(':').next().filter(|proxy| !proxy.is_empty());
    keys.extend([via, proxy.map_or(key("tickets:login"), |proxy| key(format!("node:{proxy}")))]);
    let mut args = texts(["login", holder, "30000"]);
    args.push(key("events:line"));
    args.extend(texts([keep, empty]));
    args.push(players.split_whitespace().map(|player| format!("{}:{player},", player.len())).collect());
    Ready(&scripts::QUEUE_SWEEP, keys, args)
}

pub fn pause(paused: &str) -> Ready {
    let args = vec!["login".to_owned(), paused.to_owned(), key("events:line")];
    Ready(&scripts::QUEUE_PAUSE, vec![key("gate:login")], args)
}

pub fn peek() -> Ready {
    let keys = ["line:login", "tickets:login", "gate:login"].map(key).into();
    Ready(&scripts::QUEUE_PEEK, keys, texts(["2 1", "64"]))
}

pub fn position(player: &str) -> Ready {
    let keys = ["line:login", "tickets:login", "away:login", "gate:login", "nodes:backend"].map(key).into();
    Ready(&scripts::QUEUE_POSITION, keys, texts([player, "2 1", "0", "100"]))
}

/// A backend whose row says this.
pub fn backend(twin: &mut Twin, players: &str, cap: &str) {
    let now = twin.now().to_string();
    let row = key("node:b1");
    for (field, value) in [("epoch", EPOCH), ("beat_at", &now), ("lease_ms", "600000"), ("state", "ready")] {
        twin.seed(["HSET", &row, field, value]);
    }
    for (field, value) in [("accepting", "1"), ("players", players), ("soft_cap", cap)] {
        twin.seed(["HSET", &row, field, value]);
    }
    twin.seed(["ZADD", &key("nodes:backend"), &now, "b1"]);
}

/// A gate that lets many through.
pub fn open_gate(twin: &mut Twin) {
    let now = twin.now();
    twin.seed(["HSET", &key("gate:login"), "bucket", "9000000000000"]);
    twin.seed(["HSET", &key("gate:login"), "refilled_at", &format!("{now}000")]);
}

pub fn twin_with_line() -> (Twin, u64) {
    let mut twin = Twin::start();
    let now = twin.now();
    settle(&mut twin, "p1", "proxy", now);
    backend(&mut twin, "0", "10");
    (twin, now)
}

pub fn ticket(twin: &mut Twin, player: &str) -> String {
    match twin.look(["HGET", &key("tickets:login"), player]) {
        Reply::Bulk(text) => String::from_utf8(text).expect("text"),
        other => panic!("{player} has no ticket: {other:?}"),
    }
}

pub fn exists(twin: &mut Twin, name: &str) -> bool {
    twin.look(["EXISTS", &key(name)]) == Reply::Int(1)
}
