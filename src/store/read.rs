use std::collections::HashMap;

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, RedisResult, ServerError, Value};
use tokio::time::Instant;

use super::connect::Store;
use super::fault;
use super::keys::Key;
use crate::error::{Error, Result, StoreRefusal};

/// Rows read in one pipeline.
pub(super) const BATCH: usize = 256;
/// Keys that the store looks at in one step of a walk over all of them: about half a millisecond of its time.
const SCAN_BATCH: usize = 1_000;

/// A hash as it was read. Values that are not UTF-8 are replaced, so that their row cannot verify.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    fields: HashMap<String, String>,
}

impl Row {
    /// The value of a field.
    pub fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    /// The value of a field, empty where it is missing.
    pub fn text(&self, field: &str) -> &str {
        self.get(field).unwrap_or("")
    }

    /// The whole number in a field.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }

    /// True where the key does not exist.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// All fields.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn read(value: &Value) -> Option<Self> {
        let mut fields = HashMap::new();
        for (name, value) in value.as_map_iter()? {
            fields.insert(text_of(name)?, text_of(value)?);
        }
        Some(Self { fields })
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Row {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(fields: I) -> Self {
        Self { fields: fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

/// A member as it stands, also one that is no text.
pub(super) fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        other => text_of(other).map(String::into_bytes),
    }
}

pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The store's error about one key of a pipeline, where the others are not concerned; `Err` where they are.
fn of_one(during: &'static str, key: Key<'_>, error: &ServerError) -> Result<Error> {
    match fault::at(fault::typed(during, &RedisError::from(error.clone())), [key]) {
        error @ Error::Refused { refusal: StoreRefusal::WrongType, .. } => Ok(error),
        error => Err(error),
    }
}

/// The values of one answer of a pipeline; none where the key is of another type.
pub(super) fn items_of<'a>(during: &'static str, key: Key<'_>, value: &'a Value) -> Result<&'a [Value]> {
    match value {
        Value::Array(items) => Ok(items),
        Value::ServerError(error) => {
            let error = of_one(during, key, error)?;
            tracing::debug!(%error, "a key of another type is left out");
            Ok(&[])
        }
        _ => Err(strange(during, "the answer")),
    }
}

/// Single reads go through the shared connection, bulk reads through the pool. Reads are repeated by their callers.
impl Store {
    pub(super) async fn read_one<T: FromRedisValue>(
        &self,
        command: &Cmd,
        key: Key<'_>,
        during: &'static str,
    ) -> Result<T> {
        let deadline = Instant::now() + self.options().command_timeout;
        let value = self.send(command, deadline).await.map_err(|sent| fault::at(sent.typed(self, during), [key]))?;
        redis::from_redis_value(value).map_err(|error| Error::Protocol { during, detail: error.to_string() })
    }

    /// One hash (`HGETALL`); empty where the key does not exist.
    pub async fn row(&self, key: Key<'_>) -> Result<Row> {
        let during = "reading a row";
        let value: Value = self.read_one(redis::cmd("HGETALL").arg(key), key, during).await?;
        Row::read(&value).ok_or_else(|| strange(during, &key.to_string()))
    }

    /// Many hashes, in pipelines of 256 on a pooled connection, in the order of `keys`. Errors where one of them is of
    /// another type.
    pub async fn rows(&self, keys: &[Key<'_>]) -> Result<Vec<Row>> {
        self.rows_each(keys).await?.into_iter().collect()
    }

    /// Like [`rows`](Self::rows), but a key of another type fails alone instead of hiding all the others.
    pub async fn rows_each(&self, keys: &[Key<'_>]) -> Result<Vec<Result<Row>>> {
        let during = "reading rows";
        let mut rows = Vec::with_capacity(keys.len());
        if keys.is_empty() {
            return Ok(rows);
        }
        let mut connection = self.pooled(during).await?;
        for batch in keys.chunks(BATCH) {
            let mut pipeline = Pipeline::new();
            for key in batch {
                pipeline.cmd("HGETALL").arg(key);
            }
            let values = connection
                .req_packed_commands(&pipeline, 0, batch.len())
                .await
                .map_err(|error| self.fault(during, &error))?;
            for (key, value) in batch.iter().zip(&values) {
                rows.push(match value {
                    Value::ServerError(error) => Err(of_one(during, *key, error)?),
                    value => Ok(Row::read(value).ok_or_else(|| strange(during, &key.to_string()))?),
                });
            }
        }
        Ok(rows)
    }

    /// Some fields of many hashes (`HMGET`), in pipelines of 256 on a pooled connection. A key of another type is read as
    /// one that does not exist, so that it hides none of the others.
    pub async fn fields(&self, keys: &[Key<'_>], names: &[&str]) -> Result<Vec<Row>> {
        let during = "reading rows";
        let mut rows = Vec::with_capacity(keys.len());
        if keys.is_empty() {
            return Ok(rows);
        }
        let mut connection = self.pooled(during).await?;
        for batch in keys.chunks(BATCH) {
            let mut pipeline = Pipeline::new();
            for key in batch {
                pipeline.cmd("HMGET").arg(key).arg(names);
            }
            let values = connection
                .req_packed_commands(&pipeline, 0, batch.len())
                .await
                .map_err(|error| self.fault(during, &error))?;
            for (key, value) in batch.iter().zip(&values) {
                let values = items_of(during, *key, value)?;
                let named = names.iter().zip(values);
                rows.push(named.filter_map(|(name, value)| Some(((*name).to_owned(), text_of(value)?))).collect());
            }
        }
        Ok(rows)
    }

    /// The members of a set (`SSCAN` on a pooled connection), sorted.
    pub async fn members(&self, key: Key<'_>) -> Result<Vec<String>> {
        let during = "reading a set";
        let mut connection = self.pooled(during).await?;
        let mut members: Vec<String> = Vec::new();
        let mut cursor: u64 = 0;
        loop {
            let (next, page): (u64, Vec<Vec<u8>>) = redis::cmd("SSCAN")
                .arg(key)
                .arg(cursor)
                .arg("COUNT")
                .arg(BATCH)
                .query_async(&mut connection)
                .await
                .map_err(|error| self.fault_at(during, &error, [key]))?;
            members.extend(page.iter().map(|member| String::from_utf8_lossy(member).into_owned()));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        members.sort_unstable();
        members.dedup();
        Ok(members)
    }

    /// How many a hash, two sorted sets and some sets hold, in one pipeline.
    pub async fn sizes(
        &self,
        hash: Key<'_>,
        sorted: [Key<'_>; 2],
        sets: &[Key<'_>],
    ) -> Result<(u64, [u64; 2], Vec<u64>)> {
        let during = "counting";
        let mut pipeline = Pipeline::new();
        pipeline.cmd("HLEN").arg(hash);
        for key in sorted {
            pipeline.cmd("ZCARD").arg(key);
        }
        for key in sets {
            pipeline.cmd("SCARD").arg(*key);
        }
        let mut connection = self.pooled(during).await?;
        let keys = [&[hash], &sorted[..], sets].concat();
        let counted: RedisResult<Vec<u64>> = pipeline.query_async(&mut connection).await;
        let counted = counted.map_err(|error| self.fault_at(during, &error, keys))?;
        let mut counted = counted.into_iter();
        let mut next = || counted.next().unwrap_or(0);
        let (tickets, in_order) = (next(), [next(), next()]);
        Ok((tickets, in_order, counted.collect()))
    }

    /// How many members a set has, on a pooled connection.
    pub async fn count_members(&self, key: Key<'_>) -> Result<u64> {
        let during = "counting";
        let mut connection = self.pooled(during).await?;
        let counted = redis::cmd("SCARD").arg(key).query_async(&mut connection).await;
        counted.map_err(|error| fault::typed(during, &error))
    }

    /// What stands behind `maitred:{zone}:<kind>` in the keys that exist, sorted (`SCAN` on a pooled connection). Walks
    /// the whole keyspace of the store: for what an operator asks for by hand.
    pub async fn names(&self, kind: &'static str) -> Result<Vec<String>> {
        self.names_part(kind, usize::MAX, usize::MAX).await.map(|(names, _)| names)
    }

    /// Like [`names`](Self::names), but the walk stops at about `most` names or after about `keys_max` keys: a page more
    /// at the most. True with it where the walk came to its end.
    pub async fn names_part(&self, kind: &'static str, most: usize, keys_max: usize) -> Result<(Vec<String>, bool)> {
        let mut names: Vec<String> = Vec::new();
        let (mut cursor, mut walked): (u64, usize) = (0, 0);
        loop {
            let page;
            (cursor, page) = self.names_from(kind, cursor).await?;
            names.extend(page);
            walked = walked.saturating_add(SCAN_BATCH);
            if cursor == 0 || names.len() >= most || walked >= keys_max {
                break;
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok((names, cursor == 0))
    }

    /// One step of a walk over the keys of the whole store, about 1,000 of them (`SCAN` on a pooled connection): where the
    /// next step begins, and what stands behind `maitred:{zone}:<kind>` in those that have it. A walk begins and ends with
    /// 0; a key that is there all the while is met at least once.
    pub async fn names_from(&self, kind: &'static str, cursor: u64) -> Result<(u64, Vec<String>)> {
        let during = "looking for keys";
        let prefix = format!("{}{kind}", self.keys().prefix());
        let mut connection = self.pooled(during).await?;
        let (next, page): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{prefix}*"))
            .arg("COUNT")
            .arg(SCAN_BATCH)
            .query_async(&mut connection)
            .await
            .map_err(|error| self.fault(during, &error))?;
        // A name that is no text was written by hand.
        let texts = page.iter().filter_map(|key| std::str::from_utf8(key).ok());
        Ok((next, texts.filter_map(|key| Some(key.strip_prefix(&prefix)?.to_owned())).collect()))
    }

    /// Publishes to a channel. Answers how many connections got it; on a Cluster that number means nothing.
    pub async fn publish(&self, channel: Key<'_>, payload: &[u8]) -> Result<u64> {
        self.read_one(redis::cmd("PUBLISH").arg(channel).arg(payload), channel, "publishing").await
    }
}

fn strange(during: &'static str, key: &str) -> Error {
    Error::Protocol { during, detail: format!("{key} is no map of texts") }
}
