//! What stands in the store: rows of nodes and tokens, control entries, and the hints on the token channel.

use maitred::envelope::{AuditReason, Keyring, Kind};
use maitred::ids::{NODE_ID_MAX_BYTES, NodeId, PLAYER_MAX_BYTES, Player};
use maitred::node::{ControlEntry, NODE_WIRE_MAX_BYTES, NodeRecord};
use maitred::store::Row;
use maitred::token::{TokenEvent, TokenRow};
use proptest::prelude::*;
use serde_json::json;

use super::damage::{changes, damaged, damaged_text, noise};
use super::{cases, check, is_told, keyring, verifier};

const NODE: [&str; 16] = [
    "b1",
    "backend",
    "b1.example:25565",
    "1796000000000",
    "0198c0de-0000-7000-8000-000000000001",
    "17",
    "1796000012345",
    "ready",
    "1",
    "0",
    "12",
    "50",
    r#"{"tps_1m":19.9,"regions":{"meadow":3,"cave":null},"worlds":["w1"],"overloaded":false}"#,
    r#"["places","chat"]"#,
    r#"{"build":"0.1.0","platform":"linux"}"#,
    "1",
];
const TOKEN: [&str; 10] =
    ["t-1", "alice", "b1", "1796000000000", "r-1", "1", r#"{"x":1.50,"z":[0]}"#, "1796000000100", "1796000030100", "1"];
const CLAIM: [&str; 5] = ["t-1", "alice", "p1", "1796000000001", "op-1"];

/// Fields of a kind under their names, and the signature over them.
fn signed(ring: &Keyring, kind: Kind, values: &[String]) -> Vec<(String, String)> {
    let texts: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut row: Vec<(String, String)> =
        kind.fields().iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    row.push(("sig".to_owned(), ring.sign(kind, &texts).as_str().to_owned()));
    row
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Which field is changed, whether before it was signed, and how.
fn one_field(fields: usize) -> impl Strategy<Value = (usize, bool, Vec<(u8, u16, u16)>)> {
    (0..fields, any::<bool>(), changes())
}

// NOD-6, R-5, REL-3
#[test]
fn rel_3_a_node_row_with_any_field_is_read_in_bounds_or_refused() {
    let (ring, verifier, id) = (keyring(), verifier(), NodeId::new("b1").expect("an id"));
    check(cases::NODE_ROWS, one_field(NODE.len() + 1), |(at, before, changes)| {
        let mut values = owned(&NODE);
        if before && at < NODE.len() {
            values[at] = damaged_text(&values[at], &changes);
        }
        let mut row = signed(&ring, Kind::Node, &values);
        let good = row.clone();
        if !before {
            row[at].1 = damaged_text(&row[at].1, &changes);
        }
        match NodeRecord::from_row(&verifier, &id, &row.iter().cloned().collect::<Row>()) {
            Ok(record) => {
                prop_assert!(before || row == good, "a changed field was believed: {row:?}");
                prop_assert_eq!(&record.id, &id);
                prop_assert!(record.role.as_str().len() <= 64);
                // What was read can be compared and looked through.
                let nobody_asks = record.offers("\u{0}") || record.is_newer_than(&record);
                prop_assert!(!nobody_asks);
            }
            Err(error) => is_told(&error)?,
        }
        Ok(())
    });
}

// NOD-7, REL-3: heartbeats by a member that signs anything.
#[test]
fn rel_3_a_heartbeat_with_any_field_is_read_or_refused() {
    let (ring, verifier) = (keyring(), verifier());
    check(cases::NODE_WIRES, one_field(NODE.len()), |(at, before, changes)| {
        let mut values = owned(&NODE);
        if before {
            values[at] = damaged_text(&values[at], &changes);
        }
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        let good = ring.to_wire(Kind::Node, &texts);
        let bytes = if before { good.clone() } else { damaged(&good, &changes) };
        match NodeRecord::from_wire(&verifier, &bytes) {
            Ok(record) => {
                prop_assert!(bytes == good && bytes.len() <= NODE_WIRE_MAX_BYTES);
                prop_assert!(record.id.as_str().len() <= NODE_ID_MAX_BYTES);
            }
            Err(error) => is_told(&error)?,
        }
        Ok(())
    });
}

// TOK-9, R-5, R-6, REL-3: the unsigned part of a row is anybody's.
#[test]
fn rel_3_a_token_row_with_any_field_is_read_in_bounds_or_refused() {
    let (ring, verifier, alice) = (keyring(), verifier(), Player::new("alice").expect("a player"));
    let claim_sig = ring.sign(Kind::Claim, &CLAIM).as_str().to_owned();
    let unsigned: Vec<(String, String)> = [
        ("state", "CLAIMED"),
        ("claimant", "p1"),
        ("claimant_epoch", "1796000000001"),
        ("claimed_at", "1796000000200"),
        ("claim_op", "op-1"),
        ("claim_sig", &claim_sig),
        ("last_claimant", "p1"),
        ("last_claimant_epoch", "1796000000001"),
        ("last_claimed_at", "1796000000200"),
        ("last_claim_op", "op-1"),
        ("last_claim_sig", &claim_sig),
        ("reason", "full"),
        ("consumed_at", "1796000000300"),
        ("previous", "t0:RELEASED:r-0:1:1796000000000"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let fields = TOKEN.len() + 1 + unsigned.len();
    check(cases::TOKEN_ROWS, (one_field(fields), any::<bool>()), |((at, before, changes), gone)| {
        let mut values = owned(&TOKEN);
        if before && at < TOKEN.len() {
            values[at] = damaged_text(&values[at], &changes);
        }
        let mut row = signed(&ring, Kind::Token, &values);
        row.extend(unsigned.iter().cloned());
        let good = row.clone();
        if !before || at >= TOKEN.len() {
            if gone {
                row.remove(at);
            } else {
                row[at].1 = damaged_text(&row[at].1, &changes);
            }
        }
        match TokenRow::from_row(&verifier, &alice, &row.iter().cloned().collect::<Row>()) {
            Ok(Some(read)) => {
                let claims = row[..=TOKEN.len()] == good[..=TOKEN.len()];
                prop_assert!(before || claims, "a changed field was believed: {row:?}");
                prop_assert_eq!(&read.token.player, &alice);
                for claim in read.claim.iter().chain(&read.last_claim) {
                    prop_assert_eq!((claim.claimant.as_str(), claim.claimant_epoch.0), ("p1", 1_796_000_000_001));
                }
                prop_assert!(read.token.verify(&verifier, "test").is_ok());
                let _ = (read.is_live(0), read.is_live(u64::MAX), serde_json::to_string(&read));
            }
            Ok(None) => prop_assert!(gone && at == 0, "a row with an id is a token"),
            Err(error) => is_told(&error)?,
        }
        Ok(())
    });
}

// POL-4, R-32, REL-3
#[test]
fn rel_3_a_control_entry_of_any_bytes_is_verified_or_nothing() {
    let (ring, verifier) = (keyring(), verifier());
    let fields = ["kill", "on", "1796000000001", "ops", "1796000000000", "1"];
    let entry = json!({
        "value": "on", "version": 1_796_000_000_001_u64, "by": "ops", "at": 1_796_000_000_000_u64, "v": 1,
        "sig": ring.sign(Kind::Control, &fields).as_str(),
    })
    .to_string();
    let read = ControlEntry::from_bytes(&verifier, "kill", entry.as_bytes()).expect("the entry itself is good");
    assert!(ControlEntry::from_bytes(&verifier, "kill:b1", entry.as_bytes()).is_none(), "R-5: another name");
    let broken = changes().prop_map(|changes| damaged(entry.as_bytes(), &changes));
    check(cases::CONTROL_ENTRIES, prop_oneof![7 => broken, 1 => noise()], |bytes| {
        // Blanks between the parts change nothing of what was signed.
        if let Some(other) = ControlEntry::from_bytes(&verifier, "kill", &bytes) {
            prop_assert_eq!(&other, &read, "a changed entry was believed");
        }
        Ok(())
    });
}

// TOK-7, REL-3: anybody can publish on the token channel.
#[test]
fn rel_3_a_hint_of_any_bytes_is_read_in_bounds_or_nothing() {
    let good = ["ended alice t-1 b1 RELEASED", "reopened alice t-1 b1", "ended alice t-1 b1"];
    let broken = (0..good.len(), changes()).prop_map(move |(at, changes)| damaged(good[at].as_bytes(), &changes));
    check(cases::TOKEN_EVENTS, prop_oneof![7 => broken, 1 => noise()], |bytes| {
        if let Some(TokenEvent::Ended { player, id, server } | TokenEvent::Reopened { player, id, server }) =
            TokenEvent::read(&bytes)
        {
            prop_assert!(player.as_str().len() <= PLAYER_MAX_BYTES && server.as_str().len() <= NODE_ID_MAX_BYTES);
            prop_assert!(!id.as_str().is_empty() && id.as_str().len() <= 64);
        }
        Ok(())
    });
}

// ENV-1, ENV-6: each of these once verified as a row, and no longer when its token was sent on.
#[test]
fn env_1_a_signed_row_has_one_form() {
    let (ring, verifier, alice) = (keyring(), verifier(), Player::new("alice").expect("a player"));
    for (at, value, reason) in [
        (3, "01796000000000", AuditReason::Malformed),
        (5, "+1", AuditReason::Malformed),
        (6, " {}", AuditReason::Malformed),
        (6, "{}\n", AuditReason::Malformed),
        (8, "1796000030100 ", AuditReason::Malformed),
        (9, "", AuditReason::SchemaVersion),
        (9, "01", AuditReason::SchemaVersion),
    ] {
        let mut values = owned(&TOKEN);
        values[at] = value.to_owned();
        let mut row = signed(&ring, Kind::Token, &values);
        row.push(("state".to_owned(), "PENDING".to_owned()));
        let before = verifier.audit().count(reason);
        let refused = TokenRow::from_row(&verifier, &alice, &row.into_iter().collect::<Row>());
        assert!(refused.is_err(), "{value:?}: {refused:?}");
        assert_eq!(verifier.audit().count(reason), before + 1, "{value:?}");
    }
}
