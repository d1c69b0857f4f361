use serde::Serialize;

use maitred::ids::{Epoch, LineName, NodeId, Player, SessionId};
use maitred::queue::{PassRow, Position, Ticket};
use maitred::store::Row;

use super::super::Failure;
use super::super::context::Context;
use super::super::doubt::Doubts;
use super::super::view::{self, Grid, Tone};
use super::known::ZoneLines;
use super::show::{tickets, waiting_ms};

/// One player, seen from the line.
#[derive(Debug, Serialize)]
struct Whole {
    line: LineName,
    player: Player,
    as_of: u64,
    state: State,
    place: Option<Standing>,
    left_ms: Option<u64>,
    ticket: Option<ShownTicket>,
    pass: Option<ShownPass>,
    not_believed: Doubts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Waiting,
    Away,
    Admitted,
    None,
}

#[derive(Debug, Serialize)]
struct Standing {
    position: u64,
    lane: u16,
    estimate_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ShownTicket {
    proxy: NodeId,
    proxy_epoch: Epoch,
    session: SessionId,
    seq: u64,
    waiting_ms: u64,
    attributes: String,
}

#[derive(Debug, Serialize)]
struct ShownPass {
    serial: u64,
    server: Option<NodeId>,
    link: Option<NodeId>,
    /// 0 where it is over.
    expires_in_ms: u64,
    arrived: bool,
    redeemed: bool,
    void: bool,
}

/// Shows where a player stands in a line, whatever that is.
pub(super) async fn run(context: &Context, name: &LineName, player: &Player) -> Result<(), Failure> {
    let zone = ZoneLines::open_to_read(context).await?;
    zone.say_defaults(std::slice::from_ref(name));
    let line = zone.line(name)?;
    let mut not_believed = Doubts::default();
    let place = line.position(player).await?;
    let ticket = tickets(&zone, name, std::slice::from_ref(player), &mut not_believed).await?.pop().flatten();
    let pass_name = format!("{name}:{player}");
    let row = zone.store.row(zone.store.keys().pass(&pass_name)).await?;
    let pass = PassRow::from_row(&zone.verifier, name, player, &row).unwrap_or_else(|error| {
        not_believed.add(format!("pass:{pass_name}"), &error);
        None
    });
    let now = zone.store.clock().now_ms();
    let pass = pass.map(|pass| ShownPass::new(pass, &row, now));
    let (state, place, left_ms) = match place {
        Position::Waiting { lane, position, estimate_ms, .. } => {
            (State::Waiting, Some(Standing { position, lane, estimate_ms }), None)
        }
        Position::Away { left_ms } => (State::Away, None, Some(left_ms)),
        Position::None if pass.as_ref().is_some_and(|pass| !pass.void && pass.expires_in_ms > 0) => {
            (State::Admitted, None, None)
        }
        Position::None => (State::None, None, None),
    };
    let ticket = ticket.map(|ticket| ShownTicket::new(&ticket, now));
    let whole = Whole {
        line: name.clone(),
        player: player.clone(),
        as_of: now,
        state,
        place,
        left_ms,
        ticket,
        pass,
        not_believed,
    };
    if context.json {
        view::json(&whole);
    } else {
        whole.print();
    }
    Ok(())
}

impl ShownTicket {
    fn new(ticket: &Ticket, now_ms: u64) -> Self {
        Self {
            proxy: ticket.holder.id.clone(),
            proxy_epoch: ticket.holder.epoch,
            session: ticket.session.clone(),
            seq: ticket.seq,
            waiting_ms: waiting_ms(ticket, now_ms),
            attributes: ticket.attributes.as_str().to_owned(),
        }
    }
}

impl ShownPass {
    fn new(row: PassRow, raw: &Row, now_ms: u64) -> Self {
        Self {
            serial: row.pass.serial,
            expires_in_ms: row.pass.expires_at_ms.saturating_sub(now_ms),
            server: row.pass.server,
            link: row.pass.link,
            arrived: raw.get("arrived_at").is_some(),
            redeemed: row.redeemed_at_ms.is_some(),
            void: row.void,
        }
    }

    fn text(&self) -> (String, Tone) {
        let ends = if self.expires_in_ms == 0 {
            "is over".to_owned()
        } else {
            format!("good for {}", view::ago(self.expires_in_ms))
        };
        let (state, tone) = match (self.void, self.redeemed, self.arrived) {
            (true, ..) => ("given up", Tone::Warn),
            (false, true, _) => ("redeemed", Tone::Good),
            (false, false, true) => ("not redeemed, arrived", Tone::Good),
            (false, false, false) => ("not redeemed", Tone::Plain),
        };
        (format!("{state}, {ends}, serial {}", self.serial), tone)
    }
}

impl Whole {
    fn print(&self) {
        let mut grid = Grid::new(&[&format!("IN {}", self.line), self.player.as_str()]);
        let mut row = |name: &str, (text, tone): (String, Tone)| grid.row([(name.to_owned(), Tone::Dim), (text, tone)]);
        let state = match self.state {
            State::Waiting => ("waits", Tone::Good),
            State::Away => ("dropped, the place is kept", Tone::Warn),
            State::Admitted => ("admitted", Tone::Good),
            State::None => ("neither waits nor was admitted", Tone::Warn),
        };
        row("state", (state.0.to_owned(), state.1));
        if let Some(place) = &self.place {
            row("position", (format!("{} (lane {})", place.position, place.lane), Tone::Plain));
            row("estimate", (place.estimate_ms.map_or_else(|| "-".to_owned(), view::ago), Tone::Plain));
        }
        if let Some(left_ms) = self.left_ms {
            row("kept for", (view::ago(left_ms), Tone::Plain));
        }
        if let Some(ticket) = &self.ticket {
            row("waits for", (view::ago(ticket.waiting_ms), Tone::Plain));
            row("proxy", (format!("{} (epoch {})", ticket.proxy, ticket.proxy_epoch), Tone::Plain));
            row("session", (ticket.session.to_string(), Tone::Dim));
            row("attributes", (ticket.attributes.clone(), Tone::Dim));
        }
        if let Some(pass) = &self.pass {
            row("pass", pass.text());
            let to = [("server", &pass.server), ("link", &pass.link)];
            to.iter().for_each(|(name, id)| {
                if let Some(id) = id {
                    row(name, (id.to_string(), Tone::Plain));
                }
            });
        }
        grid.print();
        self.not_believed.lines().iter().for_each(|line| view::line(line));
    }
}
