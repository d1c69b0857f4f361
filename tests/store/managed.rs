//! POL-3: an application embeds this library and must not go down with it. When one of these fails, a wrong line in a
//! file, or a store that is away for a minute, takes a game server with it, or leaves it without a network for good.

mod refusals;
mod relay;
mod reloads;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::fixtures::agents::{LIMIT, SECRET, keyring, stock::Stock, zone};
use maitred::Error;
use maitred::agent::config::Config;
use maitred::agent::{BackendAgent, ConfigSource, Kept, Managed, ManagedState, ProxyAgent};
use maitred::envelope::{Keyring, Secret};
use maitred::node::LoadSample;
use maitred_testkit::wait::eventually;

/// A file that a test writes, and the secret that goes with it.
#[derive(Clone)]
struct Host {
    dir: Arc<tempfile::TempDir>,
    secret: Arc<Mutex<Option<&'static str>>>,
    /// The application's own code panics while it gives the config.
    panics: Arc<AtomicBool>,
}

impl Host {
    fn new(text: &str) -> Self {
        let dir = Arc::new(tempfile::tempdir().expect("a directory"));
        let host = Self { dir, secret: Arc::new(Mutex::new(Some(SECRET))), panics: Arc::default() };
        host.write(text);
        host
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("network.yml")
    }

    /// In one step: a look that comes by itself must not find half of it.
    fn write(&self, text: &str) {
        let whole = self.dir.path().join("whole.yml");
        std::fs::write(&whole, text).expect("a file");
        std::fs::rename(whole, self.file()).expect("a rename");
    }

    fn secret(&self, secret: Option<&'static str>) {
        *self.secret.lock().expect("no panic") = secret;
    }

    fn source(&self) -> ConfigSource {
        let (file, panics, secret) = (self.file(), Arc::clone(&self.panics), Arc::clone(&self.secret));
        let read = move || {
            assert!(!panics.load(Ordering::SeqCst), "the application's own");
            Config::load(&file)
        };
        ConfigSource::reading(read).with_keys(move |config| match *secret.lock().expect("no panic") {
            Some(SECRET) => Ok(keyring()),
            Some(text) => Ok(Keyring::new(config.zone.clone(), Secret::from_base64("TEST_SECRET", text)?, Vec::new())),
            None => Keyring::from_env(zone(), "MAITRED_TEST_NEVER_SET", "MAITRED_TEST_NEVER_SET"),
        })
    }

    fn proxy(&self) -> Managed<ProxyAgent> {
        Managed::start(self.source(), |setup| setup.proxy(LoadSample::default))
    }

    fn backend(&self, stock: &Arc<Stock>) -> Managed<BackendAgent<Stock>> {
        let stock = Arc::clone(stock);
        Managed::start(self.source(), move |setup| setup.backend_sharing(Arc::clone(&stock), LoadSample::default))
    }
}

/// A node with a lease of 1.75 s.
fn text(id: &str, url: &str, more: &str) -> String {
    format!(
        "enabled: true\nzone: eu\nnode: {{ id: \"{id}\", addr: \"{id}.example:1\" }}\nstore: {{ url: \"{url}\" }}\n\
         heartbeat: {{ intervalMs: 500 }}\ndirectory: {{ suspectMs: 1300, offlineMs: 1750 }}\n{more}"
    )
}

fn now<A: Kept>(managed: &Managed<A>) -> ManagedState {
    managed.state().borrow().clone()
}

fn is_enabled(state: &ManagedState) -> bool {
    matches!(state, ManagedState::Enabled { .. })
}

/// Waits for a state that fits.
async fn state<A: Kept>(managed: &Managed<A>, what: &str, fits: impl Fn(&ManagedState) -> bool) -> ManagedState {
    eventually(what, LIMIT, async || Some(now(managed)).filter(&fits)).await
}

async fn enabled<A: Kept>(managed: &Managed<A>) {
    state(managed, "it is enabled", is_enabled).await;
}

/// Waits until it is disabled for a reason that has these words.
async fn disabled<A: Kept>(managed: &Managed<A>, words: &str) {
    let fits = |state: &ManagedState| matches!(state, ManagedState::Disabled { why } if why.contains(words));
    state(managed, &format!("it is disabled: {words}"), fits).await;
}

fn problems<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::Config { problems }) => problems.join("\n"),
        other => panic!("{other:?}"),
    }
}
