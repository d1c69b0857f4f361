//! Calls of the scripts as a client writes them, with values that a test changes where it has to. Signatures are no
//! real ones: scripts store them and never look inside.

use maitred::store::{Script, scripts};

use super::twin::Twin;

/// How long a lease is in these tests: longer than any of them.
pub const LEASE_MS: u64 = 600_000;
/// How long an ended token stays readable.
pub const AUDIT_MS: u64 = 60_000;
/// When a claim may be reopened.
pub const REANIMATE_MS: u64 = 5_000;

/// A key or channel of the zone.
pub fn key(name: impl AsRef<str>) -> String {
    format!("maitred:{{eu}}:{}", name.as_ref())
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

fn keys<const N: usize>(names: [String; N]) -> Vec<String> {
    names.into_iter().map(key).collect()
}

/// Stands in an argument for the store's time at the run, so that no test has to be quick to be inside the 5 s of SKEW.
const NOW: &str = "NOW";

/// The text of a signed time; `None` is the time of the run.
fn signed_at(time: Option<u64>) -> String {
    time.map_or_else(|| NOW.to_owned(), |time| time.to_string())
}

/// A call: the script, its keys and its arguments.
pub struct Ready(pub &'static Script, pub Vec<String>, pub Vec<String>);

impl Ready {
    /// Runs it on both servers.
    pub fn run(&self, twin: &mut Twin) -> Vec<String> {
        let args = self.args(twin);
        twin.call(self.0, &self.1, &args)
    }

    /// Runs it by EVALSHA alone, see [`Twin::breaks`].
    pub fn breaks(&self, twin: &mut Twin) -> Option<(String, bool)> {
        let args = self.args(twin);
        twin.breaks(self.0, &self.1, &args)
    }

    fn args(&self, twin: &mut Twin) -> Vec<String> {
        let now = twin.now().to_string();
        self.2.iter().map(|arg| if arg == NOW { now.clone() } else { arg.clone() }).collect()
    }
}

/// The parts of a node's row that join and beat write.
#[derive(Clone)]
pub struct Node {
    pub id: &'static str,
    pub role: &'static str,
    pub epoch: u64,
    pub incarnation: &'static str,
    pub sent_at: Option<u64>,
    pub lease_ms: u64,
}

impl Node {
    pub fn new(id: &'static str, role: &'static str, epoch: u64) -> Self {
        Self { id, role, epoch, incarnation: "inc1", sent_at: None, lease_ms: LEASE_MS }
    }

    pub fn join(&self, own: u64, replaces: &str, old_role: &str) -> Ready {
        let keys = keys([
            format!("node:{}", self.id),
            format!("nodes:{}", self.role),
            "roles".into(),
            "epochs".into(),
            format!("nodes:{old_role}"),
        ]);
        let (epoch, sent_at, own) = (self.epoch.to_string(), signed_at(self.sent_at), own.to_string());
        let mut args = texts([self.id, self.role, "10.0.0.1:25577", &epoch, self.incarnation, "0", &sent_at]);
        args.extend(texts(["starting", "0", "0", "0", "0", r#"{"tps_1m":20.0}"#, "[]", r#"{"build":"1 ü"}"#]));
        args.extend(texts(["1", "5ebd00f2.join", replaces, &own, &self.lease_ms.to_string(), old_role]));
        args.extend([key("events:node"), "a row, in wire form".to_owned()]);
        Ready(&scripts::NODE_JOIN, keys, args)
    }

    pub fn beat(&self, seq: u64, players: u64, control: [&str; 4]) -> Ready {
        self.beat_of(seq, players, control, "")
    }

    /// `arrivals` are those whom `players` includes for the first time.
    pub fn beat_of(&self, seq: u64, players: u64, control: [&str; 4], arrivals: &str) -> Ready {
        let keys = keys([
            format!("node:{}", self.id),
            format!("nodes:{}", self.role),
            "roles".into(),
            "control".into(),
            format!("held:{}", self.id),
        ]);
        let (epoch, sent_at) = (self.epoch.to_string(), signed_at(self.sent_at));
        let mut args = texts([self.id, self.role, &epoch, self.incarnation, &seq.to_string(), &sent_at, "ready"]);
        args.extend(texts(["1", "0", &players.to_string(), "200", "{}", r#"["chat"]"#, "{}", "5ebd00f2.beat"]));
        args.extend([self.lease_ms.to_string(), key("events:node"), "a row, in wire form".to_owned()]);
        args.extend(texts(control));
        args.push(arrivals.to_owned());
        Ready(&scripts::NODE_BEAT, keys, args)
    }

    pub fn leave(&self) -> Ready {
        let keys = keys([format!("node:{}", self.id), format!("nodes:{}", self.role), "roles".into(), "epochs".into()]);
        let mut args = texts([self.id, self.role, &self.epoch.to_string(), self.incarnation]);
        args.push(key("events:node"));
        Ready(&scripts::NODE_LEAVE, keys, args)
    }
}

/// Joins with an epoch that the id is known to have had, so that the time between two joins does not matter.
pub fn settle(twin: &mut Twin, id: &'static str, role: &'static str, epoch: u64) {
    twin.seed(["HSET", &key("epochs"), id, &format!("{epoch} {epoch}")]);
    assert_eq!(Node::new(id, role, epoch).join(epoch, "", role).run(twin)[0], "JOINED");
}

pub fn remove(role: &str, removed_ms: u64, ids: &[&str]) -> Ready {
    let mut all = keys([format!("nodes:{role}"), "roles".into(), "epochs".into()]);
    all.extend(ids.iter().map(|id| key(format!("node:{id}"))));
    let mut args = vec![role.to_owned(), removed_ms.to_string(), key("events:node")];
    args.extend(ids.iter().map(|id| (*id).to_owned()));
    Ready(&scripts::NODE_REMOVE, all, args)
}

pub fn forget(age_ms: u64, roles: &[&str], entries: &[(&str, &str)]) -> Ready {
    let mut all = keys(["epochs".into(), "roles".into()]);
    all.extend(roles.iter().map(|role| key(format!("nodes:{role}"))));
    let mut args = vec![age_ms.to_string(), roles.len().to_string()];
    args.extend(roles.iter().map(|role| (*role).to_owned()));
    args.extend(entries.iter().flat_map(|(id, bytes)| [(*id).to_owned(), (*bytes).to_owned()]));
    Ready(&scripts::NODE_FORGET, all, args)
}

pub fn put(name: &str, entry: &str, version: u64, last: u64, read: &str) -> Ready {
    let mut args = texts([name, entry, &version.to_string(), &last.to_string(), read]);
    args.push(key("events:control"));
    Ready(&scripts::CONTROL_PUT, keys(["control".into()]), args)
}

pub fn bump(proxy: &str, op: &str, halflife_ms: u64, life_ms: u64, picks: &str, forgotten: &str) -> Ready {
    let args = texts([proxy, op, &halflife_ms.to_string(), &life_ms.to_string(), picks, forgotten]);
    Ready(&scripts::SELECT_BUMP, keys(["picks".into()]), args)
}

/// One wish for a place: what issue, claim and consume of one token share.
#[derive(Clone)]
pub struct Token {
    pub id: &'static str,
    pub player: &'static str,
    pub server: &'static str,
    pub server_epoch: u64,
    pub request: &'static str,
    pub attempt: u64,
    pub issued_at: Option<u64>,
    pub expires_at: u64,
    pub deadline: u64,
    /// How long lines hold a place; 0 where none leads to the server.
    pub arrive_ms: u64,
    /// The bytes of `kill` and `kill:<id>…` as last seen, and what was made of them.
    pub control: [(&'static str, &'static str); 3],
}

impl Token {
    pub fn new(id: &'static str, server: &'static str, server_epoch: u64, now: u64) -> Self {
        Self {
            id,
            player: "alice",
            server,
            server_epoch,
            request: "r1",
            attempt: 1,
            issued_at: None,
            expires_at: now + 120_000,
            deadline: now + 60_000,
            arrive_ms: 0,
            control: [("", "off"); 3],
        }
    }

    pub fn issue(&self, others: &[&str]) -> Ready {
        let server = self.server;
        let mut all = keys([
            format!("token:{}", self.player),
            format!("node:{server}"),
            format!("due:{server}"),
            "due".into(),
            "control".into(),
            format!("held:{server}"),
        ]);
        all.extend(others.iter().flat_map(|other| [key(format!("node:{other}")), key(format!("due:{other}"))]));
        let [attempt, expires_at, deadline] =
            [self.attempt, self.expires_at, self.deadline].map(|number| number.to_string());
        let mut args = texts([self.id, self.player, server, &self.server_epoch.to_string(), self.request, &attempt]);
        args.extend(texts([
            r#"{"x":1.5,"world":"ä"}"#,
            &signed_at(self.issued_at),
            &expires_at,
            "1",
            "5ebd00f2.issue",
            &deadline,
        ]));
        args.extend([REANIMATE_MS.to_string(), AUDIT_MS.to_string(), key("events:token")]);
        args.extend(self.control[..2].iter().flat_map(|(bytes, verdict)| texts([bytes, verdict])));
        args.push(self.arrive_ms.to_string());
        args.extend(others.iter().map(|other| (*other).to_owned()));
        Ready(&scripts::TOKEN_ISSUE, all, args)
    }

    pub fn claim(&self, claimant: &str, epoch: u64, op: &str) -> Ready {
        let keys = keys([
            format!("token:{}", self.player),
            format!("node:{claimant}"),
            format!("node:{}", self.server),
            "control".into(),
        ]);
        let mut args = texts([self.id, self.server, claimant, &epoch.to_string(), op, "5ebd00f2.claim"]);
        args.extend(self.control.iter().flat_map(|(bytes, verdict)| texts([bytes, verdict])));
        Ready(&scripts::TOKEN_CLAIM, keys, args)
    }

    pub fn consume(&self, op: &str) -> Ready {
        self.consume_held(op, 0)
    }

    /// On a server that counts places for `arrive_ms`.
    pub fn consume_held(&self, op: &str, arrive_ms: u64) -> Ready {
        let server = self.server;
        let keys = keys([
            format!("token:{}", self.player),
            format!("node:{server}"),
            format!("due:{server}"),
            "due".into(),
            format!("held:{server}"),
        ]);
        let mut args = texts([self.id, self.player, server, &self.server_epoch.to_string(), op]);
        args.extend([AUDIT_MS.to_string(), arrive_ms.to_string()]);
        Ready(&scripts::TOKEN_CONSUME, keys, args)
    }

    pub fn release(&self, by: &str, name: &str, epoch: u64) -> Ready {
        self.release_of(by, name, epoch, "")
    }

    /// `op` is the claim that is given up; empty for any of the claimant's.
    pub fn release_of(&self, by: &str, name: &str, epoch: u64, op: &str) -> Ready {
        let keys = keys([format!("token:{}", self.player), format!("due:{}", self.server), "due".into()]);
        let mut args = texts([self.id, self.player, self.server, by, name, &epoch.to_string(), op, "asked"]);
        args.extend([AUDIT_MS.to_string(), key("events:token")]);
        Ready(&scripts::TOKEN_RELEASE, keys, args)
    }
}

pub fn cancel(player: &str, request: &str, by: &str, epoch: u64, servers: &[&str]) -> Ready {
    let mut all = keys([format!("token:{player}"), "due".into()]);
    all.extend(servers.iter().map(|server| key(format!("due:{server}"))));
    let mut args = texts([player, request, by, &epoch.to_string(), ""]);
    args.extend([AUDIT_MS.to_string(), key("events:token")]);
    args.extend(servers.iter().map(|server| (*server).to_owned()));
    Ready(&scripts::TOKEN_CANCEL, all, args)
}

/// `tokens` are players with the claimant that was read (empty for none).
pub fn reap(server: &str, dry: bool, tokens: &[(&str, &str)]) -> Ready {
    let due = key(format!("due:{server}"));
    let mut all = vec![due.clone(), key("due")];
    for (player, claimant) in tokens {
        let node = if claimant.is_empty() { due.clone() } else { key(format!("node:{claimant}")) };
        all.extend([key(format!("token:{player}")), node]);
    }
    let mut args = vec![server.to_owned(), REANIMATE_MS.to_string(), AUDIT_MS.to_string(), key("events:token")];
    args.extend([if dry { "1" } else { "0" }.to_owned(), u64::MAX.to_string()]);
    args.extend(tokens.iter().flat_map(|(player, claimant)| [(*player).to_owned(), (*claimant).to_owned()]));
    Ready(&scripts::TOKEN_REAP, all, args)
}

fn limit_key() -> Vec<String> {
    keys(["limit:command:alice".into()])
}

/// `interval_ms` is what one operation stands for.
pub fn take(op: &str, interval_ms: u64, burst: u64) -> Ready {
    let args = texts([op, &(interval_ms * 1_000).to_string(), &burst.to_string(), "75000"]);
    Ready(&scripts::LIMIT_TAKE, limit_key(), args)
}

pub fn refund(op: &str, interval_ms: u64) -> Ready {
    Ready(&scripts::LIMIT_REFUND, limit_key(), texts([op, &(interval_ms * 1_000).to_string()]))
}
