use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Failure;
use maitred::agent::Setup;
use maitred::agent::config::{Config, SecretUrl};
use maitred::envelope::{Keyring, Kind, Secret};
use maitred::error::Result;
use maitred::ids::{Epoch, Incarnation, NodeEpoch, NodeId, OperationId, Role, Zone};
use maitred::node::{Control, Identity, Lease, Load, Membership, NodeRecord, NodeState};
use maitred::route::{RouteBook, RouteTimes};
use maitred::store::{Store, Verifier};
use maitred::token::{Book, BookOptions};

/// Longer than any run: no beat is needed while others are measured.
const LEASE_MS: u64 = 3_600_000;
/// Ended rows go soon, so that the store of a long run stays small.
const AUDIT_MS: u64 = 2_000;

/// A zone of its own in the measured store, with a backend and a proxy that hold their leases.
pub(super) struct Stage {
    /// What agents in this zone are started with.
    pub config: Config,
    secret: String,
    pub store: Store,
    pub book: Book,
    pub backend: NodeEpoch,
    pub proxy: NodeEpoch,
    /// A signature of the usual length, where nobody will look at it.
    pub signature: String,
    verifier: Verifier,
    control: Control,
    members: Vec<Membership>,
}

impl Stage {
    /// Opens the store at `url` and lets both members join a zone that nobody uses.
    pub async fn set(config: &Config, url: &str) -> Result<Self, Failure> {
        let mut config = config.clone();
        config.enabled = true;
        config.zone = Zone::new(format!("bench-{}", OperationId::fresh()))?;
        config.store.url = SecretUrl::new(url);
        let secret = STANDARD.encode(rand::random::<[u8; 32]>());
        let keyring = keyring(&config, &secret)?;
        let mut options = Setup::store_options(&config)?;
        // A pipeline of a whole round is one command to the client.
        options.command_timeout = options.command_timeout.max(Duration::from_secs(10));
        let store = Store::open(config.zone.clone(), options).await?;
        let signature = keyring.sign(Kind::Token, &["a"; 10]).as_str().to_owned();
        let verifier = Verifier::new(keyring);
        let options = BookOptions { audit_ms: AUDIT_MS, ..BookOptions::default() };
        let control = Control::default();
        let book = Book::new(store.clone(), verifier.clone(), control.clone(), options);
        let nobody = |id: &str| NodeId::new(id).map(|id| NodeEpoch { id, epoch: Epoch::NONE });
        let (backend, proxy) = (nobody("backend-1")?, nobody("proxy-1")?);
        let mut stage =
            Self { config, secret, store, book, backend, proxy, signature, verifier, control, members: Vec::new() };
        stage.backend.epoch = stage.join("backend-1", Role::backend()).await?;
        stage.proxy.epoch = stage.join("proxy-1", Role::proxy()).await?;
        Ok(stage)
    }

    /// A member that stays until [`clear`](Self::clear).
    async fn join(&mut self, id: &str, role: Role) -> Result<Epoch, Failure> {
        let record = record(&role)?;
        let mut member = self.member(id, role)?;
        let epoch = member.join(record).await?;
        self.members.push(member);
        Ok(epoch)
    }

    /// A process that has not joined yet.
    pub fn member(&self, id: &str, role: Role) -> Result<Membership, Failure> {
        let id = NodeId::new(id)?;
        let identity = Identity { id: id.clone(), role, addr: "127.0.0.1:25565".to_owned() };
        Ok(Membership::new(self.store.clone(), self.verifier.clone(), identity, Lease::new(id, LEASE_MS)))
    }

    /// What members of the zone believe.
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// What a backend that holds its lease does with routes, and who it is. It stays until [`clear`](Self::clear).
    pub async fn routes(&mut self) -> Result<(RouteBook, NodeEpoch), Failure> {
        let record = record(&Role::backend())?;
        let mut member = self.member("owner-1", Role::backend())?;
        let owner = NodeEpoch { id: NodeId::new("owner-1")?, epoch: member.join(record).await? };
        let times = RouteTimes { free_ms: AUDIT_MS, ..RouteTimes::default() };
        let book = RouteBook::new(self.store.clone(), self.verifier.clone(), member.lease().clone(), times);
        self.members.push(member);
        Ok((book, owner))
    }

    /// The control entries as the zone has them: none.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The fleet's keys again, for an agent in the same zone.
    pub fn keyring(&self) -> Result<Keyring> {
        keyring(&self.config, &self.secret)
    }

    /// The members leave, and what is left of the zone and has no TTL goes.
    pub async fn clear(&mut self) -> Result<(), Failure> {
        for mut member in self.members.drain(..) {
            member.leave().await?;
        }
        let keys = self.store.keys();
        let left = [keys.due(&self.backend.id), keys.due_servers(), keys.epochs(), keys.roles(), keys.control()];
        for key in left {
            self.store.bare_command(&["DEL", &key.to_string()]).await?;
        }
        Ok(())
    }
}

fn keyring(config: &Config, secret: &str) -> Result<Keyring> {
    Ok(Keyring::new(config.zone.clone(), Secret::from_base64("the bench's own secret", secret)?, Vec::new()))
}

/// What a node with some load says of itself; id, epoch, number and time are the membership's.
pub(super) fn record(role: &Role) -> Result<NodeRecord, Failure> {
    let load = Load {
        tps_1m: Some(19.98),
        tps_5m: Some(20.0),
        mspt: Some(12.5),
        heap_used: Some(3_221_225_472),
        heap_max: Some(8_589_934_592),
        ..Load::default()
    };
    Ok(NodeRecord {
        id: NodeId::new("any")?,
        role: role.clone(),
        addr: String::new(),
        epoch: Epoch::NONE,
        incarnation: Incarnation::fresh(),
        seq: 0,
        sent_at_ms: 0,
        state: NodeState::Ready,
        accepting: true,
        kill: false,
        players: 120,
        soft_cap: 200,
        load,
        services: Vec::new(),
        labels: [("build".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
    })
}
