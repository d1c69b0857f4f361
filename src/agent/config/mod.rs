//! The one `network.yml`: the same bytes on every host, only the node id differs (POL-1).
//!
//! The way of a text: `yaml` parses it into a tree that remembers lines and columns, `walk` assigns the tree to a
//! [`Config`] along the table in `schema` (unknown keys, repeated keys, types), `check` compares the stored values with
//! their bounds and with each other. All problems are collected, one line each:
//! `path.to.key: what is wrong (line 3, column 9); allowed: …`.
//!
//! No problem line repeats a text value of the file: a password may stand in the wrong place. Only numbers and
//! name-like keys are shown.
//!
//! # What comes into force without a restart
//!
//! | sections | a reload of the file | a push through the store ([`Push`]) |
//! |---|---|---|
//! | `dispatch`, `triggers`, `texts`, `limits`, `initialRouting`, `routing`, `selector` | at once, for requests that begin later | goes before the file, key by key |
//! | `lines` | at once; who waits keeps the place | goes before the file, key by key of each line |
//! | `enabled`, `zone`, `node`, `store`, `security`, `heartbeat`, `directory`, `tokens`, `messages`, `peers`, `routes` | the agent leaves and starts anew | refused: they stay with each host |
//!
//! The table in `sections` decides.
//!
//! # The file
//!
//! - An empty file is a valid config that is switched off (POL-2); a section without keys is valid too. Only a file that
//!   says `enabled: false` switches an agent off that runs: one that is empty, or that does not give `enabled`, is a
//!   problem for a reload, because a file that is being written looks like that.
//! - Texts that look like numbers have to be quoted (`id: "17"`), numbers must not be; flags are `true` or `false`.
//! - Anchors, aliases and merge keys are refused, so a file cannot unfold into a bigger one; so is a second document.
//!
//! ```
//! use maitred::agent::config::Config;
//!
//! let mut config = Config::from_yaml("enabled: true\nzone: eu\ntokens: { ttlMs: 20000 }\n")?;
//! config.apply_env(|name| (name == "MAITRED_NODE_ID").then(|| "backend-7".to_owned()))?;
//! config.check_enabled()?;
//! assert_eq!(config.node_id()?.as_str(), "backend-7");
//! assert_eq!(config.lease_ms(), 3_500);
//! # Ok::<(), maitred::Error>(())
//! ```

mod check;
mod entry_servers;
mod fits;
mod initial_routing;
mod limits;
mod line_config;
mod lines;
mod load;
mod model;
mod options;
mod peers;
mod problem;
mod push;
mod routes;
mod schema;
mod sections;
mod selector;
mod selector_config;
mod table;
mod url;
mod walk;
mod walked;
mod yaml;

pub use initial_routing::InitialRoutingConfig;
pub use line_config::LineConfig;
#[doc(hidden)]
pub use load::Stated;
#[doc(hidden)]
pub use load::{ENV_NODE_ADDR, ENV_NODE_ID, ENV_STORE, ENV_ZONE, FILE_MAX_BYTES};
pub use model::{
    Config, DirectoryConfig, DispatchConfig, HeartbeatConfig, MessagesConfig, NodeConfig, PeerConfig, RoutingConfig,
    SecurityConfig, StoreConfig, TextsConfig, TokensConfig, TriggersConfig, WaitConfig,
};
pub use push::Push;
pub use routes::RoutesConfig;
pub(crate) use routes::{FREE_MIN_MS, LOCK_TIMEOUT_MIN_MS};
pub use selector_config::{OnNoCandidate, RecentPicksConfig, SelectorConfig};
pub use url::SecretUrl;

// What these are made of.
pub use crate::limit::Limit;
pub use crate::queue::{Choice, GateOptions, LineOptions};
pub use crate::select::{Curve, MetricSource, Rule};
