//! Why no backend comes into question.

use crate::agent::core::Core;
use crate::node::DRAINING_LABEL;
use crate::select::{Ask, Exclusion, Ranking};

/// Who drains the server that was asked for by name, where that is why it was left out. Its row says so as well, to a
/// proxy that has not heard of the entry.
pub(super) fn drained_by(core: &Core, ask: &Ask, ranking: &Ranking) -> Option<String> {
    let named = ask.server.as_ref()?;
    let (_, why) = ranking.excluded.iter().find(|(id, _)| id == named)?;
    if !matches!(why, Exclusion::Draining | Exclusion::NotAccepting) {
        return None;
    }
    let row = || core.directory.snapshot().get(named)?.record.labels.get(DRAINING_LABEL).cloned();
    core.control.drain(named).map(|entry| entry.by).or_else(row)
}

/// Why the server that was asked for by name can never give a place.
pub(super) fn gives_no_places(core: &Core, ask: &Ask) -> Option<String> {
    let named = ask.server.as_ref()?;
    let role = match core.directory.snapshot().get(named) {
        Some(view) => view.record.role.clone(),
        None if *named == core.identity.id => core.identity.role.clone(),
        None => return None,
    };
    (!role.gives_places()).then(|| format!("{named} is a {role}, and no node of that role gives places"))
}

/// A backend was left out for a kill switch of which this proxy knows nothing.
pub(super) fn is_stopped_unheard(core: &Core, ranking: &Ranking) -> bool {
    let switches = core.control.switches();
    ranking.excluded.iter().any(|(id, why)| *why == Exclusion::Killed && !switches.is_killed(id))
}

/// Why nobody can be asked, for the operator.
pub(super) fn nobody(ranking: &Ranking) -> String {
    let named: Vec<String> = ranking.excluded.iter().map(|(id, why)| format!("{id}: {why:?}")).collect();
    let more = match ranking.left_out.saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} backends in view were left out: {}{more}", ranking.left_out, named.join(", "))
}
