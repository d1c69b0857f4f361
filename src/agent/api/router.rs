use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::agent::config::Config;
use crate::agent::core::Live;
use crate::agent::model::Transfer;
use crate::agent::proxy::take;
use crate::error::Result;
use crate::ids::{Epoch, NodeEpoch, NodeId, OperationId, Player};
use crate::node::Control;
use crate::store::{Store, Verifier};
use crate::token::{Book, ReleaseOutcome};

use super::outcome::Outcome;

/// A proxy that is no member: it finds and claims the token of a player who connects, and publishes nothing. It holds no
/// lease, so its claims are reopened by their age alone. No task runs for it.
pub struct RouterAgent {
    id: NodeId,
    pub(super) live: Live,
    book: Book,
    verifier: Verifier,
    /// When the control entries were last asked for.
    refreshed: Mutex<Option<Instant>>,
}

impl RouterAgent {
    pub(super) fn new(id: NodeId, config: Config, store: Store, verifier: Verifier, book: Book) -> Self {
        tracing::info!(
            node = %id, zone = %config.zone, store = %store.options().url,
            "proxy as a router: it claims the tokens of players who connect, and publishes nothing"
        );
        Self { id, live: Live::new(config), book, verifier, refreshed: Mutex::default() }
    }

    /// Connects, loads and compares the scripts, and reads the clock and the control entries. Optional: without it the
    /// first claim does.
    pub async fn prepare(&self) -> Result<()> {
        self.store().prepare().await?;
        self.control().refresh(self.store(), &self.verifier).await?;
        *self.refreshed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    }

    /// Its id: the claimant's name in the rows.
    pub fn id(&self) -> &NodeId {
        &self.id
    }

    /// The store.
    #[doc(hidden)]
    pub fn store(&self) -> &Store {
        self.book.store()
    }

    /// The reservation book.
    #[doc(hidden)]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Kill switch and drain entries, as of the last script that met a change.
    #[doc(hidden)]
    pub fn control(&self) -> &Control {
        self.book.control()
    }

    /// What was dropped because it could not be believed.
    #[doc(hidden)]
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// The version of the pushed config in force, `None` where the file's alone is; changes can be awaited.
    pub fn config_version(&self) -> watch::Receiver<Option<u64>> {
        self.live.version()
    }

    /// A player connects: their live token is claimed, and they are to be moved. Runs `token/claim`, and reads the
    /// control entries before it where they were last read longer than a beat interval ago.
    pub async fn take(&self, player: &Player) -> Outcome {
        self.refresh_control().await;
        self.live.take_from(self.control(), &self.verifier);
        let (config, op) = (self.live.config(), OperationId::fresh());
        take(&self.book, &self.verifier, &self.claimant(), player, None, &op, &config.texts, None).await.into()
    }

    /// The player could not be moved: releases the claimed token. `reason` is a word.
    pub async fn failed(&self, transfer: &Transfer, reason: &str) -> Result<ReleaseOutcome> {
        self.book.release_claim(&transfer.token, &self.claimant(), Some(&transfer.claim_op), reason).await
    }

    /// It hears nothing and beats never, so a push comes into force with a read of the entries: as often as others beat, and
    /// one of all the players who connect meanwhile waits for it. A read that fails holds nobody up; the claim says what is wrong.
    async fn refresh_control(&self) {
        let interval = Duration::from_millis(self.live.config().heartbeat.interval_ms);
        {
            let mut refreshed = self.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
            if refreshed.is_some_and(|at| at.elapsed() <= interval) {
                return;
            }
            *refreshed = Some(Instant::now());
        }
        match timeout(interval, self.control().refresh(self.store(), &self.verifier)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the control entries could not be read"),
            Err(_) => tracing::debug!("the control entries were not read in time"),
        }
    }

    fn claimant(&self) -> NodeEpoch {
        NodeEpoch { id: self.id.clone(), epoch: Epoch::NONE }
    }
}

impl fmt::Debug for RouterAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RouterAgent({})", self.id)
    }
}
