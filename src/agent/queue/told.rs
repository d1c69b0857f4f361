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

/// Tells whoever listens.
#[derive(Debug, Default)]
pub(super) struct Teller {
    told: watch::Sender<Told>,
}

impl Teller {
    /// Where the player stands.
    pub fn place(&self, position: Option<u64>, estimate_ms: Option<u64>) {
        self.told.send_if_modified(|told| {
            let changed = told.place() != (position, estimate_ms);
            (told.position, told.estimate_ms) = (position, estimate_ms);
            changed
        });
    }

    /// The end, once. False where it is over already.
    pub fn end(&self, end: End) -> bool {
        self.told.send_if_modified(|told| {
            let open = told.end.is_none();
            if open {
                told.end = Some(end);
            }
            open
        })
    }

    pub fn told(&self) -> watch::Ref<'_, Told> {
        self.told.borrow()
    }

    /// Hears what is told from now on, and the end that was told.
    pub fn listen(&self) -> Listener {
        Listener::new(self.told.subscribe())
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
    fn new(seen: watch::Receiver<Told>) -> Self {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    // what is said of an earlier visit must not end the one that came after it, and an end is heard once, whenever
    // somebody listens.
    #[test]
    fn r_21_a_wait_ends_once_and_a_slow_reader_hears_the_newest_and_the_end() {
        let teller = Teller::default();
        teller.place(Some(9), None);
        let mut listener = teller.listen();
        assert!(listener.next().now_or_never().is_none(), "what stood there is known");
        teller.place(Some(8), None);
        teller.place(Some(7), Some(1_000));
        let news = listener.next().now_or_never().flatten();
        assert!(matches!(news, Some(News::Position { position: Some(7), estimate_ms: Some(1_000) })), "{news:?}");
        assert!(teller.end(End::Out(OutReason::Elsewhere)) && !teller.end(End::Out(OutReason::Gone)));
        for mut listener in [listener, teller.listen()] {
            let news = listener.next().now_or_never().flatten();
            assert!(matches!(news, Some(News::End(End::Out(OutReason::Elsewhere)))), "{news:?}");
            assert!(listener.is_over() && matches!(listener.next().now_or_never(), Some(None)));
        }
    }
}
