//! The shared connection. The client makes a new one when a connection breaks; one that stays open and says nothing any
//! more (a half-open socket, a balancer whose server is gone) is given up here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, RedisResult};

use super::clock::boot_ms;

/// How many times longer than a connection and a first answer may take a carrier is left to connect, so that giving up does
/// not start the pauses between its tries anew all the time.
const CONNECTING_MAX: u32 = 3;

/// One connection, kept up by the client.
pub(super) struct Carrier {
    connection: ConnectionManager,
    /// Since when it has been connecting, or connected and not heard yet.
    began_ms: AtomicU64,
    /// When it was last heard; 0 for not since it began.
    heard_ms: AtomicU64,
}

impl Carrier {
    pub fn connection(&self) -> ConnectionManager {
        self.connection.clone()
    }

    /// An answer came.
    pub fn heard(&self) {
        self.heard_ms.store(boot_ms(), Ordering::Release);
    }

    /// It broke: the client connects again.
    fn broke(&self) {
        self.began_ms.store(boot_ms(), Ordering::Release);
        self.heard_ms.store(0, Ordering::Release);
    }
}

/// The shared connection.
pub(super) struct Shared {
    client: Client,
    config: ConnectionManagerConfig,
    present: ArcSwap<Carrier>,
    command_timeout: Duration,
    connecting_max: Duration,
}

impl Shared {
    /// Opens nothing yet.
    pub fn new(
        client: Client,
        config: ConnectionManagerConfig,
        command_timeout: Duration,
        connect_timeout: Duration,
    ) -> RedisResult<Self> {
        let present = ArcSwap::from_pointee(carrier(&client, &config)?);
        let connecting_max = (command_timeout + connect_timeout) * CONNECTING_MAX;
        Ok(Self { client, config, present, command_timeout, connecting_max })
    }

    /// What commands go through now.
    pub fn carrier(&self) -> Arc<Carrier> {
        self.present.load_full()
    }

    /// A command failed with the client's error. True where its connection was given up for it.
    pub fn failed(&self, carrier: &Arc<Carrier>, sent_ms: u64, error: &RedisError) -> bool {
        if error.is_timeout() {
            return self.late(carrier, sent_ms);
        }
        if error.is_io_error() {
            carrier.broke();
        }
        false
    }

    /// A command that was sent at `sent_ms` on [`boot_ms`]'s clock got no answer in time. A whole command timeout without
    /// any answer on the carrier means that it is silent: later commands go through a new one. True where that is so now.
    pub fn late(&self, silent: &Arc<Carrier>, sent_ms: u64) -> bool {
        let now = boot_ms();
        let (began, heard) = (silent.began_ms.load(Ordering::Acquire), silent.heard_ms.load(Ordering::Acquire));
        let over = |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) * 10 >= limit.as_millis() * 9;
        let is_silent = match heard {
            0 => over(began, self.connecting_max),
            heard => heard <= sent_ms && over(sent_ms, self.command_timeout),
        };
        if !is_silent || !Arc::ptr_eq(&self.carrier(), silent) {
            return false;
        }
        match carrier(&self.client, &self.config) {
            Ok(fresh) => {
                let was = self.present.compare_and_swap(silent, Arc::new(fresh));
                let is_given_up = Arc::ptr_eq(&was, silent);
                if is_given_up {
                    metrics::counter!("maitred_store_connections_given_up_total").increment(1);
                    tracing::info!("the connection to the store has gone silent; a new one is made");
                }
                is_given_up
            }
            Err(error) => {
                tracing::warn!(%error, "could not make a new connection");
                false
            }
        }
    }
}

fn carrier(client: &Client, config: &ConnectionManagerConfig) -> RedisResult<Carrier> {
    let connection = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
    Ok(Carrier { connection, began_ms: AtomicU64::new(boot_ms()), heard_ms: AtomicU64::new(0) })
}
