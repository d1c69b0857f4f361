//! What a proxy's application calls.

use crate::agent::ProxyAgent;
use crate::error::{Error, Result};
use crate::ids::{LineName, Player};
use crate::queue::Left;

use super::entry::{Departure, Entering, Entry, Failure};

impl ProxyAgent {
    /// Gives a player who is connected here a place in a line, the same place again, or admits at once where nobody waits,
    /// the gate is open and a place is free (QUE-2). Runs `queue/enter`, once.
    ///
    /// Errors besides those of the store: [`Error::OutOfBounds`] for a line or lane that the config does not have,
    /// [`Error::LeaseLost`], [`Error::Fenced`], [`Error::Untrusted`] where the player's pass did not verify.
    ///
    /// Cancel safe: a future that is dropped leaves the line in the background, and so does one whose outcome is not known
    /// in the end.
    pub async fn enter(&self, entry: Entry) -> Result<Entering> {
        let _ = entry;
        Err(Error::ShuttingDown)
    }

    /// A player who waits, or was admitted and has not arrived, goes. [`Left::None`] where this node knows of neither.
    /// Runs `queue/leave`, or `queue/failed` for an admitted player whose connection dropped. Where the outcome is not
    /// known, or the future is dropped, it is repeated in the background.
    pub async fn left(&self, line: &LineName, player: &Player, departure: Departure) -> Result<Left> {
        let _ = (line, player, departure);
        Err(Error::ShuttingDown)
    }

    /// The admitted player is on the server: no later enter is answered with this pass. False where this node knows of no
    /// such admission or it does not stand any more. Runs `queue/arrived`.
    pub async fn arrived(&self, line: &LineName, player: &Player) -> Result<bool> {
        let _ = (line, player);
        Err(Error::ShuttingDown)
    }

    /// The transfer of an admitted player failed: the promised place is free again, and the player is back in front, or
    /// away where the connection is `gone` too. The third time (`maxFailures`) puts the player out. Runs `queue/failed`;
    /// after [`Error::Unreachable`] the same call gives the definite answer.
    pub async fn failed_admission(&self, line: &LineName, player: &Player, gone: bool) -> Result<Failure> {
        let _ = (line, player, gone);
        Err(Error::ShuttingDown)
    }

    /// Whether this node takes part in the admission of the lines; it does until told otherwise.
    pub fn admits(&self, on: bool) {
        let _ = on;
    }
}
