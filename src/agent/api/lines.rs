//! What a proxy's application calls.

use tracing::field::Empty;

use crate::agent::queue::{Departure, Entering, Entry, Failure};
use crate::error::Result;
use crate::ids::{LineName, Player};
use crate::queue::Left;

use super::proxy::ProxyAgent;

impl ProxyAgent {
    /// Gives a player who is connected here a ticket in a line, the same one again, or admits at once where nobody waits,
    /// the gate is open and a place is free (QUE-2). An earlier visit of the player through this node ends as
    /// [`OutReason::Elsewhere`](crate::agent::OutReason::Elsewhere). Runs `queue/enter`, once.
    ///
    /// Errors besides those of the store: [`Error::OutOfBounds`](crate::Error::OutOfBounds) for a line or lane that the
    /// config does not have, [`Error::LeaseLost`](crate::Error::LeaseLost), [`Error::Fenced`](crate::Error::Fenced),
    /// [`Error::Untrusted`](crate::Error::Untrusted) where the player's pass did not verify. After an error the place is
    /// kept for the grace where there is one: the same call again within it gives it back.
    ///
    /// Cancel safe: a future that is dropped leaves the line in the background.
    #[tracing::instrument(skip_all, fields(line = %entry.line, player = %entry.player, outcome = Empty))]
    pub async fn enter(&self, entry: Entry) -> Result<Entering> {
        // Boxed: the future of an application that awaits it stays small and shallow.
        Box::pin(self.queue().enter_login_line(entry)).await
    }

    /// A player who waits, or was admitted and has not arrived, goes; the visit ends without a further update.
    /// [`Left::None`] where this node knows of neither. Runs `queue/leave`, or `queue/failed` for an admitted player whose
    /// connection dropped. Where the store does not answer in time, or the future is dropped, it is repeated in the
    /// background.
    pub async fn left(&self, line: &LineName, player: &Player, departure: Departure) -> Result<Left> {
        Box::pin(self.queue().leave_login_line_of(line, player, departure)).await
    }

    /// The admitted player is on the server: no later enter is answered with this pass. False where this node knows of no
    /// such admission or it does not stand any more. Runs `queue/arrived`. Cancel safe: it can be repeated.
    pub async fn arrived(&self, line: &LineName, player: &Player) -> Result<bool> {
        self.queue().arrived(line, player).await
    }

    /// The transfer of an admitted player failed: the promised place is free again, and the player is back in front, or
    /// away where the connection is `gone` too. The third time (`maxFailures`) puts the player out. Runs `queue/failed`,
    /// and `queue/position` for who is back. Cancel safe: after [`Error::Unreachable`](crate::Error::Unreachable), or
    /// where the future was dropped, the same call gives the definite answer.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`](crate::Error::LeaseLost),
    /// [`Error::Fenced`](crate::Error::Fenced).
    pub async fn failed_admission(&self, line: &LineName, player: &Player, gone: bool) -> Result<Failure> {
        Box::pin(self.queue().failed_admission(line, player, gone)).await
    }

    /// Whether this node takes part in the admission of the lines; it does until told otherwise. Its own players go on
    /// waiting, and others admit them.
    pub fn admits(&self, on: bool) {
        self.queue().set_admits(on);
    }
}
