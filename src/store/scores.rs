//! Reads of sorted sets: rosters, lines, and lists of what is due.

use redis::Pipeline;
use redis::aio::ConnectionLike;

use super::clock::SKEW_MS;
use super::connect::Store;
use super::keys::Key;
use super::read::{BATCH, bytes_of, items_of, text_of};
use crate::error::Result;

/// Many keys are read in pipelines of 256, or half as many where each is read twice.
impl Store {
    /// The first `count` members of a sorted set with scores from `min` up to `max` (as ZRANGEBYSCORE takes them), lowest
    /// first, on a pooled connection.
    pub async fn first_between(&self, key: Key<'_>, min: &str, max: &str, count: u64) -> Result<Vec<String>> {
        Ok(self.first_scored_between(key, min, max, count).await?.into_iter().map(|(member, _)| member).collect())
    }

    /// The same with their scores.
    pub async fn first_scored_between(
        &self,
        key: Key<'_>,
        min: &str,
        max: &str,
        count: u64,
    ) -> Result<Vec<(String, f64)>> {
        let during = "reading a sorted set";
        let mut connection = self.pooled(during).await?;
        let members: Vec<(Vec<u8>, f64)> = redis::cmd("ZRANGEBYSCORE")
            .arg(key)
            .arg(min)
            .arg(max)
            .arg("WITHSCORES")
            .arg("LIMIT")
            .arg(0)
            .arg(count)
            .query_async(&mut connection)
            .await
            .map_err(|error| self.fault_at(during, &error, [key]))?;
        let text = |(member, score): (Vec<u8>, f64)| (String::from_utf8_lossy(&member).into_owned(), score);
        Ok(members.into_iter().map(text).collect())
    }

    /// The whole of a sorted set, lowest score first, in pages of 256 on a pooled connection.
    pub async fn scores(&self, key: Key<'_>) -> Result<Vec<(String, f64)>> {
        self.first_scores(key, usize::MAX).await
    }

    /// The first `most` of a sorted set with their scores, lowest first, in pages of 256 on a pooled connection.
    pub async fn first_scores(&self, key: Key<'_>, most: usize) -> Result<Vec<(String, f64)>> {
        let during = "reading a sorted set";
        let mut connection = self.pooled(during).await?;
        let mut all: Vec<(String, f64)> = Vec::new();
        loop {
            let wanted = BATCH.min(most - all.len());
            let page: Vec<(Vec<u8>, f64)> = redis::cmd("ZRANGEBYSCORE")
                .arg(key)
                .arg("-inf")
                .arg("+inf")
                .arg("WITHSCORES")
                .arg("LIMIT")
                .arg(all.len())
                .arg(wanted)
                .query_async(&mut connection)
                .await
                .map_err(|error| self.fault_at(during, &error, [key]))?;
            let full = page.len() == BATCH;
            all.extend(page.iter().map(|(member, score)| (String::from_utf8_lossy(member).into_owned(), *score)));
            if !full || all.len() >= most {
                return Ok(all);
            }
        }
    }

    /// The members of many sorted sets with a score of at most `max`, lowest first, at most `limit` of each, in
    /// pipelines on a pooled connection. A key of another type is read as one that does not exist.
    pub async fn score_ranges(&self, keys: &[Key<'_>], max: &str, limit: usize) -> Result<Vec<Vec<String>>> {
        let during = "reading sorted sets";
        let mut all = Vec::with_capacity(keys.len());
        if keys.is_empty() {
            return Ok(all);
        }
        let mut connection = self.pooled(during).await?;
        for batch in keys.chunks(BATCH) {
            let mut pipeline = Pipeline::new();
            for key in batch {
                pipeline.cmd("ZRANGEBYSCORE").arg(key).arg("-inf").arg(max).arg("LIMIT").arg(0).arg(limit);
            }
            let values = connection
                .req_packed_commands(&pipeline, 0, batch.len())
                .await
                .map_err(|error| self.fault(during, &error))?;
            for (key, value) in batch.iter().zip(&values) {
                all.push(items_of(during, *key, value)?.iter().filter_map(text_of).collect());
            }
        }
        Ok(all)
    }

    /// The members of many sorted sets whose score is a time that is over, which one too far ahead is too: at most `limit` of those
    /// that have come and as many of those too far ahead, in pipelines on a pooled connection.
    pub async fn overdue(
        &self,
        keys: &[Key<'_>],
        now_ms: u64,
        lasts_ms: u64,
        limit: usize,
    ) -> Result<Vec<Vec<Vec<u8>>>> {
        let during = "reading sorted sets";
        let mut all = Vec::with_capacity(keys.len());
        if keys.is_empty() {
            return Ok(all);
        }
        let now = now_ms.to_string();
        let beyond = format!("({}", now_ms.saturating_add(lasts_ms).saturating_add(SKEW_MS));
        let mut connection = self.pooled(during).await?;
        for batch in keys.chunks(BATCH / 2) {
            let mut pipeline = Pipeline::new();
            for key in batch {
                for (min, max) in [("-inf", now.as_str()), (beyond.as_str(), "+inf")] {
                    pipeline.cmd("ZRANGEBYSCORE").arg(key).arg(min).arg(max).arg("LIMIT").arg(0).arg(limit);
                }
            }
            let values = connection
                .req_packed_commands(&pipeline, 0, 2 * batch.len())
                .await
                .map_err(|error| self.fault(during, &error))?;
            for (key, pair) in batch.iter().zip(values.chunks(2)) {
                let mut members: Vec<Vec<u8>> = Vec::new();
                for value in pair {
                    members.extend(items_of(during, *key, value)?.iter().filter_map(bytes_of));
                }
                all.push(members);
            }
        }
        Ok(all)
    }

    /// Like [`score_ranges`](Self::score_ranges), with the scores, and only those above `after`.
    pub async fn score_pages(
        &self,
        keys: &[Key<'_>],
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Vec<(String, f64)>>> {
        let during = "reading sorted sets";
        let mut all = Vec::with_capacity(keys.len());
        if keys.is_empty() {
            return Ok(all);
        }
        let min = after.map_or_else(|| "-inf".to_owned(), |after| format!("({after}"));
        let mut connection = self.pooled(during).await?;
        for batch in keys.chunks(BATCH) {
            let mut pipeline = Pipeline::new();
            for key in batch {
                pipeline
                    .cmd("ZRANGEBYSCORE")
                    .arg(key)
                    .arg(&min)
                    .arg("+inf")
                    .arg("WITHSCORES")
                    .arg("LIMIT")
                    .arg(0)
                    .arg(limit);
            }
            let values = connection
                .req_packed_commands(&pipeline, 0, batch.len())
                .await
                .map_err(|error| self.fault(during, &error))?;
            let text = |(member, score): (Vec<u8>, f64)| (String::from_utf8_lossy(&member).into_owned(), score);
            for value in values {
                let page: Vec<(Vec<u8>, f64)> = redis::from_redis_value(value).unwrap_or_default();
                all.push(page.into_iter().map(text).collect());
            }
        }
        Ok(all)
    }
}
