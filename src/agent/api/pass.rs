//! What a backend or link does with the pass that a player brings.

use crate::agent::queue::redeem;
use crate::error::Result;
use crate::ids::Player;
use crate::queue::{LoginPass, PassRefusal};

use super::agent::Agent;

impl Agent {
    /// Opens and checks the pass that `player` brought, without the store: that it is for this node and this player, and
    /// has not expired. Whether it was redeemed only [`redeem_pass`](Self::redeem_pass) knows.
    ///
    /// Errors with why it lets nobody in; what does not open is audited.
    pub fn verify_pass(&self, sealed: &str, player: &Player) -> Result<LoginPass, PassRefusal> {
        let core = self.core();
        LoginPass::verify(&core.verifier, sealed, &core.identity.id, player, core.store.clock().now_ms())
    }

    /// Spends a verified pass, once: the player comes in. Where the place was not taken in time (`arriveMs`) it takes a
    /// free one, else the pass is void. Runs `queue/redeem`.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`](crate::Error::LeaseLost),
    /// [`Error::Fenced`](crate::Error::Fenced). The inner error says why nobody may come in.
    ///
    /// Of several calls for one pass at once one is told that the player may come in, and the others wait for it. Cancel
    /// safe: after [`Error::Unreachable`](crate::Error::Unreachable), or where the future was dropped, the next call gives
    /// the definite answer.
    pub async fn redeem_pass(&self, pass: &LoginPass) -> Result<Result<(), PassRefusal>> {
        redeem(self.core(), pass).await
    }
}
