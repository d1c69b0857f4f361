//! The first of a line, as an admitter reads them before a round.

use crate::error::Result;
use crate::ids::{NodeEpoch, Player, SessionId};
use crate::store::{Invocation, scripts};

use super::line::Line;
use super::ticket::{Ticket, TicketText};

/// Most proxies whose players one round looks at.
const HOLDERS_MAX: usize = 16;

/// One head of the line, as it was read.
pub(super) struct Head {
    pub lane: u64,
    pub player: Player,
    pub text: String,
    pub verdict: &'static str,
    pub holder: Option<NodeEpoch>,
    /// Lane and visit, as they are signed.
    pub signed: Option<(u16, SessionId)>,
}

impl Line {
    /// Cuts the heads off at the first whose proxy seems to be dead; true where there is one.
    pub(super) async fn stop_at_the_silent(&self, heads: &mut Vec<Head>) -> Result<bool> {
        let mut living: Vec<&NodeEpoch> = Vec::new();
        for at in 0..heads.len() {
            let Some(holder) = heads.get(at).and_then(|head| head.holder.as_ref()) else { continue };
            if living.contains(&holder) {
                continue;
            }
            if !self.is_alive(holder).await? {
                heads.truncate(at);
                return Ok(true);
            }
            living.push(holder);
        }
        Ok(false)
    }

    /// The first of the line in the order of service, up to the one whose proxy would be one too many. Runs `queue/peek`.
    pub(super) async fn heads(&self, most: usize) -> Result<Vec<Head>> {
        let line = self;
        let (keys, name) = (line.store.keys(), &line.options.name);
        let call = Invocation::new(&scripts::QUEUE_PEEK, &[keys.line(name), keys.tickets(name), keys.gate(name)])
            .arg(&line.options.lanes_text())
            .arg(most);
        let answer = line.store.run(&call).await?;
        let mut heads = Vec::new();
        for head in answer.values().get(2..).unwrap_or_default().chunks_exact(3) {
            let [lane, player, text] = head else { continue };
            let Ok(lane) = lane.parse() else { return Err(answer.unexpected()) };
            // A member that is no player was written by hand; nobody can be sent anywhere under it.
            let Ok(player) = Player::new(player) else { break };
            let (verdict, ticket) = match text.as_str() {
                "" => ("forged", None),
                text => match Ticket::read(&line.verifier, name, &player, text) {
                    TicketText::Good(ticket) => ("ok", Some(ticket)),
                    TicketText::Forged => ("forged", None),
                    TicketText::Strange => ("strange", None),
                },
            };
            heads.push(Head {
                lane,
                holder: Ticket::holder_of(text),
                signed: ticket.map(|ticket| (ticket.lane, ticket.session)),
                player,
                text: text.clone(),
                verdict,
            });
        }
        Ok(limit_holders(heads))
    }
}

/// The heads up to the one whose proxy would be one too many.
fn limit_holders(mut heads: Vec<Head>) -> Vec<Head> {
    let mut seen: Vec<NodeEpoch> = Vec::new();
    let end = heads.iter().position(|head| {
        let Some(holder) = &head.holder else { return false };
        if seen.contains(holder) {
            return false;
        }
        seen.push(holder.clone());
        seen.len() > HOLDERS_MAX
    });
    heads.truncate(end.unwrap_or(heads.len()));
    heads
}
