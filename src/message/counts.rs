use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// What one process's messages came to since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MessageCounts {
    /// Published: sends, calls and replies.
    pub sent: u64,
    /// Taken off the inbox and believed: sends and calls that were addressed to a service here, and replies that somebody
    /// waited for.
    pub received: u64,
    /// Answers that came when nobody waited for them any more.
    pub late: u64,
    /// Messages that found no free handler.
    pub busy: u64,
    /// Everything else that was dropped; the metric says why.
    pub dropped: u64,
}

/// What was sent or received.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sort {
    Send,
    Call,
    Reply,
}

impl Sort {
    fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Call => "call",
            Self::Reply => "reply",
        }
    }
}

/// Counts for [`MessageCounts`] and for the metrics, in one place.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
    late: AtomicU64,
    busy: AtomicU64,
    dropped: AtomicU64,
}

impl Tally {
    pub(super) fn sent(&self, sort: Sort) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("maitred_messages_sent_total", "kind" => sort.as_str()).increment(1);
    }

    pub(super) fn received(&self, sort: Sort) {
        self.received.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("maitred_messages_received_total", "kind" => sort.as_str()).increment(1);
    }

    pub(super) fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("maitred_messages_late_total").increment(1);
    }

    pub(super) fn busy(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("maitred_messages_busy_total").increment(1);
    }

    pub(super) fn dropped(&self, reason: &'static str) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("maitred_messages_dropped_total", "reason" => reason).increment(1);
    }

    pub(super) fn read(&self) -> MessageCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MessageCounts {
            sent: count(&self.sent),
            received: count(&self.received),
            late: count(&self.late),
            busy: count(&self.busy),
            dropped: count(&self.dropped),
        }
    }
}
