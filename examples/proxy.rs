//! A proxy that turns each line on stdin (a player's name) into a place, and prints where it would move the player.
//!
//! ```sh
//! export MAITRED_SECRET=$(head -c 32 /dev/urandom | base64)   # the same in both terminals
//! cargo run --example backend            # in one terminal
//! echo alice | cargo run --example proxy # in another
//! ```

use std::time::Duration;

use maitred::agent::config::{Config, SecretUrl};
use maitred::agent::{Mover, Outcome, Request, Setup, Transfer};
use maitred::ids::{NodeId, Player, Role};
use maitred::node::LoadSample;

/// Moving a player is the application's part; here it is a line.
struct Print;

impl Mover for Print {
    async fn move_player(&self, transfer: &Transfer) -> Result<(), String> {
        // Right before the move: is there still time?
        if transfer.left_ms() == 0 {
            return Err("too late".to_owned());
        }
        println!("{} -> {} at {} with {}", transfer.player, transfer.server, transfer.addr, transfer.payload());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> maitred::Result<()> {
    let mut config = Config { enabled: true, ..Config::default() };
    config.node.role = Role::proxy();
    config.node.id = Some(NodeId::new("example-proxy")?);
    config.store.url = SecretUrl::new("redis://127.0.0.1:6379");
    config.apply_env(|name| std::env::var(name).ok())?;

    let proxy = Setup::from_env(config)?.proxy(LoadSample::default)?;
    let epoch = proxy.agent().joined().await?;
    println!("joined with epoch {epoch}");
    // The directory is read right after the join.
    while proxy.agent().directory().is_stale() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    for name in std::io::stdin().lines().map_while(Result::ok) {
        let request = Request::new(Player::new(name.trim())?);
        if let Outcome::Refused(refusal) = proxy.send(request, &Print).await {
            println!("{name}: {} ({}: {})", refusal.message, refusal.reason, refusal.detail);
        }
    }
    proxy.leave().await;
    Ok(())
}
