//! What follows an admission: the transfer fails, the player arrives, the pass is redeemed.

use crate::error::Result;
use crate::ids::{NodeEpoch, OperationId, SessionId};
use crate::store::{Invocation, scripts};

use super::line::{Line, needed_lane};
use super::outcome::Admission;
use super::pass::{LoginPass, PassRefusal};
use super::ticket::Attributes;

/// How the report of a failed transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// Back where the admission came from, before everybody who came later.
    Back,
    /// The player is gone: the sequence is kept for the grace.
    Away,
    /// That was one failure too many: out of the line.
    Out,
    /// A newer pass or ticket stands, or none, or a later visit has taken the pass over: nothing was done.
    Late,
    /// The pass was redeemed: the player is there.
    Landed,
}

impl Line {
    /// The transfer of an admitted player failed: the promised place is free again and the player goes back to the front
    /// with the old sequence, or, where the connection is `gone`, keeps it for the grace. `session` is the
    /// operation and that of the new ticket. Runs `queue/failed`.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`](crate::Error::LeaseLost),
    /// [`Error::Fenced`](crate::Error::Fenced).
    pub async fn failed(
        &self,
        holder: &NodeEpoch,
        admission: &Admission,
        session: &SessionId,
        attributes: &Attributes,
        gone: bool,
    ) -> Result<Failed> {
        let (keys, name, options) = (self.store.keys(), &self.options.name, &self.options);
        let player = &admission.pass.player;
        let mut lane = admission.lane;
        let mut places = [admission.pass.server.clone(), admission.pass.link.clone()];
        let via = self.via_name(holder);
        let pass = self.pass_name(player);
        let grace_ms = if gone { options.reconnect_grace_ms.max(1) } else { 0 };
        let mut asked = self.conversation_of(holder, "reporting a failed transfer", "failed");
        loop {
            let call = || {
                let ticket = self.ticket(holder, player, lane, session, attributes);
                let [server, link] = &places;
                let key_list = [
                    keys.lines(),
                    keys.line(name),
                    keys.tickets(name),
                    keys.away(name),
                    keys.vias(name),
                    keys.via(&via),
                    keys.node(&holder.id),
                    keys.pass(&pass),
                    self.held(server.as_ref()),
                    self.held(link.as_ref()),
                    keys.gate(name),
                ];
                Invocation::new(&scripts::QUEUE_FAILED, &key_list)
                    .arg(name.as_str())
                    .arg(player.as_str())
                    .ticket(&ticket)
                    .arg(admission.pass.serial)
                    .arg(grace_ms)
                    .places(server.as_ref(), link.as_ref())
                    .arg(options.max_failures)
                    .arg(keys.line_events())
                    .arg(admission.session.as_str())
            };
            let answer = asked.ask(call).await?;
            match answer.word() {
                "BACK" => return Ok(Failed::Back),
                "AWAY" => return Ok(Failed::Away),
                "OUT" => return Ok(Failed::Out),
                "LATE" => return Ok(Failed::Late),
                "LANDED" => return Ok(Failed::Landed),
                "LANE" => lane = needed_lane(&answer)?,
                "NEED" => places = self.needed_places(&answer, 0)?,
                _ => return Err(answer.unexpected()),
            }
        }
    }

    /// The admitted player is on the server: no later enter is answered with this pass. The place stays held until a
    /// heartbeat of the server counts the player. False where the pass does not stand any more. Runs `queue/arrived`.
    pub async fn arrived(&self, pass: &LoginPass) -> Result<bool> {
        let keys = self.store.keys();
        let name = self.pass_name(&pass.player);
        let (server, link) = (pass.server.as_ref(), pass.link.as_ref());
        let key_list = [keys.pass(&name), self.held(server), self.held(link)];
        let call = || {
            Invocation::new(&scripts::QUEUE_ARRIVED, &key_list)
                .arg(pass.player.as_str())
                .arg(pass.serial)
                .places(server, link)
                .arg(self.options.arrive_ms)
                .arg(self.options.name.as_str())
        };
        let answer = self.conversation("noting an arrival", "arrived").ask(call).await?;
        match answer.word() {
            "ARRIVED" => Ok(true),
            // A row that names other places than the signed pass is not the one that was signed.
            "LATE" | "NEED" => Ok(false),
            _ => Err(answer.unexpected()),
        }
    }

    /// Spends a pass that `me`, its backend or link, has verified, once; `op` is the operation. Where the place was not
    /// taken in time it takes a free one, else the pass is void. Runs `queue/redeem`.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`](crate::Error::LeaseLost),
    /// [`Error::Fenced`](crate::Error::Fenced). The inner error says why nobody may come in.
    pub async fn redeem(
        &self,
        me: &NodeEpoch,
        pass: &LoginPass,
        op: &OperationId,
    ) -> Result<std::result::Result<(), PassRefusal>> {
        let keys = self.store.keys();
        let name = self.pass_name(&pass.player);
        let (pass_key, own) = (keys.pass(&name), keys.node(&me.id));
        let mut key_list = vec![pass_key, own];
        for id in [&pass.server, &pass.link] {
            key_list.extend(match id {
                Some(id) => [keys.node(id), keys.held(id), keys.due(id)],
                None => [own, pass_key, pass_key],
            });
        }
        let call = || {
            Invocation::new(&scripts::QUEUE_REDEEM, &key_list)
                .arg(pass.player.as_str())
                .arg(pass.serial)
                .arg(op.as_str())
                .member(me)
                .places(pass.server.as_ref(), pass.link.as_ref())
                .arg(pass.op.as_str())
                .arg(self.options.arrive_ms)
                .arg(self.options.name.as_str())
        };
        let answer = self.conversation_of(me, "redeeming a pass", "redeem").ask(call).await?;
        Ok(match answer.word() {
            "REDEEMED" => {
                if let Some(arrivals) = &self.arrivals {
                    arrivals.note(answer.text(1)?);
                }
                Ok(())
            }
            "SPENT" => Err(PassRefusal::Redeemed),
            "PLACE_GONE" => Err(PassRefusal::PlaceGone),
            "VOID" => Err(PassRefusal::Void),
            "EXPIRED" => Err(PassRefusal::Expired),
            "NOT_YOURS" => Err(PassRefusal::WrongAudience),
            _ => return Err(answer.unexpected()),
        })
    }
}
