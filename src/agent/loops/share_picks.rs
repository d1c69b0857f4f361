//! Recent picks of all proxies, by way of the store (SEL-9): the hash `picks`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::proxy::Proxy;
use crate::error::Result;
use crate::ids::{NodeId, OperationId};
use crate::select::decayed;
use crate::store::{Invocation, Store, boot_ms, scripts};

/// Time between two exchanges while this proxy picks.
const EVERY: Duration = Duration::from_millis(250);
/// Of how many exchanges one is made while it does not.
const IDLE_ROUNDS: u32 = 4;
/// Backends, and fields to drop, in one call.
const BATCH: usize = 64;
/// Calls of one exchange; what is left goes with the next one.
const CALLS_MAX: usize = 16;
/// Backends whose counts are taken from the store; more of them would be no fleet of ours.
const SHARED_MAX: usize = 65_536;
/// Half-lives after which nothing that counts is left of a pick.
const HALFLIVES: u64 = 10;
/// How much longer than that the hash lives, so that a proxy can repeat an operation.
const REPEAT_MS: u64 = 60_000;
/// A count below this is as good as none: the script's limit for dropping it.
const FORGOTTEN: f64 = 0.01;
/// Thousandths of a pick that the script keeps for one backend.
const THOUSANDTHS_MAX: u64 = 1_000_000_000_000;
/// Characters before the name of a proxy in the hash.
const PROXY_MARK: char = '@';

/// Picks that are on their way to the store, repeated under the same operation until it has them.
struct Bump {
    op: OperationId,
    picks: Vec<(NodeId, u32)>,
}

impl Bump {
    /// What this proxy picked since the last one.
    fn next(proxy: &Proxy) -> Option<Self> {
        let picks = proxy.candidates().take_unshared(BATCH);
        (!picks.is_empty()).then(|| Self { op: OperationId::fresh(), picks })
    }
}

/// What stands in the store.
#[derive(Default)]
struct SharedPicks {
    picks: BTreeMap<NodeId, f64>,
    forgotten: Vec<String>,
}

/// Tells the other proxies whom this one picks, and hears whom they do, where the config says so. Never on the way of a
/// request: every 250 ms while it picks, however many players come, one `select/bump` for each 64 backends it picked and
/// one read; one read a second while it does not.
pub(in crate::agent) async fn share_picks(proxy: Arc<Proxy>) {
    let mut bump = None;
    let mut shared = SharedPicks::default();
    let mut idle = 0_u32;
    loop {
        tokio::select! {
            () = proxy.core.stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if !proxy.core.config().selector.recent_picks.shared {
            continue;
        }
        bump = bump.or_else(|| Bump::next(&proxy));
        idle = if bump.is_some() { 0 } else { idle.wrapping_add(1) };
        if !idle.is_multiple_of(IDLE_ROUNDS) {
            continue;
        }
        let exchanged = tokio::select! {
            () = proxy.core.stop.cancelled() => return,
            exchanged = exchange(&proxy, &mut bump, &mut shared) => exchanged,
        };
        if let Err(error) = exchanged {
            // Until the next time its own picks count, and what was shared last.
            tracing::debug!(%error, "could not exchange recent picks");
        }
    }
}

async fn exchange(proxy: &Proxy, bump: &mut Option<Bump>, shared: &mut SharedPicks) -> Result<()> {
    let store = &proxy.core.store;
    let halflife_ms = proxy.core.config().selector.recent_picks.halflife_ms;
    for _ in 0..CALLS_MAX {
        let Some(Bump { op, picks }) = bump else { break };
        let forgotten = std::mem::take(&mut shared.forgotten);
        tell(store, &proxy.core.identity.id, op, picks, &forgotten, halflife_ms).await?;
        proxy.candidates().told();
        *bump = Bump::next(proxy);
    }
    *shared = read_shared(store, &proxy.core.identity.id, halflife_ms).await?;
    proxy.candidates().take_shared_picks(&shared.picks, boot_ms());
    Ok(())
}

fn life_ms(halflife_ms: u64) -> u64 {
    halflife_ms.saturating_mul(HALFLIVES).saturating_add(REPEAT_MS)
}

async fn tell(
    store: &Store,
    own: &NodeId,
    op: &OperationId,
    picks: &[(NodeId, u32)],
    forgotten: &[String],
    halflife_ms: u64,
) -> Result<()> {
    let picks: Vec<String> = picks.iter().map(|(id, count)| format!("{id}={count}")).collect();
    let call = Invocation::new(&scripts::SELECT_BUMP, &[store.keys().picks()])
        .arg(own.as_str())
        .arg(op.as_str())
        .arg(halflife_ms)
        .arg(life_ms(halflife_ms))
        .arg(&picks.join(" "))
        .arg(&forgotten.join(" "));
    store.run(&call).await?;
    Ok(())
}

/// The first word of an entry and its age. A time that seems to come is from before the store's clock went back: were it
/// no age, the entry would stand still until then.
fn aged(entry: &str, now_ms: u64) -> (&str, u64) {
    let (first, at) = entry.split_once(' ').unwrap_or((entry, ""));
    (first, now_ms.abs_diff(at.parse().unwrap_or(0)))
}

/// The picks that an entry's thousandths are; none where they are no number. No more than the script keeps.
fn counted(thousandths: &str) -> f64 {
    let thousandths = thousandths.parse::<u64>().unwrap_or(0).min(THOUSANDTHS_MAX);
    #[expect(clippy::cast_precision_loss, reason = "it was cut off far below 2^53")]
    let real = thousandths as f64;
    real / 1_000.0
}

/// Counts are not signed: whoever can write them can disturb an order, and nothing else.
async fn read_shared(store: &Store, own: &NodeId, halflife_ms: u64) -> Result<SharedPicks> {
    let row = store.row(store.keys().picks()).await?;
    let now = store.clock().now_ms();
    let mut shared = SharedPicks::default();
    for (name, entry) in row.fields() {
        let (first, age_ms) = aged(entry, now);
        let is_forgotten = match name.strip_prefix(PROXY_MARK) {
            Some(proxy) => proxy != own.as_str() && age_ms >= life_ms(halflife_ms),
            None => {
                let picks = decayed(counted(first), age_ms, halflife_ms);
                if picks >= FORGOTTEN
                    && shared.picks.len() < SHARED_MAX
                    && let Ok(id) = NodeId::new(name)
                {
                    shared.picks.insert(id, picks);
                }
                picks < FORGOTTEN
            }
        };
        // A name with a blank was written by hand and cannot be passed on.
        if is_forgotten && shared.forgotten.len() < BATCH && !name.contains(' ') {
            shared.forgotten.push(name.to_owned());
        }
    }
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sel_9_r_4_an_entry_from_before_the_clock_went_back_is_as_old_as_it_is_ahead() {
        let picks = |entry: &str| {
            let (first, age_ms) = aged(entry, 100_000);
            decayed(counted(first), age_ms, 10_000)
        };
        for (entry, want) in [
            ("8000 100000", 8.0),
            ("8000 90000", 4.0),
            ("8000 110000", 4.0),
            ("8000 99999999999999", 0.0),
            ("8000", 0.008),
            ("many 100000", 0.0),
            // More than 32 bits hold, and as much as the script keeps.
            ("5000000000 100000", 5_000_000.0),
            ("18446744073709551615 100000", 1_000_000_000.0),
        ] {
            assert!((picks(entry) - want).abs() < 0.01, "{entry}: {}", picks(entry));
        }
    }
}
