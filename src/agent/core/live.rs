use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::envelope::AuditReason;
use crate::error::{Error, Result};
use crate::node::{CONFIG, Control, ControlEntry};
use crate::store::Verifier;

use crate::agent::config::Config;

/// The config in force: the file's, and over it the newest push that this build can use. Reading it costs no lock; a
/// request reads it once, so that it sees one config from its start to its end.
#[derive(Debug)]
pub struct Live {
    now: ArcSwap<Config>,
    parts: Mutex<Parts>,
    /// The version of the push in force.
    version: watch::Sender<Option<u64>>,
}

#[derive(Debug)]
struct Parts {
    file: Config,
    /// The push in force; one with an empty value was a withdrawal.
    push: Option<ControlEntry>,
    /// A newer one that did not fit over the file. Another file may.
    pending: Option<ControlEntry>,
    /// The newest version that was looked at.
    looked_at: u64,
}

impl Parts {
    fn over(&self, file: &Config) -> Result<Config> {
        file.with_push(self.push.as_ref().map_or("", |entry| &entry.value))
    }
}

impl Live {
    pub fn new(file: Config) -> Self {
        Self {
            now: ArcSwap::from_pointee(file.clone()),
            parts: Mutex::new(Parts { file, push: None, pending: None, looked_at: 0 }),
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
    pub fn take_from(&self, control: &Control, verifier: &Verifier) {
        if let Some(entry) = control.entry(CONFIG) {
            self.take(&entry, verifier);
        }
    }

    /// Takes a push that was verified, where it is newer than all that were looked at. One that this build cannot use is
    /// audited and logged, and what was in force stays; it is tried again over each file that is read later.
    fn take(&self, entry: &ControlEntry, verifier: &Verifier) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if entry.version <= parts.looked_at {
            return;
        }
        parts.looked_at = entry.version;
        match parts.file.with_push(&entry.value) {
            Ok(config) => {
                parts.pending = None;
                self.put(&mut parts, entry.clone(), config);
            }
            Err(error) => {
                parts.pending = Some(entry.clone());
                verifier.audit().drop(AuditReason::UnusableConfig, "control", CONFIG);
                tracing::error!(
                    version = entry.version, by = %entry.by, in_force = ?self.pushed(), %error,
                    "the pushed config does not fit this build or this file; what was in force stays"
                );
            }
        }
    }

    /// `entry` is in force from now on, and with it `config`.
    fn put(&self, parts: &mut Parts, entry: ControlEntry, config: Config) {
        self.now.store(Arc::new(config));
        let version = (!entry.value.is_empty()).then_some(entry.version);
        tracing::info!(?version, by = %entry.by, "the pushed config is in force");
        parts.push = Some(entry);
        self.version.send_replace(version);
    }

    /// The push in force, for the agent that comes after this one.
    pub fn in_force(&self) -> Option<ControlEntry> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push.clone()
    }

    /// Takes over what was in force in the agent before this one. The store holds the newest push alone, so where that
    /// one does not fit nothing else brings the last good one back.
    pub fn carry(&self, entry: &ControlEntry) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.push.as_ref().is_some_and(|push| push.version >= entry.version) {
            return;
        }
        parts.looked_at = parts.looked_at.max(entry.version);
        match parts.file.with_push(&entry.value) {
            Ok(config) => self.put(&mut parts, entry.clone(), config),
            Err(error) => {
                tracing::error!(
                    version = entry.version, by = %entry.by, %error,
                    "the pushed config that was in force does not fit over the new file"
                );
                if parts.pending.is_none() {
                    parts.pending = Some(entry.clone());
                }
            }
        }
    }

    /// Takes the hot sections of a file that was read again. The newest push that fits over them goes before them: one
    /// that did not fit over the file before, else the one in force.
    ///
    /// Errors where neither fits; then nothing was taken.
    pub fn set_file(&self, file: &Config) -> Result<()> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = parts.file.clone();
        next.take_hot(file);
        if let Some(pending) = parts.pending.take() {
            if let Ok(config) = next.with_push(&pending.value) {
                parts.file = next;
                self.put(&mut parts, pending, config);
                return Ok(());
            }
            parts.pending = Some(pending);
        }
        let config = parts.over(&next).map_err(|error| match error {
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

    fn verifier() -> Verifier {
        let secret = Secret::from_base64("TEST", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a secret");
        Verifier::new(Keyring::new(crate::ids::Zone::default(), secret, Vec::new()))
    }

    // POL-5: the newest usable push goes before the file, whichever of the two comes last.
    #[test]
    fn pol_5_the_newest_push_goes_before_the_file_until_it_is_withdrawn() {
        let verifier = verifier();
        let mut file = Config::default();
        file.dispatch.max_retries = 1;
        let live = Live::new(file.clone());
        let retries = || live.config().dispatch.max_retries;
        live.take(&push(5, r#"{"dispatch":{"maxRetries":5}}"#), &verifier);
        assert_eq!((retries(), live.pushed()), (5, Some(5)));
        live.take(&push(4, r#"{"dispatch":{"maxRetries":4}}"#), &verifier);
        assert_eq!((retries(), live.pushed()), (5, Some(5)), "an older one");

        live.take(&push(6, r#"{"dispatch":{"maxRetries":400}}"#), &verifier);
        live.take(&push(7, r#"{"dispatch":{"ofTomorrow":1}}"#), &verifier);
        assert_eq!((retries(), live.pushed()), (5, Some(5)), "one that cannot be used");
        assert_eq!(verifier.audit().count(AuditReason::UnusableConfig), 2);

        file.dispatch.max_retries = 2;
        file.dispatch.cooldown_ms = 9;
        file.heartbeat.interval_ms = 333;
        live.set_file(&file).expect("it fits");
        assert_eq!((retries(), live.config().dispatch.cooldown_ms), (5, 9), "a reload does not undo a push");
        assert_eq!(live.config().heartbeat.interval_ms, 1_000, "an agent's beats do not change");

        live.take(&push(8, ""), &verifier);
        assert_eq!((retries(), live.pushed()), (2, None), "withdrawn");
    }

    /// A file with `count` limits of its own, of at most 64.
    fn with_limits(count: usize) -> Config {
        let lines: String = (0..count).map(|n| format!("  f{n}: {{cooldownMs: 500}}\n")).collect();
        Config::from_yaml(&format!("limits:\n{lines}")).expect("a good file")
    }

    fn limits_push(version: u64, count: usize) -> ControlEntry {
        let limits: Vec<String> = (0..count).map(|n| format!("\"g{n}\":{{\"cooldownMs\":500}}")).collect();
        push(version, &format!("{{\"limits\":{{{}}}}}", limits.join(",")))
    }

    // POL-5: a push that clashed with the file is what the fleet runs with, so this host must get there once its file is
    // mended, and not stay with the push before for good.
    #[test]
    fn pol_5_a_push_that_did_not_fit_comes_into_force_with_a_file_that_it_fits() {
        let (verifier, live) = (verifier(), Live::new(with_limits(40)));
        live.take(&push(5, r#"{"dispatch":{"maxRetries":5}}"#), &verifier);
        live.take(&limits_push(6, 40), &verifier);
        assert_eq!(live.pushed(), Some(5));
        live.set_file(&with_limits(30)).expect("with the push in force");
        assert_eq!((live.pushed(), live.config().limits.len()), (Some(5), 30), "still too many");
        live.set_file(&with_limits(5)).expect("it fits");
        assert_eq!((live.pushed(), live.config().limits.len()), (Some(6), 45));
        live.set_file(&with_limits(40)).expect_err("the push in force does not fit over it");
        assert_eq!((live.pushed(), live.config().limits.len()), (Some(6), 45), "nothing was taken");

        live.take(&limits_push(7, 60), &verifier);
        live.take(&push(8, ""), &verifier);
        live.set_file(&with_limits(1)).expect("it fits");
        assert_eq!((live.pushed(), live.config().limits.len()), (None, 1), "a withdrawal ends one that waits too");
    }

    // POL-5: the agent after a restart has what was in force, whichever of the two pushes it meets first.
    #[test]
    fn pol_5_the_push_in_force_outlives_the_agent_where_the_newest_does_not_fit() {
        let verifier = verifier();
        let old = Live::new(with_limits(40));
        old.take(&push(5, r#"{"dispatch":{"maxRetries":5}}"#), &verifier);
        let carried = old.in_force().expect("a push");
        for carries_first in [true, false] {
            let next = Live::new(with_limits(40));
            if carries_first {
                next.carry(&carried);
            }
            next.take(&limits_push(6, 40), &verifier);
            next.carry(&carried);
            assert_eq!((next.pushed(), next.config().dispatch.max_retries), (Some(5), 5));
            next.set_file(&with_limits(5)).expect("it fits");
            assert_eq!(next.pushed(), Some(6));
            next.carry(&carried);
            assert_eq!(next.pushed(), Some(6), "nothing goes back");
        }
        let next = Live::new(with_limits(1));
        next.take(&push(6, ""), &verifier);
        next.carry(&carried);
        assert_eq!(next.pushed(), None, "withdrawn meanwhile");
    }
}
