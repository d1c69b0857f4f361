//! What the tests of lines stand on: members with a capacity that a test sets, and a snapshot of them without a directory.
#![allow(dead_code, reason = "every test binary compiles all of this and uses a part of it")]

use std::sync::Arc;

use maitred::envelope::{Keyring, Secret};
use maitred::ids::{Epoch, LineName, NodeEpoch, NodeId, Player, Role, SessionId, Zone};
use maitred::node::{
    Arrivals, Control, Identity, Lease, Liveness, Membership, NodeRecord, NodeState, NodeView, Snapshot,
};
use maitred::queue::{Admission, Admitter, Attributes, Entered, GateOptions, Line, LineOptions, Round, Waiting};
use maitred::store::{Store, StoreOptions, StoreUrl, Verifier};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, cmd};

use crate::support::store::TestStore;

/// A lease that no test outlives by being slow.
pub const HOUR_MS: u64 = 3_600_000;
const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

pub fn secret() -> Secret {
    Secret::from_base64("MAITRED_SECRET", SECRET).unwrap()
}

pub fn other_secret(byte: u8) -> Secret {
    use base64::Engine;
    Secret::from_base64("OTHER", &base64::engine::general_purpose::STANDARD.encode([byte; 32])).unwrap()
}

/// One zone of a test store.
pub struct Hall {
    pub url: String,
    pub zone: Zone,
    pub verifier: Verifier,
    /// A look at the store past the library.
    pub raw: MultiplexedConnection,
}

impl Hall {
    pub async fn new(server: &TestStore) -> Self {
        Self::in_zone(server, "eu").await
    }

    pub async fn in_zone(server: &TestStore, zone: &str) -> Self {
        let zone = Zone::new(zone).unwrap();
        let verifier = Verifier::new(Keyring::new(zone.clone(), secret(), Vec::new()));
        Self { url: server.url(), zone, verifier, raw: server.conn().await }
    }

    /// A handle with connections of its own.
    pub async fn store(&self) -> Store {
        let mut options = StoreOptions::new(StoreUrl::parse(&self.url).unwrap());
        options.command_timeout = std::time::Duration::from_secs(10);
        options.operation_timeout = std::time::Duration::from_secs(30);
        Store::open(self.zone.clone(), options).await.unwrap()
    }

    pub fn key(&self, rest: &str) -> String {
        format!("maitred:{{{}}}:{rest}", self.zone)
    }

    /// All keys of the zone, without its prefix, sorted.
    pub async fn keys(&self) -> Vec<String> {
        let pattern = self.key("*");
        let mut keys: Vec<String> = cmd("KEYS").arg(&pattern).query_async(&mut self.raw.clone()).await.unwrap();
        keys.iter_mut().for_each(|key| *key = key[pattern.len() - 1..].to_owned());
        keys.sort_unstable();
        keys
    }

    /// The claims on places of a node, those first that are over first.
    pub async fn held(&self, node: &str) -> Vec<String> {
        self.raw.clone().zrange(self.key(&format!("held:{node}")), 0, -1).await.unwrap()
    }

    /// The store's time in ms.
    pub async fn now(&self) -> u64 {
        let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut self.raw.clone()).await.unwrap();
        seconds * 1_000 + micros / 1_000
    }

    /// Fills the gate, as a quiet time would: admission starts at once.
    pub async fn open_gate(&self, line: &str) {
        let (key, now) = (self.key(&format!("gate:{line}")), self.now().await);
        let fields = [("bucket", "9000000000000".to_owned()), ("refilled_at", format!("{now}000"))];
        let _: () = self.raw.clone().hset_multiple(key, &fields).await.unwrap();
    }

    pub async fn member(&self, id: &str, role: Role, soft_cap: u64) -> Member {
        self.member_on(self.store().await, id, role, soft_cap, HOUR_MS).await
    }

    pub async fn member_on(&self, store: Store, id: &str, role: Role, soft_cap: u64, lease_ms: u64) -> Member {
        let identity = Identity { id: NodeId::new(id).unwrap(), role: role.clone(), addr: format!("{id}.test:25565") };
        let arrivals = Arrivals::default();
        let lease = Lease::new(identity.id.clone(), lease_ms);
        let membership =
            Membership::new(store.clone(), self.verifier.clone(), identity.clone(), lease).counting(arrivals.clone());
        let record = NodeRecord { state: NodeState::Ready, accepting: true, soft_cap, ..NodeRecord::blank(&identity) };
        let who = NodeEpoch { id: identity.id, epoch: Epoch::NONE };
        let (verifier, control) = (self.verifier.clone(), Control::default());
        let mut member = Member { who, store, verifier, control, arrivals, membership, record };
        member.join().await;
        member
    }
}

/// One process that joined.
pub struct Member {
    pub who: NodeEpoch,
    pub store: Store,
    pub verifier: Verifier,
    pub control: Control,
    pub arrivals: Arrivals,
    membership: Membership,
    pub record: NodeRecord,
}

impl Member {
    pub async fn join(&mut self) {
        self.who.epoch = self.membership.join(self.record.clone()).await.unwrap();
        self.record.epoch = self.who.epoch;
    }

    pub async fn beat(&mut self) {
        self.record.seq += 1;
        self.membership.beat(self.record.clone(), &self.control).await.unwrap();
    }

    pub async fn leave(&mut self) {
        self.membership.leave().await.unwrap();
    }

    pub fn line(&self, options: &LineOptions) -> Line {
        let line = Line::new(self.store.clone(), self.verifier.clone(), self.control.clone(), options.clone()).unwrap();
        line.counting(self.arrivals.clone())
    }

    pub fn holder(&self) -> maitred::ids::NodeEpoch {
        self.who.clone()
    }

    /// Enters with a new session.
    pub async fn enter(&self, line: &Line, name: &str) -> (Entered, SessionId) {
        self.enter_lane(line, name, 0).await
    }

    pub async fn enter_lane(&self, line: &Line, name: &str, lane: u16) -> (Entered, SessionId) {
        let session = SessionId::fresh();
        let entered = line.enter(&self.who, &player(name), lane, &session, &Attributes::default(), None).await.unwrap();
        (entered, session)
    }

    /// Enters and has to wait.
    pub async fn waits(&self, line: &Line, name: &str) -> Waiting {
        match self.enter(line, name).await.0 {
            Entered::Waiting(waiting) => waiting,
            other => panic!("{name} does not wait: {other:?}"),
        }
    }
}

/// A view of these members as if all had just been heard.
pub fn snapshot(members: &[&Member]) -> Snapshot {
    let view =
        |member: &&Member| NodeView { record: Arc::new(member.record.clone()), liveness: Liveness::Online, age_ms: 0 };
    Snapshot { nodes: members.iter().map(view).collect(), as_of_ms: 0, stale: false }
}

pub fn player(name: &str) -> Player {
    Player::new(name).unwrap()
}

/// A line named `login` with a gate that lets `rate` a second through and `burst` at once.
pub fn login(rate: u32, burst: u32) -> LineOptions {
    let gate = GateOptions { fixed_per_second: Some(rate), burst: Some(burst), ..GateOptions::default() };
    LineOptions { gate, ..LineOptions::new(LineName::new("login").unwrap()) }
}

pub fn names(admitted: &[Admission]) -> Vec<String> {
    admitted.iter().map(|admission| admission.pass.player.to_string()).collect()
}

/// Rounds without a pause between them, as one.
pub async fn rounds(admitter: &mut Admitter, who: &NodeEpoch, snapshot: &Snapshot) -> maitred::Result<Round> {
    let mut all = admitter.round(who, snapshot).await?;
    for _ in 0..100 {
        if all.pause(std::time::Duration::from_secs(1)) > std::time::Duration::ZERO {
            return Ok(all);
        }
        let next = admitter.round(who, snapshot).await?;
        let (admitted, away, evicted) = (all.admitted, all.away, all.evicted);
        all = Round {
            admitted: [admitted, next.admitted].concat(),
            away: [away, next.away].concat(),
            evicted: [evicted, next.evicted].concat(),
            ..next
        };
    }
    panic!("a hundred rounds in a row: {all:?}");
}
