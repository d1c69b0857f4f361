use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError};
use tokio::time::timeout;

use crate::agent::config::Config;
use crate::envelope::{KeyId, Keyring};
use crate::error::Error;

use super::source::Unusable;

/// Longest time that a source may take to give a config: a file on a mount that hangs never does.
const READ_MAX: Duration = Duration::from_secs(5);

/// What the present agent was started from.
#[derive(Default)]
pub(super) struct Turn {
    pub config: Config,
    pub kids: Vec<KeyId>,
    /// No further change helps.
    pub over: Option<Error>,
    /// A read that took too long. It cannot be ended, so nothing is read beside it.
    hanging: Option<AbortHandle>,
}

impl Turn {
    /// What an agent is started from.
    pub fn of(config: Config, kids: Vec<KeyId>) -> Self {
        Self { config, kids, ..Self::default() }
    }

    /// True where what was signed for the present agent is believed by the next one too: the store is the same, and all of
    /// its keys stay.
    pub fn is_believed_with(&self, next: &Config, keyring: &Keyring) -> bool {
        let kids = keyring.accepted_kids();
        self.config.zone == next.zone
            && self.config.store.url == next.store.url
            && self.kids.iter().all(|kid| kids.contains(kid))
    }

    /// Runs `give`, which may block, for a bounded time. One that takes longer goes on by itself, and what it gives then is
    /// not used.
    pub async fn read<T: Send + 'static>(
        &mut self,
        runtime: &Handle,
        give: impl FnOnce() -> Result<T, Unusable> + Send + 'static,
    ) -> Result<T, Unusable> {
        if self.hanging.as_ref().is_some_and(|read| !read.is_finished()) {
            return Err(Unusable::Bad(hangs()));
        }
        let reading = runtime.spawn_blocking(give);
        self.hanging = Some(reading.abort_handle());
        match timeout(READ_MAX, reading).await {
            Ok(Ok(given)) => given,
            Ok(Err(error)) => Err(Unusable::Bad(broken(&error))),
            Err(_) => Err(Unusable::Bad(hangs())),
        }
    }
}

fn hangs() -> Error {
    let seconds = READ_MAX.as_secs();
    Error::Config { problems: vec![format!("(source): it gave nothing within {seconds} s, and is still being read")] }
}

/// Code of the application panicked, or the runtime is on its way out.
pub(super) fn broken(error: &JoinError) -> Error {
    let what = if error.is_panic() { "the application's code for it panicked" } else { "the runtime is shutting down" };
    Error::Config { problems: vec![format!("(source): {what}")] }
}
