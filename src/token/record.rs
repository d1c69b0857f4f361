use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::envelope::{AuditReason, Kind, SCHEMA_VERSION_TEXT, plain_number};
use crate::error::Result;
use crate::ids::{Epoch, NodeEpoch, NodeId, OperationId, Player, RequestId, TokenId};
use crate::store::{Invocation, Row, SKEW_MS, Verifier, is_over};

/// Where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TokenState {
    /// Issued; any proxy may claim it.
    Pending,
    /// A proxy moves the player.
    Claimed,
    /// The player took the place.
    Consumed,
    /// Given up, with a reason.
    Released,
    /// Its time is over.
    Expired,
}

impl TokenState {
    /// The text in the row.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Claimed => "CLAIMED",
            Self::Consumed => "CONSUMED",
            Self::Released => "RELEASED",
            Self::Expired => "EXPIRED",
        }
    }

    fn read(text: &str) -> Option<Self> {
        [Self::Pending, Self::Claimed, Self::Consumed, Self::Released, Self::Expired]
            .into_iter()
            .find(|state| state.as_str() == text)
    }

    /// True for PENDING and CLAIMED.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Claimed)
    }
}

impl fmt::Display for TokenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A reservation as it was signed by the backend that issued it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// For whom.
    pub player: Player,
    /// On which backend.
    pub server: NodeId,
    /// The incarnation of the backend that issued it: only it can consume it.
    pub server_epoch: Epoch,
    /// The request it answers.
    pub request: RequestId,
    /// Which attempt of the request, from 1.
    pub attempt: u32,
    /// What the backend wants to know again at the join: JSON, opaque here, at most 4 KiB.
    pub payload: Box<RawValue>,
    /// When it was issued, in store ms.
    pub issued_at_ms: u64,
    /// When it ends, in store ms.
    pub expires_at_ms: u64,
    /// The signature.
    pub sig: String,
}

impl Invocation {
    /// Adds what a backend signs of a token besides its id and player, and the signature: server to signature.
    pub(crate) fn reservation(self, token: &Token) -> Self {
        self.arg(&token.server)
            .arg(token.server_epoch.0)
            .arg(token.request.as_str())
            .arg(token.attempt)
            .arg(token.payload.get())
            .arg(token.issued_at_ms)
            .arg(token.expires_at_ms)
            .arg(SCHEMA_VERSION_TEXT)
            .arg(&token.sig)
    }
}

impl Token {
    fn with_fields<T>(&self, then: impl FnOnce(&[&str]) -> T) -> T {
        let (epoch, attempt) = (self.server_epoch.to_string(), self.attempt.to_string());
        let (issued, expires) = (self.issued_at_ms.to_string(), self.expires_at_ms.to_string());
        then(&[
            self.id.as_str(),
            self.player.as_str(),
            self.server.as_str(),
            &epoch,
            self.request.as_str(),
            &attempt,
            self.payload.get(),
            &issued,
            &expires,
            SCHEMA_VERSION_TEXT,
        ])
    }

    /// A token of `server` for an attempt of a request, with the times of its issue and its end, signed.
    pub(crate) fn signed(
        verifier: &Verifier,
        id: TokenId,
        player: &Player,
        server: &NodeEpoch,
        (request, attempt): (&RequestId, u32),
        payload: &RawValue,
        (issued_at_ms, expires_at_ms): (u64, u64),
    ) -> Self {
        let mut token = Self {
            id,
            player: player.clone(),
            server: server.id.clone(),
            server_epoch: server.epoch,
            request: request.clone(),
            attempt,
            payload: payload.to_owned(),
            issued_at_ms,
            expires_at_ms,
            sig: String::new(),
        };
        token.sign(verifier);
        token
    }

    /// Signs it anew, after its times were set.
    pub(super) fn sign(&mut self, verifier: &Verifier) {
        self.sig = self.with_fields(|fields| verifier.keyring().sign(Kind::Token, fields).as_str().to_owned());
    }

    /// Checks the signature of a token that came in a message. What does not verify is audited under `source`.
    pub fn verify(&self, verifier: &Verifier, source: &str) -> Result<()> {
        self.with_fields(|fields| verifier.keyring().verify(Kind::Token, fields, &self.sig)).map_err(|failure| {
            verifier.refuse(AuditReason::from(failure), source, &format!("token of {}", self.player))
        })
    }
}

/// Who holds or held a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// The proxy.
    pub claimant: NodeId,
    /// Its incarnation; [`Epoch::NONE`] for a router that is no member.
    pub claimant_epoch: Epoch,
    /// When, in store ms.
    pub claimed_at_ms: u64,
    /// The claim's operation.
    pub claim_op: OperationId,
}

/// A token and what happened to it since, verified. The state itself is not signed: whoever acts on it goes through a
/// script, which checks again.
#[derive(Debug, Clone, Serialize)]
pub struct TokenRow {
    /// As it was issued.
    #[serde(flatten)]
    pub token: Token,
    /// Where it stands in the row. A token past its expiry counts as expired whatever this says.
    pub state: TokenState,
    /// The present claim.
    pub claim: Option<Claim>,
    /// The claim before it was reopened.
    pub last_claim: Option<Claim>,
    /// Why it was released.
    pub reason: Option<String>,
    /// When it was consumed, in store ms.
    pub consumed_at_ms: Option<u64>,
}

impl TokenRow {
    /// A row of the store, verified, and compared with the player whose key it was read from. `None` for a row that is
    /// no token (only a cancel mark, or gone).
    pub fn from_row(verifier: &Verifier, player: &Player, row: &Row) -> Result<Option<Self>> {
        if row.get("id").is_none() {
            return Ok(None);
        }
        let key = format!("token:{player}");
        let fields = verifier.row(Kind::Token, row, &key)?;
        let malformed = || verifier.refuse(AuditReason::Malformed, &key, &key);
        let token = Self::token(&fields, row.text("sig")).ok_or_else(malformed)?;
        if token.player != *player {
            return Err(verifier.refuse(AuditReason::WrongKey, &key, &key));
        }
        let state = TokenState::read(row.text("state")).ok_or_else(malformed)?;
        let claim = Self::claim(verifier, &token, row, "", &key)?;
        if state == TokenState::Claimed && claim.is_none() {
            return Err(verifier.refuse(AuditReason::MissingSignature, &key, &key));
        }
        let last_claim = Self::claim(verifier, &token, row, "last_", &key)?;
        Ok(Some(Self {
            token,
            state,
            claim,
            last_claim,
            reason: row.get("reason").map(str::to_owned),
            consumed_at_ms: row.number("consumed_at"),
        }))
    }

    fn token(fields: &[&str], sig: &str) -> Option<Token> {
        let &[id, player, server, epoch, request, attempt, payload, issued, expires, _version] = fields else {
            return None;
        };
        let raw = RawValue::from_string(payload.to_owned()).ok()?;
        // Blanks around it are cut off there, and what is left was not signed.
        if raw.get() != payload {
            return None;
        }
        Some(Token {
            id: TokenId::new(id).ok()?,
            player: Player::new(player).ok()?,
            server: NodeId::new(server).ok()?,
            server_epoch: Epoch(plain_number(epoch)?),
            request: RequestId::new(request).ok()?,
            attempt: plain_number(attempt)?,
            payload: raw,
            issued_at_ms: plain_number(issued)?,
            expires_at_ms: plain_number(expires)?,
            sig: sig.to_owned(),
        })
    }

    fn claim(verifier: &Verifier, token: &Token, row: &Row, prefix: &str, key: &str) -> Result<Option<Claim>> {
        let field = |name: &str| row.get(&format!("{prefix}{name}"));
        let Some(claimant) = field("claimant") else { return Ok(None) };
        let (epoch, op) = (field("claimant_epoch").unwrap_or(""), field("claim_op").unwrap_or(""));
        let sig = field("claim_sig").unwrap_or("");
        verifier
            .keyring()
            .verify(Kind::Claim, &[token.id.as_str(), token.player.as_str(), claimant, epoch, op], sig)
            .map_err(|failure| verifier.refuse(AuditReason::from(failure), key, key))?;
        let claim = || {
            Some(Claim {
                claimant: NodeId::new(claimant).ok()?,
                claimant_epoch: Epoch(plain_number(epoch)?),
                claimed_at_ms: plain_number(field("claimed_at")?)?,
                claim_op: OperationId::new(op).ok()?,
            })
        };
        claim().map(Some).ok_or_else(|| verifier.refuse(AuditReason::Malformed, key, key))
    }

    /// True while it can still be claimed or consumed at `now_ms` on the store's clock.
    pub fn is_live(&self, now_ms: u64) -> bool {
        // What was issued may be off by as much as the times are compared with.
        let lasts_ms = self.token.expires_at_ms.saturating_sub(self.token.issued_at_ms).saturating_add(SKEW_MS);
        self.state.is_open() && !is_over(self.token.expires_at_ms, now_ms, lasts_ms)
    }
}

/// What the token channel says: an id to look at again, never a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenEvent {
    /// `ended <player> <id> <server> <end>`
    Ended {
        /// Whose token.
        player: Player,
        /// The token.
        id: TokenId,
        /// Its backend.
        server: NodeId,
    },
    /// `reopened <player> <id> <server>`
    Reopened {
        /// Whose token.
        player: Player,
        /// The token.
        id: TokenId,
        /// Its backend.
        server: NodeId,
    },
}

impl TokenEvent {
    /// Reads an event; `None` for anything else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let kind = words.next()?;
        let player = Player::new(words.next()?).ok()?;
        let id = TokenId::new(words.next()?).ok()?;
        let server = NodeId::new(words.next()?).ok()?;
        match kind {
            "ended" => Some(Self::Ended { player, id, server }),
            "reopened" => Some(Self::Reopened { player, id, server }),
            _ => None,
        }
    }
}
