//! Wait lines: requests that no inventory could serve wait here, and every backend drains them as places come in.

use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, NodeId, Player, Region, RequestId, TokenId};
use crate::node::roster::score_ms;
use crate::store::{Invocation, scripts};
use crate::token::{BookOptions, PAYLOAD_MAX_BYTES, Token};

use super::line::Line;
use super::ticket::{Ticket, TicketText};

/// The attempt of a token that comes out of a wait line: above all that were made on the way into it.
pub const DRAINED_ATTEMPT: u32 = 1_000;

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Whose.
    pub player: Player,
    /// The request.
    pub request: RequestId,
    /// A place in this region.
    pub region: Option<Region>,
    /// On a backend that has this world loaded.
    pub world: Option<String>,
    ticket: Option<Ticket>,
    text: String,
}

impl Wish {
    /// Where it stands: lower comes first, also between two wait lines, for sequences follow the store's clock. `None` where
    /// the ticket did not verify, so that nobody is to get a place for it.
    pub fn seq(&self) -> Option<u64> {
        self.ticket.as_ref().map(|ticket| ticket.seq)
    }
}

/// A piece of a wait line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Who waits, in order.
    pub players: Vec<Player>,
    /// Where the last entry stands, where there may be more behind it.
    pub more_after: Option<u64>,
}

/// Who waits in each of these wait lines, in order, the first `count` behind the sequence `after`. One bulk read, no script.
pub async fn pages(lines: &[Line], after: Option<u64>, count: usize) -> Result<Vec<Page>> {
    let Some(first) = lines.first() else { return Ok(Vec::new()) };
    let keys: Vec<_> = lines.iter().map(|line| first.store.keys().line(&line.options.name)).collect();
    let page = |entries: Vec<(String, f64)>| Page {
        more_after: entries.last().filter(|_| entries.len() >= count).map(|(_, score)| score_ms(*score)),
        // What is no player was written by hand, and counts all the same: others stand behind it.
        players: entries.iter().filter_map(|(name, _)| Player::new(name).ok()).collect(),
    };
    Ok(first.store.score_pages(&keys, after, count).await?.into_iter().map(page).collect())
}

/// How the drain of one wish ended.
#[derive(Debug, Clone)]
pub enum Drained {
    /// The player has the place: a PENDING token of the caller. The proxy that holds the player hears of it.
    Issued(Token),
    /// Somebody else took the ticket, or it changed. The caller keeps its place.
    Gone,
    /// The proxy that held it is gone: the sequence is kept for the grace. The caller keeps its place.
    Away,
    /// Lines and tokens have promised all places of the caller. The ticket stays, and the caller keeps its place.
    NoPlace,
    /// The player needs no place any more: cancelled, or a live token exists. The caller keeps its place.
    NotNeeded,
}

impl Line {
    /// The first of a wait line, in order. Tickets that do not verify are among them: [`drain`](Self::drain) puts them out.
    /// Bulk reads, no script.
    pub async fn wishes(&self, count: usize) -> Result<Vec<Wish>> {
        let pages = pages(std::slice::from_ref(self), None, count).await?;
        self.wishes_of(pages.first().map_or(&[][..], |page| page.players.as_slice())).await
    }

    /// The wishes of `players`, who were found in the line, in their order. One without a ticket is put out by
    /// [`drain`](Self::drain) too; one whose ticket another build looks after is left out. Bulk reads, no script.
    pub async fn wishes_of(&self, players: &[Player]) -> Result<Vec<Wish>> {
        let mut wishes = Vec::with_capacity(players.len());
        for (player, text) in players.iter().zip(self.ticket_texts(players).await?) {
            let read = |text: &String| Ticket::read(&self.verifier, &self.options.name, player, text);
            let ticket = match text.as_ref().map(read) {
                Some(TicketText::Good(ticket)) => Some(ticket),
                // Without a text nobody is to be accused: mostly it was served between the two reads.
                Some(TicketText::Forged) | None => None,
                Some(TicketText::Strange) => continue,
            };
            let text = text.unwrap_or_default();
            let wish = ticket.as_ref().and_then(|ticket| ticket.attributes.wish());
            let ticket = ticket.filter(|_| wish.is_some());
            let (request, region, world) = wish.unwrap_or_else(|| (RequestId::short(), None, None));
            wishes.push(Wish { player: player.clone(), request, region, world, ticket, text });
        }
        Ok(wishes)
    }

    /// True where the proxy that holds the ticket seems to be dead. One read, no script.
    pub(crate) async fn is_silent(&self, wish: &Wish) -> Result<bool> {
        match Ticket::holder_of(&wish.text) {
            Some(holder) => Ok(!self.is_alive(&holder).await?),
            None => Ok(false),
        }
    }

    /// Turns the ticket of `wish` into a token `id` of `server`, whose inventory has given a place for it, in one step.
    /// `id` is the operation: while the store does not answer, the same call is repeated with it. Runs `queue/drain`.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`], [`Error::Fenced`], [`Error::KillSwitch`],
    /// [`Error::OutOfBounds`] for a payload over 4 KiB. The outcome is not known after [`Error::Unreachable`] only.
    pub async fn drain(
        &self,
        server: &NodeEpoch,
        wish: &Wish,
        id: &TokenId,
        payload: &RawValue,
        times: &BookOptions,
    ) -> Result<Drained> {
        let bytes = payload.get().len();
        if bytes > PAYLOAD_MAX_BYTES {
            let problem = format!("it has {bytes} bytes, allowed are {PAYLOAD_MAX_BYTES}");
            return Err(Error::OutOfBounds { what: "payload", problem });
        }
        let mut other: Option<NodeId> = None;
        let signed = |expires_at_ms: u64| {
            Token::signed(
                &self.verifier,
                id.clone(),
                &wish.player,
                server,
                (&wish.request, DRAINED_ATTEMPT),
                payload,
                (expires_at_ms.saturating_sub(times.ttl_ms), expires_at_ms),
            )
        };
        let mut sent: Option<Token> = None;
        let mut asked = self.conversation_of(server, "draining a wait line", "drain");
        loop {
            let call = || {
                let token = sent.insert(signed(self.store.clock().now_ms().saturating_add(times.ttl_ms)));
                self.drain_call(server, wish, token, other.as_ref(), times)
            };
            let answer = asked.ask(call).await?;
            match answer.word() {
                "DRAINED" => {
                    // A repeat after a lost reply was signed with another time than the token that stands.
                    let expires_at_ms = answer.number(0)?;
                    let stands = sent.filter(|token| token.expires_at_ms == expires_at_ms);
                    return Ok(Drained::Issued(stands.unwrap_or_else(|| signed(expires_at_ms))));
                }
                "GONE" | "ENDED" | "EVICTED" => return Ok(Drained::Gone),
                "AWAY" => return Ok(Drained::Away),
                "TAKEN" | "CANCELLED" => return Ok(Drained::NotNeeded),
                "NO_PLACE" => return Ok(Drained::NoPlace),
                "NEED" => other = Some(NodeId::new(answer.text(0)?)?),
                _ => return Err(answer.unexpected()),
            }
        }
    }

    fn drain_call(
        &self,
        server: &NodeEpoch,
        wish: &Wish,
        token: &Token,
        other: Option<&NodeId>,
        times: &BookOptions,
    ) -> Invocation {
        let (keys, name) = (self.store.keys(), &self.options.name);
        let holder = Ticket::holder_of(&wish.text);
        let via = holder.as_ref().map(|holder| self.via_name(holder));
        let (node, due) = (keys.node(&server.id), keys.due(&server.id));
        Invocation::new(
            &scripts::QUEUE_DRAIN,
            &[
                keys.lines(),
                keys.line(name),
                keys.tickets(name),
                keys.away(name),
                keys.vias(name),
                via.as_deref().map_or(keys.vias(name), |via| keys.via(via)),
                holder.as_ref().map_or(node, |holder| keys.node(&holder.id)),
                keys.token(&wish.player),
                node,
                due,
                keys.due_servers(),
                keys.control(),
                other.map_or(node, |other| keys.node(other)),
                other.map_or(due, |other| keys.due(other)),
                keys.held(&server.id),
            ],
        )
        .arg(name.as_str())
        .arg(wish.player.as_str())
        .arg(&holder.as_ref().map(NodeEpoch::to_string).unwrap_or_default())
        .arg(&wish.text)
        .arg(token.id.as_str())
        .reservation(token)
        .arg(wish.ticket.is_none())
        .arg(other)
        .arg(self.options.reconnect_grace_ms)
        .arg(times.claim_reanimate_ms)
        .arg(times.audit_ms)
        .arg(keys.line_events())
        .arg(keys.token_events())
        .kills([self.control.kill_of_fleet(), self.control.kill_of(&server.id)])
        // Who counts arrivals is led to by lines.
        .arg(self.arrivals.as_ref().map_or(0, |_| self.options.arrive_ms))
    }
}
