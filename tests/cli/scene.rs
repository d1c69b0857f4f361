//! A store with members and tokens made through the library, and the binary beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use maitred::envelope::{Keyring, Secret};
use maitred::ids::{
    Epoch, Incarnation, NodeEpoch, NodeId, OperationId, Player, Region, RequestId, Role, TokenId, Zone,
};
use maitred::node::{Control, Identity, Lease, Load, Membership, NodeRecord, NodeState};
use maitred::store::{Store, StoreOptions, StoreUrl, Verifier};
use maitred::token::{Book, BookOptions, ClaimOutcome, IssueOrder, IssueOutcome, Token};
use redis::aio::MultiplexedConnection;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::support::store::TestStore;

pub const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Long enough that nothing lapses while a test looks.
const LEASE_MS: u64 = 600_000;

/// A busy machine is no reason for a test to fail.
const PATIENCE: &str = "store: {commandTimeoutMs: 5000, connectTimeoutMs: 5000, operationTimeoutMs: 10000}\n";

/// How a run of the binary ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the output is UTF-8");
        let ran = Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
        // CLI-1: a pipe gets no colours and no cursor movements.
        assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "an escape code in a pipe: {ran:?}");
        ran
    }

    /// Stdout, of a run that ended with `code`.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Stdout holds every one of `parts`.
    #[track_caller]
    pub fn shows(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.out.contains(part), "{part:?} is not in:\n{}\n{}", self.out, self.err);
        }
        self
    }

    /// Stderr is one line with every one of `parts`.
    #[track_caller]
    pub fn complains(self, parts: &[&str]) -> Self {
        assert_eq!(self.err.trim_end().lines().count(), 1, "not one line: {}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
        self
    }

    /// The one line of JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "not one line: {self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The table's line that starts with `first`, as cells.
    #[track_caller]
    pub fn cells(&self, first: &str) -> Vec<String> {
        let cells = |line: &str| {
            line.trim_matches(['│', ' ']).split('┆').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        let found = self.out.lines().map(cells).find(|cells| cells.first().is_some_and(|cell| cell == first));
        found.unwrap_or_else(|| panic!("no line of {first:?} in:\n{}", self.out))
    }
}

/// The binary in an environment that holds the secret and nothing else of ours.
pub fn maitred(args: &[&str]) -> Command {
    let mut command = Command::new(maitred_testkit::program::maitred());
    for name in ["MAITRED_STORE", "MAITRED_ZONE", "MAITRED_NODE_ID", "MAITRED_LOG", "MAITRED_SECRET_ALSO", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.env("MAITRED_SECRET", SECRET).args(args);
    command
}

pub fn run(mut command: Command) -> Ran {
    Ran::new(&command.output().expect("the binary starts"))
}

/// One zone on a store of its own.
pub struct Scene {
    pub server: TestStore,
    pub store: Store,
    pub verifier: Verifier,
    pub control: Control,
    pub book: Book,
    config: PathBuf,
    _dir: tempfile::TempDir,
}

impl Scene {
    pub async fn new() -> Self {
        Self::with_config("", BookOptions::default()).await
    }

    /// `config` is the text of the network.yml that the binary is given; `times` are the library's.
    pub async fn with_config(config: &str, times: BookOptions) -> Self {
        Self::on(TestStore::start(), config, times).await
    }

    /// The same on a server of the test's own making.
    pub async fn on(server: TestStore, config: &str, times: BookOptions) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("network.yml");
        std::fs::write(&file, format!("{PATIENCE}{config}")).expect("the config is written");
        let zone = Zone::new("eu").expect("valid");
        let url = StoreUrl::parse(&server.url()).expect("valid");
        let options = StoreOptions {
            command_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(10),
            ..StoreOptions::new(url)
        };
        let store = Store::open(zone.clone(), options).await.expect("the store answers");
        let secret = Secret::from_base64("MAITRED_SECRET", SECRET).expect("valid");
        let verifier = Verifier::new(Keyring::new(zone, secret, Vec::new()));
        let control = Control::default();
        let book = Book::new(store.clone(), verifier.clone(), control.clone(), times);
        Self { server, store, verifier, control, book, config: file, _dir: dir }
    }

    /// The network.yml that the binary is given.
    #[allow(dead_code, reason = "a test binary uses a part")]
    pub fn config(&self) -> &std::path::Path {
        &self.config
    }

    /// The binary on this scene's zone.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = maitred(args);
        command.args(["--zone", "eu", "--store", &self.server.url()]).arg("--config").arg(&self.config);
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        run(self.command(args))
    }

    /// The JSON of a run that went well.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        self.run(&args).code(0).json()
    }

    pub async fn conn(&self) -> MultiplexedConnection {
        self.server.conn().await
    }

    /// Runs one command on the store by hand, as whoever has its password could.
    pub async fn by_hand(&self, command: &[&str]) {
        let mut call = redis::cmd(command[0]);
        call.arg(&command[1..]);
        let _: redis::Value = call.query_async(&mut self.conn().await).await.expect("the store takes it");
    }

    /// Every key of the store with its value; times to live are left out.
    pub async fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let mut conn = self.conn().await;
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut conn).await.expect("KEYS");
        let mut contents = BTreeMap::new();
        for key in keys {
            let value: Option<Vec<u8>> = redis::cmd("DUMP").arg(&key).query_async(&mut conn).await.expect("DUMP");
            contents.extend(value.map(|value| (key, value)));
        }
        contents
    }

    /// Joins as a node with a lease that outlasts the test.
    pub async fn join(&self, record: NodeRecord) -> (Membership, NodeEpoch) {
        let identity = Identity { id: record.id.clone(), role: record.role.clone(), addr: record.addr.clone() };
        let lease = Lease::new(record.id.clone(), LEASE_MS);
        let id = record.id.clone();
        let mut membership = Membership::new(self.store.clone(), self.verifier.clone(), identity, lease);
        let epoch = membership.join(record).await.expect("it joins");
        (membership, NodeEpoch { id, epoch })
    }

    /// What is left of a node a lease after its process was killed: its place on the roster.
    pub async fn dies(&self, id: &str) {
        self.by_hand(&["DEL", &format!("maitred:{{eu}}:node:{id}")]).await;
    }

    /// Later tokens have these times.
    pub fn use_times(&mut self, times: BookOptions) {
        self.book = Book::new(self.store.clone(), self.verifier.clone(), self.control.clone(), times);
    }

    /// A PENDING token of `player` on `server`.
    pub async fn issue(&self, server: &NodeEpoch, player: &str, payload: &str) -> Token {
        let now = self.store.clock().now_ms();
        let mut order = IssueOrder {
            id: TokenId::fresh(),
            player: Player::new(player).expect("valid"),
            request: RequestId::new(format!("r-{player}")).expect("valid"),
            attempt: 1,
            payload: RawValue::from_string(payload.to_owned()).expect("JSON"),
            deadline_ms: now + 5_000,
            earlier: Vec::new(),
            issued_at_ms: now,
        };
        match self.book.issue(server, &mut order).await.expect("the store answers") {
            IssueOutcome::Issued(token) => token,
            other => panic!("{player} got no token: {other:?}"),
        }
    }

    pub async fn claim(&self, token: &Token, claimant: &NodeEpoch) {
        let claimed = self.book.claim(token, claimant, &OperationId::fresh()).await.expect("the store answers");
        assert!(matches!(claimed, ClaimOutcome::Claimed(_)), "{claimed:?}");
    }

    pub async fn consume(&self, token: &Token, server: &NodeEpoch) {
        let op = OperationId::fresh();
        self.book.consume(&token.id, &token.player, server, &op).await.expect("the store answers");
    }
}

/// A node that is ready and has nobody on it.
pub fn node(id: &str, role: Role) -> NodeRecord {
    NodeRecord {
        id: NodeId::new(id).expect("valid"),
        role,
        addr: format!("{id}.example:25565"),
        epoch: Epoch::NONE,
        incarnation: Incarnation::fresh(),
        seq: 0,
        sent_at_ms: 0,
        state: NodeState::Ready,
        accepting: true,
        kill: false,
        players: 0,
        soft_cap: 0,
        load: Load::default(),
        services: Vec::new(),
        labels: BTreeMap::new(),
    }
}

pub fn backend(id: &str) -> NodeRecord {
    node(id, Role::backend())
}

pub fn proxy(id: &str) -> NodeRecord {
    NodeRecord { accepting: false, ..node(id, Role::proxy()) }
}

pub fn region(name: &str) -> Region {
    Region::new(name).expect("valid")
}
