use serde::Serialize;

use maitred::error::Result;
use maitred::ids::{LineName, NodeId, Player};
use maitred::queue::{Line, Ticket};

use super::super::Failure;
use super::super::context::Context;
use super::super::doubt::Doubts;
use super::super::view::{self, Grid, Tone};
use super::known::ZoneLines;
use super::standing::{self, Standing};

/// One line with its first players.
#[derive(Debug, Serialize)]
struct Shown {
    zone: String,
    as_of: u64,
    #[serde(flatten)]
    standing: Standing,
    serial: u64,
    heads: Vec<Head>,
    dropped: Vec<Dropped>,
    not_believed: Doubts,
}

#[derive(Debug, Serialize)]
struct Head {
    position: u64,
    player: Player,
    lane: u16,
    proxy: NodeId,
    waiting_ms: u64,
    attributes: String,
}

#[derive(Debug, Serialize)]
struct Dropped {
    player: Player,
    proxy: NodeId,
    left_ms: u64,
}

/// Shows one line, at most `limit` of those who wait and of those who dropped.
pub(super) async fn run(context: &Context, name: &LineName, limit: usize) -> Result<(), Failure> {
    let zone = ZoneLines::open_to_read(context).await?;
    zone.say_defaults(std::slice::from_ref(name));
    let line = zone.line(name)?;
    let mut not_believed = Doubts::default();
    let admitters = standing::admitters(&zone.store, &zone.verifier, context.limits(), &mut not_believed).await?;
    let standing = Standing::of(&zone, &line, &admitters).await?;
    let heads = heads(&zone, &line, limit, &mut not_believed).await?;
    let dropped = dropped(&zone, &line, limit, &mut not_believed).await?;
    let shown = Shown {
        zone: zone.store.keys().zone().to_string(),
        as_of: zone.store.clock().now_ms(),
        serial: standing.serial,
        standing,
        heads,
        dropped,
        not_believed,
    };
    if context.json {
        view::json(&shown);
    } else {
        shown.print();
    }
    Ok(())
}

async fn heads(zone: &ZoneLines, line: &Line, limit: usize, doubts: &mut Doubts) -> Result<Vec<Head>> {
    let players = line.positions(u64::try_from(limit).unwrap_or(u64::MAX)).await?;
    let now = zone.store.clock().now_ms();
    let tickets = tickets(zone, line.name(), &players, doubts).await?;
    let places = (1_u64..).zip(players.iter().zip(tickets));
    let head = |(position, (player, ticket)): (u64, (&Player, Option<Ticket>))| {
        let ticket = ticket?;
        Some(Head {
            position,
            player: player.clone(),
            lane: ticket.lane,
            waiting_ms: waiting_ms(&ticket, now),
            proxy: ticket.holder.id,
            attributes: ticket.attributes.as_str().to_owned(),
        })
    };
    Ok(places.filter_map(head).collect())
}

async fn dropped(zone: &ZoneLines, line: &Line, limit: usize, doubts: &mut Doubts) -> Result<Vec<Dropped>> {
    let away = zone.store.first_scores(zone.store.keys().away(line.name()), limit).await?;
    let away: Vec<(Player, f64)> =
        away.into_iter().filter_map(|(player, score)| Some((Player::new(&player).ok()?, score))).collect();
    let players: Vec<Player> = away.iter().map(|(player, _)| player.clone()).collect();
    let tickets = tickets(zone, line.name(), &players, doubts).await?;
    let now = zone.store.clock().now_ms();
    let one = |((player, goes_at), ticket): ((Player, f64), Option<Ticket>)| {
        let left_ms = maitred::node::roster::score_ms(goes_at).saturating_sub(now);
        Some(Dropped { player, proxy: ticket?.holder.id, left_ms })
    };
    Ok(away.into_iter().zip(tickets).filter_map(one).collect())
}

/// The tickets of `players`, in their order; none where there is none, or where it is not believed.
pub(super) async fn tickets(
    zone: &ZoneLines,
    line: &LineName,
    players: &[Player],
    doubts: &mut Doubts,
) -> Result<Vec<Option<Ticket>>> {
    if players.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = players.iter().map(Player::as_str).collect();
    let row = zone.store.fields(&[zone.store.keys().tickets(line)], &names).await?.pop().unwrap_or_default();
    let read = |player: &Player| {
        let ticket = Ticket::verified(&zone.verifier, line, player, row.get(player.as_str())?);
        ticket.inspect_err(|error| doubts.add(format!("tickets:{line} {player}"), error)).ok()
    };
    Ok(players.iter().map(read).collect())
}

/// The sequence is the store's ms of the first enter, and ahead of it where many entered in the same one; the ticket is
/// signed anew where another proxy takes it.
pub(super) fn waiting_ms(ticket: &Ticket, now_ms: u64) -> u64 {
    now_ms.saturating_sub(ticket.seq.min(ticket.joined_at_ms))
}

impl Shown {
    fn print(&self) {
        self.standing.print(self.as_of);
        if !self.heads.is_empty() {
            let mut grid = Grid::new(&["POSITION", "PLAYER", "WAITS", "PROXY", "LANE", "ATTRIBUTES"]).optional(2);
            for head in &self.heads {
                grid.row([
                    (head.position.to_string(), Tone::Plain),
                    (head.player.to_string(), Tone::Plain),
                    (view::ago(head.waiting_ms), Tone::Plain),
                    (head.proxy.to_string(), Tone::Plain),
                    (head.lane.to_string(), Tone::Dim),
                    (head.attributes.clone(), Tone::Dim),
                ]);
            }
            grid.print();
        }
        if !self.dropped.is_empty() {
            let mut grid = Grid::new(&["AWAY", "PLACE IS KEPT FOR", "WAS AT"]);
            for one in &self.dropped {
                grid.row([
                    (one.player.to_string(), Tone::Plain),
                    (view::ago(one.left_ms), Tone::Plain),
                    (one.proxy.to_string(), Tone::Dim),
                ]);
            }
            grid.print();
        }
        let text = |what: &str, shown: usize, all: u64| {
            let more = all.saturating_sub(u64::try_from(shown).unwrap_or(u64::MAX));
            (more > 0).then(|| format!("{more} more {what} are not shown (--limit)"))
        };
        let standing = &self.standing;
        let more = [
            text("who wait", self.heads.len(), standing.waiting),
            text("who dropped", self.dropped.len(), standing.away),
        ];
        more.iter().flatten().for_each(|text| view::line(text));
        self.not_believed.lines().iter().for_each(|line| view::line(line));
    }
}

impl Standing {
    /// The line without its players.
    pub(super) fn print(&self, now_ms: u64) {
        let mut grid = Grid::new(&["LINE", self.line.as_str()]);
        let mut row = |name: &str, (text, tone): (String, Tone)| grid.row([(name.to_owned(), Tone::Dim), (text, tone)]);
        row("waiting", (self.waiting.to_string(), Tone::Plain));
        if let [_, _, ..] = self.lanes.as_slice() {
            for (number, lane) in self.lanes.iter().enumerate() {
                let text = format!("{}, served by weight {}", lane.waiting, lane.weight);
                row(&format!("lane {number}"), (text, Tone::Plain));
            }
        }
        row("away", (self.away.to_string(), Tone::Plain));
        row("gate", self.gate_text(now_ms));
        if let Some(gate) = &self.gate {
            row("rate", (self.rate_text(), Tone::Plain));
            row("bucket", (view::counted(gate.open, "admission"), Tone::Dim));
            row("admitted", (self.admitted_text(), Tone::Plain));
            row("estimate", (self.estimate_text(), Tone::Plain));
            row("admitters", self.admitters_text());
            row("last serial", (self.serial.to_string(), Tone::Dim));
        }
        grid.print();
    }
}
