//! A backend as the agent is one: a ledger over places, and an account of where every place went.

use std::collections::BTreeSet;

use maitred::ids::{Epoch, TokenId};
use maitred::token::{IssueOrder, Ledger};

pub type Place = u64;

/// One process that has places.
#[derive(Debug, Default)]
pub struct Backend {
    pub ledger: Ledger<Place>,
    places: u64,
    out: BTreeSet<Place>,
    used: BTreeSet<Place>,
    home: BTreeSet<Place>,
}

impl Backend {
    /// A place is reserved and its token is about to be issued.
    pub fn reserve(&mut self, order: &IssueOrder, epoch: u64, expires_at: u64) {
        self.places += 1;
        self.out.insert(self.places);
        self.ledger.issuing(order, Epoch(epoch), self.places, expires_at);
    }

    /// A player has it.
    pub fn used(&mut self, place: Place) -> Result<(), String> {
        let fresh = self.out.remove(&place) && self.used.insert(place);
        if fresh { Ok(()) } else { Err(format!("place {place} is handed to a second player: {self:?}")) }
    }

    /// It is free again.
    pub fn home(&mut self, id: &TokenId, place: Place) -> Result<(), String> {
        let fresh = self.out.remove(&place) && self.home.insert(place);
        if fresh { Ok(()) } else { Err(format!("place {place} of token {id} comes home a second time: {self:?}")) }
    }

    /// Every place was used or came home, once, and none is promised any more.
    pub fn settled(&self) -> Result<(), String> {
        let whole = u64::try_from(self.used.len() + self.home.len()).is_ok_and(|sum| sum == self.places);
        if whole && self.out.is_empty() && self.ledger.promised() == 0 {
            Ok(())
        } else {
            Err(format!("promised places are neither used nor back: {self:?}"))
        }
    }
}
