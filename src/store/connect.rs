use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::{Manager, Pool, PoolConfig, Runtime, Timeouts};
use redis::aio::ConnectionManagerConfig;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::call::MAX_PAUSE;
use super::clock::{StoreClock, boot_ms};
use super::keys::Keys;
use super::link::Link;
use super::scripts;
use super::shared::Shared;
use super::url::StoreUrl;
use crate::error::{Error, Result};
use crate::ids::Zone;

/// Connections of the pool that bulk reads go through.
const POOL_SIZE: usize = 4;
/// Commands that may wait for the shared connection's writer before callers wait.
const PIPELINE_BUFFER: usize = 1024;
/// Calls of scripts that are with the store at once: a few times as many as keep it busy over any network.
const TURNS: usize = 256;

/// Where the store is and how long anything may take.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The address.
    pub url: StoreUrl,
    /// How long one command may take before its outcome counts as unknown. Default 500 ms.
    pub command_timeout: Duration,
    /// How long one try to connect may take. Default 1 s.
    pub connect_timeout: Duration,
    /// How long one operation is repeated while its outcome is unknown. Default 3 s; more than `command_timeout`.
    pub operation_timeout: Duration,
}

impl StoreOptions {
    /// The defaults for `url`.
    pub fn new(url: StoreUrl) -> Self {
        Self {
            url,
            command_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(1),
            operation_timeout: Duration::from_secs(3),
        }
    }
}

/// The store of one zone: cheap to clone, one shared connection for all clones.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    options: StoreOptions,
    keys: Keys,
    clock: StoreClock,
    client: Client,
    shared: Shared,
    pool: Pool,
    link: Arc<Link>,
    turns: Semaphore,
}

/// What the server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ServerInfo {
    /// `redis`, `valkey`, `keydb` or `dragonfly`.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Store {
    /// Prepares the connections without opening one: the first command connects. The scripts are compared with their
    /// pins here, so a build with a changed script never reaches a store. Needs a tokio runtime.
    ///
    /// Errors: [`Error::PinMismatch`], [`Error::StoreUrl`].
    pub fn new(zone: Zone, options: StoreOptions) -> Result<Self> {
        scripts::verify_all()?;
        let unusable = |error: &dyn fmt::Display| Error::StoreUrl { problem: error.to_string() };
        let client = Client::open(options.url.info()).map_err(|error| unusable(&error))?;
        let link = Arc::new(Link::default());
        let told = Arc::clone(&link);
        let push = move |info: PushInfo| -> std::result::Result<(), redis::aio::SendError> {
            if info.kind == PushKind::Disconnection {
                told.lost(&"it was closed");
            }
            Ok(())
        };
        let manager = ConnectionManagerConfig::new()
            .set_push_sender(push)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(MAX_PAUSE)
            .set_number_of_retries(usize::MAX)
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.command_timeout))
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        let shared = Shared::new(client.clone(), manager, options.command_timeout, options.connect_timeout)
            .map_err(|error| unusable(&error))?;
        let bulk = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.command_timeout.max(Duration::from_secs(1))));
        let manager = Manager::new_with_config(options.url.info(), bulk).map_err(|error| unusable(&error))?;
        let mut pool = PoolConfig::new(POOL_SIZE);
        pool.timeouts = Timeouts {
            wait: Some(options.operation_timeout),
            create: Some(options.connect_timeout),
            recycle: Some(options.command_timeout),
        };
        let pool =
            Pool::builder(manager).config(pool).runtime(Runtime::Tokio1).build().map_err(|error| unusable(&error))?;
        let (keys, clock, turns) = (Keys::new(zone), StoreClock::default(), Semaphore::new(TURNS));
        let inner = Inner { options, keys, clock, client, shared, pool, link, turns };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// [`new`](Self::new), then connects, loads every script, compares the store's hashes with the pins and reads the
    /// clock.
    pub async fn open(zone: Zone, options: StoreOptions) -> Result<Self> {
        let store = Self::new(zone, options)?;
        store.prepare().await?;
        Ok(store)
    }

    /// Opens a connection of the pool. The shared connection tries again for as long as it lives, so a wrong password or
    /// address shows there as silence only; here it is the error.
    pub async fn connect(&self) -> Result<()> {
        self.pooled("connecting").await.map(|_| ())
    }

    /// Connects, loads every script, compares the store's answers with the pins and reads the clock. Safe to repeat.
    pub async fn prepare(&self) -> Result<()> {
        self.connect().await?;
        for script in scripts::all() {
            self.load_script(script).await?;
        }
        self.sync_clock().await
    }

    /// Which scripts the store holds now (`SCRIPT EXISTS`), in the order of [`scripts::all`].
    pub async fn loaded(&self) -> Result<Vec<bool>> {
        let during = "SCRIPT EXISTS";
        let mut command = redis::cmd("SCRIPT");
        command.arg("EXISTS");
        for script in scripts::all() {
            command.arg(script.pinned());
        }
        let deadline = Instant::now() + self.options().command_timeout;
        let value = self.send(&command, deadline).await.map_err(|sent| sent.typed(self, during))?;
        let held: Vec<u8> =
            redis::from_redis_value(value).map_err(|error| Error::Protocol { during, detail: error.to_string() })?;
        Ok(held.into_iter().map(|held| held == 1).collect())
    }

    /// Reads the store's clock (`TIME`) into [`clock`](Self::clock).
    pub async fn sync_clock(&self) -> Result<()> {
        let sent = boot_ms();
        let deadline = Instant::now() + self.options().command_timeout;
        let value = self.send(&redis::cmd("TIME"), deadline).await.map_err(|sent| sent.typed(self, "TIME"))?;
        let (seconds, micros): (u64, u64) = redis::from_redis_value(value)
            .map_err(|error| Error::Protocol { during: "TIME", detail: error.to_string() })?;
        self.clock().observe(seconds.saturating_mul(1000).saturating_add(micros / 1000), sent, boot_ms());
        Ok(())
    }

    /// Name and version of the server, from `INFO server`.
    pub async fn server_info(&self) -> Result<ServerInfo> {
        let deadline = Instant::now() + self.options().command_timeout;
        let command = redis::cmd("INFO").arg("server").clone();
        let value = self.send(&command, deadline).await.map_err(|sent| sent.typed(self, "INFO"))?;
        let text: String = redis::from_redis_value(value)
            .map_err(|error| Error::Protocol { during: "INFO", detail: error.to_string() })?;
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(|value| value.trim().to_owned())
        };
        let found = [("dragonfly", "dragonfly_version"), ("valkey", "valkey_version")]
            .into_iter()
            .find_map(|(name, key)| Some((name, field(key)?)));
        let (name, version) = found.unwrap_or_else(|| {
            let keydb = field("executable").is_some_and(|path| path.contains("keydb"));
            (if keydb { "keydb" } else { "redis" }, field("redis_version").unwrap_or_default())
        });
        let version = version.trim_start_matches("df-").trim_start_matches('v').to_owned();
        Ok(ServerInfo { name: name.to_owned(), version })
    }

    /// Every key and channel of the zone.
    pub fn keys(&self) -> &Keys {
        &self.inner.keys
    }

    /// The estimate of the store's clock.
    pub fn clock(&self) -> &StoreClock {
        &self.inner.clock
    }

    /// The options it was made with.
    pub fn options(&self) -> &StoreOptions {
        &self.inner.options
    }

    /// How often the shared connection has broken. As long as this stays the same, one server has been heard all the time,
    /// and it knows what it has acknowledged; after that it may have lost the last of it.
    pub(crate) fn connection_generation(&self) -> u64 {
        self.inner.link.connection_generation()
    }

    /// Since when the server behind the present shared connection is heard, on [`boot_ms`](super::boot_ms)'s clock; 0 for the
    /// first.
    pub(crate) fn replaced_boot_ms(&self) -> u64 {
        self.inner.link.replaced_ms()
    }

    pub(super) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    pub(super) fn turns(&self) -> &Semaphore {
        &self.inner.turns
    }

    pub(super) fn link(&self) -> &Link {
        &self.inner.link
    }

    pub(super) async fn pooled(&self, during: &'static str) -> Result<deadpool_redis::Connection> {
        self.inner.pool.get().await.map_err(|error| match error {
            deadpool_redis::PoolError::Backend(error) => self.fault(during, &error),
            other => self.unreachable(during, &other.to_string()),
        })
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({} zone {})", self.inner.options.url, self.inner.keys.zone())
    }
}
