//! What one player goes through.

/// How a player's story ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum End {
    /// It did not.
    #[default]
    Open,
    /// They were inside and left again.
    Done,
    /// They gave up while they waited, and said so.
    Quit,
    /// They dropped and never came back.
    Vanished,
}

/// One stretch in the line, as the player saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stood {
    /// The proxy that held the ticket.
    pub node: String,
    /// Admissions that the player had heard of when it began.
    pub after: usize,
    pub from_us: u64,
    /// When the player began to go away by themselves.
    pub until_us: Option<u64>,
    /// When the goodbye had been answered.
    pub gone_us: Option<u64>,
}

/// One admission, as the player heard of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub entry: Entry,
    /// The backend had let them in by then.
    pub redeemed_us: Option<u64>,
    /// When the place was given back, or began to be.
    pub freed_us: Option<u64>,
}

/// What an admission says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub serial: u64,
    pub seq: u64,
    pub lane: u16,
    pub server: String,
}

/// What one player went through, as they saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Story {
    /// When they asked for the first time.
    pub asked_us: u64,
    /// When they were told something definite for the first time.
    pub told_us: Option<u64>,
    /// How long it would take, as they were told first.
    pub estimate_ms: Option<u64>,
    pub stood: Vec<Stood>,
    pub heard: Vec<Heard>,
    /// Admissions that were told while the player was on the way out.
    pub crossed: Vec<Entry>,
    /// Times that they were put back with their place kept.
    pub back: u64,
    pub redeemed: u64,
    /// Times that they went to another proxy.
    pub changed: u64,
    pub end: End,
}

/// From then on it is not certain that the players of a proxy stand in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    pub node: String,
    pub at_us: u64,
    /// The proxy is dead; otherwise those who enter there afterwards stand in the line again.
    pub for_good: bool,
}

impl Cut {
    pub fn ends(&self, stood: &Stood) -> bool {
        self.node == stood.node && (self.for_good || self.at_us > stood.from_us)
    }
}
