use std::path::{Path, PathBuf};

use clap::Args;

use maitred::agent::Setup;
use maitred::agent::config::{Config, SecretUrl, Stated};
use maitred::envelope::Keyring;
use maitred::error::Result;
use maitred::ids::Zone;
use maitred::node::{Control, LivenessLimits};
use maitred::store::{Store, Verifier};
use maitred::token::Book;

use super::Failure;

/// Where the store is when nobody says otherwise.
const DEFAULT_STORE: &str = "redis://127.0.0.1:6379";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(super) struct Globals {
    /// Store URL [env: MAITRED_STORE; then the config's; then redis://127.0.0.1:6379]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Zone [env: MAITRED_ZONE; then the config's; then default]
    #[arg(long, global = true, value_name = "ZONE")]
    pub zone: Option<String>,
    /// Config file (network.yml)
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub json: bool,
}

/// What every command works with: the config with environment and options in it.
#[derive(Debug)]
pub(super) struct Context {
    pub config: Config,
    /// True where the command line names the store.
    pub names_store: bool,
    pub json: bool,
    /// As they were given.
    pub globals: Globals,
}

impl Globals {
    /// The file with environment and options over it. Read anew at each call.
    pub fn config(&self) -> Result<Config, Failure> {
        self.stated_config().map(|(config, _)| config)
    }

    /// Like [`config`](Self::config), with what the file says of `enabled`.
    pub fn stated_config(&self) -> Result<(Config, Stated), Failure> {
        let (mut config, stated) = match &self.config {
            Some(path) => Config::load_stated(path)?,
            None => {
                let mut config = Config::default();
                config.store.url = None;
                (config, Stated::Enabled)
            }
        };
        config.apply_env(|name| std::env::var(name).ok())?;
        if let Some(zone) = &self.zone {
            config.zone = Zone::new(zone)?;
        }
        if let Some(url) = &self.store {
            config.store.url = Some(SecretUrl::new(url).ok_or_else(|| {
                Failure::Usage(
                    "--store is not usable; allowed: redis://[user:password@]host[:port][/db], unix:///path[?db=n]"
                        .to_owned(),
                )
            })?);
        }
        if config.store.url.is_none() {
            config.store.url = SecretUrl::new(DEFAULT_STORE);
        }
        Ok((config, stated))
    }
}

impl Context {
    pub fn new(globals: Globals) -> Result<Self, Failure> {
        Ok(Self { config: globals.config()?, names_store: globals.store.is_some(), json: globals.json, globals })
    }

    /// Where no config was named, with that of `file`, so that what is done to it goes to its own fleet.
    pub fn or_of(&self, file: &Path) -> Result<Self, Failure> {
        let mut globals = self.globals.clone();
        globals.config.get_or_insert_with(|| file.to_owned());
        Self::new(globals)
    }

    /// The fleet's keys, from the environment variable that the config names.
    pub fn verifier(&self) -> Result<Verifier> {
        let security = &self.config.security;
        let keyring = Keyring::from_env(self.config.zone.clone(), &security.secret_env, &security.secret_also_env)?;
        Ok(Verifier::new(keyring))
    }

    /// The store, connected, with every script loaded and compared.
    pub async fn store(&self) -> Result<Store> {
        let store = Store::new(self.config.zone.clone(), Setup::store_options(&self.config)?)?;
        store.prepare().await?;
        Ok(store)
    }

    /// The store, connected, without its scripts and clock.
    pub async fn unprepared_store(&self) -> Result<Store> {
        let store = Store::new(self.config.zone.clone(), Setup::store_options(&self.config)?)?;
        store.connect().await?;
        Ok(store)
    }

    /// The store and the fleet's keys. Without a usable secret no store is asked.
    pub async fn fleet(&self) -> Result<(Store, Verifier)> {
        let verifier = self.verifier()?;
        Ok((self.store().await?, verifier))
    }

    /// [`fleet`](Self::fleet) for a command that only looks: nothing is loaded, so that a user of the store who may write
    /// nothing can run it. A script that reads is there since the first agent, and is loaded where it is not.
    pub async fn fleet_to_read(&self) -> Result<(Store, Verifier)> {
        let verifier = self.verifier()?;
        let store = self.unprepared_store().await?;
        store.sync_clock().await?;
        Ok((store, verifier))
    }

    /// The reservation book over a store that is connected.
    pub fn book_of(&self, store: &Store, verifier: &Verifier, control: Control) -> Book {
        Book::new(store.clone(), verifier.clone(), control, Setup::book_options(&self.config))
    }

    /// The limits of the liveness states.
    pub fn limits(&self) -> LivenessLimits {
        let directory = &self.config.directory;
        LivenessLimits {
            suspect_ms: directory.suspect_ms,
            offline_ms: directory.offline_ms,
            removed_ms: directory.removed_ms,
        }
    }

    /// True where `store`, as an error names it, is the store of this context.
    pub fn is_its_store(&self, store: &str) -> bool {
        let asked = Setup::store_options(&self.config).map(|options| options.url.to_string());
        asked.is_ok_and(|asked| asked == store)
    }

    /// What to do about a store that does not answer.
    pub fn store_hint(&self) -> &'static str {
        "is a store up there? --store, MAITRED_STORE or the config's store.url say where it is; the command can be given again"
    }
}
