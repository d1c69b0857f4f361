use maitred::ids::{OperationId, Player, RequestId, TokenId};
use maitred::store::{Invocation, scripts};

use super::stage::Stage;

/// What a backend hands over with a place: small, or filled up to `bytes`.
pub(super) fn payload(bytes: usize) -> String {
    const SMALL: &str = r#"{"region":"overworld"}"#;
    const HEAD: &str = r#"{"region":"overworld","note":""#;
    const TAIL: &str = r#""}"#;
    match bytes.checked_sub(HEAD.len() + TAIL.len()) {
        Some(room) => format!("{HEAD}{}{TAIL}", "x".repeat(room)),
        None => SMALL.to_owned(),
    }
}

/// The names of one token's life.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub id: TokenId,
    pub player: Player,
    pub request: RequestId,
    pub claim: OperationId,
    pub consume: OperationId,
}

impl Life {
    /// A player that nobody knows yet, with names as long as UUIDs.
    pub fn fresh() -> Result<Self, maitred::ids::InvalidId> {
        Ok(Self {
            id: TokenId::fresh(),
            player: Player::new(TokenId::fresh().as_str())?,
            request: RequestId::fresh(),
            claim: OperationId::fresh(),
            consume: OperationId::fresh(),
        })
    }

    /// The three calls of the life, as [`Book`](maitred::token::Book) makes them: the same keys and arguments, in the same
    /// order, for a token that lives `ttl_ms`.
    pub fn calls(&self, stage: &Stage, ttl_ms: u64) -> [Invocation; 3] {
        [self.issue_call(stage, ttl_ms), self.claim_call(stage), self.consume_call(stage)]
    }

    /// The call of `token/issue`, with a small payload.
    pub fn issue_call(&self, stage: &Stage, ttl_ms: u64) -> Invocation {
        self.issue_with(stage, ttl_ms, &payload(0))
    }

    /// The call of `token/issue` with that payload.
    pub fn issue_with(&self, stage: &Stage, ttl_ms: u64, payload: &str) -> Invocation {
        let (keys, server, options) = (stage.store.keys(), &stage.backend, stage.book.options());
        let now = stage.store.clock().now_ms();
        Invocation::new(
            &scripts::TOKEN_ISSUE,
            &[
                keys.token(&self.player),
                keys.node(&server.id),
                keys.due(&server.id),
                keys.due_servers(),
                keys.control(),
                keys.held(&server.id),
            ],
        )
        .arg(self.id.as_str())
        .arg(self.player.as_str())
        .arg(server.id.as_str())
        .arg(server.epoch.0)
        .arg(self.request.as_str())
        .arg(1_u32)
        .arg(payload)
        .arg(now)
        .arg(now + ttl_ms)
        .arg("1")
        .arg(&stage.signature)
        .arg(now + ttl_ms)
        .arg(options.claim_reanimate_ms)
        .arg(options.audit_ms)
        .arg(keys.token_events())
        .arg("")
        .arg("off")
        .arg("")
        .arg("off")
        .arg(0_u32)
    }

    /// The call of `token/claim`.
    pub fn claim_call(&self, stage: &Stage) -> Invocation {
        let (keys, server, proxy) = (stage.store.keys(), &stage.backend, &stage.proxy);
        let mut call = Invocation::new(
            &scripts::TOKEN_CLAIM,
            &[keys.token(&self.player), keys.node(&proxy.id), keys.node(&server.id), keys.control()],
        )
        .arg(self.id.as_str())
        .arg(server.id.as_str())
        .arg(proxy.id.as_str())
        .arg(proxy.epoch.0)
        .arg(self.claim.as_str())
        .arg(&stage.signature);
        for _ in 0..3 {
            call = call.arg("").arg("off");
        }
        call
    }

    fn consume_call(&self, stage: &Stage) -> Invocation {
        let (keys, server) = (stage.store.keys(), &stage.backend);
        Invocation::new(
            &scripts::TOKEN_CONSUME,
            &[
                keys.token(&self.player),
                keys.node(&server.id),
                keys.due(&server.id),
                keys.due_servers(),
                keys.held(&server.id),
            ],
        )
        .arg(self.id.as_str())
        .arg(self.player.as_str())
        .arg(server.id.as_str())
        .arg(server.epoch.0)
        .arg(self.consume.as_str())
        .arg(stage.book.options().audit_ms)
        .arg(0_u32)
    }
}
