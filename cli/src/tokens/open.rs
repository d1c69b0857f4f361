use serde::Serialize;

use maitred::error::Result;
use maitred::ids::{Epoch, NodeId, Player, RequestId, TokenId};
use maitred::store::{Key, Store, Verifier};
use maitred::token::{TokenRow, TokenState};

use super::super::Failure;
use super::super::context::Context;
use super::super::doubt::Doubts;
use super::super::view::{self, Grid, Tone};
use super::{ShownClaim, left_ms};

#[derive(Debug, Serialize)]
struct Listing {
    zone: String,
    as_of: u64,
    total: usize,
    tokens: Vec<Open>,
    unindexed: usize,
    not_believed: Doubts,
}

#[derive(Debug, Serialize)]
struct Open {
    player: Player,
    state: TokenState,
    /// Its time is over and no reaper has come by yet.
    overdue: bool,
    server: NodeId,
    server_epoch: Epoch,
    claim: Option<ShownClaim>,
    age_ms: u64,
    expires_in_ms: i64,
    id: TokenId,
    request: RequestId,
    attempt: u32,
}

/// Shows the open tokens of one server or of all, soonest expiry first.
pub(super) async fn run(context: &Context, server: Option<NodeId>, limit: usize) -> Result<(), Failure> {
    let (store, verifier) = context.fleet_to_read().await?;
    let servers = match server {
        Some(server) => vec![server],
        None => {
            let names = store.members(store.keys().due_servers()).await?;
            names.iter().filter_map(|name| NodeId::new(name).ok()).collect()
        }
    };
    let mut listing = Listing {
        zone: store.keys().zone().to_string(),
        as_of: store.clock().now_ms(),
        total: 0,
        tokens: Vec::new(),
        unindexed: 0,
        not_believed: Doubts::default(),
    };
    for server in &servers {
        listing.add(&store, &verifier, server).await?;
    }
    listing.tokens.sort_by(|a, b| (a.expires_in_ms, &a.player).cmp(&(b.expires_in_ms, &b.player)));
    listing.total = listing.tokens.len();
    listing.tokens.truncate(limit);
    if context.json {
        view::json(&listing);
    } else {
        listing.print();
    }
    Ok(())
}

impl Listing {
    async fn add(&mut self, store: &Store, verifier: &Verifier, server: &NodeId) -> Result<()> {
        let due = store.scores(store.keys().due(server)).await?;
        let players: Vec<Player> = due.into_iter().filter_map(|(player, _)| Player::new(player).ok()).collect();
        let keys: Vec<Key<'_>> = players.iter().map(|player| store.keys().token(player)).collect();
        let rows = store.rows_each(&keys).await?;
        for (player, row) in players.iter().zip(rows) {
            match row.and_then(|row| TokenRow::from_row(verifier, player, &row)) {
                Ok(Some(row)) if row.state.is_open() && row.token.server == *server => {
                    self.tokens.push(Open::new(row, self.as_of));
                }
                Ok(_) => self.unindexed += 1,
                Err(error) => self.not_believed.add(format!("token:{player}"), &error),
            }
        }
        Ok(())
    }

    fn print(&self) {
        if !self.tokens.is_empty() {
            let mut grid =
                Grid::new(&["PLAYER", "STATE", "SERVER", "CLAIMANT", "AGE", "EXPIRES IN", "REQUEST", "ATTEMPT"])
                    .optional(2);
            for token in &self.tokens {
                grid.row(token.cells());
            }
            grid.print();
        }
        let shown = match self.total - self.tokens.len() {
            0 => String::new(),
            more => format!("; {more} more that expire later are not shown (--limit)"),
        };
        view::line(&format!("zone {}: {}{shown}", self.zone, view::counted(self.total, "open token")));
        if self.unindexed > 0 {
            view::line(&format!("index entries without an open token: {}; `maitred reap` heals them", self.unindexed));
        }
        if let Some(line) = self.not_believed.line() {
            view::line(&line);
        }
    }
}

impl Open {
    fn new(row: TokenRow, now_ms: u64) -> Self {
        Self {
            overdue: !row.is_live(now_ms),
            age_ms: now_ms.saturating_sub(row.token.issued_at_ms),
            expires_in_ms: left_ms(row.token.expires_at_ms, now_ms),
            state: row.state,
            claim: row.claim.map(ShownClaim::from),
            player: row.token.player,
            server: row.token.server,
            server_epoch: row.token.server_epoch,
            id: row.token.id,
            request: row.token.request,
            attempt: row.token.attempt,
        }
    }

    fn cells(&self) -> [(String, Tone); 8] {
        let state = if self.state == TokenState::Claimed { Tone::Good } else { Tone::Plain };
        let expires = if self.overdue {
            (format!("over since {}", view::ago(self.expires_in_ms.unsigned_abs())), Tone::Bad)
        } else {
            (view::ago(self.expires_in_ms.unsigned_abs()), Tone::Plain)
        };
        [
            (self.player.to_string(), Tone::Plain),
            (self.state.to_string(), state),
            (self.server.to_string(), Tone::Plain),
            (self.claim.as_ref().map_or_else(|| "-".to_owned(), |claim| claim.claimant.to_string()), Tone::Plain),
            (view::ago(self.age_ms), Tone::Plain),
            expires,
            (self.request.to_string(), Tone::Dim),
            (self.attempt.to_string(), Tone::Dim),
        ]
    }
}
