//! REL-3: whatever stands in the store, comes in on a channel, or is typed into a config, the answer is an error or a
//! value inside its bounds, and never a panic. If one of these fails, one row that somebody wrote by hand ends every
//! process of the fleet that reads it.
//!
//! Most cases start from something valid and break it a little ([`damage`]): random bytes alone never get far enough
//! in to break anything. What is signed is broken twice, after the signature, where it must be refused, and before it,
//! where a member itself is hostile or mistaken.

mod bytes;
mod config;
mod damage;
mod messages;
mod names;
mod rows;

use maitred::envelope::{Keyring, Secret};
use maitred::ids::Zone;
use maitred::store::Verifier;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

/// Cases of each property: many of what is cheap, fewer of what parses long texts.
mod cases {
    pub const NETSTRINGS: u32 = 60_000;
    pub const SIGNATURES: u32 = 20_000;
    pub const WIRES: u32 = 30_000;
    pub const REPLAYS: u32 = 5_000;
    pub const NODE_ROWS: u32 = 12_000;
    pub const NODE_WIRES: u32 = 8_000;
    pub const TOKEN_ROWS: u32 = 12_000;
    pub const TOKEN_EVENTS: u32 = 40_000;
    pub const CONTROL_ENTRIES: u32 = 30_000;
    pub const MESSAGES: u32 = 15_000;
    pub const REPLIES: u32 = 30_000;
    pub const BODIES: u32 = 20_000;
    pub const IDS: u32 = 20_000;
    pub const URLS: u32 = 20_000;
    pub const SECRETS: u32 = 20_000;
    pub const CONFIGS: u32 = 8_000;
    pub const ENVIRONMENTS: u32 = 7_000;

    pub const ALL: [u32; 17] = [
        NETSTRINGS,
        SIGNATURES,
        WIRES,
        REPLAYS,
        NODE_ROWS,
        NODE_WIRES,
        TOKEN_ROWS,
        TOKEN_EVENTS,
        CONTROL_ENTRIES,
        MESSAGES,
        REPLIES,
        BODIES,
        IDS,
        URLS,
        SECRETS,
        CONFIGS,
        ENVIRONMENTS,
    ];
}

/// Longest text of an error that names one thing.
const ERROR_MAX_BYTES: usize = 2_048;

#[test]
fn rel_3_there_are_at_least_300_000_cases() {
    let sum: u32 = cases::ALL.iter().sum();
    assert!(sum >= 300_000, "{sum}");
}

/// Runs a property over fresh cases; a failure prints the smallest one that was found.
fn check<S: Strategy>(cases: u32, strategy: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if let Err(broken) = TestRunner::new(config).run(&strategy, property) {
        panic!("{broken}");
    }
}

fn keyring() -> Keyring {
    let secret = Secret::from_base64("TEST", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a secret");
    Keyring::new(Zone::new("eu").expect("a zone"), secret, Vec::new())
}

fn verifier() -> Verifier {
    Verifier::new(keyring())
}

/// An error that says something, in bounds.
fn is_told(error: &dyn std::error::Error) -> Result<(), TestCaseError> {
    let text = error.to_string();
    prop_assert!(!text.is_empty() && text.len() <= ERROR_MAX_BYTES, "{} bytes: {}", text.len(), text);
    Ok(())
}
