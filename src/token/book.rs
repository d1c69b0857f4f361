use std::collections::BTreeSet;

use serde_json::value::RawValue;
use tracing::Span;
use tracing::field::Empty;

use crate::envelope::{AuditReason, Kind, SCHEMA_VERSION_TEXT};
use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, NodeId, OperationId, Player, RequestId, TokenId};
use crate::node::{Arrivals, Control, KILL, kill_name};
use crate::store::{Answer, Invocation, Key, Store, Verifier, scripts};

use super::outcome::{ClaimOutcome, ConsumeOutcome, IssueOutcome};
use super::record::{Claim, Token, TokenRow};

/// Largest payload of a token, in bytes.
pub const PAYLOAD_MAX_BYTES: usize = 4_096;
/// Other servers that one call can declare.
pub(super) const OTHERS_MAX: usize = 16;
/// How often one call may be asked for other keys, other control entries or another time before it gives up.
pub(super) const REASKS: usize = 8;

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

    /// Holds the place of a consumed token for `arrive_ms`, or until the heartbeat that names the arrival.
    #[must_use]
    pub fn counting(mut self, arrivals: Arrivals, arrive_ms: u64) -> Self {
        self.counting = Some((arrivals, arrive_ms));
        self
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
        for _ in 0..REASKS {
            let mut token = Token {
                id: order.id.clone(),
                player: order.player.clone(),
                server: server.id.clone(),
                server_epoch: server.epoch,
                request: order.request.clone(),
                attempt: order.attempt,
                payload: order.payload.clone(),
                issued_at_ms: order.issued_at_ms,
                expires_at_ms: order.issued_at_ms.saturating_add(self.options.ttl_ms),
                sig: String::new(),
            };
            token.sign(&self.verifier);
            let answer = self.store.run(&self.issue_call(&token, order.deadline_ms, &others)).await?;
            count("issue", answer.word());
            match answer.word() {
                "ISSUED" => return Ok(IssueOutcome::Issued(token)),
                "TAKEN" => match self.find(&order.player).await? {
                    Some(row) if row.token.id == order.id => return Ok(IssueOutcome::Issued(row.token)),
                    Some(row) if row.is_live(self.store.clock().now_ms()) => {
                        return Ok(IssueOutcome::Taken(Box::new(row)));
                    }
                    // It ended between the two looks: ask again.
                    _ => {}
                },
                "ENDED" => return Ok(IssueOutcome::Ended(answer.text(0)?.to_owned())),
                "ATTEMPT" => return Ok(IssueOutcome::Attempt),
                "CANCELLED" => return Ok(IssueOutcome::Cancelled),
                "LATE" => return Ok(IssueOutcome::Late),
                // Not issued under this id, so it may be signed with another time.
                "SKEW" => {
                    self.store.sync_clock().await?;
                    order.issued_at_ms = self.store.clock().now_ms();
                }
                "NEED" => self.needed(&answer, &order.player, &mut others)?,
                _ => self.refused(&answer, server).await?,
            }
        }
        Err(asked_too_often("issuing a token"))
    }

    fn issue_call(&self, token: &Token, deadline_ms: u64, others: &BTreeSet<NodeId>) -> Invocation {
        let keys = self.store.keys();
        let mut key_list = vec![
            keys.token(&token.player),
            keys.node(&token.server),
            keys.due(&token.server),
            keys.due_servers(),
            keys.control(),
        ];
        for other in others {
            key_list.extend([keys.node(other), keys.due(other)]);
        }
        let kill = self.control.kill_arg(KILL);
        let kill_server = self.control.kill_arg(&kill_name(&token.server));
        let mut call = Invocation::new(&scripts::TOKEN_ISSUE, &key_list)
            .arg(token.id.as_str())
            .arg(token.player.as_str())
            .arg(token.server.as_str())
            .arg(token.server_epoch.0)
            .arg(token.request.as_str())
            .arg(token.attempt)
            .arg(token.payload.get())
            .arg(token.issued_at_ms)
            .arg(token.expires_at_ms)
            .arg(SCHEMA_VERSION_TEXT)
            .arg(&token.sig)
            .arg(deadline_ms)
            .arg(self.options.claim_reanimate_ms)
            .arg(self.options.audit_ms)
            .arg(keys.token_events())
            .arg(&kill.bytes)
            .arg(kill.verdict())
            .arg(&kill_server.bytes)
            .arg(kill_server.verdict());
        for other in others {
            call = call.arg(other.as_str());
        }
        call
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
        for _ in 0..REASKS {
            let keys = self.store.keys();
            let kills =
                [KILL, &kill_name(&claimant.id), &kill_name(&token.server)].map(|name| self.control.kill_arg(name));
            let mut call = Invocation::new(
                &scripts::TOKEN_CLAIM,
                &[keys.token(&token.player), keys.node(&claimant.id), keys.node(&token.server), keys.control()],
            )
            .arg(token.id.as_str())
            .arg(token.server.as_str())
            .arg(claimant.id.as_str())
            .arg(claimant.epoch.0)
            .arg(op.as_str())
            .arg(sig.as_str());
            for kill in &kills {
                call = call.arg(&kill.bytes).arg(kill.verdict());
            }
            let answer = self.store.run(&call).await?;
            count("claim", answer.word());
            return Ok(match answer.word() {
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
                _ => {
                    self.refused(&answer, claimant).await?;
                    continue;
                }
            });
        }
        Err(asked_too_often("claiming a token"))
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
        let call = Invocation::new(
            &scripts::TOKEN_CONSUME,
            &[keys.token(player), keys.node(at), keys.due(at), keys.due_servers(), keys.held(at)],
        )
        .arg(id.as_str())
        .arg(player.as_str())
        .arg(at.as_str())
        .arg(server.epoch.0)
        .arg(op.as_str())
        .arg(self.options.audit_ms)
        .arg(self.counting.as_ref().map_or(0, |(_, arrive_ms)| *arrive_ms));
        let answer = self.store.run(&call).await?;
        count("consume", answer.word());
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
            _ => {
                self.refused(&answer, server).await?;
                return Err(answer.unexpected());
            }
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

    /// The answers that several scripts share: Ok where the call can be repeated.
    async fn refused(&self, answer: &Answer, who: &NodeEpoch) -> Result<()> {
        match answer.word() {
            "CONTROL" => self.control.refresh(&self.store, &self.verifier).await,
            "KILLED" => {
                let entry = answer.text(0)?;
                let scope = entry.strip_prefix("kill:").unwrap_or("fleet").to_owned();
                Err(Error::KillSwitch { scope })
            }
            "NO_LEASE" => Err(Error::LeaseLost { id: who.id.clone() }),
            "FENCED" => Err(Error::Fenced { id: who.id.clone(), epoch: who.epoch }),
            _ => Err(answer.unexpected()),
        }
    }
}

pub(super) fn asked_too_often(during: &'static str) -> Error {
    Error::Unreachable { during, reason: "the store's state changed at every try".to_owned() }
}

/// Counts an answer, and says it on the span of the operation.
pub(super) fn count(transition: &'static str, answer: &str) {
    Span::current().record("answer", answer);
    metrics::counter!("maitred_tokens_total", "transition" => transition, "answer" => answer.to_owned()).increment(1);
}
