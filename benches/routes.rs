//! CPU cost of routes: `cargo bench --bench routes`.

use std::hint::black_box;

use divan::Bencher;
use maitred::envelope::{Keyring, Secret};
use maitred::ids::{Epoch, NodeEpoch, NodeId, ObjectKey, Zone};
use maitred::node::Lease;
use maitred::route::rendezvous::{Candidate, place};
use maitred::route::{CacheTimes, Route, RouteBook, RouteState, RouteTable, RouteTimes, RouteVersion};
use maitred::store::{Store, StoreOptions, StoreUrl, Verifier};

fn main() {
    divan::main();
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::read(&format!("island:{number}")).expect("a key")
}

/// A table that knows so many routes; its store is never asked.
fn table(routes: usize) -> RouteTable {
    let zone = Zone::new("eu").expect("a zone");
    let secret = Secret::from_base64("BENCH", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a secret");
    let verifier = Verifier::new(Keyring::new(zone.clone(), secret, Vec::new()));
    let url = StoreUrl::parse("redis://127.0.0.1:1").expect("a URL");
    let store = Store::new(zone, StoreOptions::new(url)).expect("prepared");
    let node = NodeId::new("b1").expect("an id");
    let book = RouteBook::new(store, verifier, Lease::new(node.clone(), 1), RouteTimes::default());
    let table = RouteTable::new(book, CacheTimes::default());
    for number in 0..routes {
        let owner = Some(NodeEpoch { id: node.clone(), epoch: Epoch(7) });
        let version = RouteVersion(1_796_000_000_000);
        table.seed(Route { key: key(number), owner, version, saved_at_ms: 0, state: RouteState::Owned });
    }
    table
}

#[divan::bench(args = [100, 100_000])]
fn cached_lookup(bencher: Bencher, routes: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let (table, key) = (table(routes), key(routes / 2));
    bencher.bench(|| table.cached(black_box(&key)));
}

#[divan::bench(args = [10, 100])]
fn default_place(bencher: Bencher, nodes: usize) {
    let names: Vec<String> = (0..nodes).map(|node| format!("node-{node}")).collect();
    let candidates: Vec<Candidate<'_>> = names.iter().map(|node| Candidate { node, near: false }).collect();
    bencher.bench(|| place(black_box("island:one"), candidates.iter().copied()));
}
