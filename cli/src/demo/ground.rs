//! What a fleet of the demo stands on: a private store, a directory, a config and a secret of its own.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::fleet::Launch;
use crate::Failure;
use maitred::agent::Setup;
use maitred::agent::config::{Config, SecretUrl};
use maitred::envelope::{Keyring, Secret};
use maitred::store::{Feed, FeedChannel, FeedItem, Store, Verifier};
use maitred_testkit::private_store::PrivateStore;

/// Longest wait for a subscription of a store that runs.
const SUBSCRIBED_MAX: Duration = Duration::from_secs(5);

/// Everything but the processes. Dropping it ends the store and removes the directory.
pub(super) struct Ground {
    pub config: Config,
    pub verifier: Verifier,
    pub store: Store,
    file: PathBuf,
    secret: Zeroizing<String>,
    _dir: TempDir,
    private: PrivateStore,
}

impl Ground {
    /// Starts the store and writes the config `network`.
    pub async fn lay(network: &str) -> Result<Self, Failure> {
        let private = PrivateStore::start().await.map_err(Failure::Io)?;
        let dir = tempfile::Builder::new()
            .prefix("maitred-demo-")
            .tempdir()
            .map_err(|error| Failure::io("making a directory for the demo", &error))?;
        let file = dir.path().join("network.yml");
        std::fs::write(&file, network).map_err(|error| Failure::io("writing the config", &error))?;
        let mut config = Config::load(&file)?;
        config.store.url = SecretUrl::new(private.url());

        let secret = Zeroizing::new(STANDARD.encode(Zeroizing::new(rand::random::<[u8; 32]>()).as_slice()));
        let keyring = Keyring::new(config.zone.clone(), Secret::from_base64("MAITRED_SECRET", &secret)?, Vec::new());
        let verifier = Verifier::new(keyring);
        let store = Store::open(config.zone.clone(), Setup::store_options(&config)?).await?;
        Ok(Self { config, verifier, store, file, secret, _dir: dir, private })
    }

    /// What the processes of the fleet are started with.
    pub fn launch(&self) -> Launch<'_> {
        Launch { store: self.private.url(), zone: self.config.zone.as_str(), config: &self.file, secret: &self.secret }
    }

    /// Hears a channel from now on, until `stop`.
    pub async fn listen(
        &self,
        channel: FeedChannel,
        name: String,
        stop: CancellationToken,
    ) -> Result<mpsc::Receiver<FeedItem>, Failure> {
        let (feed, sink, mut items) = Feed::new();
        let store = self.store.clone();
        tokio::spawn(async move { feed.run(store, vec![(channel, name)], sink, stop).await });
        match timeout(SUBSCRIBED_MAX, items.recv()).await {
            Ok(Some(FeedItem::Gap)) => Ok(items),
            other => Err(Failure::Io(format!("the private store gives no subscription: {other:?}"))),
        }
    }
}
