use std::collections::BTreeSet;

use serde_json::value::RawValue;
use tracing::Span;
use tracing::field::Empty;

use crate::envelope::{AuditReason, Kind};
use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, NodeId, OperationId, Player, RequestId, TokenId};
use crate::node::{Arrivals, Control, MemberConversation};
use crate::store::{Answer, Conversation, Invocation, Key, Store, Verifier, scripts};

use super::outcome::{ClaimOutcome, ConsumeOutcome, IssueOutcome};
use super::record::{Claim, Token, TokenRow};

/// Largest payload of a token, in bytes.
pub const PAYLOAD_MAX_BYTES: usize = 4_096;
/// Other servers that one call can declare.
pub(super) const OTHERS_MAX: usize = 16;

/// Times of tokens, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookOptions {
    /// How long a token lives. Default 30,000.
    pub ttl_ms: u64,
    /// How long a claim stands before it may be reopened when its claimant is gone. Default 5,000.
    pub claim_reanimate_ms: u64,
    /// How long ended tokens stay readable. Default 60,000.
    pub audit_ms: u64,
}

impl Default for BookOptions {
    fn default() -> Self {
        Self { ttl_ms: 30_000, claim_reanimate_ms: 5_000, audit_ms: 60_000 }
    }
}

/// What a backend wants issued.
#[derive(Debug, Clone)]
pub struct IssueOrder {
    /// The token's id: the operation that is repeated until its outcome is definite.
    pub id: TokenId,
    /// For whom.
    pub player: Player,
    /// The request.
    pub request: RequestId,
    /// Its attempt, from 1.
    pub attempt: u32,
    /// What to hand over at the join.
    pub payload: Box<RawValue>,
    /// Store ms after which the attempt is given up, so that a late issue is refused.
    pub deadline_ms: u64,
    /// The servers that earlier attempts of the request asked.
    pub earlier: Vec<NodeId>,
    /// When it was first issued, in store ms: a repeat keeps it, so that it signs what the first try signed.
    pub issued_at_ms: u64,
}

/// The reservation book of a zone. Cheap to clone. Every operation is repeated under its own id while the store does
/// not answer, for the store's operation time; [`Error::Unreachable`] then says that the outcome is not known, and the
/// same call gives the definite answer later.
#[derive(Debug, Clone)]
pub struct Book {
    pub(super) store: Store,
    verifier: Verifier,
    control: Control,
    pub(super) options: BookOptions,
    counting: Option<(Arrivals, u64)>,
}

impl Book {
    /// The book behind `store`.
    pub fn new(store: Store, verifier: Verifier, control: Control, options: BookOptions) -> Self {
        Self { store, verifier, control, options, counting: None }
    }

    /// For a server that lines lead to, which promise a place for `arrive_ms`: issues only what they have left of its soft cap,
    /// and holds the place of a consumed token for as long, or until the heartbeat that names the arrival.
    #[must_use]
    pub fn counting(mut self, arrivals: Arrivals, arrive_ms: u64) -> Self {
        self.counting = Some((arrivals, arrive_ms));
        self
    }

    /// How long lines hold a place of the server; 0 where none leads there.
    fn arrive_ms(&self) -> u64 {
        self.counting.as_ref().map_or(0, |(_, arrive_ms)| *arrive_ms)
    }

    /// The times.
    pub fn options(&self) -> &BookOptions {
        &self.options
    }

    /// The control entries that its scripts obey.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The store behind it.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Issues a token for a place of `server`, which has to hold its lease. Runs `token/issue`.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`], [`Error::Fenced`], [`Error::KillSwitch`],
    /// [`Error::OutOfBounds`] for a payload over 4 KiB, [`Error::Untrusted`] where the player's present row did not
    /// verify. The outcome of `order.id` is not known after [`Error::Unreachable`] only; the same order asks again.
    #[tracing::instrument(
        level = "debug",
        skip_all,
        fields(
            player = %order.player, token = %order.id, server = %server.id, request = %order.request,
            attempt = order.attempt, answer = Empty,
        )
    )]
    pub async fn issue(&self, server: &NodeEpoch, order: &mut IssueOrder) -> Result<IssueOutcome> {
        let payload_bytes = order.payload.get().len();
        if payload_bytes > PAYLOAD_MAX_BYTES {
            return Err(Error::OutOfBounds {
                what: "payload",
                problem: format!("it has {payload_bytes} bytes, allowed are {PAYLOAD_MAX_BYTES}"),
            });
        }
        let mut others: BTreeSet<NodeId> =
            order.earlier.iter().filter(|id| **id != server.id).take(OTHERS_MAX - 1).cloned().collect();
        let mut token = Token {
            id: order.id.clone(),
            player: order.player.clone(),
            server: server.id.clone(),
            server_epoch: server.epoch,
            request: order.request.clone(),
            attempt: order.attempt,
            payload: order.payload.clone(),
            issued_at_ms: 0,
            expires_at_ms: 0,
            sig: String::new(),
        };
        let mut asked = self.conversation_of(server, "issuing a token", "issue");
        loop {
            let call = |was_off: bool| {
                if was_off {
                    // Not issued under this id, so it may be signed with another time.
                    order.issued_at_ms = self.store.clock().now_ms();
                }
                token.issued_at_ms = order.issued_at_ms;
                token.expires_at_ms = order.issued_at_ms.saturating_add(self.options.ttl_ms);
                token.sign(&self.verifier);
                self.issue_call(&token, order.deadline_ms, &others)
            };
            let answer = asked.ask_dated(call).await?;
            match answer.word() {
                "ISSUED" => return Ok(IssueOutcome::Issued(token)),
                "TAKEN" => match self.find(&order.player).await? {
                    Some(row) if row.token.id == order.id => return Ok(IssueOutcome::Issued(row.token)),
                    Some(row) if row.is_live(self.store.clock().now_ms()) => {
                        return Ok(IssueOutcome::Taken(Box::new(row)));
                    }
                    // It ended between the two reads: ask again.
                    _ => {}
                },
                "ENDED" => return Ok(IssueOutcome::Ended(answer.text(0)?.to_owned())),
                "ATTEMPT" => return Ok(IssueOutcome::Attempt),
                "CANCELLED" => return Ok(IssueOutcome::Cancelled),
                "LATE" => return Ok(IssueOutcome::Late),
                "NO_PLACE" => return Ok(IssueOutcome::NoPlace),
                "NEED" => self.needed(&answer, &order.player, &mut others)?,
                _ => return Err(answer.unexpected()),
            }
        }
    }

    fn issue_call(&self, token: &Token, deadline_ms: u64, others: &BTreeSet<NodeId>) -> Invocation {
        let keys = self.store.keys();
        let mut key_list = vec![
            keys.token(&token.player),
            keys.node(&token.server),
            keys.due(&token.server),
            keys.due_servers(),
            keys.control(),
            keys.held(&token.server),
        ];
        for other in others {
            key_list.extend([keys.node(other), keys.due(other)]);
        }
        let call = Invocation::new(&scripts::TOKEN_ISSUE, &key_list)
            .arg(token.id.as_str())
            .arg(token.player.as_str())
            .reservation(token)
            .arg(deadline_ms)
            .arg(self.options.claim_reanimate_ms)
            .arg(self.options.audit_ms)
            .arg(keys.token_events())
            .kills([self.control.kill_of_fleet(), self.control.kill_of(&token.server)])
            .arg(self.arrive_ms());
        others.iter().fold(call, Invocation::arg)
    }

    /// Claims a token, so that exactly one proxy moves the player. Runs `token/claim`; `op` is the operation.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`], [`Error::Fenced`], [`Error::KillSwitch`].
    #[tracing::instrument(
        level = "debug",
        skip_all,
        fields(
            player = %token.player, token = %token.id, server = %token.server, claimant = %claimant.id,
            answer = Empty,
        )
    )]
    pub async fn claim(&self, token: &Token, claimant: &NodeEpoch, op: &OperationId) -> Result<ClaimOutcome> {
        let epoch = claimant.epoch.to_string();
        let fields = [token.id.as_str(), token.player.as_str(), claimant.id.as_str(), &epoch, op.as_str()];
        let sig = self.verifier.keyring().sign(Kind::Claim, &fields);
        let keys = self.store.keys();
        let key_list = [keys.token(&token.player), keys.node(&claimant.id), keys.node(&token.server), keys.control()];
        let call = || {
            Invocation::new(&scripts::TOKEN_CLAIM, &key_list)
                .arg(token.id.as_str())
                .arg(&token.server)
                .member(claimant)
                .arg(op.as_str())
                .arg(sig.as_str())
                .kills([
                    self.control.kill_of_fleet(),
                    self.control.kill_of(&claimant.id),
                    self.control.kill_of(&token.server),
                ])
        };
        let answer = self.conversation_of(claimant, "claiming a token", "claim").ask(call).await?;
        Ok(match answer.word() {
            "CLAIMED" => ClaimOutcome::Claimed(Claim {
                claimant: claimant.id.clone(),
                claimant_epoch: claimant.epoch,
                claimed_at_ms: self.store.clock().now_ms(),
                claim_op: op.clone(),
            }),
            "LOST" => ClaimOutcome::Lost,
            "EXPIRED" => ClaimOutcome::Expired,
            "ENDED" => ClaimOutcome::Ended(answer.text(0)?.to_owned()),
            "NONE" => ClaimOutcome::None,
            "SERVER_GONE" => ClaimOutcome::ServerGone,
            // The row under this id names another server than the signed token does: not what was signed.
            "NEED" => return Err(self.forged(&token.player)),
            _ => return Err(answer.unexpected()),
        })
    }

    /// Consumes a token at the join: the backend that issued it, in the epoch that issued it. Runs `token/consume`;
    /// `op` is the operation. A replay is audited.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`], [`Error::Fenced`].
    #[tracing::instrument(
        level = "debug",
        skip_all,
        fields(player = %player, token = %id, server = %server.id, answer = Empty)
    )]
    pub async fn consume(
        &self,
        id: &TokenId,
        player: &Player,
        server: &NodeEpoch,
        op: &OperationId,
    ) -> Result<ConsumeOutcome> {
        let (keys, at) = (self.store.keys(), &server.id);
        let key_list = [keys.token(player), keys.node(at), keys.due(at), keys.due_servers(), keys.held(at)];
        let call = || {
            Invocation::new(&scripts::TOKEN_CONSUME, &key_list)
                .arg(id.as_str())
                .arg(player.as_str())
                .member(server)
                .arg(op.as_str())
                .arg(self.options.audit_ms)
                .arg(self.arrive_ms())
        };
        let answer = self.conversation_of(server, "consuming a token", "consume").ask(call).await?;
        Ok(match answer.word() {
            "CONSUMED" => {
                // Where the row does not tell any more as what the place is held, it ends by itself.
                if let (Some((arrivals, _)), Ok(claim)) = (&self.counting, answer.text(1)) {
                    arrivals.note(claim);
                }
                ConsumeOutcome::Consumed
            }
            "REPLAY" => {
                self.verifier.audit().drop(AuditReason::TokenReplay, player.as_str(), id.as_str());
                ConsumeOutcome::Replay
            }
            "NOT_CLAIMED" => ConsumeOutcome::NotClaimed,
            "EXPIRED" => ConsumeOutcome::Expired,
            "ENDED" => ConsumeOutcome::Ended(answer.text(0)?.to_owned()),
            "NOT_YOURS" => ConsumeOutcome::NotYours,
            "NONE" => ConsumeOutcome::None,
            _ => return Err(answer.unexpected()),
        })
    }

    /// The player's token, verified; also an ended one while it is readable. One read, no script.
    pub async fn find(&self, player: &Player) -> Result<Option<TokenRow>> {
        let row = self.store.row(self.store.keys().token(player)).await?;
        TokenRow::from_row(&self.verifier, player, &row)
    }

    /// The servers that have tokens someone must look at.
    pub async fn servers(&self) -> Result<Vec<NodeId>> {
        let names = self.store.members(self.store.keys().due_servers()).await?;
        Ok(names.iter().filter_map(|name| NodeId::new(name).ok()).collect())
    }

    /// The open tokens of a server, verified; rows that do not verify are audited and left out.
    pub async fn list(&self, server: &NodeId) -> Result<Vec<TokenRow>> {
        let keys = self.store.keys();
        let players: Vec<Player> = self
            .store
            .scores(keys.due(server))
            .await?
            .into_iter()
            .filter_map(|(player, _)| Player::new(player).ok())
            .collect();
        let row_keys: Vec<Key<'_>> = players.iter().map(|player| keys.token(player)).collect();
        let rows = self.store.rows_each(&row_keys).await?;
        let tokens = players
            .iter()
            .zip(rows)
            .filter_map(|(player, row)| TokenRow::from_row(&self.verifier, player, &row.ok()?).ok().flatten());
        Ok(tokens.filter(|row| row.token.server == *server).collect())
    }

    /// `NEED <server>`: the row names a server whose keys were not passed.
    pub(super) fn needed(&self, answer: &Answer, player: &Player, others: &mut BTreeSet<NodeId>) -> Result<()> {
        let server = NodeId::new(answer.text(0)?).map_err(|_| self.forged(player))?;
        while others.len() >= OTHERS_MAX {
            others.pop_first();
        }
        others.insert(server);
        Ok(())
    }

    pub(super) fn forged(&self, player: &Player) -> Error {
        let key = format!("token:{player}");
        self.verifier.refuse(AuditReason::Malformed, &key, &key)
    }

    /// Talks to a script that checks nobody's lease. `transition` names it in the count of answers.
    pub(super) fn conversation(
        &self,
        during: &'static str,
        transition: &'static str,
    ) -> Conversation<'_, impl Fn(&Answer) + use<>> {
        Conversation::new(&self.store, during, move |answer| count(transition, answer.word()))
    }

    /// Talks to a script that checks the lease of `who`.
    fn conversation_of<'a>(
        &'a self,
        who: &'a NodeEpoch,
        during: &'static str,
        transition: &'static str,
    ) -> MemberConversation<'a, impl Fn(&Answer) + use<>> {
        let count = move |answer: &Answer| count(transition, answer.word());
        MemberConversation::new(&self.store, &self.verifier, who, during, count).obeying(&self.control)
    }
}

/// Counts an answer, and says it on the span of the operation.
fn count(transition: &'static str, answer: &'static str) {
    Span::current().record("answer", answer);
    metrics::counter!("maitred_tokens_total", "transition" => transition, "answer" => answer).increment(1);
}
