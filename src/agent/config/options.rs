//! What the modules below are told of a config.

use std::time::Duration;

use super::model::Config;
use crate::error::Result;
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
