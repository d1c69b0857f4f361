//! `tests/vectors/queue.json` (ENV-8): tickets and passes as they stand in the store, and sealed passes. The file is made
//! here: `MAITRED_WRITE_VECTORS=1 cargo test --test tools queue_vectors` writes it, every other run compares. Another language
//! that reads them can join the same lines.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use maitred::envelope::{Keyring, Kind, Purpose, Secret, canonical, parse_netstrings, push_netstring};
use maitred::ids::{Epoch, LineName, NodeEpoch, NodeId, OperationId, Player, SessionId, Zone};
use maitred::queue::{Attributes, LoginPass, PassRefusal, PassRow, Ticket, TicketText};
use maitred::store::{Row, Verifier};
use serde_json::{Value, json};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/queue.json");
const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn secret() -> Secret {
    Secret::from_base64("VECTOR", SECRET).unwrap()
}

fn verifier() -> Verifier {
    Verifier::new(Keyring::new(Zone::new("eu").unwrap(), secret(), Vec::new()))
}

fn node(name: &str) -> Option<NodeId> {
    (!name.is_empty()).then(|| NodeId::new(name).unwrap())
}

fn ticket(player: &str, seq: u64, lane: u16, attributes: &str) -> Value {
    let mut ticket = Ticket {
        line: LineName::new("login").unwrap(),
        player: Player::new(player).unwrap(),
        seq,
        lane,
        holder: NodeEpoch { id: NodeId::new("proxy-1").unwrap(), epoch: Epoch(1_796_000_000_000) },
        session: SessionId::new("s-1").unwrap(),
        joined_at_ms: 1_796_000_000_250,
        attributes: Attributes::new(attributes).unwrap(),
        sig: String::new(),
    };
    ticket.sign(&verifier());
    json!({ "line": "login", "player": player, "text": ticket.text(), "score": (u64::from(lane) << 42) + seq })
}

fn pass(player: &str, server: &str, link: &str) -> LoginPass {
    LoginPass {
        line: LineName::new("login").unwrap(),
        player: Player::new(player).unwrap(),
        server: node(server),
        link: node(link),
        serial: 1_796_000_000_250_001,
        expires_at_ms: 1_796_001_800_250,
        op: OperationId::new("op-2").unwrap(),
    }
}

/// The netstrings that are sealed.
fn plain(pass: &LoginPass) -> Vec<u8> {
    let text = |id: &Option<NodeId>| id.as_ref().map(ToString::to_string).unwrap_or_default();
    let fields = [
        "1".to_owned(),
        pass.line.to_string(),
        pass.player.to_string(),
        text(&pass.server),
        text(&pass.link),
        pass.serial.to_string(),
        pass.expires_at_ms.to_string(),
        pass.op.to_string(),
    ];
    let mut plain = Vec::new();
    fields.iter().for_each(|field| push_netstring(&mut plain, field.as_bytes()));
    plain
}

/// Sealed with a nonce of our own choice, by the cipher alone: the documents lead to the same text.
fn sealed(pass: &LoginPass, nonce: u8) -> String {
    let (key, nonce) = (secret().derive(Purpose::Seal), [nonce; 24]);
    let mut bound = Vec::new();
    ["maitred/1", "eu", "pass"].iter().for_each(|part| push_netstring(&mut bound, part.as_bytes()));
    let payload = Payload { msg: &plain(pass), aad: &bound };
    let cipher = XChaCha20Poly1305::new((&*key).into());
    let bytes = [nonce.to_vec(), cipher.encrypt(XNonce::from_slice(&nonce), payload).unwrap()].concat();
    format!("{}.{}", secret().kid(), URL_SAFE_NO_PAD.encode(bytes))
}

fn row(pass: &LoginPass) -> Value {
    let text = |id: &Option<NodeId>| id.as_ref().map(ToString::to_string).unwrap_or_default();
    let (server, link, expires_at) = (text(&pass.server), text(&pass.link), pass.expires_at_ms.to_string());
    let fields = [pass.line.as_str(), pass.player.as_str(), &server, &link, &expires_at, pass.op.as_str(), "1"];
    let sig = verifier().keyring().sign(Kind::Pass, &fields).to_string();
    json!({
        "serial": pass.serial.to_string(), "server": server, "link": link, "expires_at": expires_at,
        "op": pass.op.as_str(), "v": "1", "sig": sig, "seq": "1796000000001", "lane": "0",
        "canonical": String::from_utf8(canonical("eu", Kind::Pass, &fields)).unwrap(),
    })
}

fn file() -> Value {
    let passes = [pass("alice", "backend-1", "link-1"), pass("玩家-Ω", "backend-1", ""), pass("bob", "", "link-1")];
    let made = passes.iter().zip(1_u8..).map(|(pass, nonce)| {
        json!({
            "line": "login", "player": pass.player.as_str(), "row": row(pass),
            "plain": String::from_utf8(plain(pass)).unwrap(), "sealed": sealed(pass, nonce),
        })
    });
    json!({
        "secret": SECRET, "zone": "eu",
        "tickets": [
            ticket("alice", 1_796_000_000_001, 0, ""),
            ticket("玩家-Ω", 1_796_000_000_002, 2_047, "vip from lobby 2"),
            ticket("b5f2e0c4-0d9e-4a7e-9a51-7d3f5a1c0e42", 1_796_000_000_003, 1, &"x".repeat(64)),
        ],
        "passes": made.collect::<Vec<_>>(),
    })
}

// ENV-8: with a stale file another implementation is locked out of the lines and nobody here notices.
#[test]
fn env_8_the_file_is_what_this_build_writes() {
    let text = serde_json::to_string_pretty(&file()).unwrap() + "\n";
    if std::env::var_os("MAITRED_WRITE_VECTORS").is_some() {
        std::fs::write(PATH, &text).unwrap();
    }
    let found = std::fs::read_to_string(PATH).unwrap();
    assert!(found == text, "{PATH} is stale; MAITRED_WRITE_VECTORS=1 cargo test --test tools queue_vectors writes it");
}

// ENV-8, QUE-7
#[test]
fn env_8_what_stands_in_the_file_is_read_and_opened() {
    let (verifier, line) = (verifier(), LineName::new("login").unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for vector in file()["tickets"].as_array().unwrap() {
        let player = Player::new(text(&vector["player"])).unwrap();
        let TicketText::Good(ticket) = Ticket::read(&verifier, &line, &player, &text(&vector["text"])) else {
            panic!("{vector}")
        };
        assert_eq!(ticket.text(), text(&vector["text"]));
    }
    for vector in file()["passes"].as_array().unwrap() {
        let player = Player::new(text(&vector["player"])).unwrap();
        let row: Row = vector["row"].as_object().unwrap().iter().map(|(name, value)| (name, text(value))).collect();
        let row = PassRow::from_row(&verifier, &line, &player, &row).unwrap().expect("a pass");
        let me = row.pass.server.clone().or(row.pass.link.clone()).unwrap();
        let sealed = text(&vector["sealed"]);
        assert_eq!(LoginPass::verify(&verifier, &sealed, &me, &player, 1_796_000_000_300), Ok(row.pass.clone()));
        let late = LoginPass::verify(&verifier, &sealed, &me, &player, row.pass.expires_at_ms);
        assert_eq!(late, Err(PassRefusal::Expired));
        assert_eq!(parse_netstrings(text(&vector["plain"]).as_bytes()).unwrap().len(), 8);
    }
}
