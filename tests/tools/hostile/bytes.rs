//! The envelope: canonical bytes, signatures, the wire form, the replay window.

use maitred::envelope::{
    Kind, REPLAY_WINDOW_MS, ReplayWindow, SIGNATURE_BYTES, canonical, parse_netstrings, push_netstring,
};
use proptest::prelude::*;

use super::damage::{changes, damaged, damaged_text, noise};
use super::{cases, check, is_told, keyring};

/// As many values as the kind has fields, none of them empty.
pub fn values(kind: Kind) -> Vec<String> {
    kind.fields().iter().map(|name| if *name == "v" { "1".to_owned() } else { format!("{name}-1") }).collect()
}

pub fn wire(kind: Kind) -> Vec<u8> {
    let values = values(kind);
    keyring().to_wire(kind, &values.iter().map(String::as_str).collect::<Vec<_>>())
}

// ENV-1, REL-3
#[test]
fn rel_3_any_bytes_are_netstrings_in_one_way_or_are_refused() {
    let good: Vec<Vec<u8>> = Kind::ALL.iter().map(|kind| canonical("eu", *kind, &values(*kind))).collect();
    let broken = (0..good.len(), changes()).prop_map(move |(at, changes)| damaged(&good[at], &changes));
    check(cases::NETSTRINGS, prop_oneof![3 => broken, 1 => noise()], |bytes| {
        match parse_netstrings(&bytes) {
            Ok(values) => {
                let mut again = Vec::new();
                values.iter().for_each(|value| push_netstring(&mut again, value));
                prop_assert!(again == bytes && values.len() <= 64);
            }
            Err(error) => is_told(&error)?,
        }
        Ok(())
    });
}

// ENV-5, REL-3
#[test]
fn rel_3_a_signature_that_was_changed_verifies_nothing() {
    let ring = keyring();
    let fields = ["t-1", "alice", "proxy-1", "1796000000000", "op-1"];
    let signature = ring.sign(Kind::Claim, &fields).as_str().to_owned();
    assert_eq!(signature.len(), SIGNATURE_BYTES);
    check(cases::SIGNATURES, (changes(), 0..fields.len(), any::<bool>()), |(changes, at, whole)| {
        let mut texts = fields.map(str::to_owned);
        let mut given = signature.clone();
        if whole {
            given = damaged_text(&given, &changes);
        } else {
            texts[at] = damaged_text(&texts[at], &changes);
        }
        let same = given == signature && texts.iter().eq(fields.iter());
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        match ring.verify(Kind::Claim, &texts, &given) {
            Ok(()) => prop_assert!(same, "{texts:?} {given}"),
            Err(failure) => {
                prop_assert!(!same);
                is_told(&failure)?;
            }
        }
        Ok(())
    });
}

// ENV-5, ENV-6, REL-3
#[test]
fn rel_3_a_wire_form_that_was_changed_is_refused_and_the_limit_holds() {
    let ring = keyring();
    let good: Vec<Vec<u8>> = Kind::ALL.iter().map(|kind| wire(*kind)).collect();
    let broken = (0..good.len(), changes()).prop_map({
        let good = good.clone();
        move |(at, changes)| damaged(&good[at], &changes)
    });
    check(cases::WIRES, (prop_oneof![7 => broken, 1 => noise()], 0..2_000_usize), |(bytes, max)| {
        for max in [max, usize::MAX] {
            match ring.from_wire(&bytes, max) {
                Ok(wire) => {
                    prop_assert!(good.contains(&bytes) && bytes.len() <= max);
                    prop_assert_eq!(wire.fields.len(), wire.kind.fields().len());
                }
                Err(failure) => is_told(&failure)?,
            }
        }
        Ok(())
    });
}

// ENV-7, R-27, REL-3: no time of a message and no step of the clock makes it forget its bound or take a message twice.
#[test]
fn rel_3_the_replay_window_holds_its_bounds_at_every_time() {
    const CAPACITY: usize = 4;
    let time = prop_oneof![
        2 => 1_796_000_000_000..1_796_000_000_004_u64,
        1 => any::<u64>(),
        1 => prop::sample::select(vec![0, 1, REPLAY_WINDOW_MS, u64::MAX - 1, u64::MAX]),
    ];
    let message = (0..3_u8, time.clone(), time);
    check(cases::REPLAYS, prop::collection::vec(message, 1..12), |messages| {
        let mut window = ReplayWindow::new(REPLAY_WINDOW_MS, CAPACITY);
        let mut taken = Vec::new();
        for (nonce, sent_at, now) in messages {
            match window.check("p1", &nonce.to_string(), sent_at, now) {
                Ok(()) => {
                    prop_assert!(sent_at.abs_diff(now) <= REPLAY_WINDOW_MS);
                    prop_assert!(!taken.contains(&(nonce, sent_at)), "taken twice");
                    taken.push((nonce, sent_at));
                }
                Err(refusal) => is_told(&refusal)?,
            }
            prop_assert!(window.len() <= CAPACITY);
        }
        Ok(())
    });
}
