//! A backend with twenty places in a lobby. Each line on stdin (a player's name) is a join; it prints what the player gets.
//!
//! See `examples/proxy.rs` for the two commands that run both.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use maitred::agent::config::{Config, SecretUrl};
use maitred::agent::{Inventory, Offer, PlaceRequest, Redeemed, Setup};
use maitred::ids::{NodeId, Player, Region};
use maitred::node::LoadSample;
use serde_json::value::to_raw_value;

/// Seats by number.
struct Seats {
    region: Region,
    free: Mutex<Vec<u32>>,
}

impl Inventory for Seats {
    type Place = u32;

    async fn reserve(&self, request: &PlaceRequest) -> Option<Offer<u32>> {
        if request.region.as_ref().is_some_and(|region| *region != self.region) {
            return None;
        }
        let seat = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        // Whatever the join needs to know goes into the payload: coordinates, a team, a shard.
        let payload = to_raw_value(&serde_json::json!({ "seat": seat, "x": 16 * seat, "z": 0 })).ok()?;
        Some(Offer { place: seat, payload })
    }

    fn give_back(&self, seat: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(seat);
    }

    fn regions(&self) -> BTreeMap<Region, Option<u64>> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).len();
        BTreeMap::from([(self.region.clone(), u64::try_from(free).ok())])
    }
}

#[tokio::main]
async fn main() -> maitred::Result<()> {
    let mut config = Config { enabled: true, ..Config::default() };
    config.node.id = Some(NodeId::new("example-backend")?);
    config.store.url = SecretUrl::new("redis://127.0.0.1:6379");
    config.apply_env(|name| std::env::var(name).ok())?;

    let seats = Seats { region: Region::new("lobby")?, free: Mutex::new((0..20).collect()) };
    let backend = Setup::from_env(config)?.backend(seats, LoadSample::default)?;
    println!("joined with epoch {}", backend.agent().joined().await?);

    let (joins, mut lines) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if joins.blocking_send(line).is_err() {
                return;
            }
        }
    });
    loop {
        let name = tokio::select! {
            name = lines.recv() => name,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(name) = name else { break };
        match backend.redeem(&Player::new(name.trim())?).await? {
            Redeemed::Landed { place, payload, .. } => println!("{name} takes seat {place}: {payload}"),
            Redeemed::None => println!("{name} joins without a reservation"),
            Redeemed::Refused(why) => println!("{name} is refused: {}", why.as_str()),
        }
    }
    backend.leave().await;
    Ok(())
}
