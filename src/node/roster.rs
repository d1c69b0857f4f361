//! The rosters and rows of nodes, and the upkeep of rosters and of the epochs that were given out.

use std::collections::{BTreeSet, HashSet};

use crate::error::{Error, Result, StoreRefusal};
use crate::ids::{NodeId, Role};
use crate::store::{Invocation, Key, Row, Store, Verifier, scripts};

use super::NodeRecord;

/// Ids in one call.
const BATCH: usize = 256;
/// Ids in one call of `node/forget`, each of which is looked for on every roster.
const FORGET_BATCH: usize = 64;
/// Rosters in one call of `node/forget`.
const ROLES_MAX: usize = 32;
/// How long the last epoch of an id is kept after the id was last seen.
pub const FORGET_MS: u64 = 86_400_000;

/// One role with its ids and the store time of each one's last beat.
pub type Roster = (Role, Vec<(NodeId, u64)>);

/// The roles on the list of roles. A name that is no role was written by hand; nothing of ours stands behind it.
async fn roles(store: &Store) -> Result<BTreeSet<Role>> {
    let names = store.members(store.keys().roles()).await?;
    Ok(names.iter().filter_map(|role| Role::new(role).ok()).collect())
}

/// Reads the rosters of all roles on the list of roles.
pub async fn rosters(store: &Store) -> Result<Vec<Roster>> {
    rosters_of(store, &Vec::from_iter(roles(store).await?)).await
}

/// What [`rosters`] reads, and the roles whose roster is a key of another type, each with the store's refusal: nothing is
/// known of their nodes. A backend or proxy cannot even put its role on the list of roles then, so that both are always
/// looked at.
pub async fn rosters_and_refused(store: &Store) -> Result<(Vec<Roster>, Vec<(Role, Error)>)> {
    let listed = roles(store).await?;
    let looked_at: BTreeSet<Role> = listed.iter().cloned().chain([Role::backend(), Role::proxy()]).collect();
    let (mut read, refused) = each(store, &looked_at).await?;
    read.retain(|(role, _)| listed.contains(role));
    Ok((read, refused))
}

/// Reads the rosters of `roles`, whether they are on the list of roles or not. One that is a key of another type is left
/// out.
pub async fn rosters_of(store: &Store, roles: &[Role]) -> Result<Vec<Roster>> {
    let (read, refused) = each(store, roles).await?;
    for (role, error) in refused {
        tracing::debug!(%role, %error, "this roster is left out, not all of them");
    }
    Ok(read)
}

/// Reads the rosters of `roles`, those that are a key of another type apart.
async fn each(store: &Store, roles: impl IntoIterator<Item = &Role>) -> Result<(Vec<Roster>, Vec<(Role, Error)>)> {
    let (mut read, mut refused) = (Vec::new(), Vec::new());
    for role in roles {
        match store.scores(store.keys().roster(role)).await {
            Ok(ids) => {
                let id = |(id, score): (String, f64)| Some((NodeId::new(&id).ok()?, score_ms(score)));
                read.push((role.clone(), ids.into_iter().filter_map(id).collect()));
            }
            Err(error @ Error::Refused { refusal: StoreRefusal::WrongType, .. }) => refused.push((role.clone(), error)),
            Err(error) => return Err(error),
        }
    }
    Ok((read, refused))
}

/// A score of ours is a whole number of ms below 2^53.
#[doc(hidden)]
pub fn score_ms(score: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and NaN becomes 0")]
    let ms = score as u64;
    ms
}

/// Takes nodes off the rosters that have been silent for `removed_ms`, and heals entries whose row has another role.
/// Answers the ids that were taken off. Runs `node/remove`; any number may run at once.
pub async fn remove_silent(store: &Store, removed_ms: u64) -> Result<Vec<NodeId>> {
    remove_silent_of(store, &rosters(store).await?, removed_ms).await
}

/// [`remove_silent`] over `rosters` only.
pub async fn remove_silent_of(store: &Store, rosters: &[Roster], removed_ms: u64) -> Result<Vec<NodeId>> {
    let mut removed = Vec::new();
    for (role, ids) in rosters {
        let batches: Vec<&[(NodeId, u64)]> = if ids.is_empty() { vec![&[]] } else { ids.chunks(BATCH).collect() };
        for batch in batches {
            match remove_batch(store, role, batch, removed_ms).await {
                Ok(ids) => removed.extend(ids),
                // A key of another type under one id holds up nobody else.
                Err(Error::Refused { refusal: StoreRefusal::WrongType, .. }) if !batch.is_empty() => {
                    for one in batch.chunks(1) {
                        match remove_batch(store, role, one, removed_ms).await {
                            Ok(ids) => removed.extend(ids),
                            Err(error) => tracing::warn!(ids = ?one, %error, "left on the roster"),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}

async fn remove_batch(store: &Store, role: &Role, batch: &[(NodeId, u64)], removed_ms: u64) -> Result<Vec<NodeId>> {
    let keys = store.keys();
    let mut key_list = vec![keys.roster(role), keys.roles(), keys.epochs()];
    key_list.extend(batch.iter().map(|(id, _)| keys.node(id)));
    let mut call =
        Invocation::new(&scripts::NODE_REMOVE, &key_list).arg(role.as_str()).arg(removed_ms).arg(keys.node_events());
    for (id, _) in batch {
        call = call.arg(id.as_str());
    }
    let answer = store.run(&call).await?;
    Ok(answer.values().iter().skip(1).filter_map(|id| NodeId::new(id).ok()).collect())
}

/// The ids that [`remove_silent_of`] would take off `rosters`. Changes nothing.
pub async fn silent(store: &Store, rosters: &[Roster], removed_ms: u64) -> Result<Vec<NodeId>> {
    let now = store.clock().now_ms();
    let mut silent = Vec::new();
    for (role, ids) in rosters {
        let keys: Vec<Key<'_>> = ids.iter().map(|(id, _)| store.keys().node(id)).collect();
        let rows = store.fields(&keys, &["role"]).await?;
        let going = ids.iter().zip(rows).filter(|((_, beat_at), row)| match row.get("role") {
            Some(other) => other != role.as_str(),
            None => now.abs_diff(*beat_at) >= removed_ms,
        });
        silent.extend(going.map(|((id, _), _)| id.clone()));
    }
    Ok(silent)
}

/// How many ids [`forget`] would forget. Changes nothing.
pub async fn forgettable(store: &Store, rosters: &[Roster], forget_ms: u64) -> Result<usize> {
    let epochs = store.scan_row(store.keys().epochs()).await?;
    let now = store.clock().now_ms();
    let listed: HashSet<&str> = rosters.iter().flat_map(|(_, ids)| ids).map(|(id, _)| id.as_str()).collect();
    Ok(epochs.fields().filter(|(id, entry)| is_older(entry, now, forget_ms) && !listed.contains(id)).count())
}

/// Drops the last epoch of ids that nobody has seen for `forget_ms` and that are on no roster. Answers how many. Runs
/// `node/forget`.
pub async fn forget(store: &Store, forget_ms: u64) -> Result<u64> {
    let epochs = store.scan_row(store.keys().epochs()).await?;
    let now = store.clock().now_ms();
    let old: Vec<(&str, &str)> = epochs.fields().filter(|(_, entry)| is_older(entry, now, forget_ms)).collect();
    let mut forgotten = 0;
    for batch in old.chunks(FORGET_BATCH) {
        forgotten += forget_batch(store, forget_ms, batch).await?;
    }
    Ok(forgotten)
}

/// `batch` is ids and the entries that were read of them.
async fn forget_batch(store: &Store, forget_ms: u64, batch: &[(&str, &str)]) -> Result<u64> {
    let roles = roles(store).await?;
    if roles.len() > ROLES_MAX {
        tracing::warn!(roles = roles.len(), "more roles than one call can look through; epochs stay");
        return Ok(0);
    }
    let keys = store.keys();
    let mut key_list: Vec<Key<'_>> = vec![keys.epochs(), keys.roles()];
    key_list.extend(roles.iter().map(|role| keys.roster(role)));
    let mut call = Invocation::new(&scripts::NODE_FORGET, &key_list).arg(forget_ms).arg(roles.len());
    for role in &roles {
        call = call.arg(role.as_str());
    }
    for (id, entry) in batch {
        call = call.arg(*id).arg(*entry);
    }
    let answer = store.run(&call).await?;
    // NEED: a roster came up in between; the next sweep sees it.
    if answer.word() == "FORGOTTEN" { answer.number(0) } else { Ok(0) }
}

fn is_older(entry: &str, now: u64, forget_ms: u64) -> bool {
    entry
        .split(' ')
        .nth(1)
        .and_then(|seen| seen.parse::<u64>().ok())
        .is_some_and(|seen| now.saturating_sub(seen) >= forget_ms)
}

/// Drops the last epoch of one id that is on no roster, whenever it was last seen. Runs `node/forget`.
pub async fn forget_one(store: &Store, id: &NodeId) -> Result<u64> {
    let row = store.fields(&[store.keys().epochs()], &[id.as_str()]).await?;
    let entry = row.first().and_then(|row| row.get(id.as_str())).map(str::to_owned);
    match entry {
        Some(entry) => forget_batch(store, 0, &[(id.as_str(), entry.as_str())]).await,
        None => Ok(0),
    }
}

/// True where nobody has seen the id for so long, as far as the store remembers that at all.
pub async fn is_silent_for(store: &Store, id: &NodeId, silent_ms: u64) -> Result<bool> {
    let row = store.fields(&[store.keys().epochs()], &[id.as_str()]).await?;
    let entry = row.first().and_then(|row| row.get(id.as_str()));
    Ok(entry.is_none_or(|entry| is_older(entry, store.clock().now_ms(), silent_ms)))
}

/// Reads the rows behind `ids`, in their order; empty rows for those that are gone, an error for one that is no hash.
pub async fn rows_of(store: &Store, ids: &[NodeId]) -> Result<Vec<Result<Row>>> {
    let keys: Vec<Key<'_>> = ids.iter().map(|id| store.keys().node(id)).collect();
    store.rows_each(&keys).await
}

/// Where a node takes players, as its row says; none where it has no row.
pub(crate) async fn address_of(store: &Store, verifier: &Verifier, id: &NodeId) -> Result<Option<String>> {
    let row = store.row(store.keys().node(id)).await?;
    if row.is_empty() {
        return Ok(None);
    }
    Ok(Some(NodeRecord::from_row(verifier, id, &row)?.addr))
}
