use serde::Serialize;

use maitred::store::ServerInfo;

/// The middle, the nineteenth of twenty, and the last of a list of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(in crate::demo) struct Spread {
    pub p50: u64,
    pub p95: u64,
    pub max: u64,
}

impl Spread {
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |percent: usize| values.get((values.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(0);
        Self { p50: at(50), p95: at(95), max: at(100) }
    }
}

/// The result for programs.
#[derive(Debug, Serialize)]
pub(in crate::demo) struct Summary {
    pub ok: bool,
    pub players: u64,
    /// Players who came in.
    pub landed: u64,
    pub quit: u64,
    pub vanished: u64,
    pub admissions: u64,
    pub transfers_failed: u64,
    pub proxy_changes: u64,
    pub proxies_killed: u64,
    pub stranded: u64,
    pub overtaken: u64,
    pub joined_out_of_turn: u64,
    pub moved: u64,
    pub too_fast: u64,
    pub busiest_second: u64,
    pub rate_per_second: u64,
    pub burst: u64,
    pub admitted_twice: u64,
    pub forgotten: u64,
    pub unheard: u64,
    pub oversold: u64,
    pub looks: u64,
    pub looks_full: u64,
    pub looks_oversold: u64,
    pub keys_left: u64,
    pub waited_ms: Spread,
    pub told_first_ms: Spread,
    /// The middle of how far the first estimate was off, in per cent of the wait, where nobody interrupted it.
    pub estimate_off_percent: u64,
    pub elapsed_ms: u64,
    pub store: ServerInfo,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn que_8_waits_are_told_in_parts() {
        assert_eq!(Spread::of(Vec::new()), Spread::default());
        assert_eq!(Spread::of((1..=100).rev().collect()), Spread { p50: 50, p95: 95, max: 100 });
    }
}
