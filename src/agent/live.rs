use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::envelope::AuditReason;
use crate::error::{Error, Result};
use crate::node::{CONFIG, Control, ControlEntry};
use crate::store::Trust;

use super::config::Config;

/// The config in force: the file's, and over it the newest push that this build can use. Reading it costs no lock; a
/// request reads it once, so that it sees one config from its start to its end.
#[derive(Debug)]
pub(super) struct Live {
    now: ArcSwap<Config>,
    parts: Mutex<Parts>,
    /// The version of the push in force.
    version: watch::Sender<Option<u64>>,
}

#[derive(Debug)]
struct Parts {
    file: Config,
    /// The text of the push in force, empty for none.
    push: String,
    /// The newest version that was looked at.
    looked_at: u64,
}

impl Live {
    pub fn new(file: Config) -> Self {
        Self {
            now: ArcSwap::from_pointee(file.clone()),
            parts: Mutex::new(Parts { file, push: String::new(), looked_at: 0 }),
            version: watch::channel(None).0,
        }
    }

    pub fn config(&self) -> Arc<Config> {
        self.now.load_full()
    }

    /// The version of the push in force; changes can be awaited.
    pub fn version(&self) -> watch::Receiver<Option<u64>> {
        self.version.subscribe()
    }

    /// The version of the push in force, none where the file alone is.
    pub fn pushed(&self) -> Option<u64> {
        *self.version.borrow()
    }

    /// Takes over the push that `control` last verified.
    pub fn take_from(&self, control: &Control, trust: &Trust) {
        if let Some(entry) = control.entry(CONFIG) {
            self.take(&entry, trust);
        }
    }

    /// Takes a push that was verified, where it is newer than all that were looked at. One that this build cannot use is
    /// audited and logged, and what was in force stays.
    fn take(&self, entry: &ControlEntry, trust: &Trust) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if entry.version <= parts.looked_at {
            return;
        }
        parts.looked_at = entry.version;
        match parts.file.with_push(&entry.value) {
            Ok(config) => {
                parts.push.clone_from(&entry.value);
                self.now.store(Arc::new(config));
                let version = (!entry.value.is_empty()).then_some(entry.version);
                tracing::info!(?version, by = %entry.by, "the pushed config is in force");
                self.version.send_replace(version);
            }
            Err(error) => {
                trust.audit().drop(AuditReason::UnusableConfig, "control", CONFIG);
                tracing::error!(
                    version = entry.version, by = %entry.by, in_force = ?self.pushed(), %error,
                    "the pushed config is not usable to this build; what was in force stays"
                );
            }
        }
    }

    /// Takes the hot sections of a file that was read again. The push stays over them.
    ///
    /// Errors where the two do not fit; then nothing was taken.
    pub fn set_file(&self, file: &Config) -> Result<()> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = parts.file.clone();
        next.take_hot(file);
        let config = next.with_push(&parts.push).map_err(|error| match error {
            Error::Config { problems } => Error::Config {
                problems: problems.iter().map(|line| format!("with the pushed config: {line}")).collect(),
            },
            other => other,
        })?;
        parts.file = next;
        self.now.store(Arc::new(config));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Keyring, Secret};

    fn push(version: u64, value: &str) -> ControlEntry {
        ControlEntry { value: value.to_owned(), version, by: "ops".to_owned(), at: 1, v: 1, sig: String::new() }
    }

    fn trust() -> Trust {
        let secret = Secret::from_base64("TEST", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a secret");
        Trust::new(Keyring::new(crate::ids::Zone::default(), secret, Vec::new()))
    }

    // POL-5: the newest usable push goes before the file, whichever of the two comes last.
    #[test]
    fn pol_5_the_newest_push_goes_before_the_file_until_it_is_withdrawn() {
        let trust = trust();
        let mut file = Config::default();
        file.dispatch.max_retries = 1;
        let live = Live::new(file.clone());
        let retries = || live.config().dispatch.max_retries;
        live.take(&push(5, r#"{"dispatch":{"maxRetries":5}}"#), &trust);
        assert_eq!((retries(), live.pushed()), (5, Some(5)));
        live.take(&push(4, r#"{"dispatch":{"maxRetries":4}}"#), &trust);
        assert_eq!((retries(), live.pushed()), (5, Some(5)), "an older one");

        live.take(&push(6, r#"{"dispatch":{"maxRetries":400}}"#), &trust);
        live.take(&push(7, r#"{"dispatch":{"ofTomorrow":1}}"#), &trust);
        assert_eq!((retries(), live.pushed()), (5, Some(5)), "one that cannot be used");
        assert_eq!(trust.audit().count(AuditReason::UnusableConfig), 2);

        file.dispatch.max_retries = 2;
        file.dispatch.cooldown_ms = 9;
        file.heartbeat.interval_ms = 333;
        live.set_file(&file).expect("it fits");
        assert_eq!((retries(), live.config().dispatch.cooldown_ms), (5, 9), "a reload does not undo a push");
        assert_eq!(live.config().heartbeat.interval_ms, 1_000, "an agent's beats do not change");

        live.take(&push(8, ""), &trust);
        assert_eq!((retries(), live.pushed()), (2, None), "withdrawn");
    }
}
