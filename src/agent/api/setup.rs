use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::envelope::Keyring;
use crate::error::{Error, Result};
use crate::ids::Role;
use crate::message::{Inbox, MessageOptions, Post, Services};
use crate::node::{Arrivals, Control, Directory, DirectoryOptions, Identity, Lease, LivenessLimits, NodeState};
use crate::store::{Feed, Store, StoreOptions, Verifier};
use crate::token::{Book, BookOptions};

use crate::agent::backend::{Backend, Inventory, WithRegions};
use crate::agent::config::Config;
use crate::agent::core::{
    Admitting, AgentStatus, Condition, Core, Live, LoadSource, Redemptions, line_hints, token_hints,
};
use crate::agent::proxy::Proxy;
use crate::agent::start;

use super::agent::Agent;
use super::backend::BackendAgent;
use super::proxy::ProxyAgent;
use super::router::RouterAgent;

/// A checked config and the fleet's keys: what an agent is started from.
#[derive(Debug)]
pub struct Setup {
    config: Config,
    keyring: Keyring,
}

impl Setup {
    /// Checks the config and reads the secret from the environment variables that it names.
    ///
    /// Errors: [`Error::Disabled`] for `enabled: false` (then nothing is started: no connection, no task, no thread),
    /// [`Error::Config`], [`Error::Secret`].
    pub fn from_env(config: Config) -> Result<Self> {
        if !config.enabled {
            return Err(Error::Disabled);
        }
        config.check_enabled()?;
        let security = &config.security;
        let keyring = Keyring::from_env(config.zone.clone(), &security.secret_env, &security.secret_also_env)?;
        Ok(Self { config, keyring })
    }

    /// Like [`from_env`](Self::from_env), with keys that the application brings.
    pub fn with_keyring(config: Config, keyring: Keyring) -> Result<Self> {
        if !config.enabled {
            return Err(Error::Disabled);
        }
        config.check_enabled()?;
        Ok(Self { config, keyring })
    }

    /// The config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The options of the store.
    #[doc(hidden)]
    pub fn store_options(config: &Config) -> Result<StoreOptions> {
        config.store_options()
    }

    /// The times of tokens.
    #[doc(hidden)]
    pub fn book_options(config: &Config) -> BookOptions {
        config.book_options()
    }

    /// Starts a backend: it joins, beats, listens, reaps, and answers requests for places from `inventory`. Needs a
    /// tokio runtime; waits for nothing.
    pub fn backend<I: Inventory>(self, inventory: I, load: impl LoadSource) -> Result<BackendAgent<I>> {
        self.backend_sharing(Arc::new(inventory), load)
    }

    /// Like [`backend`](Self::backend), with an inventory that outlives the agent.
    pub fn backend_sharing<I: Inventory>(
        mut self,
        inventory: Arc<I>,
        load: impl LoadSource,
    ) -> Result<BackendAgent<I>> {
        if self.config.node.role == Role::proxy() {
            self.config.node.role = Role::backend();
        }
        // A backend is asked; it looks at proxies only, on a timer, and at others when it has to, or when it uses routes.
        let roles = BTreeSet::from([Role::proxy()]);
        let load = WithRegions { load: Box::new(load), inventory: Arc::clone(&inventory) };
        let agent = self.agent(Box::new(load), Some(roles), false, true)?;
        let backend = Arc::new(Backend::new(agent.core(), inventory));
        let places = backend.register()?;
        start::backend(&backend);
        Ok(BackendAgent::new(agent, backend, places))
    }

    /// Starts a proxy: it joins, beats, listens, reaps, and dispatches requests. Needs a tokio runtime; waits for
    /// nothing.
    pub fn proxy(mut self, load: impl LoadSource) -> Result<ProxyAgent> {
        // One file serves every host, so what the application wires up decides between the two.
        if self.config.node.role == Role::backend() {
            self.config.node.role = Role::proxy();
        }
        self.participant(Box::new(load))
    }

    /// Starts a lobby: where players wait for a place and get none. A participant like a proxy, of the role `lobby`, that
    /// takes no new players from others, has no inventory and serves no regions whatever `load` says; a bare request of it
    /// goes to the backend and region with the most kept places. Needs a tokio runtime; waits for nothing.
    pub fn lobby(mut self, load: impl LoadSource) -> Result<ProxyAgent> {
        self.config.node.role = Role::lobby();
        let load = move || {
            let mut sample = load.sample();
            sample.load.regions.clear();
            sample
        };
        self.participant(Box::new(load))
    }

    fn participant(self, load: Box<dyn LoadSource>) -> Result<ProxyAgent> {
        let agent = self.agent(load, None, true, false)?;
        let proxy = Arc::new(Proxy::new(agent.core()));
        start::proxy(&proxy);
        Ok(ProxyAgent::new(agent, proxy))
    }

    /// A proxy that is no member: it claims the tokens of players who connect, and publishes nothing. Starts no task;
    /// needs a tokio runtime.
    pub fn router(self) -> Result<RouterAgent> {
        runtime()?;
        let Self { config, keyring } = self;
        let id = config.node_id()?.clone();
        let store = Store::new(config.zone.clone(), config.store_options()?)?;
        let verifier = Verifier::new(keyring);
        let book = Book::new(store.clone(), verifier.clone(), Control::default(), config.book_options());
        Ok(RouterAgent::new(id, config, store, verifier, book))
    }

    /// Starts a node of any other role: it joins, beats, listens, reaps, and answers and sends messages.
    pub fn node(self, load: impl LoadSource) -> Result<Agent> {
        self.agent(Box::new(load), None, false, false)
    }

    fn agent(
        self,
        load: Box<dyn LoadSource>,
        roles: Option<BTreeSet<Role>>,
        hears_beats: bool,
        accepting: bool,
    ) -> Result<Agent> {
        let runtime = runtime()?;
        let Self { config, keyring } = self;
        let limits = LivenessLimits {
            suspect_ms: config.directory.suspect_ms,
            offline_ms: config.directory.offline_ms,
            removed_ms: config.directory.removed_ms,
        };
        let id = config.node_id()?.clone();
        let identity = Identity { id: id.clone(), role: config.node.role.clone(), addr: config.node.addr.clone() };
        let store = Store::new(config.zone.clone(), config.store_options()?)?;
        let verifier = Verifier::new(keyring);
        let lease = Lease::new(id, config.lease_ms());
        let control = Control::default();
        let (feed, sink, items) = Feed::new();
        let directory = Directory::new(
            store.clone(),
            verifier.clone(),
            DirectoryOptions { limits, roles },
            hears_beats.then(|| feed.clone()),
        );
        directory.expect(peers(&config));
        let services = Services::new();
        let options = MessageOptions {
            max_body_bytes: config.messages.max_body_bytes,
            max_concurrent: config.messages.max_concurrent,
            call_timeout: Duration::from_millis(config.messages.call_timeout_ms),
        };
        let post =
            Post::new(store.clone(), verifier.clone(), lease.clone(), directory.clone(), services.clone(), options);
        let inbox = Inbox::new(&post);
        let book = Book::new(store.clone(), verifier.clone(), control.clone(), config.book_options());
        let arrivals = Arrivals::default();
        let (status, _) = watch::channel(AgentStatus::Connecting { error: None });
        let core = Core {
            live: Live::new(config),
            store,
            verifier,
            identity,
            lease,
            control,
            directory,
            services,
            post,
            inbox,
            book,
            feed,
            condition: Mutex::new(Condition { state: NodeState::Ready, accepting }),
            load,
            last_load: Mutex::default(),
            beat_now: Notify::new(),
            refresh_now: Notify::new(),
            hears_beats,
            status,
            token_events: token_hints(),
            line_events: line_hints(),
            // Proxies and lobbies, whose players wait, and backends, who serve the wait lines.
            hears_lines: hears_beats || accepting,
            admitting: Admitting::default(),
            arrivals,
            redemptions: Redemptions::default(),
            runtime,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let core = Arc::new(core);
        start::member(&core, sink, items);
        Ok(Agent::new(core))
    }
}

/// The nodes that the config expects.
pub(super) fn peers(config: &Config) -> impl Iterator<Item = Identity> {
    let peers = config.peers.iter();
    peers.map(|(id, peer)| Identity { id: id.clone(), role: peer.role.clone(), addr: peer.addr.clone() })
}

/// The runtime that the caller is in.
pub(super) fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|_| Error::OutOfBounds {
        what: "runtime",
        problem: "there is none here; start an agent inside a tokio runtime".to_owned(),
    })
}
