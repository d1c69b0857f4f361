use serde::Serialize;
use serde_json::value::RawValue;

use maitred::ids::{Epoch, NodeId, Player, RequestId, TokenId};
use maitred::store::Row;
use maitred::token::{TokenRow, TokenState};

use super::super::Failure;
use super::super::context::Context;
use super::super::view::{self, Grid, Tone};
use super::{ShownClaim, left_ms, when, with_advice};

/// Characters of a payload in the table.
const PAYLOAD_SHOWN: usize = 80;

/// Everything about one player's row.
#[derive(Debug, Serialize)]
struct Whole {
    player: Player,
    as_of: u64,
    token: Option<Shown>,
    previous: Vec<Previous>,
    cancelled: Vec<Cancelled>,
}

#[derive(Debug, Serialize)]
struct Shown {
    id: TokenId,
    state: TokenState,
    overdue: bool,
    server: NodeId,
    server_epoch: Epoch,
    request: RequestId,
    attempt: u32,
    payload: Box<RawValue>,
    issued_at: u64,
    expires_at: u64,
    age_ms: u64,
    expires_in_ms: i64,
    claim: Option<ShownClaim>,
    last_claim: Option<ShownClaim>,
    reason: Option<String>,
    consumed_at: Option<u64>,
}

/// A token that ended before this one. Not signed.
#[derive(Debug, Serialize)]
struct Previous {
    id: String,
    end: String,
    operation: Option<String>,
    request: Option<String>,
    attempt: Option<u64>,
}

/// A request that was cancelled. Not signed.
#[derive(Debug, Serialize)]
struct Cancelled {
    request: String,
    at: Option<u64>,
}

/// Shows one player's row, whatever its state.
pub(super) async fn run(context: &Context, player: &Player) -> Result<(), Failure> {
    let (store, verifier) = context.fleet_to_read().await?;
    let row = store.row(store.keys().token(player)).await?;
    let now = store.clock().now_ms();
    let token = TokenRow::from_row(&verifier, player, &row).map_err(|error| with_advice(error, &store, player))?;
    let whole = Whole {
        player: player.clone(),
        as_of: now,
        token: token.map(|token| Shown::new(token, now)),
        previous: previous(&row),
        cancelled: cancelled(&row),
    };
    if context.json {
        view::json(&whole);
    } else {
        whole.print();
    }
    Ok(())
}

/// `<id>:<end>:<operation>:<request>:<attempt>`, newest first, by blanks.
fn previous(row: &Row) -> Vec<Previous> {
    let known = |text: Option<&str>| text.filter(|text| *text != "-" && !text.is_empty()).map(str::to_owned);
    row.text("previous")
        .split_ascii_whitespace()
        .map(|entry| {
            let mut parts = entry.split(':');
            Previous {
                id: parts.next().unwrap_or_default().to_owned(),
                end: parts.next().unwrap_or_default().to_owned(),
                operation: known(parts.next()),
                request: known(parts.next()),
                attempt: parts.next().and_then(|text| text.parse().ok()),
            }
        })
        .collect()
}

/// `<request>@<store ms>` by blanks.
fn cancelled(row: &Row) -> Vec<Cancelled> {
    let marks = row.text("cancelled").split_ascii_whitespace();
    marks
        .map(|mark| {
            let (request, at) = mark.split_once('@').unwrap_or((mark, ""));
            Cancelled { request: request.to_owned(), at: at.parse().ok() }
        })
        .collect()
}

impl Shown {
    fn new(row: TokenRow, now_ms: u64) -> Self {
        Self {
            overdue: row.state.is_open() && !row.is_live(now_ms),
            age_ms: now_ms.saturating_sub(row.token.issued_at_ms),
            expires_in_ms: left_ms(row.token.expires_at_ms, now_ms),
            id: row.token.id,
            state: row.state,
            server: row.token.server,
            server_epoch: row.token.server_epoch,
            request: row.token.request,
            attempt: row.token.attempt,
            payload: row.token.payload,
            issued_at: row.token.issued_at_ms,
            expires_at: row.token.expires_at_ms,
            claim: row.claim.map(ShownClaim::from),
            last_claim: row.last_claim.map(ShownClaim::from),
            reason: row.reason,
            consumed_at: row.consumed_at_ms,
        }
    }

    fn print(&self, player: &Player, now_ms: u64) {
        let mut grid = Grid::new(&["TOKEN OF", player.as_str()]);
        let mut row = |name: &str, text: String, tone: Tone| grid.row([(name.to_owned(), Tone::Dim), (text, tone)]);
        let (state, tone) = match self.state {
            state if self.overdue => (format!("{state}, but its time is over: it counts as EXPIRED"), Tone::Warn),
            TokenState::Pending => ("PENDING: any proxy may claim it".to_owned(), Tone::Plain),
            TokenState::Claimed => ("CLAIMED: a proxy moves the player".to_owned(), Tone::Good),
            TokenState::Consumed => ("CONSUMED: the player took the place".to_owned(), Tone::Good),
            TokenState::Released => ("RELEASED: the place went back".to_owned(), Tone::Warn),
            TokenState::Expired => ("EXPIRED: the place went back".to_owned(), Tone::Warn),
        };
        row("state", state, tone);
        if let Some(reason) = &self.reason {
            row("reason", reason.clone(), Tone::Plain);
        }
        row("server", format!("{} (epoch {})", self.server, self.server_epoch), Tone::Plain);
        if let Some(claim) = &self.claim {
            row("claimed by", claim.text(now_ms), Tone::Plain);
        }
        if let Some(claim) = &self.last_claim {
            row("last claim", format!("{}, reopened since", claim.text(now_ms)), Tone::Plain);
        }
        if let Some(at) = self.consumed_at {
            row("consumed", when(left_ms(at, now_ms)), Tone::Plain);
        }
        row("issued", format!("{} ago", view::ago(self.age_ms)), Tone::Plain);
        row("expires", when(self.expires_in_ms), Tone::Plain);
        row("request", format!("{}, attempt {}", self.request, self.attempt), Tone::Plain);
        row("token", self.id.to_string(), Tone::Dim);
        row("payload", view::cut(self.payload.get(), PAYLOAD_SHOWN), Tone::Dim);
        grid.print();
    }
}

impl ShownClaim {
    fn text(&self, now_ms: u64) -> String {
        let epoch = match self.claimant_epoch {
            Epoch::NONE => "a router without a lease".to_owned(),
            epoch => format!("epoch {epoch}"),
        };
        format!("{} ({epoch}) {}", self.claimant, when(left_ms(self.claimed_at, now_ms)))
    }
}

impl Whole {
    fn print(&self) {
        match &self.token {
            Some(token) => token.print(&self.player, self.as_of),
            None => view::line(&format!("{} has no token", self.player)),
        }
        if !self.previous.is_empty() {
            let mut grid = Grid::new(&["BEFORE IT", "END", "REQUEST", "ATTEMPT"]);
            for ended in &self.previous {
                grid.row([
                    (ended.id.clone(), Tone::Dim),
                    (ended.end.clone(), Tone::Plain),
                    (ended.request.clone().unwrap_or_default(), Tone::Dim),
                    (ended.attempt.map(|attempt| attempt.to_string()).unwrap_or_default(), Tone::Dim),
                ]);
            }
            grid.print();
        }
        for mark in &self.cancelled {
            let at = mark.at.map(|at| format!(" {}", when(left_ms(at, self.as_of)))).unwrap_or_default();
            view::line(&format!("request {} was cancelled{at}", view::plain(&mark.request)));
        }
    }
}
