mod ask;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;

use crate::envelope::AuditReason;
use crate::error::Result;
use crate::ids::{NodeId, Role};
use crate::store::{Feed, Store, Verifier, boot_ms};

use super::liveness::LivenessLimits;
use super::record::{Identity, NodeRecord};
use super::roster::{rosters, rows_of};
use super::snapshots::Snapshots;
use super::view::{DirectoryEvent, NodeView, Snapshot, View};

/// Events that may wait for a slow listener.
const EVENTS: usize = 1024;
/// How long a subscription may go without a sign of life before the view counts as stale.
const CONTACT_MAX_MS: u64 = 2_000;

/// How a node looks at the others.
#[derive(Debug, Clone)]
pub struct DirectoryOptions {
    /// The limits of the states.
    pub limits: LivenessLimits,
    /// The roles it keeps in view; `None` for all. Others are read one by one when they are needed, until
    /// [`Directory::keep_all_roles`].
    pub roles: Option<BTreeSet<Role>>,
}

/// This node's live view of the zone: primed by a read, kept fresh by heartbeats where it subscribes, read again on a
/// timer. Cheap to clone; asking it does no I/O unless the name says `fresh`.
#[derive(Debug, Clone)]
pub struct Directory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    verifier: Verifier,
    options: DirectoryOptions,
    /// The roles of the options do not count any more.
    all_roles: AtomicBool,
    view: Mutex<View>,
    contact: Mutex<Contact>,
    snapshots: Snapshots,
    events: broadcast::Sender<DirectoryEvent>,
}

/// Until when the view is known to be true.
#[derive(Debug, Default)]
struct Contact {
    /// The feed that keeps it fresh, where it subscribes.
    feed: Option<Feed>,
    /// Boot time of the last complete read.
    read_boot_ms: u64,
    /// The generation of the feed after which the last read of everything began.
    read_generation: u64,
    /// True after a failed read.
    failed: bool,
    /// Store time as of which the ages were last told to the metrics.
    measured_ms: u64,
}

impl Directory {
    /// A view that knows nobody yet. With a `feed` it expects heartbeats from it; without one it is true as of its last
    /// read.
    pub fn new(store: Store, verifier: Verifier, options: DirectoryOptions, feed: Option<Feed>) -> Self {
        let (events, _) = broadcast::channel(EVENTS);
        let contact = Contact { feed, ..Contact::default() };
        let view = Mutex::new(View::new(options.limits));
        let inner = Inner {
            store,
            verifier,
            options,
            all_roles: AtomicBool::new(false),
            view,
            contact: Mutex::new(contact),
            snapshots: Snapshots::default(),
            events,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Expects `peers` (NOD-12), and no others but those it discovers; roles that it does not keep in view are left out.
    /// They are shown as [`Connecting`](super::Liveness::Connecting) until a row of theirs is seen, and as offline once
    /// they were waited for as long as a silent node is: that is told once. A node whose row is there is what the row says.
    pub fn expect(&self, peers: impl IntoIterator<Item = Identity>) {
        self.view().expect(peers.into_iter().filter(|peer| self.keeps(&peer.role)));
        self.changed();
    }

    /// Keeps nodes of every role in view, from the next [`refresh`](Self::refresh) on: for whoever has to choose among all
    /// of them. There is no way back.
    pub fn keep_all_roles(&self) {
        self.inner.all_roles.store(true, Ordering::Release);
    }

    fn keeps(&self, role: &Role) -> bool {
        let all = self.inner.all_roles.load(Ordering::Acquire);
        all || self.inner.options.roles.as_ref().is_none_or(|roles| roles.contains(role))
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.inner.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contact(&self) -> MutexGuard<'_, Contact> {
        self.inner.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, events: impl IntoIterator<Item = DirectoryEvent>) {
        for event in events {
            if !matches!(event, DirectoryEvent::Updated { .. }) {
                tracing::info!(?event, "directory");
            }
            // Nobody listening is fine: the view itself is what callers ask.
            let _ = self.inner.events.send(event);
        }
    }

    fn changed(&self) {
        self.inner.snapshots.changed();
    }

    /// Joined, updated, suspect, offline, back, restarted, removed. A listener that falls 1,024 events behind misses the
    /// oldest.
    pub fn events(&self) -> broadcast::Receiver<DirectoryEvent> {
        self.inner.events.subscribe()
    }

    /// The store time as of which ages are judged, and whether the view is stale. Time stands still while the store
    /// cannot be heard, so that an outage turns nobody offline.
    fn as_of(&self) -> (u64, bool) {
        let contact = self.contact();
        let now_boot = boot_ms();
        let (true_until, stale) = match &contact.feed {
            Some(feed) => {
                let heard = feed.contact_boot_ms();
                let silent = now_boot.saturating_sub(heard) > CONTACT_MAX_MS;
                let unread = contact.read_boot_ms == 0 || contact.read_generation != feed.generation();
                let stale = unread || contact.failed || silent || !feed.is_live();
                (if stale { heard.max(contact.read_boot_ms) } else { now_boot }, stale)
            }
            None => (contact.read_boot_ms, contact.failed || contact.read_boot_ms == 0),
        };
        (self.inner.store.clock().now_ms().saturating_sub(now_boot.saturating_sub(true_until)), stale)
    }

    /// True while the view may be out of date: before the first read, after a failed one, and while the store cannot
    /// be heard.
    pub fn is_stale(&self) -> bool {
        self.as_of().1
    }

    /// A message off the node channel: a heartbeat, which counts if it verifies, or `left <id> <epoch>` or
    /// `removed <id>`, which anybody may have written and which therefore only costs one read of that node's row.
    ///
    /// Errors where that read fails or the row does not verify; forged heartbeats are dropped and audited. Not for gaps:
    /// [`refresh`](Self::refresh) after each [`FeedItem::Gap`](crate::store::FeedItem::Gap).
    pub async fn on_event(&self, bytes: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(bytes).unwrap_or("");
        let named = text.strip_prefix("left ").or_else(|| text.strip_prefix("removed "));
        if let Some(named) = named {
            return match NodeId::new(named.split(' ').next().unwrap_or("")) {
                Ok(id) if self.view().get(&id).is_some() => self.read_one(&id).await.map(|_| ()),
                _ => Ok(()),
            };
        }
        if let Ok(record) = NodeRecord::from_wire(&self.inner.verifier, bytes) {
            metrics::counter!("maitred_beats_received_total").increment(1);
            self.take(record);
        }
        Ok(())
    }

    fn take(&self, record: NodeRecord) {
        if self.keeps(&record.role) {
            self.accept(record);
        }
    }

    fn accept(&self, record: NodeRecord) {
        let now = self.inner.store.clock().now_ms();
        let event = self.view().apply(record, now);
        self.changed();
        self.notify(event);
    }

    /// Reads one node's row into the view, whatever the view has.
    pub(crate) async fn read_again(&self, id: &NodeId) -> Result<()> {
        self.read_one(id).await.map(|_| ())
    }

    /// Reads one node's row into the view. Answers its record, `None` where there is no row.
    async fn read_one(&self, id: &NodeId) -> Result<Option<Arc<NodeRecord>>> {
        let store = &self.inner.store;
        let known = self.view().get(id).cloned();
        let asked = boot_ms();
        let row = store.row(store.keys().node(id)).await?;
        if row.is_empty() {
            if let Some(known) = known {
                let event = self.view().leave(&known);
                self.changed();
                self.notify(event);
            }
            return Ok(None);
        }
        let record = NodeRecord::from_row(&self.inner.verifier, id, &row)?;
        self.check_age(&record, asked);
        self.accept(record);
        Ok(self.view().get(id).cloned())
    }

    fn feed_generation(&self) -> u64 {
        self.contact().feed.as_ref().map_or(0, Feed::generation)
    }

    /// Reads the rosters, and the rows of those whose beats the view has not heard; after a gap also the store's clock,
    /// by which ages are judged. If a read fails the view is marked stale and nothing of this round counts.
    pub async fn refresh(&self) -> Result<()> {
        let began = boot_ms();
        let generation = self.feed_generation();
        let outcome = self.read_all().await;
        let was_stale = self.as_of().1;
        let mut contact = self.contact();
        contact.failed = outcome.is_err();
        let records = match outcome {
            Ok(records) => records,
            Err(error) => {
                drop(contact);
                self.changed();
                metrics::counter!("maitred_directory_refresh_failures_total").increment(1);
                return Err(error);
            }
        };
        let first = contact.read_boot_ms == 0;
        contact.read_boot_ms = began;
        contact.read_generation = generation;
        drop(contact);
        for record in records {
            self.take(record);
        }
        if was_stale && !first {
            let now = self.inner.store.clock().now_ms();
            self.view().forgive(now);
        }
        self.age();
        Ok(())
    }

    async fn read_all(&self) -> Result<Vec<NodeRecord>> {
        let store = &self.inner.store;
        if self.is_stale() {
            store.sync_clock().await?;
        }
        let mut wanted = Vec::new();
        for (role, ids) in rosters(store).await? {
            if !self.keeps(&role) {
                continue;
            }
            let view = self.view();
            // The roster's score is the store time of the last beat; one the view has heard needs no read.
            wanted.extend(ids.into_iter().filter(|(id, beat_at)| {
                view.get(id).is_none_or(|known| known.sent_at_ms.saturating_add(FRESH_SLACK_MS) < *beat_at)
            }));
        }
        let ids: Vec<NodeId> = wanted.into_iter().map(|(id, _)| id).collect();
        let asked = boot_ms();
        let rows = rows_of(store, &ids).await?;
        let present = ids.iter().zip(rows).filter_map(|(id, row)| Some((id, row.ok()?)));
        let present = present.filter(|(_, row)| !row.is_empty());
        // A row that does not verify was audited; the others still count.
        let records: Vec<NodeRecord> =
            present.filter_map(|(id, row)| NodeRecord::from_row(&self.inner.verifier, id, &row).ok()).collect();
        records.iter().for_each(|record| self.check_age(record, asked));
        Ok(records)
    }

    /// Audits a row that is older than what was heard of its node by more than any row lives: somebody kept it and wrote
    /// it back. It changes nothing in the view. `asked_boot_ms` is when the row was asked for; what took long to come says
    /// nothing.
    fn check_age(&self, record: &NodeRecord, asked_boot_ms: u64) {
        let known_sent_ms = match self.view().get(&record.id) {
            Some(known) if known.is_newer_than(record) => known.sent_at_ms,
            _ => return,
        };
        let older_ms = known_sent_ms.saturating_sub(record.sent_at_ms);
        if older_ms > self.inner.options.limits.offline_ms && boot_ms().saturating_sub(asked_boot_ms) < PROMPT_MS {
            let key = format!("node:{}", record.id);
            self.inner.verifier.audit().drop(AuditReason::Stale, &key, &key);
        }
    }

    /// Judges the ages anew and tells what changed. Cheap; meant to be called a few times a second.
    pub fn age(&self) {
        let (now, stale) = self.as_of();
        let contact = self.contact();
        if stale && (contact.feed.is_some() || contact.read_boot_ms == 0) {
            return;
        }
        drop(contact);
        let events = self.view().age(now);
        self.changed();
        self.notify(events);
        self.measure(now);
    }

    /// Tells the metrics the age of each node's last beat, about once a second.
    fn measure(&self, now: u64) {
        let mut contact = self.contact();
        if now.abs_diff(contact.measured_ms) < MEASURE_EVERY_MS {
            return;
        }
        contact.measured_ms = now;
        drop(contact);
        let ages = self.view().ages(now);
        for (id, age_ms) in ages {
            // A gauge cannot be taken back, and no alert may stay on for a node that is no more.
            let age = age_ms.map_or(f64::NAN, |ms| Duration::from_millis(ms).as_secs_f64());
            metrics::gauge!("maitred_node_beat_age_seconds", "node" => id.to_string()).set(age);
        }
    }

    /// All nodes at one moment. Shared until something changes.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot_that(false)
    }

    /// [`snapshot`](Self::snapshot) for those who ask all the time: of a large fleet, where some heartbeat comes in every
    /// few microseconds, it may be late by a millisecond for every hundred nodes.
    pub fn recent_snapshot(&self) -> Arc<Snapshot> {
        self.snapshot_that(true)
    }

    fn snapshot_that(&self, may_be_late: bool) -> Arc<Snapshot> {
        let (now, stale) = self.as_of();
        self.inner.snapshots.get(now, stale, may_be_late, || self.view().snapshot(now, stale))
    }

    /// One node as the view has it, judged as of the last contact.
    pub fn view_of(&self, id: &NodeId) -> Option<NodeView> {
        let (now, _) = self.as_of();
        self.view().view_of(id, now)
    }
}

/// A signed sent time and the store's beat time of the same beat differ by the trip and the clock estimate.
const FRESH_SLACK_MS: u64 = 500;
/// Time between two tellings of ages to the metrics.
const MEASURE_EVERY_MS: u64 = 1_000;
/// A read that took longer than this may have been overtaken by heartbeats.
const PROMPT_MS: u64 = 500;
