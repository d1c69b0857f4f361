use std::collections::BTreeMap;

use maitred::Error;
use maitred::ids::{Epoch, NodeEpoch, NodeId, OperationId, Player, RequestId, Role, TokenId};
use maitred::node::{BeatOutcome, Control, Identity, Lease, Membership, NodeRecord, NodeState};
use maitred::store::Store;
use maitred::token::{
    Book, CancelOutcome, ClaimOutcome, ConsumeOutcome, IssueOrder, IssueOutcome, ReleaseOutcome, Token,
};
use serde_json::value::RawValue;

use super::bench::Bench;

/// One process that joined.
pub struct Member {
    /// Under which id and epoch it acts.
    pub who: NodeEpoch,
    pub book: Book,
    pub control: Control,
    pub store: Store,
    membership: Membership,
    record: NodeRecord,
}

impl Bench {
    /// A process of its own, with connections of its own, joins.
    pub async fn join(&self, id: &str, role: Role) -> Member {
        self.join_on(self.store().await, id, role).await
    }

    /// A process joins over connections that are there.
    pub async fn join_on(&self, store: Store, id: &str, role: Role) -> Member {
        let id = NodeId::new(id).unwrap();
        let control = Control::default();
        let identity = Identity { id: id.clone(), role: role.clone(), addr: format!("{id}.test:25565") };
        let membership =
            Membership::new(store.clone(), self.verifier.clone(), identity, Lease::new(id.clone(), self.lease_ms));
        let record = NodeRecord {
            id: id.clone(),
            role,
            addr: String::new(),
            epoch: Epoch::NONE,
            incarnation: membership.incarnation().clone(),
            seq: 0,
            sent_at_ms: 0,
            state: NodeState::Ready,
            accepting: true,
            kill: true,
            players: 0,
            soft_cap: 0,
            load: maitred::node::Load::default(),
            services: Vec::new(),
            labels: BTreeMap::new(),
        };
        let book = Book::new(store.clone(), self.verifier.clone(), control.clone(), self.times);
        let who = NodeEpoch { id, epoch: Epoch::NONE };
        let mut member = Member { who, book, control, store, membership, record };
        member.rejoin().await;
        member
    }

    /// Another process takes over the id of `old`, whose lease is over with that.
    pub async fn replace(&self, old: &mut Member) -> Member {
        old.membership.leave().await.unwrap();
        self.join_on(old.store.clone(), old.who.id.as_str(), old.record.role.clone()).await
    }
}

impl Member {
    /// Joins again. Keeps its epoch where nobody else had the id.
    pub async fn rejoin(&mut self) {
        self.who.epoch = self.membership.join(self.record.clone()).await.unwrap();
    }

    pub async fn beat(&mut self) -> BeatOutcome {
        self.membership.beat(self.record.clone(), &self.control).await.unwrap()
    }

    pub async fn leave(&mut self) {
        self.membership.leave().await.unwrap();
    }

    /// An order as a backend makes it now, with ten seconds until its deadline.
    pub fn order(&self, player: &Player, request: &RequestId, attempt: u32) -> IssueOrder {
        let now = self.store.clock().now_ms();
        IssueOrder {
            id: TokenId::fresh(),
            player: player.clone(),
            request: request.clone(),
            attempt,
            payload: payload("{\"world\":\"lobby\"}"),
            deadline_ms: now + 10_000,
            earlier: Vec::new(),
            issued_at_ms: now,
        }
    }

    /// Issues a token that has to be issued.
    pub async fn issued(&self, player: &Player, request: &RequestId, attempt: u32) -> Token {
        let mut order = self.order(player, request, attempt);
        match self.book.issue(&self.who, &mut order).await.unwrap() {
            IssueOutcome::Issued(token) => token,
            other => panic!("the token of {player} was not issued: {other:?}"),
        }
    }

    /// Claims under a new operation.
    pub async fn claim(&self, token: &Token) -> Result<ClaimOutcome, Error> {
        self.book.claim(token, &self.who, &OperationId::fresh()).await
    }

    /// Consumes, as the server, under a new operation.
    pub async fn consume(&self, token: &Token) -> Result<ConsumeOutcome, Error> {
        self.book.consume(&token.id, &token.player, &self.who, &OperationId::fresh()).await
    }
}

pub fn player(name: &str) -> Player {
    Player::new(name).unwrap()
}

pub fn request(name: &str) -> RequestId {
    RequestId::new(name).unwrap()
}

pub fn payload(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// An outcome in the words of a table.
pub trait Said {
    fn word(&self) -> String;
}

/// What was answered, errors included.
pub fn say<T: Said>(outcome: &Result<T, Error>) -> String {
    match outcome {
        Ok(outcome) => outcome.word(),
        Err(Error::LeaseLost { .. }) => "LeaseLost".to_owned(),
        Err(Error::Fenced { .. }) => "Fenced".to_owned(),
        Err(Error::KillSwitch { scope }) => format!("KillSwitch({scope})"),
        Err(Error::Untrusted { reason, .. }) => format!("Untrusted({reason})"),
        Err(Error::OutOfBounds { what, .. }) => format!("OutOfBounds({what})"),
        Err(Error::Unreachable { .. }) => "Unreachable".to_owned(),
        Err(other) => format!("{other:?}"),
    }
}

impl Said for IssueOutcome {
    fn word(&self) -> String {
        match self {
            Self::Issued(_) => "Issued".to_owned(),
            Self::Taken(_) => "Taken".to_owned(),
            Self::Ended(end) => format!("Ended({end})"),
            other => format!("{other:?}"),
        }
    }
}

impl Said for ClaimOutcome {
    fn word(&self) -> String {
        match self {
            Self::Claimed(_) => "Claimed".to_owned(),
            Self::Ended(end) => format!("Ended({end})"),
            other => format!("{other:?}"),
        }
    }
}

impl Said for ConsumeOutcome {
    fn word(&self) -> String {
        match self {
            Self::Ended(end) => format!("Ended({end})"),
            other => format!("{other:?}"),
        }
    }
}

impl Said for ReleaseOutcome {
    fn word(&self) -> String {
        match self {
            Self::Ended(end) => format!("Ended({end})"),
            other => format!("{other:?}"),
        }
    }
}

impl Said for CancelOutcome {
    fn word(&self) -> String {
        format!("{self:?}")
    }
}
