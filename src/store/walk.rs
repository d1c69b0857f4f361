//! Walks over what is too large to be read at once.

use std::collections::HashMap;

use redis::RedisResult;

use super::connect::Store;
use super::keys::Key;
use super::read::Row;
use crate::error::Result;

/// Entries that one step of a walk asks for.
const STEP: usize = 256;

/// Where the next step of a walk over a sorted set begins: a score, and how many of that score were met.
pub type ScoreCursor = (f64, usize);

/// Fields of a hash with their values, to the byte.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

impl Store {
    /// The fields of a large hash (`HSCAN` on a pooled connection).
    pub async fn scan_row(&self, key: Key<'_>) -> Result<Row> {
        self.scan_row_part(key, usize::MAX).await
    }

    /// Like [`scan_row`](Self::scan_row), but it stops at about `most` fields: a page more at the most, in no order.
    pub async fn scan_row_part(&self, key: Key<'_>, most: usize) -> Result<Row> {
        let during = "reading a hash";
        let mut connection = self.pooled(during).await?;
        let mut fields = HashMap::new();
        let mut cursor: u64 = 0;
        loop {
            let page;
            (cursor, page) =
                hash_page(&mut connection, key, cursor).await.map_err(|error| self.fault_at(during, &error, [key]))?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.extend(page.iter().map(|(name, value)| (text(name), text(value))));
            if cursor == 0 || fields.len() >= most {
                return Ok(fields.into_iter().collect());
            }
        }
    }

    /// One step of a walk over a large hash, to the byte (`HSCAN` on a pooled connection): where the next step begins, and
    /// fields with their values. A walk begins and ends with 0; a field that is there all the while is met at least once.
    pub async fn row_page(&self, key: Key<'_>, cursor: u64) -> Result<(u64, Fields)> {
        let during = "reading a hash";
        let mut connection = self.pooled(during).await?;
        hash_page(&mut connection, key, cursor).await.map_err(|error| self.fault_at(during, &error, [key]))
    }

    /// One step of a walk over a large sorted set, to the byte, lowest score first (`ZRANGEBYSCORE` on a pooled
    /// connection): where the next step begins, none at the end, and members. Of those with one score some may be passed
    /// over where others of that score go meanwhile.
    pub async fn scores_page(
        &self,
        key: Key<'_>,
        from: Option<ScoreCursor>,
    ) -> Result<(Option<ScoreCursor>, Vec<Vec<u8>>)> {
        let during = "reading a sorted set";
        let mut connection = self.pooled(during).await?;
        let (min, passed) = from.map_or((f64::NEG_INFINITY, 0), |from| from);
        let page: Vec<(Vec<u8>, f64)> = redis::cmd("ZRANGEBYSCORE")
            .arg(key)
            .arg(min)
            .arg("+inf")
            .arg("WITHSCORES")
            .arg("LIMIT")
            .arg(passed)
            .arg(STEP)
            .query_async(&mut connection)
            .await
            .map_err(|error| self.fault_at(during, &error, [key]))?;
        let next = page.last().filter(|_| page.len() == STEP).map(|(_, last)| {
            let same = page.iter().rev().take_while(|(_, score)| score.total_cmp(last).is_eq()).count();
            (*last, if last.total_cmp(&min).is_eq() { passed + same } else { same })
        });
        Ok((next, page.into_iter().map(|(member, _)| member).collect()))
    }
}

async fn hash_page(
    connection: &mut impl redis::aio::ConnectionLike,
    key: Key<'_>,
    cursor: u64,
) -> RedisResult<(u64, Fields)> {
    redis::cmd("HSCAN").arg(key).arg(cursor).arg("COUNT").arg(STEP).query_async(connection).await
}
