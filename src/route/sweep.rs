use rand::seq::SliceRandom;
use serde::Serialize;

use crate::envelope::SCHEMA_VERSION_TEXT;
use crate::error::{Error, Result, StoreRefusal};
use crate::ids::{NodeId, ObjectKey};
use crate::store::{Answer, Invocation, Key, scripts};

use super::book::RouteBook;
use super::record::{RouteVersion, sign_route};

/// Objects in one call.
const BATCH: usize = 128;

/// How a sweep is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOptions {
    /// Decide and count, change nothing.
    pub dry_run: bool,
    /// Objects in one sweep. Default 100,000.
    pub limit: usize,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { dry_run: false, limit: 100_000 }
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RouteSweepReport {
    /// Routes of owners long gone that are free now.
    pub released: u64,
    /// Routes of the living, or saved not long ago.
    pub kept: u64,
    /// Index entries whose record is gone or another's.
    pub healed: u64,
    /// Records that changed since they were read.
    pub skipped: u64,
    /// Nodes with an index.
    pub nodes: u64,
}

impl RouteSweepReport {
    fn count(&mut self, answer: &Answer) {
        for word in answer.values() {
            match word.as_str() {
                "RELEASED" => self.released += 1,
                "KEPT" => self.kept += 1,
                "HEALED" => self.healed += 1,
                _ => self.skipped += 1,
            }
        }
    }
}

/// Looks through the indexes of all owners: frees what an owner long gone did not save for the lock timeout, and takes out
/// entries without a record. Any number may run at once. Runs `route/sweep`.
pub async fn sweep(book: &RouteBook, options: SweepOptions) -> Result<RouteSweepReport> {
    let owners = book.store().members(book.store().keys().owners()).await?;
    sweep_owners(book, owners.iter().filter_map(|owner| NodeId::new(owner).ok()).collect(), options).await
}

/// [`sweep`], through the indexes of these owners.
pub async fn sweep_owners(
    book: &RouteBook,
    mut owners: Vec<NodeId>,
    options: SweepOptions,
) -> Result<RouteSweepReport> {
    let store = book.store();
    let mut report = RouteSweepReport::default();
    let mut left = options.limit;
    // Others at each sweep, and a part of the limit for each: an owner of very much does not hide the rest.
    owners.shuffle(&mut rand::rng());
    for (at, owner) in owners.iter().enumerate() {
        if left == 0 {
            break;
        }
        let share = left.div_ceil(owners.len() - at);
        let mut members = match store.members(store.keys().owned(owner)).await {
            Err(Error::Refused { refusal: StoreRefusal::WrongType, .. }) => {
                tracing::warn!(%owner, "the index of a node's objects is of another type; it is left out");
                report.skipped += 1;
                continue;
            }
            members => members?,
        };
        members.shuffle(&mut rand::rng());
        members.truncate(share);
        left -= members.len();
        report.nodes += 1;
        // An empty index still costs one call: the node may have to go off the list of those that have one.
        let mut batches: Vec<&[String]> = if members.is_empty() { vec![&[]] } else { members.chunks(BATCH).collect() };
        while let Some(batch) = batches.pop() {
            match sweep_batch(book, owner, batch, options.dry_run).await {
                Ok(answer) => report.count(&answer),
                // One key of another type among them must not keep the others from being looked at.
                Err(Error::Refused { refusal: StoreRefusal::WrongType, .. }) if batch.len() > 1 => {
                    batches.extend(<[&[String]; 2]>::from(batch.split_at(batch.len() / 2)));
                }
                Err(Error::Refused { refusal: StoreRefusal::WrongType, .. }) => {
                    let object = batch.first().map_or("", String::as_str);
                    tracing::warn!(%owner, object, "a route is of another type; it is left out");
                    report.skipped += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
    metrics::counter!("maitred_routes_swept_total", "what" => "released").increment(report.released);
    metrics::counter!("maitred_routes_swept_total", "what" => "healed").increment(report.healed);
    Ok(report)
}

async fn sweep_batch(book: &RouteBook, owner: &NodeId, batch: &[String], dry_run: bool) -> Result<Answer> {
    let (store, keys) = (book.store(), book.store().keys());
    let objects: Vec<Option<ObjectKey>> = batch.iter().map(|member| ObjectKey::read(member).ok()).collect();
    // What was written by hand names no object. The node's row is nobody's record, so the entry is healed.
    let route_keys: Vec<Key<'_>> = objects
        .iter()
        .map(|object| match object {
            Some(object) => keys.route(object),
            None => keys.node(owner),
        })
        .collect();
    let rows = store.fields(&route_keys, &["version"]).await?;
    let mut key_list = vec![keys.owned(owner), keys.owners(), keys.node(owner)];
    key_list.extend(&route_keys);
    let mut call = Invocation::new(&scripts::ROUTE_SWEEP, &key_list)
        .arg(owner.as_str())
        .arg(book.times().lock_timeout_ms)
        .arg(book.times().free_ms)
        .arg(SCHEMA_VERSION_TEXT)
        .arg(if dry_run { "1" } else { "0" });
    for ((member, object), row) in batch.iter().zip(&objects).zip(&rows) {
        let read = row.number("version").unwrap_or(0);
        let version = RouteVersion(store.clock().past_ms().max(read.saturating_add(1)));
        let sig = object.as_ref().map_or_else(String::new, |object| sign_route(book.verifier(), object, None, version));
        call = call.arg(member.as_str()).arg(read).arg(version.0).arg(&sig);
    }
    store.run(&call).await
}
