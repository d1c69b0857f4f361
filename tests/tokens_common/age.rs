//! Time that passes on order: instead of waiting, everything in the zone becomes older at once.
//!
//! Rows, index entries and times to live are what they would be that much later, signatures included, so scripts judge
//! them by the store's real clock as they will then. A test of half a minute takes a millisecond, and no machine is too
//! slow for it.

use std::collections::BTreeMap;

use maitred::envelope::Kind;
use redis::Pipeline;

use super::bench::Bench;

const TOKEN_TIMES: [&str; 5] = ["issued_at", "expires_at", "claimed_at", "last_claimed_at", "consumed_at"];

impl Bench {
    /// Lets `ms` pass for every token and every member of the zone. A member that does not beat after it has that much
    /// less of its lease.
    pub async fn age(&self, ms: u64) {
        let keys = self.keys().await;
        let of = |kind: &str| -> Vec<&String> { keys.iter().filter(|key| key.starts_with(kind)).collect() };
        let (tokens, nodes, due) = (of("token:"), of("node:"), of("due:"));
        let mut read = redis::pipe();
        for key in tokens.iter().chain(&nodes) {
            read.cmd("HGETALL").arg(self.key(key));
        }
        let rows: Vec<BTreeMap<String, String>> = self.all(read).await;
        let mut read = redis::pipe();
        for key in tokens.iter().chain(&nodes) {
            read.cmd("PTTL").arg(self.key(key));
        }
        let ttls: Vec<i64> = self.all(read).await;
        let mut read = redis::pipe();
        for key in &due {
            read.cmd("ZRANGE").arg(self.key(key)).arg(0).arg(-1);
        }
        let members: Vec<Vec<String>> = self.all(read).await;

        let mut write = redis::pipe();
        for ((key, row), ttl) in tokens.iter().chain(&nodes).zip(rows).zip(ttls) {
            let key_text = self.key(key);
            let left = ttl - i64::try_from(ms).unwrap();
            if ttl >= 0 && left <= 0 {
                write.cmd("DEL").arg(key_text);
                continue;
            }
            let row = if key.starts_with("token:") { self.older_token(row, ms) } else { older_node(row, ms) };
            write.cmd("HSET").arg(&key_text);
            for (name, value) in row {
                write.arg(name).arg(value);
            }
            if ttl >= 0 {
                write.cmd("PEXPIRE").arg(&key_text).arg(left);
            }
        }
        for (key, players) in due.iter().zip(members) {
            for player in players {
                write.cmd("ZINCRBY").arg(self.key(key)).arg(-i64::try_from(ms).unwrap()).arg(player);
            }
        }
        let _: Vec<redis::Value> = self.all(write).await;
    }

    async fn all<T: redis::FromRedisValue>(&self, pipe: Pipeline) -> Vec<T> {
        if pipe.is_empty() { Vec::new() } else { pipe.query_async(&mut self.raw.clone()).await.unwrap() }
    }

    fn older_token(&self, mut row: BTreeMap<String, String>, ms: u64) -> BTreeMap<String, String> {
        for name in TOKEN_TIMES {
            if let Some(time) = row.get_mut(name) {
                *time = older(time, ms);
            }
        }
        if let Some(marks) = row.get_mut("cancelled") {
            let mark = |mark: &str| {
                let (request, at) = mark.split_once('@').unwrap();
                format!("{request}@{}", older(at, ms))
            };
            *marks = marks.split(' ').map(mark).collect::<Vec<_>>().join(" ");
        }
        if row.contains_key("sig") {
            let text = |name: &&'static str| row.get(*name).map_or("", String::as_str);
            let fields: Vec<&str> = Kind::Token.fields().iter().map(text).collect();
            let sig = self.verifier.keyring().sign(Kind::Token, &fields).as_str().to_owned();
            row.insert("sig".to_owned(), sig);
        }
        row
    }
}

/// Only the store's own note of the beat: nothing here reads a node's signed row.
fn older_node(mut row: BTreeMap<String, String>, ms: u64) -> BTreeMap<String, String> {
    row.retain(|name, _| name == "beat_at");
    for time in row.values_mut() {
        *time = older(time, ms);
    }
    row
}

fn older(time: &str, ms: u64) -> String {
    (time.parse::<u64>().unwrap() - ms).to_string()
}
