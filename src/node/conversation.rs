use futures_util::FutureExt;

use crate::error::{Error, Result};
use crate::ids::NodeEpoch;
use crate::store::{Answer, Conversation, Invocation, Store, Verifier};

use super::Control;

/// A [`Conversation`] of somebody who acts in the fleet under a lease and obeys the control entries. Where a script finds
/// other entries than the call was built on they are read again; where it refuses for the kill switch or the lease that is
/// the error.
#[derive(Debug)]
pub struct MemberConversation<'a, C> {
    asked: Conversation<'a, C>,
    verifier: &'a Verifier,
    control: Option<&'a Control>,
    who: &'a NodeEpoch,
}

impl<'a, C: Fn(&Answer)> MemberConversation<'a, C> {
    /// `who` acts. `during` says what is under way, for errors; `count` is told of every answer.
    pub fn new(store: &'a Store, verifier: &'a Verifier, who: &'a NodeEpoch, during: &'static str, count: C) -> Self {
        Self { asked: Conversation::new(store, during, count), verifier, control: None, who }
    }

    /// For scripts that obey the entries of `control`.
    #[must_use]
    pub fn obeying(mut self, control: &'a Control) -> Self {
        self.control = Some(control);
        self
    }

    /// Like [`Conversation::ask`]. Errors besides its own: [`Error::KillSwitch`], [`Error::LeaseLost`], [`Error::Fenced`].
    pub async fn ask(&mut self, mut build: impl FnMut() -> Invocation) -> Result<Answer> {
        self.ask_dated(|_| build()).await
    }

    /// Like [`Conversation::ask_dated`].
    pub async fn ask_dated(&mut self, mut build: impl FnMut(bool) -> Invocation) -> Result<Answer> {
        loop {
            let answer = self.asked.ask_dated(&mut build).await?;
            match (answer.word(), self.control) {
                // Rare, and boxed: the types of all that callers build around this would else be too deep for the compiler.
                ("CONTROL", Some(control)) => control.refresh(self.asked.store(), self.verifier).boxed().await?,
                ("KILLED", _) => {
                    let entry = answer.text(0)?;
                    return Err(Error::KillSwitch { scope: entry.strip_prefix("kill:").unwrap_or("fleet").to_owned() });
                }
                ("NO_LEASE", _) => return Err(Error::LeaseLost { id: self.who.id.clone() }),
                ("FENCED", _) => return Err(Error::Fenced { id: self.who.id.clone(), epoch: self.who.epoch }),
                _ => return Ok(answer),
            }
        }
    }
}
