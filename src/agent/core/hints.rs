//! What the subscription says of tokens and lines, for whoever has to read them again.

use tokio::sync::broadcast;

use crate::queue::LineEvent;
use crate::token::TokenEvent;

/// Token events that may wait for a slow listener; one that falls behind is told to look at everything again.
const TOKEN_EVENTS: usize = 1_024;
/// Line events that may wait for a slow listener; one that falls behind is told to look at everything again.
const LINE_EVENTS: usize = 1_024;

/// A hint from the token channel.
#[derive(Debug, Clone)]
pub(crate) enum TokenHint {
    /// Look at this token again.
    Event(TokenEvent),
    /// Something may have been missed: look at all of them.
    Gap,
}

/// A hint from the line channel: of login lines and of wait lines.
#[derive(Debug, Clone)]
pub(crate) enum LineHint {
    /// Something happened in a line: look there.
    Event(LineEvent),
    /// Something may have been missed: look at all of it.
    Gap,
}

/// The channel of the token hints.
pub(in crate::agent) fn token_hints() -> broadcast::Sender<TokenHint> {
    broadcast::channel(TOKEN_EVENTS).0
}

/// The channel of the line hints.
pub(in crate::agent) fn line_hints() -> broadcast::Sender<LineHint> {
    broadcast::channel(LINE_EVENTS).0
}
