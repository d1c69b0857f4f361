use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::boot_ms;
use super::connect::Store;
use super::keys::Key;
use crate::error::{Error, Result};

/// What a probe publishes by a script of its own, which touches no key.
const PUBLISH: &str = "return redis.call('PUBLISH', ARGV[1], ARGV[2])";

/// What the store says of itself: for operators, never for decisions.
impl Store {
    async fn ask(&self, command: &Cmd, during: &'static str) -> Result<Value> {
        let deadline = Instant::now() + self.options().command_timeout;
        self.send(command, deadline).await.map_err(|sent| sent.typed(self, during))
    }

    /// The fields of one section of `INFO`.
    pub async fn info(&self, section: &str) -> Result<HashMap<String, String>> {
        let value = self.ask(redis::cmd("INFO").arg(section), "INFO").await?;
        let text: String = redis::from_redis_value(value)
            .map_err(|error| Error::Protocol { during: "INFO", detail: error.to_string() })?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    /// How long one PING takes on the shared connection.
    pub async fn round_trip(&self) -> Result<Duration> {
        let started = std::time::Instant::now();
        self.ask(&redis::cmd("PING"), "PING").await?;
        Ok(started.elapsed())
    }

    /// The store's clock less this machine's wall clock, in ms, and the round trip it was read in. Nothing depends on it;
    /// logs of both differ by it.
    pub async fn wall_clock_offset_ms(&self) -> Result<i64> {
        let sent = boot_ms();
        self.sync_clock().await?;
        let trip = boot_ms().saturating_sub(sent);
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let wall_ms = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
        let store_ms = i64::try_from(self.clock().now_ms()).unwrap_or(i64::MAX);
        let offset = store_ms.saturating_sub(wall_ms);
        // Less than the trip is nothing that was measured.
        Ok(if offset.unsigned_abs() <= trip { 0 } else { offset })
    }

    /// All keys that begin with this store's prefix, without it. For a store with few keys: the server does nothing else
    /// meanwhile.
    #[doc(hidden)]
    pub async fn key_names(&self) -> Result<Vec<String>> {
        let (during, prefix) = ("listing keys", self.keys().prefix());
        let value = self.ask(redis::cmd("KEYS").arg(format!("{prefix}*")), during).await?;
        let names: Vec<String> =
            redis::from_redis_value(value).map_err(|error| Error::Protocol { during, detail: error.to_string() })?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(prefix)).map(str::to_owned).collect())
    }

    /// Publishes from within a script, as the product's scripts do. Answers how many connections got it.
    pub async fn publish_in_script(&self, channel: Key<'_>, text: &str) -> Result<u64> {
        let during = "publishing in a script";
        let value = self.ask(redis::cmd("SCRIPT").arg("LOAD").arg(PUBLISH), during).await?;
        let sha: String =
            redis::from_redis_value(value).map_err(|error| Error::Protocol { during, detail: error.to_string() })?;
        let value = self.ask(redis::cmd("EVALSHA").arg(sha).arg(0).arg(channel).arg(text), during).await?;
        redis::from_redis_value(value).map_err(|error| Error::Protocol { during, detail: error.to_string() })
    }

    /// Whether the connection's user may run `command` (`ACL DRYRUN`). `None` where the store cannot tell: before Redis 7,
    /// or where the user may not ask. `Some(Some(why))` where it may not.
    pub async fn may(&self, command: &[&str]) -> Result<Option<Option<String>>> {
        let who = match self.ask(redis::cmd("ACL").arg("WHOAMI"), "ACL WHOAMI").await {
            Ok(value) => redis::from_redis_value::<String>(value).unwrap_or_else(|_| "default".to_owned()),
            Err(Error::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match self.ask(redis::cmd("ACL").arg("DRYRUN").arg(who).arg(command), "ACL DRYRUN").await {
            Ok(value) => {
                let text: String = redis::from_redis_value(value).unwrap_or_default();
                Ok(Some(if text == "OK" { None } else { Some(text) }))
            }
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Subscribes to `channel` on a connection of its own, publishes `text` to it, and answers after how long it was heard.
    pub async fn publish_to_self(&self, channel: Key<'_>, text: &str) -> Result<Duration> {
        let during = "subscribing";
        let (sender, mut receiver) = tokio::sync::mpsc::channel(16);
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options().connect_timeout))
            .set_response_timeout(Some(self.options().command_timeout))
            .set_push_sender(move |info: redis::PushInfo| sender.try_send(info).map_err(|_| redis::aio::SendError));
        let mut connection = self
            .client()
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| self.fault(during, &error))?;
        let late = || self.unreachable(during, "nothing was heard inside the timeout");
        let bound = self.options().connect_timeout;
        tokio::time::timeout(bound, connection.subscribe(channel))
            .await
            .map_err(|_| late())?
            .map_err(|error| self.fault(during, &error))?;
        let started = std::time::Instant::now();
        self.publish(channel, text.as_bytes()).await?;
        let heard = async {
            while let Some(info) = receiver.recv().await {
                if info.kind == redis::PushKind::Message
                    && info.data.get(1) == Some(&Value::BulkString(text.as_bytes().to_vec()))
                {
                    return true;
                }
            }
            false
        };
        match tokio::time::timeout(bound, heard).await {
            Ok(true) => Ok(started.elapsed()),
            _ => Err(late()),
        }
    }
}
