//! Values of a hash to the byte, for what scripts compare.

use super::connect::Store;
use super::keys::Key;
use crate::error::Result;

/// Fields asked for in one command.
const NAMES_MAX: usize = 1_000;

impl Store {
    /// How many fields a hash has (`HLEN`).
    pub async fn fields_count(&self, key: Key<'_>) -> Result<u64> {
        self.read_one(redis::cmd("HLEN").arg(key), key, "counting the fields of a hash").await
    }

    /// The fields of a small hash (`HGETALL`).
    pub async fn exact_fields(&self, key: Key<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.read_one(redis::cmd("HGETALL").arg(key), key, "reading a hash").await
    }

    /// The values of some fields of a hash, in their order (`HMGET`, 1,000 in each): what else stands in it costs nothing.
    pub async fn exact_named(&self, key: Key<'_>, names: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(names.len());
        for step in names.chunks(NAMES_MAX) {
            let page: Vec<Option<Vec<u8>>> =
                self.read_one(redis::cmd("HMGET").arg(key).arg(step), key, "reading a hash").await?;
            values.extend(page);
        }
        Ok(values)
    }
}
