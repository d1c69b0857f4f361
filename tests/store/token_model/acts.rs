//! What backends, proxies and players do, on the store and in the oracle.

use maitred::Error;
use maitred::ids::{Epoch, NodeEpoch, NodeId, OperationId, Player, RequestId, TokenId};
use maitred::token::{ConsumeOutcome, IssueOrder, IssueOutcome, LedgerState, Redeem, Token, Unsettled};

use super::op::Op;
use super::world::{Step, TIMES, World, answered, same};
use crate::fixtures::tokens::say;

impl World {
    pub async fn issue(&mut self, server: usize, number: usize, name: &RequestId, attempt: u32, heard: bool) -> Step {
        let player = self.players[number].clone();
        let mut order = self.server(server).order(&player, name, attempt);
        // A repeat may come much later by the clock of this world, which the order does not follow.
        order.deadline_ms += 3_600_000;
        let who = self.server(server).who.clone();
        self.backends[server].reserve(&order, who.epoch.0, self.oracle.now + TIMES.ttl_ms);
        self.ask_to_issue(server, &who, order, heard).await
    }

    async fn ask_to_issue(&mut self, server: usize, who: &NodeEpoch, mut order: IssueOrder, heard: bool) -> Step {
        let outcome = self.server(server).book.issue(who, &mut order).await;
        let want = self.oracle.issue(
            order.id.as_str(),
            order.player.as_str(),
            (who.id.as_str(), who.epoch.0),
            order.request.as_str(),
            order.attempt,
        );
        answered("issue", &say(&outcome), &want)?;
        let entry = self.oracle.entry(order.player.as_str());
        if let Ok(IssueOutcome::Taken(row)) = &outcome {
            let there = entry.as_ref().map(|entry| entry.id.as_str());
            same("the token that is there", row.token.id.as_str(), there.unwrap_or("-"))?;
        }
        let issued = match outcome {
            Ok(IssueOutcome::Issued(token)) => Some(token),
            _ => None,
        };
        if let Some(token) = issued.clone().filter(|token| self.tokens.iter().all(|old| old.id != token.id)) {
            self.tokens.push(token);
        }
        let backend = &mut self.backends[server];
        match issued {
            _ if !heard => backend.ledger.unknown(&order.id),
            Some(mut token) => {
                // In this world's time, which is the ledger's here.
                token.expires_at_ms = entry.ok_or("issued, and no entry")?.expires_at;
                backend.ledger.issued(&token);
            }
            None => {
                let place = backend.ledger.not_issued(&order.id).ok_or("no place behind an issue")?;
                self.home(server, &order.id, &order.player, place)?;
            }
        }
        Ok(())
    }

    pub async fn claim(&mut self, proxy: usize, back: usize, again: bool) -> Step {
        let Some(token) = self.token(back) else { return Ok(()) };
        let known = self.claim_ops.get(&(proxy, token.id.clone())).filter(|_| again);
        let op = known.cloned().unwrap_or_else(OperationId::fresh);
        self.claim_ops.insert((proxy, token.id.clone()), op.clone());
        let who = self.members[proxy].who.clone();
        let told = say(&self.members[proxy].book.claim(&token, &who, &op).await);
        self.claimed(&token, &who, &op, &told)
    }

    pub async fn claim_as_router(&mut self, back: usize) -> Step {
        let Some(token) = self.token(back) else { return Ok(()) };
        let who = NodeEpoch { id: NodeId::new("router").unwrap(), epoch: Epoch::NONE };
        let op = OperationId::fresh();
        let told = say(&self.members[0].book.claim(&token, &who, &op).await);
        self.claimed(&token, &who, &op, &told)
    }

    fn claimed(&mut self, token: &Token, who: &NodeEpoch, op: &OperationId, told: &str) -> Step {
        let by = (who.id.as_str(), who.epoch.0);
        let want = self.oracle.claim(token.id.as_str(), token.player.as_str(), by, op.as_str());
        answered("claim", told, &want)
    }

    pub async fn arrive(&mut self, server: usize, number: usize, heard: bool) -> Step {
        let player = self.players[number].clone();
        match self.backends[server].ledger.begin_redeem(&player, self.oracle.now) {
            Redeem::Consume { id, epoch, op } => self.ask_to_consume(server, &id, &player, epoch, &op, heard).await,
            Redeem::Deliver(id) => self.deliver(server, &id),
            Redeem::InProgress => Err("somebody else is deciding, and there is nobody else".to_owned()),
            Redeem::Past | Redeem::Nothing => Ok(()),
        }
    }

    async fn ask_to_consume(
        &mut self,
        server: usize,
        id: &TokenId,
        player: &Player,
        epoch: Epoch,
        op: &OperationId,
        heard: bool,
    ) -> Step {
        let who = NodeEpoch { id: self.server(server).who.id.clone(), epoch };
        let outcome = self.server(server).book.consume(id, player, &who, op).await;
        let by = (who.id.as_str(), epoch.0);
        let want = self.oracle.consume(id.as_str(), player.as_str(), by, op.as_str());
        answered("consume", &say(&outcome), &want)?;
        if matches!(outcome, Ok(ConsumeOutcome::Consumed)) {
            let first = self.consumed.entry(id.clone()).or_insert_with(|| op.clone());
            same("the operation that consumed it", op.as_str(), first.as_str())?;
        }
        if !heard {
            self.backends[server].ledger.unknown(id);
            return Ok(());
        }
        match outcome {
            Ok(ConsumeOutcome::Consumed) => self.deliver(server, id),
            Ok(ConsumeOutcome::NotClaimed) | Err(Error::LeaseLost { .. }) => {
                self.backends[server].ledger.hold_again(id);
                Ok(())
            }
            _ => {
                let place = self.backends[server].ledger.not_consumed(id).ok_or("no place behind a consume")?;
                self.home(server, id, player, place)
            }
        }
    }

    fn deliver(&mut self, server: usize, id: &TokenId) -> Step {
        let backend = &mut self.backends[server];
        let (place, _) = backend.ledger.deliver(id).ok_or("no place behind a consumed token")?;
        backend.used(place)
    }

    pub async fn consume_foreign(&mut self, server: usize, back: usize) -> Step {
        let Some(token) = self.token(back) else { return Ok(()) };
        let state = self.backends[server].ledger.state(&token.id);
        if matches!(state, Some(LedgerState::Issuing | LedgerState::Held | LedgerState::Consuming)) {
            return Ok(());
        }
        let (who, op) = (self.server(server).who.clone(), OperationId::fresh());
        let told = say(&self.server(server).book.consume(&token.id, &token.player, &who, &op).await);
        let by = (who.id.as_str(), who.epoch.0);
        let want = self.oracle.consume(token.id.as_str(), token.player.as_str(), by, op.as_str());
        answered("consume", &told, &want)?;
        if told == "Consumed" { Err("it let a player in without a place".to_owned()) } else { Ok(()) }
    }

    pub async fn settle(&mut self, server: usize) -> Step {
        for unsettled in self.backends[server].ledger.take_unsettled() {
            let own = self.server(server).who.clone();
            match unsettled {
                Unsettled::Issue { epoch, order } => {
                    let who = NodeEpoch { id: own.id, epoch };
                    self.ask_to_issue(server, &who, order, true).await?;
                    if epoch != own.epoch {
                        self.leave_old_epoch(server)?;
                    }
                }
                Unsettled::Consume { id, player, epoch, op } => {
                    self.ask_to_consume(server, &id, &player, epoch, &op, true).await?;
                }
            }
        }
        Ok(())
    }

    pub fn leave_old_epoch(&mut self, server: usize) -> Step {
        let epoch = self.server(server).who.epoch;
        for (id, place) in self.backends[server].ledger.rejoined(epoch) {
            self.backends[server].home(&id, place)?;
        }
        Ok(())
    }

    pub async fn look(&mut self, server: usize) -> Step {
        let held: Vec<(TokenId, Player)> =
            self.backends[server].ledger.held().map(|(id, player)| (id.clone(), player.clone())).collect();
        for (id, player) in held {
            let row = self.server(server).book.find(&player).await.map_err(|error| error.to_string())?;
            if row.is_none_or(|row| row.token.id != id || !row.state.is_open()) {
                let place = self.backends[server].ledger.ended(&id).ok_or("held, and no place")?;
                self.home(server, &id, &player, place)?;
            }
        }
        for (id, place) in self.backends[server].ledger.expire(self.oracle.now) {
            let player = self.tokens.iter().find(|token| token.id == id).ok_or("unknown token")?.player.clone();
            self.home(server, &id, &player, place)?;
        }
        self.backends[server].ledger.forget(self.oracle.now);
        Ok(())
    }

    /// TOK-7: a place comes home only when nobody can be let in with its token any more.
    fn home(&mut self, server: usize, id: &TokenId, player: &Player, place: u64) -> Step {
        if self.oracle.can_be_consumed(player.as_str(), id.as_str()) {
            return Err(format!("the place of token {id} comes home while it can still be consumed"));
        }
        self.backends[server].home(id, place)
    }

    pub async fn release(&mut self, op: &Op) -> Step {
        let (Op::ReleaseClaim { token, .. } | Op::ReleaseOwn { token, .. } | Op::ReleaseByOperator { token }) = *op
        else {
            return Ok(());
        };
        let Some(token) = self.token(token) else { return Ok(()) };
        let (id, name) = (token.id.as_str(), token.player.as_str());
        let (told, want) = match *op {
            Op::ReleaseClaim { proxy, .. } => {
                let who = self.members[proxy].who.clone();
                let told = self.members[proxy].book.release_claim(&token, &who, None, "full").await;
                let want = self.oracle.release(id, name, |entry| {
                    entry.claim.as_ref().is_some_and(|claim| claim.by == who.id.as_str() && claim.epoch == who.epoch.0)
                });
                (say(&told), want)
            }
            Op::ReleaseOwn { server, .. } => {
                let who = self.server(server).who.clone();
                let told = self.server(server).book.release_own(&token.id, &token.player, &who, "full").await;
                let want = self
                    .oracle
                    .release(id, name, |entry| entry.server == who.id.as_str() && entry.epoch == who.epoch.0);
                (say(&told), want)
            }
            _ => {
                let operator = NodeId::new("cli").unwrap();
                let told = self.members[0].book.release_any(&token, &operator, "asked").await;
                (say(&told), self.oracle.release(id, name, |_| true))
            }
        };
        answered("release", &told, &want)
    }
}
