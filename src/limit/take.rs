use crate::error::Result;
use crate::ids::{LimitName, OperationId, Player};
use crate::store::{Invocation, Store, scripts};

use super::rule::Limit;

/// How long a charged operation is known: longer than any operation is repeated (`store.operationTimeoutMs`), so that
/// no repeat is charged again. At the highest rate of a [`Limit`] fewer than 256 are charged in that time, which is how
/// many the script keeps.
const KEEP_MS: u64 = 75_000;

/// What a limit said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Charged.
    Allowed {
        /// So many more would have been let through at that moment.
        remaining: u64,
    },
    /// Not charged.
    Denied {
        /// The next operation fits in so many ms, if no other one comes before it.
        retry_after_ms: u64,
    },
}

/// The limits of one zone. Cheap to clone; keeps nothing but its connection to the store.
#[derive(Debug, Clone)]
pub struct Limits {
    store: Store,
}

impl Limits {
    /// Limits kept in `store`.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Charges `op` of `player` against the limit `name`, or says when to come again. The limit's state is found by its
    /// name, so all who use a name should agree on `limit`; one that was changed counts from the next call on.
    ///
    /// Repeating the same `op` is safe: one that was charged has the same answer for 75 s and costs nothing, one that
    /// was denied is judged anew. Runs `limit/take`.
    ///
    /// Errors with those of the store. After [`Error::Unreachable`](crate::Error::Unreachable) it may have been charged:
    /// repeat it, or [`refund`](Self::refund) it. A future that is dropped may leave it charged.
    pub async fn take(&self, name: &LimitName, limit: &Limit, player: &Player, op: &OperationId) -> Result<Verdict> {
        let subject = subject(name, player);
        let call = Invocation::new(&scripts::LIMIT_TAKE, &[self.store.keys().limit(&subject)])
            .arg(op.as_str())
            .arg(limit.interval_us())
            .arg(limit.burst())
            .arg(KEEP_MS);
        let answer = self.store.run(&call).await?;
        match answer.word() {
            "ALLOWED" => Ok(Verdict::Allowed { remaining: answer.number(0)? }),
            "DENIED" => Ok(Verdict::Denied { retry_after_ms: answer.number(0)? }),
            _ => Err(answer.unexpected()),
        }
    }

    /// Takes the charge of `op` back: the limit is then as if it had never been made. False where there is none, or one
    /// older than 75 s. Safe to repeat. Runs `limit/refund`.
    pub async fn refund(&self, name: &LimitName, limit: &Limit, player: &Player, op: &OperationId) -> Result<bool> {
        let subject = subject(name, player);
        let call = Invocation::new(&scripts::LIMIT_REFUND, &[self.store.keys().limit(&subject)])
            .arg(op.as_str())
            .arg(limit.interval_us());
        let answer = self.store.run(&call).await?;
        match answer.word() {
            "REFUNDED" => Ok(true),
            "NONE" => Ok(false),
            _ => Err(answer.unexpected()),
        }
    }
}

/// A name holds no colon, so no two pairs share a key.
fn subject(name: &LimitName, player: &Player) -> String {
    format!("{name}:{player}")
}
