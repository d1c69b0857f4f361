//! `tests/vectors/envelope.json` (ENV-8): what another language checks its signatures against. The file is made here:
//! `MAITRED_WRITE_VECTORS=1 cargo test --test tools vectors` writes it, every other run compares.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use maitred::envelope::{Keyring, Kind, Purpose, Secret, canonical, parse_netstrings};
use maitred::ids::Zone;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/envelope.json");
const EXAMPLE_SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

#[derive(Deserialize)]
struct File {
    vectors: Vec<Vector>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Vector {
    secret: String,
    zone: String,
    kind: String,
    fields: Vec<(String, String)>,
    canonical: String,
    signature: String,
}

impl Vector {
    fn values(&self) -> Vec<&str> {
        self.fields.iter().map(|(_, value)| value.as_str()).collect()
    }
}

fn make(secret: &str, zone: &str, kind: Kind, values: &[&str]) -> Vector {
    assert_eq!(values.len(), kind.fields().len(), "{kind:?}: {values:?}");
    let keyring = Keyring::new(Zone::new(zone).unwrap(), Secret::from_base64("VECTOR", secret).unwrap(), vec![]);
    let names = kind.fields().iter().map(|name| (*name).to_owned());
    Vector {
        secret: secret.to_owned(),
        zone: zone.to_owned(),
        kind: kind.as_str().to_owned(),
        fields: names.zip(values.iter().map(|value| (*value).to_owned())).collect(),
        canonical: String::from_utf8(canonical(zone, kind, values)).unwrap(),
        signature: keyring.sign(kind, values).to_string(),
    }
}

fn vectors() -> Vec<Vector> {
    let example = |kind, values: &[&str]| make(EXAMPLE_SECRET, "eu", kind, values);
    // Longer than one block of the hash, so that HKDF's own HMAC hashes its input in more than one step.
    let long = STANDARD.encode((0..=199).collect::<Vec<u8>>());
    let without_padding = STANDARD_NO_PAD.encode([0xff; 32]);
    let odd = STANDARD.encode([0xa5; 33]);
    let (e1, e2, t1) = ("1796000000000", "1796000012345", "1796000000250");
    let text_of_300 = "0123456789".repeat(30);

    vec![
        example(Kind::Claim, &["t-1", "alice", "proxy-1", e1, "op-1"]),
        // Every kind as it usually looks.
        example(
            Kind::Node,
            &[
                "backend-1",
                "backend",
                "10.0.0.7:25565",
                e1,
                "01997c0e5a5b7f2a9d0c4f1e2b3a4c5d",
                "42",
                t1,
                "running",
                "1",
                "0",
                "17",
                "100",
                r#"{"cpu":0.25,"mem":0.5}"#,
                r#"["inventory","chat"]"#,
                r#"{"region":"eu-west"}"#,
                "1",
            ],
        ),
        example(Kind::Token, &["t-1", "alice", "backend-1", e1, "r-1", "1", r#"{"slot":7}"#, t1, e2, "1"]),
        example(Kind::Route, &["world", "w-1", "backend-1", e1, e2, "1"]),
        // A record of an object that nobody owns.
        example(Kind::Route, &["world", "w-1", "", "0", e2, "1"]),
        example(Kind::Object, &["world", "w-1", "3", e2, "AAECAw==", "1"]),
        example(Kind::Ticket, &["lobby", "alice", "0", "proxy-1", e1, "s-1", t1, "{}", "1"]),
        example(
            Kind::Message,
            &[
                "proxy-1",
                e1,
                "proxy-1",
                e1,
                "backend-1",
                e2,
                "places",
                "reserve",
                "c-1",
                "0",
                "",
                t1,
                "n-1",
                e2,
                r#"{"player":"alice","request":"r-1"}"#,
                "1",
            ],
        ),
        // To an object, passed on once: signed by the forwarder, and else as its origin sent it.
        example(
            Kind::Message,
            &[
                "proxy-1",
                e1,
                "backend-1",
                e2,
                "backend-2",
                e2,
                "object.world",
                "dig",
                "c-1",
                "1",
                "1796000012345:world:w-1",
                t1,
                "n-1",
                e2,
                "{}",
                "1",
            ],
        ),
        example(Kind::Reply, &["c-1", "backend-1", e2, "proxy-1", e1, "ok", t1, "n-2", r#"{"place":"p-9"}"#, "1"]),
        example(Kind::Pass, &["lobby", "alice", "backend-1", "link-1", e2, "op-2", "1"]),
        example(Kind::Control, &["kill", "on", e1, "ops", t1, "1"]),
        example(Kind::Control, &["drain:backend-1", "on", e2, "ops", t1, "1"]),
        // Empty values.
        example(Kind::Claim, &["", "", "", "", ""]),
        example(Kind::Message, &["", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "1"]),
        example(Kind::Node, &["b", "backend", "", "0", "i", "0", "0", "", "0", "0", "0", "0", "", "", "", "1"]),
        // Values that look like netstrings: the same characters with other boundaries.
        example(Kind::Claim, &["3:a,b", "1:x,", "0:,", ",,,:::", "12:"]),
        example(Kind::Claim, &["t-1,5:alice", "proxy-1", "", e1, "op-1"]),
        example(Kind::Claim, &["t-1", "alic", "eproxy-1", e1, "op-1"]),
        example(Kind::Token, &["t:1", "a,b", "1", "2", "3", "4", "5:6,7:8,", "9", "10", "1"]),
        // Text beyond ASCII: lengths count bytes, nothing is normalised.
        example(Kind::Claim, &["t-1", "Zoë", "proxy-1", e1, "op-1"]),
        example(Kind::Claim, &["t-1", "Zoe\u{308}", "proxy-1", e1, "op-1"]),
        example(Kind::Ticket, &["lobby", "玩家-Ω-🎮", "2047", "proxy-1", e1, "s-1", t1, r#"{"título":"señor"}"#, "1"]),
        example(Kind::Object, &["world", "w\"1\\", "1", e2, "line one\nline\ttwo\u{0}\u{7f}", "1"]),
        // Lengths of one, two and three digits; numbers of 64 bits.
        example(Kind::Object, &["k", "o12345678", "0", "18446744073709551615", &text_of_300, "1"]),
        example(Kind::Object, &["k", "o123456789", "9007199254740993", "0", &text_of_300[..99], "1"]),
        // Other zones and secrets.
        make(EXAMPLE_SECRET, "us", Kind::Claim, &["t-1", "alice", "proxy-1", e1, "op-1"]),
        make(EXAMPLE_SECRET, "Eu-West_1.test", Kind::Pass, &["lobby", "bob", "backend-2", "", e2, "op-3", "1"]),
        make(&long, "eu", Kind::Claim, &["t-1", "alice", "proxy-1", e1, "op-1"]),
        make(&without_padding, "eu", Kind::Claim, &["t-1", "alice", "proxy-1", e1, "op-1"]),
        make(&odd, "z", Kind::Control, &["config", r#"{"maintenance":true}"#, e2, "deploy", e1, "1"]),
    ]
}

// ENV-8: with a stale file another implementation is locked out and nobody here notices.
#[test]
fn env_8_the_file_is_what_this_build_signs() {
    // A vector a line, so that a change reads well.
    let lines: Vec<String> = vectors().iter().map(|vector| serde_json::to_string(vector).unwrap()).collect();
    let text = format!("{{\"vectors\":[\n{}\n]}}\n", lines.join(",\n"));
    if std::env::var_os("MAITRED_WRITE_VECTORS").is_some() {
        std::fs::write(PATH, &text).unwrap();
    }
    let found = std::fs::read_to_string(PATH).unwrap();
    assert!(found == text, "{PATH} is stale; MAITRED_WRITE_VECTORS=1 cargo test --test tools vectors writes it");
}

#[test]
fn env_8_the_file_covers_every_kind_and_each_signature_verifies() {
    let vectors = read();
    assert!(vectors.len() > 20);
    for kind in Kind::ALL {
        assert!(vectors.iter().any(|vector| vector.kind == kind.as_str()), "no vector of {kind:?}");
    }
    for vector in &vectors {
        let secret = Secret::from_base64("VECTOR", &vector.secret).unwrap();
        let keyring = Keyring::new(Zone::new(&vector.zone).unwrap(), secret, vec![]);
        let kind = Kind::from_name(vector.kind.as_bytes()).unwrap();
        let values = vector.values();
        assert_eq!(keyring.verify(kind, &values, &vector.signature), Ok(()), "{vector:?}");
        let parsed = parse_netstrings(vector.canonical.as_bytes()).unwrap();
        let expected: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        assert_eq!(parsed.get(3..), Some(expected.as_slice()));
        let wire = keyring.to_wire(kind, &values);
        let expected = format!("{}52:{},", vector.canonical, vector.signature);
        assert_eq!(String::from_utf8(wire).unwrap(), expected);
    }
    let distinct = |text: fn(&Vector) -> &str| vectors.iter().map(text).collect::<std::collections::HashSet<_>>().len();
    assert_eq!(distinct(|vector| &vector.signature), vectors.len());
}

// ENV-3, ENV-8: the digits of the contract, letter for letter.
#[test]
fn env_3_the_example_of_the_contract_comes_out() {
    let secret = Secret::from_base64("VECTOR", EXAMPLE_SECRET).unwrap();
    let mac = "1163bba95973d7471a63b2cda1c017c0fd19db351340b7aaf65d1f65e73e757f";
    let seal = "9bfb8eba59afd4e52afff848932f2c62829e6d88bdf3f9427aa5fb6567cb30e6";
    assert_eq!(hex::encode(*secret.derive(Purpose::Mac)), mac);
    assert_eq!(hex::encode(*secret.derive(Purpose::Seal)), seal);
    assert_eq!(secret.kid().as_str(), "5ebd00f2");
    let example = &read()[0];
    assert_eq!((example.zone.as_str(), example.kind.as_str()), ("eu", "claim"));
    assert_eq!(example.values(), ["t-1", "alice", "proxy-1", "1796000000000", "op-1"]);
    let canonical = "9:maitred/1,2:eu,5:claim,3:t-1,5:alice,7:proxy-1,13:1796000000000,4:op-1,";
    assert_eq!(example.canonical, canonical);
    assert_eq!(example.signature, "5ebd00f2.gcj4pOlQTCupGXNs2rL1d0lpqYHpUok1Q8a6xX3j6tg");
}

/// HMAC-SHA256 after RFC 2104, from the bare hash.
fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(data).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// The first 32 bytes of HKDF-SHA256 after RFC 5869, no salt.
fn hkdf(secret: &[u8], info: &str) -> [u8; 32] {
    hmac(&hmac(&[0; 32], secret), &[info.as_bytes(), &[1]].concat())
}

// ENV-8: the documents alone, without this crate's envelope, lead to the same signatures.
#[test]
fn env_8_a_second_implementation_agrees() {
    for vector in read() {
        let secret = STANDARD.decode(&vector.secret).or_else(|_| STANDARD_NO_PAD.decode(&vector.secret)).unwrap();
        let parts = ["maitred/1", &vector.zone, &vector.kind].into_iter().chain(vector.values());
        let canonical: String = parts.map(|part| format!("{}:{part},", part.len())).collect();
        assert_eq!(canonical, vector.canonical);
        let tag = URL_SAFE_NO_PAD.encode(hmac(&hkdf(&secret, "maitred/1 mac"), canonical.as_bytes()));
        let kid = hex::encode(&Sha256::digest([b"maitred/1 kid", secret.as_slice()].concat())[..4]);
        assert_eq!(format!("{kid}.{tag}"), vector.signature, "{vector:?}");
        let ours = Secret::from_base64("VECTOR", &vector.secret).unwrap();
        assert_eq!(*ours.derive(Purpose::Seal), hkdf(&secret, "maitred/1 seal"));
    }
}

fn read() -> Vec<Vector> {
    // While the file is being rewritten by the test that makes it, the others look at what it will hold.
    if std::env::var_os("MAITRED_WRITE_VECTORS").is_some() {
        return vectors();
    }
    serde_json::from_str::<File>(&std::fs::read_to_string(PATH).unwrap()).unwrap().vectors
}
