//! How players go before they are admitted.

use crate::error::Result;
use crate::ids::{NodeEpoch, NodeId, Player, SessionId};
use crate::store::{Invocation, scripts};

use super::line::Line;
use super::outcome::Left;

impl Line {
    /// The player leaves: the ticket goes at once, and so does the unspent pass with its promised place. A late call of an
    /// earlier session does nothing. Runs `queue/leave`.
    pub async fn leave(&self, holder: &NodeEpoch, player: &Player, session: &SessionId) -> Result<Left> {
        self.out(holder, player, session, 0).await
    }

    /// The player's connection dropped: the sequence is kept for the grace, without holding up those behind. Runs
    /// `queue/leave`.
    pub async fn away(&self, holder: &NodeEpoch, player: &Player, session: &SessionId) -> Result<Left> {
        self.out(holder, player, session, self.options.reconnect_grace_ms.max(1)).await
    }

    async fn out(&self, holder: &NodeEpoch, player: &Player, session: &SessionId, grace_ms: u64) -> Result<Left> {
        let (keys, name, pass) = (self.store.keys(), &self.options.name, self.pass_name(player));
        let (mut holder, mut places): (NodeEpoch, [Option<NodeId>; 2]) = (holder.clone(), [None, None]);
        let mut asked = self.conversation("leaving a line", "leave");
        loop {
            let call = || {
                let via = self.via_name(&holder);
                let [server, link] = &places;
                let key_list = [
                    keys.lines(),
                    keys.line(name),
                    keys.tickets(name),
                    keys.away(name),
                    keys.vias(name),
                    keys.via(&via),
                    keys.pass(&pass),
                    self.held(server.as_ref()),
                    self.held(link.as_ref()),
                ];
                Invocation::new(&scripts::QUEUE_LEAVE, &key_list)
                    .arg(name.as_str())
                    .arg(player.as_str())
                    .arg(session.as_str())
                    .arg(&holder.to_string())
                    .arg(grace_ms)
                    .places(server.as_ref(), link.as_ref())
                    .arg(keys.line_events())
            };
            let answer = asked.ask(call).await?;
            match (answer.word(), answer.values().first().map(String::as_str)) {
                ("LEFT", _) => return Ok(Left::Left),
                ("AWAY", _) => return Ok(Left::Away),
                ("OTHER", _) => return Ok(Left::Other),
                ("NONE", _) => return Ok(Left::None),
                ("NEED", Some("holder")) => holder = self.needed_holder(answer.text(1)?, player)?,
                ("NEED", _) => places = self.needed_places(&answer, 1)?,
                _ => return Err(answer.unexpected()),
            }
        }
    }
}
