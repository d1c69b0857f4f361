//! The values, with their defaults. Bounds and relations stand in `schema` and `check`, and in words in `network.yml`.

use std::collections::BTreeMap;

use super::initial_routing::InitialRoutingConfig;
use super::line_config::LineConfig;
use super::routes::RoutesConfig;
use super::selector_config::SelectorConfig;
use super::url::SecretUrl;
use crate::ids::{LimitName, LineName, NodeId, Role, Zone};
use crate::limit::Limit;

/// The whole config. `Debug` shows no password. The default is valid and switched off.
///
/// Fields may be set in code; [`Config::check_enabled`] holds them against the same bounds as a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// `false`: no connection, no task, no thread (POL-2).
    pub enabled: bool,
    /// The zone: one book of its own in the store.
    pub zone: Zone,
    /// This process.
    pub node: NodeConfig,
    /// The store and how long to wait for it.
    pub store: StoreConfig,
    /// Where the secret comes from.
    pub security: SecurityConfig,
    /// How often this node says that it lives.
    pub heartbeat: HeartbeatConfig,
    /// The view of the other nodes.
    pub directory: DirectoryConfig,
    /// Reservation tokens and their reaper.
    pub tokens: TokensConfig,
    /// The way of a request over the backends.
    pub dispatch: DispatchConfig,
    /// Where fresh logins go.
    pub initial_routing: InitialRoutingConfig,
    /// Who goes where without being named.
    pub routing: RoutingConfig,
    /// How a backend is chosen.
    pub selector: SelectorConfig,
    /// The lines of requests that no backend could serve.
    pub wait: WaitConfig,
    /// Messages between nodes.
    pub messages: MessagesConfig,
    /// Objects and who owns them.
    pub routes: RoutesConfig,
    /// Which sources of requests are on.
    pub triggers: TriggersConfig,
    /// Cooldowns and limits a player, shared by all proxies (POL-6), at most 64. Those named `command`, `join`, `event`
    /// and `other` are charged by the dispatches of that source; others are the application's own
    /// ([`Agent::take_limit`](crate::agent::Agent::take_limit)).
    pub limits: BTreeMap<LimitName, Limit>,
    /// Login lines (QUE-1), at most 16; `wait` and names that begin with `wait.` are not for them.
    pub lines: BTreeMap<LineName, LineConfig>,
    /// Nodes that are expected beside those that are discovered (NOD-12), at most 256. A node's own id may be among them.
    pub peers: BTreeMap<NodeId, PeerConfig>,
    /// What a player reads.
    pub texts: TextsConfig,
}

/// `node`: this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Unique in the zone; the only thing that differs between hosts. `None`: not set here (`""` in the file), then
    /// `MAITRED_NODE_ID` has to give it before the library can be enabled.
    pub id: Option<NodeId>,
    /// What the node is for.
    pub role: Role,
    /// `host:port` that players are sent to, 1 to 255 bytes; an IPv6 host stands in brackets.
    pub addr: String,
    /// Up to 16 labels: name (1 to 64 of `A-Za-z0-9._-`) to text (up to 128 bytes). The selector knows `locality`.
    pub labels: BTreeMap<String, String>,
}

/// `store`: the RESP store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Where the store is. `None`: not set here (`""` in the file), then `MAITRED_STORE` has to give it before the
    /// library can be enabled.
    pub url: Option<SecretUrl>,
    /// Longest wait for one answer, in ms: 50 to 10,000.
    pub command_timeout_ms: u64,
    /// Longest wait for a connection, in ms: 50 to 10,000.
    pub connect_timeout_ms: u64,
    /// How long one operation is repeated while its outcome is unknown, in ms: 100 to 60,000.
    pub operation_timeout_ms: u64,
}

/// `security`: names of environment variables, never a secret itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityConfig {
    /// The variable with the secret that this node signs with.
    pub secret_env: String,
    /// The variable with a second secret that is accepted while secrets are changed; it need not exist.
    pub secret_also_env: String,
}

/// `heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatConfig {
    /// Time between two beats in ms: 50 to 60,000. The lease is 3.5 of it ([`Config::lease_ms`]).
    pub interval_ms: u64,
}

/// `directory`: two beats < suspect < offline < removed (NOD-7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryConfig {
    /// Time between two full reads of the zone in ms: 100 to 600,000.
    pub refresh_ms: u64,
    /// Age of the last beat from which a node is suspect, in ms.
    pub suspect_ms: u64,
    /// Age of the last beat from which a node is offline, in ms.
    pub offline_ms: u64,
    /// Age of the last beat from which a node is removed, in ms.
    pub removed_ms: u64,
}

/// `tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensConfig {
    /// Life of a token in ms: 200 to 600,000.
    pub ttl_ms: u64,
    /// How long a claimed token waits before it is looked at again whether its claimant lives, in ms: 100 to
    /// `ttl_ms`.
    pub claim_reanimate_ms: u64,
    /// How long an ended token stays readable for repeats and for people, in ms: 100 to 3,600,000.
    pub audit_ms: u64,
    /// Time between two sweeps of the reaper in ms: 50 to 60,000.
    pub reap_interval_ms: u64,
    /// Tokens of one batch of the reaper: 1 to 256.
    pub reap_batch: usize,
}

/// `dispatch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchConfig {
    /// Further backends that are asked after the first: 0 to 16.
    pub max_retries: usize,
    /// Longest wait for one backend's answer in ms: 50 to 60,000.
    pub attempt_timeout_ms: u64,
    /// How long a backend that failed is not picked, in ms: 0 (not at all) to 600,000.
    pub cooldown_ms: u64,
    /// Age of a backend's last beat from which it is not picked, in ms: 100 to 600,000. One and a half beats are waited for
    /// in any case.
    pub stale_after_ms: u64,
}

/// `routing`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutingConfig {
    /// The fleet has lobbies (DSP-6): a bare request goes to the backend and region with the most kept places, and a
    /// player who connects and is not to be placed stays with the application, which has a lobby for them. `false`: every
    /// player who connects is sent to a backend.
    pub lobby_mode: bool,
}

/// `wait`: the lines of requests that no backend could serve (QUE-9), where `selector.onNoCandidate` is `queue`. The same on
/// every node of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitConfig {
    /// Most players of one line, those that dropped included: 1 to 1,000,000.
    pub max_waiting: usize,
    /// How long a player who dropped keeps the place, in ms: 0 (not at all) to 3,600,000.
    pub reconnect_grace_ms: u64,
    /// Longest wait of one request in ms: 0 (no end) to 86,400,000.
    pub max_wait_ms: u64,
}

/// `messages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagesConfig {
    /// Largest body of a message in bytes: 64 to 1,048,576.
    pub max_body_bytes: usize,
    /// Handlers that run at the same time: 1 to 65,536. More are answered with `Busy`. Messages to objects have three
    /// quarters of them.
    pub max_concurrent: usize,
    /// Longest wait of a call for its answer in ms, where the caller says nothing: 10 to 29,000.
    pub call_timeout_ms: u64,
}

/// `triggers`: which sources of requests are on (DSP-7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggersConfig {
    /// A player's command.
    pub command: bool,
    /// A player's connection.
    pub join: bool,
    /// A player's first connection to the network, where `join` is off.
    pub first_join: bool,
    /// An event of the application.
    pub event: bool,
    /// Any other source.
    pub other: bool,
}

/// One node of `peers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    /// What it is for.
    pub role: Role,
    /// `host:port` that players are sent to, 1 to 255 bytes.
    pub addr: String,
}

/// `texts`: what a player reads, up to 512 bytes each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextsConfig {
    /// No backend came into question.
    pub no_candidate: String,
    /// All backends that were asked refused.
    pub refused: String,
    /// The player has no right to be placed.
    pub not_allowed: String,
    /// The kill switch is on.
    pub kill_switch: String,
    /// The reservation was lost to someone else or ran out.
    pub lost: String,
    /// The store cannot be reached.
    pub store_down: String,
    /// A limit was met; `{seconds}` in it becomes how long to wait, in whole seconds.
    pub limited: String,
    /// The server that was asked for takes nobody any more, because an operator drains it.
    pub draining: String,
    /// The line that the player was to wait in holds as many as it may.
    pub queue_full: String,
    /// The line ended, or the player's place in it: the server was removed, or an operator emptied it.
    pub wait_ended: String,
    /// No place came in within the longest wait.
    pub waited_too_long: String,
    /// No entry server is configured for a fresh login.
    pub no_entry: String,
    /// A fresh login could not be connected to any server.
    pub not_placed: String,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self { id: None, role: Role::backend(), addr: "127.0.0.1:25565".to_owned(), labels: BTreeMap::new() }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: SecretUrl::new("redis://127.0.0.1:6379"),
            command_timeout_ms: 500,
            connect_timeout_ms: 1_000,
            operation_timeout_ms: 3_000,
        }
    }
}

impl Default for SecurityConfig {
    fn default() -> Self {
        Self { secret_env: "MAITRED_SECRET".to_owned(), secret_also_env: "MAITRED_SECRET_ALSO".to_owned() }
    }
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        Self { interval_ms: 1_000 }
    }
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self { refresh_ms: 5_000, suspect_ms: 2_500, offline_ms: 3_500, removed_ms: 600_000 }
    }
}

impl Default for TokensConfig {
    fn default() -> Self {
        Self { ttl_ms: 30_000, claim_reanimate_ms: 5_000, audit_ms: 60_000, reap_interval_ms: 2_000, reap_batch: 64 }
    }
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self { max_retries: 3, attempt_timeout_ms: 1_500, cooldown_ms: 2_000, stale_after_ms: 3_000 }
    }
}

impl Default for WaitConfig {
    fn default() -> Self {
        Self { max_waiting: 100_000, reconnect_grace_ms: 30_000, max_wait_ms: 0 }
    }
}

impl Default for MessagesConfig {
    fn default() -> Self {
        Self { max_body_bytes: 65_536, max_concurrent: 256, call_timeout_ms: 2_000 }
    }
}

impl Default for TriggersConfig {
    fn default() -> Self {
        Self { command: true, join: false, first_join: false, event: false, other: true }
    }
}

impl Default for TextsConfig {
    fn default() -> Self {
        Self {
            no_candidate: "No server has room for you right now. Please try again in a moment.".to_owned(),
            refused: "The servers are full. Please try again in a moment.".to_owned(),
            not_allowed: "You may not be moved there.".to_owned(),
            kill_switch: "Moving between servers is switched off at the moment.".to_owned(),
            lost: "Your place is no longer reserved. Please try again.".to_owned(),
            store_down: "The network cannot place anyone right now. Please try again in a moment.".to_owned(),
            limited: "Please wait {seconds} seconds before you try again.".to_owned(),
            draining: "That server is being emptied. Please choose another one.".to_owned(),
            queue_full: "The queue is full. Please try again in a moment.".to_owned(),
            wait_ended: "You are no longer in the queue. Please try again.".to_owned(),
            waited_too_long: "No place came free in time. Please try again.".to_owned(),
            no_entry: "This network has no entry server. Please tell its operators.".to_owned(),
            not_placed: "No server can be reached right now. Please try again in a moment.".to_owned(),
        }
    }
}
