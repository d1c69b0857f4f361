//! CPU cost of the envelope: `cargo bench --bench envelope`.

use std::hint::black_box;

use divan::{Bencher, counter::BytesCount};
use maitred::envelope::{Keyring, Kind, REPLAY_WINDOW_MS, ReplayWindow, Secret};
use maitred::ids::Zone;

fn main() {
    divan::main();
}

const CLAIM: [&str; 5] = ["01997c0e5a5b7f2a9d0c4f1e2b3a4c5d", "alice", "proxy-1", "1796000000000", "op-1"];

fn keyring() -> Keyring {
    let secret = Secret::from_base64("BENCH", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a secret");
    Keyring::new(Zone::new("eu").expect("a zone"), secret, Vec::new())
}

fn message(body: &str) -> [&str; 16] {
    let (now, deadline, call) = ("1796000000000", "1796000005000", "01997c0e5a5b7f2a9d0c4f1e2b3a4c5d");
    let (from, to) = ("proxy-1", "backend-1");
    [from, now, from, now, to, now, "places", "reserve", call, "0", "", now, call, deadline, body, "1"]
}

#[divan::bench]
fn sign_claim(bencher: Bencher) {
    let keyring = keyring();
    bencher.bench(|| keyring.sign(Kind::Claim, black_box(&CLAIM)));
}

#[divan::bench]
fn verify_claim(bencher: Bencher) {
    let keyring = keyring();
    let signature = keyring.sign(Kind::Claim, &CLAIM);
    bencher.bench(|| keyring.verify(Kind::Claim, black_box(&CLAIM), signature.as_str()));
}

#[divan::bench(args = [100, 1_000, 16_000])]
fn message_to_wire(bencher: Bencher, body_bytes: usize) {
    let (keyring, body) = (keyring(), "x".repeat(body_bytes));
    let fields = message(&body);
    bencher.counter(BytesCount::new(body_bytes)).bench(|| keyring.to_wire(Kind::Message, black_box(&fields)));
}

#[divan::bench(args = [100, 1_000, 16_000])]
fn message_from_wire(bencher: Bencher, body_bytes: usize) {
    let (keyring, body) = (keyring(), "x".repeat(body_bytes));
    let wire = keyring.to_wire(Kind::Message, &message(&body));
    let check = || keyring.from_wire(black_box(&wire), wire.len()).map(|wire| wire.fields.len());
    bencher.counter(BytesCount::new(body_bytes)).bench(check);
}

#[divan::bench(args = [1_000, 100_000])]
fn replay_check_when_full(bencher: Bencher, capacity: usize) {
    let mut window = ReplayWindow::new(REPLAY_WINDOW_MS, capacity);
    let mut sent_at_ms = 1_796_000_000_000;
    let mut next = move || {
        sent_at_ms += 1;
        window.check("proxy-1", &sent_at_ms.to_string(), sent_at_ms, sent_at_ms)
    };
    for _ in 0..capacity {
        next().expect("new and young");
    }
    bencher.bench_local(next);
}
