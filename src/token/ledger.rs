//! A backend's own book of the places it promised in its present epoch. Pure: times come in, places come out.
//!
//! A place goes back exactly once, by `held → returned`, and only to the process that reserved it. What may still be
//! consumed, or whose outcome is not known, is never given back.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::ids::{Epoch, OperationId, Player, TokenId};

use super::book::IssueOrder;
use super::record::Token;

mod found;

pub use found::{Past, PastEnd, Redeem, Unsettled};

/// Where one promise stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LedgerState {
    /// Being issued; the outcome is not known yet.
    Issuing,
    /// Issued: the player may come.
    Held,
    /// Being consumed; the outcome is not known yet.
    Consuming,
    /// Consumed, the place was handed over.
    Used,
    /// The place went back.
    Returned,
}

#[derive(Debug)]
struct Entry<P> {
    player: Player,
    epoch: Epoch,
    state: LedgerState,
    place: Option<P>,
    payload: Box<RawValue>,
    expires_at_ms: u64,
    order: Option<IssueOrder>,
    consume_op: Option<OperationId>,
    /// A task of this process is asking the store about it right now.
    busy: bool,
    /// Consumed, but whoever asked never heard it.
    undelivered: bool,
    /// An event said that it ended before the answer to its issue or consume was here.
    hinted: bool,
    /// Once it is over.
    end: PastEnd,
}

/// The ledger; `P` is the application's place.
#[derive(Debug)]
pub struct Ledger<P> {
    entries: HashMap<TokenId, Entry<P>>,
    by_player: HashMap<Player, Vec<TokenId>>,
}

impl<P> Default for Ledger<P> {
    fn default() -> Self {
        Self { entries: HashMap::new(), by_player: HashMap::new() }
    }
}

impl<P> Ledger<P> {
    /// An issue begins: the place is reserved, nothing is sent yet. The entry is busy until
    /// [`issued`](Self::issued), [`not_issued`](Self::not_issued) or [`unknown`](Self::unknown).
    pub fn issuing(&mut self, order: &IssueOrder, epoch: Epoch, place: P, expires_at_ms: u64) {
        let entry = Entry {
            player: order.player.clone(),
            epoch,
            state: LedgerState::Issuing,
            place: Some(place),
            payload: order.payload.clone(),
            expires_at_ms,
            order: Some(order.clone()),
            consume_op: None,
            busy: true,
            undelivered: false,
            hinted: false,
            end: PastEnd::Known,
        };
        self.by_player.entry(order.player.clone()).or_default().push(order.id.clone());
        self.entries.insert(order.id.clone(), entry);
    }

    /// The token stands. True where an event overtook the answer and said that it ended: its row is to be looked at.
    pub fn issued(&mut self, token: &Token) -> bool {
        match self.entries.get_mut(&token.id) {
            Some(entry) if entry.state == LedgerState::Issuing => {
                entry.state = LedgerState::Held;
                entry.expires_at_ms = token.expires_at_ms;
                entry.order = None;
                entry.busy = false;
                std::mem::take(&mut entry.hinted)
            }
            _ => false,
        }
    }

    /// An event says that a token ended. True where its row is to be looked at now; that of one whose issue or consume is
    /// not answered yet is looked at then.
    pub fn hint(&mut self, id: &TokenId) -> bool {
        match self.entries.get_mut(id) {
            Some(entry) if matches!(entry.state, LedgerState::Issuing | LedgerState::Consuming) => {
                entry.hinted = true;
                false
            }
            Some(entry) => entry.state == LedgerState::Held,
            None => false,
        }
    }

    /// It is certain that the token does not stand: the place goes back. Should it stand later all the same, a try of this
    /// process was on its way.
    pub fn not_issued(&mut self, id: &TokenId) -> Option<P> {
        let place = self.give_back(id, &[LedgerState::Issuing])?;
        self.entries.get_mut(id)?.end = PastEnd::GivenUp;
        Some(place)
    }

    /// The store did not answer: the entry waits to be settled.
    pub fn unknown(&mut self, id: &TokenId) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.busy = false;
        }
    }

    fn give_back(&mut self, id: &TokenId, from: &[LedgerState]) -> Option<P> {
        let entry = self.entries.get_mut(id)?;
        if !from.contains(&entry.state) {
            return None;
        }
        entry.state = LedgerState::Returned;
        entry.order = None;
        entry.busy = false;
        entry.place.take()
    }

    /// A player joins at `now_ms`. The newest held token is taken; one whose time is over is not.
    pub fn begin_redeem(&mut self, player: &Player, now_ms: u64) -> Redeem {
        let Some(ids) = self.by_player.get(player) else { return Redeem::Nothing };
        for id in ids.iter().rev() {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            match entry.state {
                LedgerState::Consuming if entry.busy => return Redeem::InProgress,
                LedgerState::Used if entry.undelivered => return Redeem::Deliver(id.clone()),
                LedgerState::Held if now_ms < entry.expires_at_ms => {}
                LedgerState::Consuming => {}
                _ => continue,
            }
            entry.state = LedgerState::Consuming;
            entry.busy = true;
            let op = entry.consume_op.get_or_insert_with(OperationId::fresh).clone();
            return Redeem::Consume { id: id.clone(), epoch: entry.epoch, op };
        }
        Redeem::Past
    }

    /// The store consumed it, and the caller hands the place over: place and payload, once.
    pub fn deliver(&mut self, id: &TokenId) -> Option<(P, Box<RawValue>)> {
        let entry = self.entries.get_mut(id)?;
        if !matches!(entry.state, LedgerState::Consuming | LedgerState::Used) {
            return None;
        }
        entry.state = LedgerState::Used;
        entry.busy = false;
        entry.undelivered = false;
        Some((entry.place.take()?, entry.payload.clone()))
    }

    /// The store consumed it, and nobody waits for the answer any more: kept until the player asks again.
    pub fn consumed_unheard(&mut self, id: &TokenId) {
        if let Some(entry) = self.entries.get_mut(id)
            && entry.state == LedgerState::Consuming
        {
            entry.state = LedgerState::Used;
            entry.busy = false;
            entry.undelivered = true;
        }
    }

    /// It was not consumed and still may be: nobody had claimed it. True where an event said meanwhile that it ended: its row
    /// is to be looked at.
    pub fn hold_again(&mut self, id: &TokenId) -> bool {
        match self.entries.get_mut(id) {
            Some(entry) if entry.state == LedgerState::Consuming => {
                // The operation stays: should a try of it still be on its way, its effect is no replay.
                entry.state = LedgerState::Held;
                entry.busy = false;
                std::mem::take(&mut entry.hinted)
            }
            _ => false,
        }
    }

    /// It is certain that it was not consumed under this operation and cannot be any more: the place goes back.
    pub fn not_consumed(&mut self, id: &TokenId) -> Option<P> {
        self.give_back(id, &[LedgerState::Consuming])
    }

    /// The store says that the token has ended, or that the row is of another token: a held place goes back.
    pub fn ended(&mut self, id: &TokenId) -> Option<P> {
        self.give_back(id, &[LedgerState::Held])
    }

    /// Held tokens whose time is over at `now_ms`: their places go back. So do places that were consumed for somebody
    /// who never asked again.
    pub fn expire(&mut self, now_ms: u64) -> Vec<(TokenId, P)> {
        let due: Vec<TokenId> = self
            .entries
            .iter()
            .filter(|(_, entry)| now_ms >= entry.expires_at_ms)
            .filter(|(_, entry)| entry.state == LedgerState::Held || entry.undelivered)
            .map(|(id, _)| id.clone())
            .collect();
        let mut places = Vec::with_capacity(due.len());
        for id in due {
            let place = match self.entries.get_mut(&id) {
                Some(entry) if entry.undelivered => {
                    entry.undelivered = false;
                    entry.place.take()
                }
                Some(entry) => {
                    entry.end = PastEnd::TimedOut;
                    self.give_back(&id, &[LedgerState::Held])
                }
                None => None,
            };
            places.extend(place.map(|place| (id, place)));
        }
        places
    }

    /// The process has the epoch `current` now: what older epochs hold cannot be consumed any more and goes back.
    /// What is being issued or consumed waits to be settled.
    pub fn rejoined(&mut self, current: Epoch) -> Vec<(TokenId, P)> {
        let old: Vec<TokenId> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.epoch != current && entry.state == LedgerState::Held)
            .map(|(id, _)| id.clone())
            .collect();
        old.into_iter().filter_map(|id| Some((id.clone(), self.give_back(&id, &[LedgerState::Held])?))).collect()
    }

    /// What the store has to be asked again; each is busy until it is settled.
    pub fn take_unsettled(&mut self) -> Vec<Unsettled> {
        let mut unsettled = Vec::new();
        for (id, entry) in self.entries.iter_mut().filter(|(_, entry)| !entry.busy) {
            let found = match entry.state {
                LedgerState::Issuing => entry.order.clone().map(|order| Unsettled::Issue { epoch: entry.epoch, order }),
                LedgerState::Consuming => entry.consume_op.clone().map(|op| Unsettled::Consume {
                    id: id.clone(),
                    player: entry.player.clone(),
                    epoch: entry.epoch,
                    op,
                }),
                _ => None,
            };
            if let Some(found) = found {
                entry.busy = true;
                unsettled.push(found);
            }
        }
        unsettled
    }

    /// Forgets what was used or returned and whose time is over at `now_ms`: the store's rows refuse it by then.
    pub fn forget(&mut self, now_ms: u64) {
        let entries = &mut self.entries;
        entries.retain(|_, entry| {
            let over = matches!(entry.state, LedgerState::Used | LedgerState::Returned) && !entry.undelivered;
            !(over && now_ms >= entry.expires_at_ms)
        });
        self.by_player.retain(|_, ids| {
            ids.retain(|id| entries.contains_key(id));
            !ids.is_empty()
        });
    }

    /// What this process used or gave back for a player and has not forgotten.
    pub fn past(&self, player: &Player) -> Vec<Past> {
        let ids = self.by_player.get(player).map_or(&[][..], Vec::as_slice);
        let over = |id: &TokenId| {
            let entry = self.entries.get(id)?;
            matches!(entry.state, LedgerState::Used | LedgerState::Returned)
                .then(|| Past { id: id.clone(), end: entry.end })
        };
        ids.iter().filter_map(over).collect()
    }

    /// The player behind a token that is held, for a read of its row.
    pub fn held(&self) -> impl Iterator<Item = (&TokenId, &Player)> {
        self.entries.iter().filter(|(_, entry)| entry.state == LedgerState::Held).map(|(id, entry)| (id, &entry.player))
    }

    /// A token of the player is being issued, or it is not known whether it was.
    pub fn is_issuing(&self, player: &Player) -> bool {
        let ids = self.by_player.get(player).map_or(&[][..], Vec::as_slice);
        ids.iter().any(|id| self.state(id) == Some(LedgerState::Issuing))
    }

    /// For whom a token was promised.
    pub fn player(&self, id: &TokenId) -> Option<&Player> {
        self.entries.get(id).map(|entry| &entry.player)
    }

    /// Where a token stands.
    pub fn state(&self, id: &TokenId) -> Option<LedgerState> {
        self.entries.get(id).map(|entry| entry.state)
    }

    /// Places that are promised now: being issued, held or being consumed.
    pub fn promised(&self) -> usize {
        self.entries
            .values()
            .filter(|entry| matches!(entry.state, LedgerState::Issuing | LedgerState::Held | LedgerState::Consuming))
            .count()
    }

    /// Places that were neither handed over nor given back.
    pub fn places(&self) -> usize {
        self.entries.values().filter(|entry| entry.place.is_some()).count()
    }

    /// Places whose outcome is still not known although their token's time was over at `now_ms`, for a process that
    /// redeems no more: nobody can use those tokens.
    pub fn abandon(&mut self, now_ms: u64) -> Vec<(TokenId, P)> {
        let open = [LedgerState::Issuing, LedgerState::Consuming];
        let over: Vec<TokenId> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.busy && now_ms >= entry.expires_at_ms)
            .map(|(id, _)| id.clone())
            .collect();
        over.into_iter().filter_map(|id| Some((id.clone(), self.give_back(&id, &open)?))).collect()
    }

    /// Takes every place that is held, for a shutdown, which says with [`released`](Self::released) when the store knows.
    pub fn give_up(&mut self) -> Vec<(TokenId, Player, Epoch, P)> {
        let held: Vec<(TokenId, Player, Epoch)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.state == LedgerState::Held)
            .map(|(id, entry)| (id.clone(), entry.player.clone(), entry.epoch))
            .collect();
        held.into_iter()
            .filter_map(|(id, player, epoch)| {
                let place = self.give_back(&id, &[LedgerState::Held])?;
                self.entries.get_mut(&id)?.end = PastEnd::GivenUp;
                Some((id, player, epoch, place))
            })
            .collect()
    }

    /// The store has the release of a token that was given up.
    pub fn released(&mut self, id: &TokenId) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.end = PastEnd::Known;
        }
    }
}

#[cfg(test)]
mod tests;
