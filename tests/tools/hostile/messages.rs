//! What members say to each other: messages, answers, and the bodies that the agents read.

use maitred::agent::{PlaceAnswer, PlaceRequest};
use maitred::envelope::Kind;
use maitred::message::{MESSAGE_LIFE_MS, Message, Reply, SERVICE_MAX_BYTES};
use proptest::prelude::*;
use serde_json::json;

use super::damage::{changes, damaged, damaged_text, noise};
use super::{cases, check, keyring, verifier};

const MESSAGE: [&str; 16] = [
    "p1",
    "7",
    "p1",
    "7",
    "b1",
    "9",
    "places",
    "reserve",
    "c1",
    "0",
    "",
    "1796000000000",
    "n1",
    "1796000002000",
    r#"{"b":1,"a":1.50}"#,
    "1",
];
const REPLY: [&str; 10] = ["c1", "b1", "9", "p1", "7", "ok", "1796000000100", "n2", r#"{"free":[1,2]}"#, "1"];

/// Longest name, nonce or id of a call.
const WORD_MAX_BYTES: usize = 64;

// MSG-4, REL-3: a member of the fleet may sign anything.
#[test]
fn rel_3_a_message_with_any_fields_is_sound_or_nothing() {
    let (ring, verifier) = (keyring(), verifier());
    check(cases::MESSAGES, (0..MESSAGE.len(), changes(), 0..18_usize), |(at, changes, count)| {
        let mut values = MESSAGE.map(str::to_owned);
        values[at] = damaged_text(&values[at], &changes);
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        // Another number of fields than the kind has.
        if count < texts.len() {
            prop_assert!(Message::from_fields(&texts[..count]).is_none());
        }
        let bytes = ring.to_wire(Kind::Message, &texts);
        let Ok(wire) = verifier.wire(&bytes, bytes.len(), "test") else {
            prop_assert!(at == MESSAGE.len() - 1, "only the version refuses what a member signed");
            return Ok(());
        };
        prop_assert_eq!(&wire.fields, &texts);
        if let Some(message) = Message::from_fields(&wire.fields) {
            prop_assert!(message.deadline_ms > message.sent_at_ms);
            prop_assert!(message.deadline_ms - message.sent_at_ms < MESSAGE_LIFE_MS);
            for name in [message.service, message.method] {
                prop_assert!(!name.is_empty() && name.len() <= SERVICE_MAX_BYTES && name.is_ascii());
            }
            prop_assert!(message.nonce.len() <= WORD_MAX_BYTES && message.call.len() <= WORD_MAX_BYTES);
            prop_assert!(message.route.len() <= 256);
            prop_assert!(message.hops > 0 || message.origin == message.from);
            // What was read says the same again.
            let again = message.to_wire(&ring);
            let again = verifier.wire(&again, again.len(), "test").expect("signed here");
            prop_assert!(Message::from_fields(&again.fields).is_some());
        }
        Ok(())
    });
}

// R-27, REL-3
#[test]
fn rel_3_a_reply_with_any_fields_is_sound_or_nothing() {
    check(cases::REPLIES, (0..REPLY.len(), changes(), 0..12_usize), |(at, changes, count)| {
        let mut values = REPLY.map(str::to_owned);
        values[at] = damaged_text(&values[at], &changes);
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        if count < texts.len() {
            prop_assert!(Reply::from_fields(&texts[..count]).is_none());
        }
        if let Some(reply) = Reply::from_fields(&texts) {
            for word in [reply.call, reply.nonce, reply.status] {
                prop_assert!(!word.is_empty() && word.len() <= WORD_MAX_BYTES);
            }
        }
        Ok(())
    });
}

// DSP-3, REL-3: the bodies of the service that gives places.
#[test]
fn rel_3_a_body_of_any_bytes_is_read_in_bounds_or_refused() {
    let verifier = verifier();
    let ask = json!({
        "player": "alice", "request": "r-1", "attempt": 1, "region": "meadow", "deadline_ms": 1_796_000_002_000_u64,
        "earlier": ["b2", "b3"],
    });
    let fields = ["t-1", "alice", "b1", "9", "r-1", "1", r#"{"x":1}"#, "1796000000100", "1796000030100", "1"];
    let sig = keyring().sign(Kind::Token, &fields).as_str().to_owned();
    let answer = json!({
        "taken": false,
        "token": {
            "id": "t-1", "player": "alice", "server": "b1", "server_epoch": 9, "request": "r-1", "attempt": 1,
            "payload": { "x": 1 }, "issued_at_ms": 1_796_000_000_100_u64, "expires_at_ms": 1_796_000_030_100_u64,
            "sig": sig,
        },
    });
    let good: PlaceAnswer = serde_json::from_str(&answer.to_string()).expect("the answer itself is good");
    assert!(good.token.verify(&verifier, "test").is_ok());
    let good = [ask.to_string(), answer.to_string()];
    let broken = (0..good.len(), changes()).prop_map(|(at, changes)| damaged(good[at].as_bytes(), &changes));
    check(cases::BODIES, prop_oneof![7 => broken, 1 => noise()], |bytes| {
        if let Ok(request) = serde_json::from_slice::<PlaceRequest>(&bytes) {
            prop_assert!(request.player.as_str().len() <= 128 && request.request.as_str().len() <= WORD_MAX_BYTES);
        }
        if let Ok(answer) = serde_json::from_slice::<PlaceAnswer>(&bytes)
            && answer.token.verify(&verifier, "test").is_ok()
        {
            let token = &answer.token;
            prop_assert_eq!(
                (token.id.as_str(), token.payload.get(), token.expires_at_ms),
                ("t-1", r#"{"x":1}"#, 1_796_000_030_100)
            );
        }
        Ok(())
    });
}
