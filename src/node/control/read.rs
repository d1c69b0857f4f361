//! Reading the hash `control` when anybody with the store's password may have filled it.

use std::collections::{BTreeSet, HashMap};

use crate::error::Result;
use crate::store::Store;

use super::super::roster;
use super::entry::{CONFIG, KILL, drain_name, is_entry_name, kill_name};

/// Most fields that are read as they are. A hash with more of them was filled by somebody, or a fleet of thousands has
/// switched all of its nodes: then the entries are asked for by name.
const WHOLE_MAX: u64 = 4_096;

/// What a read found.
#[derive(Debug, Default)]
pub(super) struct EntriesRead {
    /// Entries by name, to the byte.
    pub entries: HashMap<String, Vec<u8>>,
    /// Fields that are none of them.
    pub strangers: u64,
}

/// Reads the entries: all of them, or in a hash that was filled up those of `known`, of the fleet and of every node on a
/// roster. A node that is on none joins before anybody has to know of its entries, and its first beat says so.
pub(super) async fn read_entries(store: &Store, known: impl FnOnce() -> BTreeSet<String>) -> Result<EntriesRead> {
    let key = store.keys().control();
    let count = store.fields_count(key).await?;
    if count <= WHOLE_MAX {
        let all = store.exact_fields(key).await?;
        let count = all.len();
        let text = |(name, bytes)| Some((String::from_utf8(name).ok()?, bytes));
        let entries: HashMap<String, Vec<u8>> =
            all.into_iter().filter_map(text).filter(|(name, _)| is_entry_name(name)).collect();
        return Ok(EntriesRead { strangers: u64::try_from(count - entries.len()).unwrap_or(u64::MAX), entries });
    }
    let mut names = known();
    names.extend([KILL.to_owned(), CONFIG.to_owned()]);
    for (_, ids) in roster::rosters_and_refused(store).await?.0 {
        names.extend(ids.iter().flat_map(|(id, _)| [kill_name(id), drain_name(id)]));
    }
    let names: Vec<String> = names.into_iter().collect();
    let values = store.exact_named(key, &names).await?;
    let entries: HashMap<String, Vec<u8>> =
        names.into_iter().zip(values).filter_map(|(name, bytes)| Some((name, bytes?))).collect();
    Ok(EntriesRead { strangers: count.saturating_sub(u64::try_from(entries.len()).unwrap_or(u64::MAX)), entries })
}
