use std::fmt;
use std::path::PathBuf;

use crate::agent::config::{Config, Stated};
use crate::envelope::Keyring;
use crate::error::{Error, Result};

use super::state::ManagedState;

type Read = Box<dyn Fn() -> Result<(Config, Stated)> + Send + Sync>;
type Keys = Box<dyn Fn(&Config) -> Result<Keyring> + Send + Sync>;

/// Where a config and the fleet's keys come from. Read again at each reload.
pub struct ConfigSource {
    read: Read,
    keys: Keys,
}

/// Why a source gives nothing that can be started.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It may be mended where it stands, so it is looked at again.
    Bad(Error),
    /// It lacks what only somebody can give.
    Refused(Error),
}

impl Unusable {
    /// The state of whoever has no agent.
    pub fn state(&self) -> ManagedState {
        match self {
            Self::Bad(error) => ManagedState::Disabled { why: error.to_string() },
            Self::Refused(error) => ManagedState::Refused { why: error.to_string(), for_good: false },
        }
    }
}

impl From<Unusable> for Error {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Bad(error) | Unusable::Refused(error) => error,
        }
    }
}

impl ConfigSource {
    /// The file at `path` (`network.yml`), with id, address, store and zone from the environment where it has them, and
    /// the secret from the environment variables that the file names.
    ///
    /// While an agent runs, or is tried for, only `enabled: false` switches it off: a file that is empty or does not give
    /// `enabled` is a problem.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::stating(move || {
            let (mut config, stated) = Config::load_stated(&path)?;
            config.apply_env(|name| std::env::var(name).ok())?;
            Ok((config, stated))
        })
    }

    /// Whatever `read` gives. It may block. A config that is not enabled switches off.
    pub fn reading(read: impl Fn() -> Result<Config> + Send + Sync + 'static) -> Self {
        Self::stating(move || Ok((read()?, Stated::Enabled)))
    }

    /// Whatever `read` gives, with what its file says of `enabled`.
    #[doc(hidden)]
    pub fn stating(read: impl Fn() -> Result<(Config, Stated)> + Send + Sync + 'static) -> Self {
        let keys = |config: &Config| {
            let security = &config.security;
            Keyring::from_env(config.zone.clone(), &security.secret_env, &security.secret_also_env)
        };
        Self { read: Box::new(read), keys: Box::new(keys) }
    }

    /// With keys that the application brings. It may block.
    #[must_use]
    pub fn with_keys(mut self, keys: impl Fn(&Config) -> Result<Keyring> + Send + Sync + 'static) -> Self {
        self.keys = Box::new(keys);
        self
    }

    /// Reads and checks everything that can be checked without the store; `None` where it is switched off, which has to
    /// be said where an agent `is_wanted` by the config before. Blocks.
    pub(super) fn give(&self, is_wanted: bool) -> Result<Option<(Config, Keyring)>, Unusable> {
        let (config, stated) = (self.read)().map_err(Unusable::Bad)?;
        if is_wanted {
            said(stated).map_err(Unusable::Bad)?;
        }
        if !config.enabled {
            return Ok(None);
        }
        let is_missing = config.node.id.is_none() || config.store.url.is_none();
        config
            .check_enabled()
            .map_err(|error| if is_missing { Unusable::Refused(error) } else { Unusable::Bad(error) })?;
        config.store_options().map_err(Unusable::Bad)?;
        let keyring = (self.keys)(&config).map_err(Unusable::Refused)?;
        Ok(Some((config, keyring)))
    }
}

/// A file that is cut short is not the word of somebody who wants the node off.
fn said(stated: Stated) -> Result<()> {
    let what = match stated {
        Stated::Enabled => return Ok(()),
        Stated::Empty => "the file is empty",
        Stated::NotEnabled => "is not given",
    };
    let line = format!("enabled: {what}, and only a plain false switches a running node off; allowed: true, false");
    Err(Error::Config { problems: vec![line] })
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigSource")
    }
}
