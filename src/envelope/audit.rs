//! What was dropped because it could not be believed: counted by reason, logged at a bounded rate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::keyring::VerifyFailure;
use super::replay::ReplayRefusal;
use super::wire::WireFailure;

/// Least time between two log lines of the same source and reason.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// Most pairs of source and reason with a rate of their own; those beyond share one.
const ENTRIES_MAX: usize = 1_024;
/// Longest source and longest `what` that is kept and logged, in bytes: both may come from whoever forged the data.
const TEXT_MAX_BYTES: usize = 160;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)+) => {
        /// Why something was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum AuditReason {
            $($(#[$doc])* $variant,)+
        }

        impl AuditReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The reason in logs, metrics and errors.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

reasons! {
    /// It carries no signature.
    MissingSignature "missing_signature";
    /// Its signature is not of the documented form.
    MalformedSignature "malformed_signature";
    /// Signed with a secret that this process does not hold.
    UnknownKey "unknown_key";
    /// The signature does not fit what it stands on.
    BadSignature "bad_signature";
    /// Validly signed, but for another key or zone: a copy.
    WrongKey "wrong_key";
    /// It cannot be read.
    Malformed "malformed";
    /// Of a schema version that this build does not know.
    SchemaVersion "schema_version";
    /// Received before.
    Replay "replay";
    /// Its sent time is outside of the window.
    Stale "stale";
    /// Its sender's epoch is over.
    OldEpoch "old_epoch";
    /// Its sender is no member.
    UnknownSender "unknown_sender";
    /// A control entry that no member wrote.
    ForgedControl "forged_control";
    /// A control entry that a member wrote before the one in force: somebody put it back, or the store lost its last
    /// writes.
    OlderControl "older_control";
    /// A pushed config that this build cannot use.
    UnusableConfig "unusable_config";
    /// A token was presented again after it was used.
    TokenReplay "token_replay";
}

impl From<VerifyFailure> for AuditReason {
    fn from(failure: VerifyFailure) -> Self {
        match failure {
            VerifyFailure::Missing => Self::MissingSignature,
            VerifyFailure::Malformed => Self::MalformedSignature,
            VerifyFailure::UnknownKey => Self::UnknownKey,
            VerifyFailure::BadSignature => Self::BadSignature,
        }
    }
}

impl From<&WireFailure> for AuditReason {
    fn from(failure: &WireFailure) -> Self {
        match failure {
            WireFailure::Signature(failure) => (*failure).into(),
            WireFailure::Zone => Self::WrongKey,
            WireFailure::SchemaVersion { .. } => Self::SchemaVersion,
            WireFailure::TooLarge { .. }
            | WireFailure::Netstring(_)
            | WireFailure::Domain
            | WireFailure::Kind
            | WireFailure::FieldCount
            | WireFailure::NotUtf8 => Self::Malformed,
        }
    }
}

impl From<ReplayRefusal> for AuditReason {
    fn from(refusal: ReplayRefusal) -> Self {
        match refusal {
            ReplayRefusal::Seen => Self::Replay,
            ReplayRefusal::TooOld | ReplayRefusal::FromTheFuture | ReplayRefusal::Forgotten => Self::Stale,
        }
    }
}

/// Where everything that is dropped is told. Cheap to clone; clones share their counts. It never fails and never panics.
///
/// Each drop counts in the metric `maitred_audit_drops_total{reason}`. The log has target `maitred::audit`, level WARN,
/// and for each source and reason at most one line a second, which says how many were suppressed since the line before.
#[derive(Debug, Clone, Default)]
pub struct Audit(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counts: [AtomicU64; AuditReason::ALL.len()],
    limiter: Mutex<Limiter>,
}

impl Audit {
    /// All counts at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts and logs that something was dropped. `source` is where it came from (a node id, a key's owner), `what` is
    /// the kind and key or channel. Neither may hold a secret or a payload; both are cut to 160 bytes.
    pub fn drop(&self, reason: AuditReason, source: &str, what: &str) {
        if let Some(count) = self.0.counts.get(reason as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        metrics::counter!("maitred_audit_drops_total", "reason" => reason.as_str()).increment(1);
        let (source, what) = (cut(source), cut(what));
        let line = {
            let mut limiter = self.0.limiter.lock().unwrap_or_else(PoisonError::into_inner);
            limiter.admit(reason, source, Instant::now())
        };
        if let Some(suppressed) = line {
            tracing::warn!(target: "maitred::audit", reason = reason.as_str(), source, what, suppressed, "dropped");
        }
    }

    /// How many were dropped for `reason` since the start.
    pub fn count(&self, reason: AuditReason) -> u64 {
        self.0.counts.get(reason as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// How many were dropped since the start.
    pub fn total(&self) -> u64 {
        AuditReason::ALL.iter().map(|reason| self.count(*reason)).sum()
    }

    /// Each reason with its count, zeros too, in the order of [`AuditReason::ALL`].
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        AuditReason::ALL.iter().map(|reason| (reason.as_str(), self.count(*reason))).collect()
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=TEXT_MAX_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// When the last line was logged, and how many were not since.
#[derive(Debug, Default)]
struct Entry {
    logged_at: Option<Instant>,
    suppressed: u64,
}

impl Entry {
    fn is_quiet(&self, now: Instant) -> bool {
        self.logged_at.is_none_or(|at| now.saturating_duration_since(at) >= LOG_EVERY)
    }

    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.is_quiet(now) {
            self.logged_at = Some(now);
            Some(std::mem::take(&mut self.suppressed))
        } else {
            self.suppressed += 1;
            None
        }
    }
}

/// Decides which drops are logged. Bounded: a flood of made-up sources ends up in the shared entry.
#[derive(Debug, Default)]
struct Limiter {
    entries: HashMap<(AuditReason, Box<str>), Entry>,
    shared: Entry,
    swept_at: Option<Instant>,
}

impl Limiter {
    /// The number of drops suppressed since the last line if this one is to be logged.
    fn admit(&mut self, reason: AuditReason, source: &str, now: Instant) -> Option<u64> {
        let key = (reason, Box::from(source));
        if !self.entries.contains_key(&key) && self.entries.len() >= ENTRIES_MAX {
            self.sweep(now);
            if self.entries.len() >= ENTRIES_MAX {
                return self.shared.admit(now);
            }
        }
        self.entries.entry(key).or_default().admit(now)
    }

    /// Gives up the entries that would log at once anyway; what they suppressed goes to the shared count. At most once
    /// every [`LOG_EVERY`], since it looks at all of them.
    fn sweep(&mut self, now: Instant) {
        if self.swept_at.is_some_and(|at| now.saturating_duration_since(at) < LOG_EVERY) {
            return;
        }
        self.swept_at = Some(now);
        let shared = &mut self.shared;
        self.entries.retain(|_, entry| {
            let keep = !entry.is_quiet(now);
            if !keep {
                shared.suppressed += entry.suppressed;
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::AuditReason::{BadSignature, Replay};
    use super::*;

    // ENV-5: one line a second for each source and reason; more drowns the log, fewer hides the attack.
    #[test]
    fn env_5_each_source_and_reason_logs_once_a_second_with_the_count_since() {
        let start = Instant::now();
        let mut limiter = Limiter::default();
        let table = [
            (0, BadSignature, "a", Some(0)),
            (1, BadSignature, "a", None),
            (2, Replay, "a", Some(0)),
            (3, BadSignature, "b", Some(0)),
            (999, BadSignature, "a", None),
            (1_000, BadSignature, "a", Some(2)),
            (1_001, BadSignature, "a", None),
            (1_002, Replay, "a", Some(0)),
            (9_000, BadSignature, "a", Some(1)),
            (9_000, BadSignature, "b", Some(0)),
        ];
        for (row, (at_ms, reason, source, expected)) in table.into_iter().enumerate() {
            assert_eq!(limiter.admit(reason, source, start + Duration::from_millis(at_ms)), expected, "row {row}");
        }
    }

    // ENV-5: whoever forges can invent sources; neither memory nor log may grow with them.
    #[test]
    fn env_5_a_flood_of_made_up_sources_stays_bounded() {
        let start = Instant::now();
        let mut limiter = Limiter::default();
        let mut flood = |second: u64, from: usize| {
            let now = start + Duration::from_secs(second);
            (from..from + 10_000).filter_map(|n| limiter.admit(BadSignature, &n.to_string(), now)).collect::<Vec<u64>>()
        };
        let first = flood(0, 0);
        assert_eq!(first.len(), ENTRIES_MAX + 1);
        let second = flood(1, 20_000);
        assert_eq!(second.len(), ENTRIES_MAX + 1, "quiet sources make room");
        assert_eq!(second.iter().sum::<u64>(), 10_000 - first.len() as u64, "what was suppressed is told later");
        assert_eq!(limiter.entries.len(), ENTRIES_MAX);
    }

    #[test]
    fn env_5_what_a_swept_slot_suppressed_is_told_by_the_shared_one() {
        let start = Instant::now();
        let mut limiter = Limiter::default();
        let lines = (0..5).filter_map(|_| limiter.admit(Replay, "a", start)).count();
        assert_eq!(lines, 1);
        limiter.sweep(start + LOG_EVERY);
        assert!(limiter.entries.is_empty());
        assert_eq!(limiter.shared.suppressed, 4);
    }

    #[test]
    fn env_5_every_reason_is_counted_on_its_own_over_all_clones() {
        let audit = Audit::new();
        for (times, reason) in AuditReason::ALL.iter().enumerate() {
            (0..times).for_each(|_| audit.clone().drop(*reason, "node-1", "message"));
        }
        for (times, reason) in AuditReason::ALL.iter().enumerate() {
            assert_eq!(audit.count(*reason), times as u64, "{reason:?}");
            assert!(audit.counts().contains(&(reason.as_str(), times as u64)));
        }
        let kinds = AuditReason::ALL.len() as u64;
        assert_eq!(audit.total(), kinds * (kinds - 1) / 2);
    }

    #[test]
    fn env_5_long_texts_of_a_forger_are_cut() {
        let audit = Audit::new();
        audit.drop(BadSignature, &"é".repeat(500_000), &"x".repeat(500_000));
        audit.drop(BadSignature, &format!("x{}", "é".repeat(500_000)), "");
        let limiter = audit.0.limiter.lock().expect("no panic");
        assert!(limiter.entries.keys().all(|(_, source)| source.len() <= TEXT_MAX_BYTES));
        assert_eq!(limiter.entries.len(), 2);
    }
}
