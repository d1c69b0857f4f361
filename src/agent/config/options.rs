//! What the modules below are told of a config.

use std::time::Duration;

use super::model::{Config, WaitConfig};
use crate::error::Result;
use crate::ids::LineName;
use crate::queue::LineOptions;
use crate::store::{StoreOptions, StoreUrl};
use crate::token::BookOptions;

impl Config {
    /// The options of the store.
    pub(in crate::agent) fn store_options(&self) -> Result<StoreOptions> {
        Ok(StoreOptions {
            url: StoreUrl::parse(self.store_url()?.expose())?,
            command_timeout: Duration::from_millis(self.store.command_timeout_ms),
            connect_timeout: Duration::from_millis(self.store.connect_timeout_ms),
            operation_timeout: Duration::from_millis(self.store.operation_timeout_ms),
        })
    }

    /// The times of tokens.
    pub(in crate::agent) fn book_options(&self) -> BookOptions {
        BookOptions {
            ttl_ms: self.tokens.ttl_ms,
            claim_reanimate_ms: self.tokens.claim_reanimate_ms,
            audit_ms: self.tokens.audit_ms,
        }
    }
}

impl WaitConfig {
    /// What the operations of the wait line `name` are told.
    pub(in crate::agent) fn options(&self, name: LineName) -> LineOptions {
        LineOptions {
            max_waiting: u64::try_from(self.max_waiting).unwrap_or(u64::MAX),
            reconnect_grace_ms: self.reconnect_grace_ms,
            ..LineOptions::wait_line(name)
        }
    }
}
