//! How players go before they are admitted.

use crate::error::Result;
use crate::ids::{NodeEpoch, NodeId, Player, SessionId};
use crate::store::{Invocation, scripts};

use super::line::{Line, REASKS, asked_too_often, text};
use super::outcome::Left;

impl Line {
    /// The player leaves: the place goes at once, and so does the unspent pass with its promised place. A late call of an
    /// earlier session does nothing. Runs `queue/leave`.
    pub async fn leave(&self, holder: &NodeEpoch, player: &Player, session: &SessionId) -> Result<Left> {
        self.out(holder, player, session, 0).await
    }

    /// The player's connection dropped: the place is kept for the grace, without holding up those behind. Runs
    /// `queue/leave`.
    pub async fn away(&self, holder: &NodeEpoch, player: &Player, session: &SessionId) -> Result<Left> {
        self.out(holder, player, session, self.options.reconnect_grace_ms.max(1)).await
    }

    async fn out(&self, holder: &NodeEpoch, player: &Player, session: &SessionId, grace_ms: u64) -> Result<Left> {
        let (keys, name) = (self.store.keys(), &self.options.name);
        let (mut holder, mut places): (NodeEpoch, [Option<NodeId>; 2]) = (holder.clone(), [None, None]);
        for _ in 0..REASKS {
            let (via, pass) = (self.via_name(&holder), self.pass_name(player));
            let [server, link] = &places;
            let call = Invocation::new(
                &scripts::QUEUE_LEAVE,
                &[
                    keys.lines(),
                    keys.line(name),
                    keys.tickets(name),
                    keys.away(name),
                    keys.vias(name),
                    keys.via(&via),
                    keys.pass(&pass),
                    self.held(server.as_ref()),
                    self.held(link.as_ref()),
                ],
            )
            .arg(name.as_str())
            .arg(player.as_str())
            .arg(session.as_str())
            .arg(&holder.to_string())
            .arg(grace_ms)
            .arg(text(server.as_ref()))
            .arg(text(link.as_ref()))
            .arg(keys.line_events());
            let answer = self.store.run(&call).await?;
            self.count("leave", &answer);
            return Ok(match (answer.word(), answer.values().first().map(String::as_str)) {
                ("LEFT", _) => Left::Left,
                ("AWAY", _) => Left::Away,
                ("OTHER", _) => Left::Other,
                ("NONE", _) => Left::None,
                ("NEED", Some("holder")) => {
                    holder = self.needed_holder(answer.text(1)?, player)?;
                    continue;
                }
                ("NEED", _) => {
                    places = self.needed_places(&answer, 1)?;
                    continue;
                }
                _ => return Err(answer.unexpected()),
            });
        }
        Err(asked_too_often("leaving a line"))
    }
}
