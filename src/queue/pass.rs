use serde::Serialize;

use crate::envelope::{AuditReason, Kind, OpenFailure, SCHEMA_VERSION_TEXT, parse_netstrings, push_netstring};
use crate::error::Result;
use crate::ids::{LineName, NodeId, OperationId, Player, SessionId};
use crate::store::{Row, Verifier};

/// What sealed passes are sealed for.
const PURPOSE: &str = "pass";

/// An admission: who may go where, until when. The row in the store is signed; what a client carries is made of it by
/// [`seal`](Self::seal).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoginPass {
    /// The line that the player waited in.
    pub line: LineName,
    /// Whose.
    pub player: Player,
    /// The backend; none where only a link was picked.
    pub server: Option<NodeId>,
    /// The link, where one was picked.
    pub link: Option<NodeId>,
    /// Grows with every admission of the line.
    pub serial: u64,
    /// When it ends, in store ms.
    pub expires_at_ms: u64,
    /// The operation that it was admitted by.
    pub op: OperationId,
}

/// Why a pass lets nobody in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PassRefusal {
    /// It does not open: changed, of another zone, or no pass at all.
    #[error("the pass is not valid")]
    Invalid,
    /// It was sealed with a secret that is not known here.
    #[error("the pass was made with a secret that is not known here")]
    UnknownKey,
    /// Its time is over.
    #[error("the pass has expired")]
    Expired,
    /// It is for another backend and link.
    #[error("the pass is for another server")]
    WrongAudience,
    /// It is another player's.
    #[error("the pass is of another player")]
    WrongPlayer,
    /// It was redeemed before.
    #[error("the pass was redeemed before")]
    Redeemed,
    /// The place was not taken in time and there is no other now. The place in the line is kept for the next `enter`.
    #[error("the place was not taken in time and no other is free")]
    PlaceGone,
    /// It was given up, or the player has a newer one, or the store lost it.
    #[error("the pass does not stand any more")]
    Void,
}

impl PassRefusal {
    /// The text for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::UnknownKey => "unknown_key",
            Self::Expired => "expired",
            Self::WrongAudience => "wrong_audience",
            Self::WrongPlayer => "wrong_player",
            Self::Redeemed => "redeemed",
            Self::PlaceGone => "place_gone",
            Self::Void => "void",
        }
    }
}

fn text_of(id: Option<&NodeId>) -> &str {
    id.map_or("", NodeId::as_str)
}

fn id_of(text: &str) -> Option<Option<NodeId>> {
    if text.is_empty() { Some(None) } else { NodeId::new(text).ok().map(Some) }
}

impl LoginPass {
    /// The signature of the row.
    pub(super) fn sign(&self, verifier: &Verifier) -> String {
        self.with_fields(|fields| verifier.keyring().sign(Kind::Pass, fields).as_str().to_owned())
    }

    fn with_fields<T>(&self, then: impl FnOnce(&[&str]) -> T) -> T {
        let expires_at = self.expires_at_ms.to_string();
        then(&[
            self.line.as_str(),
            self.player.as_str(),
            text_of(self.server.as_ref()),
            text_of(self.link.as_ref()),
            &expires_at,
            self.op.as_str(),
            SCHEMA_VERSION_TEXT,
        ])
    }

    /// What the player's client carries: nobody without the secret reads or changes it. Netstrings of `v`, line, player,
    /// server, link, serial, expires_at and op, sealed.
    pub fn seal(&self, verifier: &Verifier) -> String {
        let mut plain = Vec::new();
        let (serial, expires_at) = (self.serial.to_string(), self.expires_at_ms.to_string());
        for field in [
            SCHEMA_VERSION_TEXT,
            self.line.as_str(),
            self.player.as_str(),
            text_of(self.server.as_ref()),
            text_of(self.link.as_ref()),
            &serial,
            &expires_at,
            self.op.as_str(),
        ] {
            push_netstring(&mut plain, field.as_bytes());
        }
        verifier.keyring().seal(PURPOSE, &plain)
    }

    /// Opens and checks a sealed pass without the store: that `me` is its backend or link, that it is `player`'s, and
    /// that at `now_ms` (store ms) it has not expired. Whether it was redeemed only the store knows.
    ///
    /// Errors with [`PassRefusal`]; what does not open is audited.
    pub fn verify(
        verifier: &Verifier,
        sealed: &str,
        me: &NodeId,
        player: &Player,
        now_ms: u64,
    ) -> Result<Self, PassRefusal> {
        let pass = Self::open(verifier, sealed)?;
        if pass.player != *player {
            return Err(PassRefusal::WrongPlayer);
        }
        if pass.server.as_ref() != Some(me) && pass.link.as_ref() != Some(me) {
            return Err(PassRefusal::WrongAudience);
        }
        if now_ms >= pass.expires_at_ms {
            return Err(PassRefusal::Expired);
        }
        Ok(pass)
    }

    fn open(verifier: &Verifier, sealed: &str) -> Result<Self, PassRefusal> {
        let plain = verifier.keyring().open(PURPOSE, sealed).map_err(|failure| {
            let (reason, refusal) = match failure {
                OpenFailure::UnknownKey => (AuditReason::UnknownKey, PassRefusal::UnknownKey),
                OpenFailure::Malformed => (AuditReason::Malformed, PassRefusal::Invalid),
                OpenFailure::NotOpened => (AuditReason::BadSignature, PassRefusal::Invalid),
            };
            verifier.audit().drop(reason, "pass", "a sealed pass");
            refusal
        })?;
        Self::from_plain(&plain).ok_or(PassRefusal::Invalid)
    }

    fn from_plain(plain: &[u8]) -> Option<Self> {
        let values = parse_netstrings(plain).ok()?;
        let texts: Vec<&str> = values.iter().map(|value| std::str::from_utf8(value).ok()).collect::<Option<_>>()?;
        let &[version, line, player, server, link, serial, expires_at, op] = texts.as_slice() else { return None };
        if version != SCHEMA_VERSION_TEXT {
            return None;
        }
        Some(Self {
            line: LineName::new(line).ok()?,
            player: Player::new(player).ok()?,
            server: id_of(server)?,
            link: id_of(link)?,
            serial: serial.parse().ok()?,
            expires_at_ms: expires_at.parse().ok()?,
            op: OperationId::new(op).ok()?,
        })
    }
}

/// An admission as the store has it, verified, and what happened to it since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassRow {
    /// The admission.
    pub pass: LoginPass,
    /// The place in the lane that it came from.
    pub seq: u64,
    /// The lane that it came from.
    pub lane: u16,
    /// When it was redeemed, in store ms.
    pub redeemed_at_ms: Option<u64>,
    /// It was given up.
    pub void: bool,
    /// The visit that it belongs to: that of the ticket, or of the last enter that was answered with it. Not signed.
    pub session: Option<SessionId>,
}

impl PassRow {
    /// A row of the store, verified, and compared with the line and player whose key it was read from. `None` where there
    /// is no pass.
    pub fn from_row(verifier: &Verifier, line: &LineName, player: &Player, row: &Row) -> Result<Option<Self>> {
        if row.get("serial").is_none() {
            return Ok(None);
        }
        let key = format!("pass:{line}:{player}");
        let fields = [
            line.as_str(),
            player.as_str(),
            row.text("server"),
            row.text("link"),
            row.text("expires_at"),
            row.text("op"),
            row.text("v"),
        ];
        if row.text("v") != SCHEMA_VERSION_TEXT && !row.text("v").is_empty() {
            return Err(verifier.refuse(AuditReason::SchemaVersion, &key, &key));
        }
        // Line and player are those of the key, so a row under another key does not verify.
        verifier
            .keyring()
            .verify(Kind::Pass, &fields, row.text("sig"))
            .map_err(|failure| verifier.refuse(AuditReason::from(failure), &key, &key))?;
        let read = || {
            Some(Self {
                pass: LoginPass {
                    line: line.clone(),
                    player: player.clone(),
                    server: id_of(row.text("server"))?,
                    link: id_of(row.text("link"))?,
                    serial: row.number("serial")?,
                    expires_at_ms: row.number("expires_at")?,
                    op: OperationId::new(row.text("op")).ok()?,
                },
                seq: row.number("seq")?,
                lane: row.text("lane").parse().ok()?,
                redeemed_at_ms: row.number("redeemed_at"),
                void: row.get("void").is_some(),
                session: row.get("session").and_then(|text| SessionId::new(text).ok()),
            })
        };
        read().map(Some).ok_or_else(|| verifier.refuse(AuditReason::Malformed, &key, &key))
    }
}
