use crate::error::{Error, Result};

use super::connect::Store;
use super::invocation::{Answer, Invocation};

/// How often one operation is asked for before it gives up.
const ASKS_MAX: u32 = 8;

/// One operation put to a script until it is decided. A script that cannot decide on what it was given changes nothing and
/// says what it lacks; the operation is then asked for again, the call built anew. What every script may lack is seen to
/// here: a right clock. What only the caller knows (other keys, another version) is its own to change between two
/// [`ask`](Self::ask)s; the bound is over all of them.
#[derive(Debug)]
pub struct Conversation<'a, C> {
    store: &'a Store,
    during: &'static str,
    count: C,
    left: u32,
}

impl<'a, C: Fn(&Answer)> Conversation<'a, C> {
    /// Nothing is asked yet. `during` says what is under way, for errors; `count` is told of every answer.
    pub fn new(store: &'a Store, during: &'static str, count: C) -> Self {
        Self { store, during, count, left: ASKS_MAX }
    }

    /// The store that is asked.
    pub fn store(&self) -> &'a Store {
        self.store
    }

    /// Runs the call that `build` makes, again with the store's clock where its times were off, and answers what the script
    /// said to it. Errors with [`Error::Contended`] where too much was asked before.
    pub async fn ask(&mut self, mut build: impl FnMut() -> Invocation) -> Result<Answer> {
        self.ask_dated(|_| build()).await
    }

    /// Like [`ask`](Self::ask); `build` hears whether the call before was refused for its times, so that a time that repeats
    /// have to keep may be another one now.
    pub async fn ask_dated(&mut self, mut build: impl FnMut(bool) -> Invocation) -> Result<Answer> {
        let mut was_off = false;
        loop {
            self.left = self.left.checked_sub(1).ok_or(Error::Contended { during: self.during })?;
            let answer = self.store.run(&build(was_off)).await?;
            (self.count)(&answer);
            if answer.word() != "SKEW" {
                return Ok(answer);
            }
            self.store.sync_clock().await?;
            was_off = true;
        }
    }
}
