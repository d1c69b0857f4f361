//! What a player who waits is told, and how whoever holds the player hears it.

use tokio::sync::watch;

use crate::agent::model::{Refusal, Transfer};

use super::entry::{Admitted, OutReason};

/// How a wait ended.
#[derive(Debug, Clone)]
pub(in crate::agent) enum End {
    /// Of a login line: the player is in.
    Admitted(Box<Admitted>),
    /// Of a login line: the player does not wait any more.
    Out(OutReason),
    /// Of a wait line: the player has a place, and this proxy moves them.
    Transfer(Box<Transfer>),
    /// Of a wait line: no place, and why.
    Refused(Refusal),
    /// The application said so, or the agent stopped: nobody is told anything.
    Left,
}

/// What is known of a place, newest last: positions that nobody read in time are skipped.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub position: Option<u64>,
    pub estimate_ms: Option<u64>,
    pub end: Option<End>,
}

impl Told {
    fn place(&self) -> (Option<u64>, Option<u64>) {
        (self.position, self.estimate_ms)
    }
}

/// One piece of news.
#[derive(Debug)]
pub(in crate::agent) enum News {
    Position { position: Option<u64>, estimate_ms: Option<u64> },
    End(End),
}

/// Hears what one waiter is told.
#[derive(Debug)]
pub(in crate::agent) struct Listener {
    seen: watch::Receiver<Told>,
    told: (Option<u64>, Option<u64>),
    over: bool,
}

impl Listener {
    /// What stands now is known, unless it is the end.
    pub(super) fn new(seen: watch::Receiver<Told>) -> Self {
        let told = seen.borrow().place();
        Self { seen, told, over: false }
    }

    pub fn position(&self) -> Option<u64> {
        self.seen.borrow().position
    }

    pub fn estimate_ms(&self) -> Option<u64> {
        self.seen.borrow().estimate_ms
    }

    /// True where the end was heard.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The next piece of news, where one comes. `None` after the end, and where nobody is left to tell one. Cancel safe.
    pub async fn next(&mut self) -> Option<News> {
        while !self.over {
            let told = self.seen.borrow_and_update().clone();
            match told.end {
                Some(end) => {
                    self.over = true;
                    return (!matches!(end, End::Left)).then_some(News::End(end));
                }
                None if self.told != told.place() => {
                    self.told = told.place();
                    return Some(News::Position { position: told.position, estimate_ms: told.estimate_ms });
                }
                None => self.over = self.seen.changed().await.is_err(),
            }
        }
        None
    }
}
