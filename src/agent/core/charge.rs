//! What requests and applications are charged against the limits of the config (POL-6).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::model::Request;
use crate::error::Result;
use crate::ids::{LimitName, OperationId, Player};
use crate::limit::{Limit, Limits, Verdict};

use super::Core;

/// How long a refund is tried while the store does not answer; a charge is not known for much longer.
const REFUND_MAX: Duration = Duration::from_secs(60);

/// The charge of one request. It is made before any backend is asked, so that however many proxies ask at once no more
/// requests run than the limit lets through, and stands once the request ends in a transfer. Dropped before that, it is
/// taken back in the background. A request that waits is not charged: the store knows a charge for 75 s only, and one that is
/// older cannot be taken back. It is charged again when its turn comes.
pub(in crate::agent) struct Charge {
    core: Arc<Core>,
    bill: Option<Bill>,
}

/// The limit does not let a request through.
pub(in crate::agent) struct Denied {
    /// When to come again.
    pub retry_after_ms: u64,
    /// For the operator.
    pub detail: String,
}

#[derive(Clone)]
struct Bill {
    name: LimitName,
    limit: Limit,
    player: Player,
    op: OperationId,
}

impl Bill {
    async fn refund(&self, limits: &Limits) -> Result<bool> {
        limits.refund(&self.name, &self.limit, &self.player, &self.op).await
    }
}

impl Charge {
    pub fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core), bill: None }
    }

    /// Charges the request against the limit of its source. Without one nothing is sent to the store. After an error it may
    /// stand, and the next call repeats it.
    pub async fn take(&mut self, request: &Request) -> Result<Option<Denied>> {
        let config = self.core.config();
        let Some((name, limit)) = config.limits.get_key_value(request.source.as_str()) else { return Ok(None) };
        // From here on it may stand.
        let bill = self.bill.get_or_insert_with(|| Bill {
            name: name.clone(),
            limit: *limit,
            player: request.player.clone(),
            op: OperationId::fresh(),
        });
        match Limits::new(self.core.store.clone()).take(&bill.name, &bill.limit, &bill.player, &bill.op).await? {
            Verdict::Allowed { .. } => Ok(None),
            Verdict::Denied { retry_after_ms } => {
                let detail = format!("the limit {} lets the player through in {retry_after_ms} ms", bill.name);
                self.bill = None;
                Ok(Some(Denied { retry_after_ms, detail }))
            }
        }
    }

    /// The request has its place: the charge stands.
    pub fn served(&mut self) {
        self.bill = None;
    }

    /// The request ended without a place, or begins to wait: the charge is taken back. What the store does not answer goes on
    /// in the background.
    pub async fn refund(&mut self) {
        // Dropped on its way, or after an error, it goes on in the background.
        let mut charge = Self { core: Arc::clone(&self.core), bill: self.bill.take() };
        let Some(bill) = &charge.bill else { return };
        match bill.refund(&Limits::new(self.core.store.clone())).await {
            Ok(_) => charge.bill = None,
            Err(error) => tracing::debug!(player = %bill.player, %error, "refunding goes on in the background"),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Some(bill) = self.bill.take() else { return };
        let core = Arc::clone(&self.core);
        let runtime = core.runtime.clone();
        let tasks = core.tasks.clone();
        let refunding = async move {
            let (limits, give_up) = (Limits::new(core.store.clone()), Instant::now() + REFUND_MAX);
            while let Err(error) = bill.refund(&limits).await
                && core.again("refund of a charge", &bill.player, &error, Some(give_up)).await
            {}
        };
        // A future can be dropped outside of every runtime.
        tasks.spawn_on(refunding, &runtime);
    }
}
