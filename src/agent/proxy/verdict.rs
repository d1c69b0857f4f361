//! What becomes of a request before any backend is looked at: DSP-6 and DSP-7 as a pure function.

use crate::agent::config::{RoutingConfig, TriggersConfig};
use crate::agent::model::{Reason, Request, Source};

/// What is to be done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Find the player a place.
    Place,
    /// Find the player a backend, without a place: they connect and have to be somewhere.
    Balance,
    /// Nothing.
    Refuse(Reason),
}

/// `in_lobby`: the request is made by a lobby itself.
pub(super) fn verdict(
    request: &Request,
    triggers: &TriggersConfig,
    routing: &RoutingConfig,
    in_lobby: bool,
) -> Verdict {
    let is_on = match request.source {
        Source::Command => triggers.command,
        Source::Join => triggers.join || (triggers.first_join && request.first_join),
        Source::Event => triggers.event,
        Source::Other => triggers.other,
    };
    let reason = match (is_on, request.may_be_placed) {
        (true, true) => return Verdict::Place,
        (true, false) => Reason::NotAllowed,
        (false, _) => Reason::SourceOff,
    };
    let has_lobby = routing.lobby_mode || in_lobby;
    if request.source == Source::Join && !has_lobby { Verdict::Balance } else { Verdict::Refuse(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Player;

    /// DSP-7: every source, its switch, the right, first connection or not, with and without a lobby.
    #[test]
    fn dsp_7_every_trigger_with_and_without_right_switch_and_lobby() {
        use Reason::{NotAllowed, SourceOff};
        use Verdict::{Balance, Place, Refuse};
        let on = TriggersConfig { command: true, join: true, first_join: true, event: true, other: true };
        let off = TriggersConfig { command: false, join: false, first_join: false, event: false, other: false };
        let first = TriggersConfig { first_join: true, ..off.clone() };
        let default = TriggersConfig::default();
        let (command, join, event, other) = (Source::Command, Source::Join, Source::Event, Source::Other);
        // switches, source, first connection, may be placed → with a lobby, without one
        let table = [
            (&on, command, false, true, Place, Place),
            (&on, command, false, false, Refuse(NotAllowed), Refuse(NotAllowed)),
            (&off, command, false, true, Refuse(SourceOff), Refuse(SourceOff)),
            (&off, command, false, false, Refuse(SourceOff), Refuse(SourceOff)),
            (&on, event, false, true, Place, Place),
            (&on, event, false, false, Refuse(NotAllowed), Refuse(NotAllowed)),
            (&off, event, true, true, Refuse(SourceOff), Refuse(SourceOff)),
            (&on, other, false, true, Place, Place),
            (&on, other, false, false, Refuse(NotAllowed), Refuse(NotAllowed)),
            (&off, other, false, true, Refuse(SourceOff), Refuse(SourceOff)),
            (&on, join, false, true, Place, Place),
            (&on, join, true, true, Place, Place),
            (&on, join, false, false, Refuse(NotAllowed), Balance),
            (&on, join, true, false, Refuse(NotAllowed), Balance),
            (&off, join, false, true, Refuse(SourceOff), Balance),
            (&off, join, true, true, Refuse(SourceOff), Balance),
            (&off, join, true, false, Refuse(SourceOff), Balance),
            (&first, join, true, true, Place, Place),
            (&first, join, true, false, Refuse(NotAllowed), Balance),
            (&first, join, false, true, Refuse(SourceOff), Balance),
            (&default, command, false, true, Place, Place),
            (&default, join, true, true, Refuse(SourceOff), Balance),
            (&default, event, false, true, Refuse(SourceOff), Refuse(SourceOff)),
            (&default, other, false, true, Place, Place),
        ];
        for (triggers, source, first_join, may_be_placed, with_lobby, without) in table {
            let player = Player::new("alice").expect("valid");
            let request = Request { source, first_join, may_be_placed, ..Request::new(player) };
            let judge = |lobby_mode, in_lobby| verdict(&request, triggers, &RoutingConfig { lobby_mode }, in_lobby);
            let row = format!("{triggers:?} {source:?} first {first_join} right {may_be_placed}");
            assert_eq!((judge(true, false), judge(false, false)), (with_lobby, without), "{row}");
            assert_eq!(judge(false, true), with_lobby, "a lobby that asks is a lobby that is there: {row}");
        }
    }
}
