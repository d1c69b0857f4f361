//! Reads of a line, and what an operator does to it as a whole.

use serde::Serialize;

use crate::error::Result;
use crate::ids::{LineName, NodeEpoch, Player};
use crate::node::roster::score_ms;
use crate::store::{Answer, Invocation, Key, Row, scripts};

use super::estimate::LineState;
use super::line::Line;
use super::options::LANES_MAX;
use super::pass::PassRow;
use super::ticket::{Ticket, TicketText};

/// A lane's scores begin at its number times two to this power.
const LANE_SHIFT: u32 = 42;

/// Tickets of one read.
const READ_MAX: usize = 256;

/// Positions up to this one are told exactly; who is beyond is told that.
pub const POSITIONS_MAX: u64 = 10_000;

/// What a player is, seen from the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// Waits.
    Waiting {
        /// The sequence in the lane.
        seq: u64,
        /// The lane.
        lane: u16,
        /// 1 for the one who is admitted next.
        position: u64,
        /// How long it takes at the present pace, in ms.
        estimate_ms: Option<u64>,
    },
    /// Dropped; the sequence is kept.
    Away {
        /// For how long still, in ms.
        left_ms: u64,
    },
    /// Not in the line.
    None,
}

/// A line as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LineView {
    /// Its name.
    pub line: LineName,
    /// Players who wait.
    pub waiting: u64,
    /// Players who dropped and keep their sequence.
    pub away: u64,
    /// Players by lane.
    pub lanes: Vec<u64>,
    /// Nobody is admitted until an operator resumes it.
    pub paused: bool,
    /// What the gate allows now, per second.
    pub rate: u64,
    /// What was admitted while people waited, per thousand seconds.
    pub admitted_per_1000_s: u64,
    /// What the gate would let through at once, as of its last use.
    pub open: u64,
    /// The serial of the last admission; 0 for none.
    pub serial: u64,
    /// How long the last one in the longest lane waits, in ms.
    pub estimate_ms: Option<u64>,
}

/// The first of a line, with what estimates are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// In the order of service: the rank in the list, from 1, is the position.
    pub first: Vec<Player>,
    /// Players who wait, all of them.
    pub waiting: u64,
    /// The pace.
    pub state: LineState,
    /// When it was read, in store ms.
    pub at_ms: u64,
}

impl Standing {
    /// How long the one behind `ahead` others waits, in ms; `None` where nobody is admitted now.
    pub fn wait_ms(&self, ahead: u64) -> Option<u64> {
        self.state.wait_ms(ahead, self.at_ms)
    }
}

impl Line {
    /// Where the player stands. Runs `queue/position`, which only reads.
    pub async fn position(&self, player: &Player) -> Result<Position> {
        let answer = self.store.run(&self.position_call(player.as_str())).await?;
        Ok(match answer.word() {
            "WAITING" => {
                let (seq, lane, position, estimate_ms) = self.waiting_at(&answer)?;
                Position::Waiting { seq, lane, position, estimate_ms }
            }
            "AWAY" => Position::Away { left_ms: answer.number(0)? },
            "NONE" => Position::None,
            _ => return Err(answer.unexpected()),
        })
    }

    /// The line as a whole. Runs `queue/position`, which only reads.
    pub async fn view(&self) -> Result<LineView> {
        let answer = self.store.run(&self.position_call("")).await?;
        let state = line_state(&answer)?;
        let now = self.store.clock().now_ms();
        let waiting = answer.number(0)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; no NaN, no sign")]
        let admitted_per_1000_s = (state.measured(now).unwrap_or(0.0) * 1_000.0) as u64;
        Ok(LineView {
            line: self.options.name.clone(),
            waiting,
            away: answer.number(1)?,
            lanes: state.lengths.clone(),
            paused: answer.text(7)? == "1",
            rate: answer.number(2)?,
            admitted_per_1000_s,
            open: answer.number(8)? / 1_000_000,
            serial: answer.number(9)?,
            estimate_ms: state.wait_ms(waiting.saturating_sub(1), now),
        })
    }

    /// The first of the line in the order of service, at most [`POSITIONS_MAX`]: the rank in the list, from 1, is the
    /// position. Bulk reads, no script.
    pub async fn positions(&self, most: u64) -> Result<Vec<Player>> {
        Ok(self.standing(most).await?.first)
    }

    /// [`positions`](Self::positions) with what estimates are made of. Runs `queue/position`, which only reads.
    pub async fn standing(&self, most: u64) -> Result<Standing> {
        let answer = self.store.run(&self.position_call("")).await?;
        let state = line_state(&answer)?;
        let most = most.min(POSITIONS_MAX);
        let lanes = u64::try_from(self.options.lanes.len()).unwrap_or(1);
        let mut heads = Vec::new();
        for lane in 0..lanes {
            heads.push(self.lane_heads(lane, lane + 1 == lanes, most).await?);
        }
        let lengths: Vec<u64> = heads.iter().map(|lane| u64::try_from(lane.len()).unwrap_or(0)).collect();
        let order = state.order(&self.options, &lengths, most);
        let player = |(lane, rank): (usize, u64)| heads.get(lane)?.get(usize::try_from(rank).ok()?);
        let first = order.into_iter().filter_map(player).filter_map(|player| Player::new(player).ok()).collect();
        Ok(Standing { first, waiting: answer.number(0)?, state, at_ms: self.store.clock().now_ms() })
    }

    /// The first of a lane. With those of the last one stand those of lanes that the line does not have any more, all of them
    /// in the order of their sequences.
    async fn lane_heads(&self, lane: u64, is_last: bool, most: u64) -> Result<Vec<String>> {
        let (store, key) = (&self.store, self.store.keys().line(&self.options.name));
        let begin = |lane: u64| lane << LANE_SHIFT;
        let last_lane = u64::try_from(LANES_MAX).unwrap_or(u64::MAX) - 1;
        if !is_last || lane >= last_lane {
            let max = if is_last { "+inf".to_owned() } else { format!("({}", begin(lane + 1)) };
            return store.first_between(key, &begin(lane).to_string(), &max, most).await;
        }
        let mut found: Vec<(u64, String)> = Vec::new();
        let mut present = Some(lane);
        while let Some(lane) = present {
            let max = if lane == last_lane { "+inf".to_owned() } else { format!("({}", begin(lane + 1)) };
            let page = store.first_scored_between(key, &begin(lane).to_string(), &max, most).await?;
            found.extend(page.into_iter().map(|(name, score)| (score_ms(score).saturating_sub(begin(lane)), name)));
            let behind = match lane == last_lane {
                true => Vec::new(),
                false => store.first_scored_between(key, &begin(lane + 1).to_string(), "+inf", 1).await?,
            };
            present = behind.first().map(|(_, score)| (score_ms(*score) >> LANE_SHIFT).min(last_lane));
        }
        found.sort_by_key(|(seq, _)| *seq);
        found.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }

    /// How many wait through `holder`. One read, no script.
    pub async fn count_through(&self, holder: &NodeEpoch) -> Result<u64> {
        let name = self.via_name(holder);
        self.store.count_members(self.store.keys().via(&name)).await
    }

    /// The players who wait and whose ticket `holder` holds. Bulk reads, no script.
    pub async fn waiting_through(&self, holder: &NodeEpoch) -> Result<Vec<String>> {
        self.held_by(holder).await
    }

    fn position_call(&self, player: &str) -> Invocation {
        let (keys, name, gate) = (self.store.keys(), &self.options.name, &self.options.gate);
        Invocation::new(
            &scripts::QUEUE_POSITION,
            &[keys.line(name), keys.tickets(name), keys.away(name), keys.gate(name), keys.roster(&gate.counted)],
        )
        .arg(player)
        .arg(&self.options.lanes_text())
        .arg(gate.fixed_per_second.unwrap_or(0))
        .arg(gate.per_backend)
    }

    /// The player's ticket, verified. One read, no script.
    pub async fn ticket_of(&self, player: &Player) -> Result<Option<Ticket>> {
        Ok(match self.tickets_of(std::slice::from_ref(player)).await?.pop().flatten() {
            Some(TicketText::Good(ticket)) => Some(ticket),
            Some(TicketText::Forged | TicketText::Strange) | None => None,
        })
    }

    /// The tickets of `players`, in their order, each verified. Bulk reads of 256, no script.
    pub async fn tickets_of(&self, players: &[Player]) -> Result<Vec<Option<TicketText>>> {
        let texts = self.ticket_texts(players).await?;
        let read = |(player, text): (&Player, Option<String>)| {
            text.map(|text| Ticket::read(&self.verifier, &self.options.name, player, &text))
        };
        Ok(players.iter().zip(texts).map(read).collect())
    }

    pub(super) async fn ticket_texts(&self, players: &[Player]) -> Result<Vec<Option<String>>> {
        let mut texts = Vec::with_capacity(players.len());
        for batch in players.chunks(READ_MAX) {
            let names: Vec<&str> = batch.iter().map(Player::as_str).collect();
            let rows = self.store.fields(&[self.store.keys().tickets(&self.options.name)], &names).await?;
            let text = |name: &&str| rows.first().and_then(|row| row.get(name)).map(str::to_owned);
            texts.extend(names.iter().map(text));
        }
        Ok(texts)
    }

    /// An operator paused the line. One read, no script.
    pub async fn is_paused(&self) -> Result<bool> {
        let rows = self.store.fields(&[self.store.keys().gate(&self.options.name)], &["paused"]).await?;
        Ok(rows.first().is_some_and(|row| row.get("paused") == Some("1")))
    }

    /// The player's admission, verified; also one that was redeemed or given up while it is readable. One read, no
    /// script. This is what a proxy looks at when it hears that its player was admitted.
    pub async fn pass_of(&self, player: &Player) -> Result<Option<PassRow>> {
        let name = self.pass_name(player);
        let row = self.store.row(self.store.keys().pass(&name)).await?;
        PassRow::from_row(&self.verifier, &self.options.name, player, &row)
    }

    /// [`pass_of`](Self::pass_of) for many, in their order; one that does not verify hides none of the others. Bulk reads,
    /// no script.
    pub async fn passes_of(&self, players: &[Player]) -> Result<Vec<Result<Option<PassRow>>>> {
        let names: Vec<String> = players.iter().map(|player| self.pass_name(player)).collect();
        let keys: Vec<Key<'_>> = names.iter().map(|name| self.store.keys().pass(name)).collect();
        let rows = self.store.rows_each(&keys).await?;
        let read = |(player, row): (&Player, Result<Row>)| {
            PassRow::from_row(&self.verifier, &self.options.name, player, &row?)
        };
        Ok(players.iter().zip(rows).map(read).collect())
    }

    /// Stops the admission; players go on entering. Runs `queue/pause`.
    pub async fn pause(&self) -> Result<()> {
        self.set_paused("1").await
    }

    /// Lets the gate rule again. Runs `queue/pause`.
    pub async fn resume(&self) -> Result<()> {
        self.set_paused("0").await
    }

    async fn set_paused(&self, paused: &str) -> Result<()> {
        let (keys, name) = (self.store.keys(), &self.options.name);
        let call = Invocation::new(&scripts::QUEUE_PAUSE, &[keys.gate(name)])
            .arg(name.as_str())
            .arg(paused)
            .arg(keys.line_events());
        self.store.run(&call).await.map(drop)
    }
}

/// The state in `LINE waiting away rate busy full recent lanes paused bucket serial lengths…`.
fn line_state(answer: &Answer) -> Result<LineState> {
    let values = answer.values();
    let lengths = values.get(10..).unwrap_or_default();
    let texts: Vec<String> = values.get(2..7).into_iter().flatten().chain(lengths).cloned().collect();
    let mut state = LineState::read(&texts).ok_or_else(|| answer.unexpected())?;
    if answer.text(7)? == "1" {
        state.rate = 0;
    }
    Ok(state)
}
