use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeId};

use super::failure::{Failure, Outcome};

/// Calls that may wait for their answers at once.
pub(super) const PENDING_MAX: usize = 65_536;

/// A random text for a nonce or the id of a call.
pub(super) fn random() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// The calls that wait for their answers.
#[derive(Debug, Default)]
pub(super) struct Pending {
    by_call: Mutex<HashMap<String, Asked>>,
}

/// Who was asked, and where the answer goes.
#[derive(Debug)]
struct Asked {
    node: NodeId,
    epoch: Epoch,
    /// Whoever owns an object by then answers.
    is_routed: bool,
    answer: oneshot::Sender<Outcome>,
    /// Told where the node's present epoch says that it did not take the message.
    refused: Arc<Notify>,
}

/// One call that waits. Dropping it forgets the call.
#[derive(Debug)]
pub(super) struct Waiting {
    pending: Arc<Pending>,
    pub(super) call: String,
    answer: oneshot::Receiver<Outcome>,
    refused: Arc<Notify>,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// The caller has it.
    Delivered,
    /// Nobody waits for it.
    Late,
    /// It does not come from the node that was asked; the call goes on waiting.
    WrongNode,
    /// It does not come from the epoch that was asked; the call goes on waiting.
    WrongEpoch,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Asked>> {
        self.by_call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Enters a call to `node` in `epoch`; `None` where too many wait.
    pub(super) fn enter(self: &Arc<Self>, node: NodeId, epoch: Epoch) -> Option<Waiting> {
        self.enter_of(node, epoch, false)
    }

    /// Enters a call by a route: a message that was forwarded is answered by its last node.
    pub(super) fn enter_routed(self: &Arc<Self>, node: NodeId, epoch: Epoch) -> Option<Waiting> {
        self.enter_of(node, epoch, true)
    }

    fn enter_of(self: &Arc<Self>, node: NodeId, epoch: Epoch, is_routed: bool) -> Option<Waiting> {
        let (sender, answer) = oneshot::channel();
        let refused = Arc::new(Notify::new());
        let call = random();
        let mut by_call = self.lock();
        if by_call.len() >= PENDING_MAX {
            return None;
        }
        let asked = Asked { node, epoch, is_routed, answer: sender, refused: Arc::clone(&refused) };
        by_call.insert(call.clone(), asked);
        drop(by_call);
        Some(Waiting { pending: Arc::clone(self), call, answer, refused })
    }

    /// Hands `outcome` to the call that waits for it, if it comes from whoever was asked.
    pub(super) fn settle(&self, call: &str, from: &NodeId, epoch: Epoch, outcome: Outcome) -> Settled {
        let mut by_call = self.lock();
        match by_call.get(call) {
            None => return Settled::Late,
            // It may not be the only one that the message reached, so the call goes on waiting.
            Some(asked) if matches!(outcome, Err(Failure::OldEpoch)) => {
                if asked.node != *from {
                    return Settled::WrongNode;
                }
                if epoch <= asked.epoch {
                    return Settled::WrongEpoch;
                }
                asked.refused.notify_one();
                return Settled::Delivered;
            }
            Some(asked) if asked.is_routed => {}
            Some(asked) if asked.node != *from => return Settled::WrongNode,
            Some(asked) if asked.epoch != epoch => return Settled::WrongEpoch,
            Some(_) => {}
        }
        let asked = by_call.remove(call);
        drop(by_call);
        match asked.map(|asked| asked.answer.send(outcome)) {
            Some(Ok(())) => Settled::Delivered,
            _ => Settled::Late,
        }
    }
}

impl Waiting {
    /// The answer. With `alone` the message reached one listener: then the word of the node's present epoch that it took
    /// nothing is the last one. Errors with [`Error::ShuttingDown`] where the call was forgotten.
    pub(super) async fn answer(&mut self, alone: bool) -> Result<Outcome> {
        tokio::select! {
            biased;
            answer = &mut self.answer => answer.map_err(|_| Error::ShuttingDown),
            () = self.refused.notified(), if alone => Ok(Err(Failure::OldEpoch)),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.call);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use serde_json::value::RawValue;

    use super::*;

    fn id(text: &str) -> NodeId {
        NodeId::new(text).expect("an id")
    }

    // whoever guesses or overhears the id of a call must not be able to answer it in another's place.
    #[test]
    fn r_27_an_answer_counts_once_and_only_from_the_node_and_epoch_that_were_asked() {
        let pending = Arc::new(Pending::default());
        let mut waiting = pending.enter(id("b1"), Epoch(7)).expect("room");
        let call = waiting.call.clone();
        let outcome = || Ok(RawValue::NULL.to_owned());
        assert_eq!(pending.settle(&call, &id("b2"), Epoch(7), outcome()), Settled::WrongNode);
        assert_eq!(pending.settle(&call, &id("b1"), Epoch(8), outcome()), Settled::WrongEpoch);
        assert_eq!(pending.settle("other", &id("b1"), Epoch(7), outcome()), Settled::Late);
        assert!(waiting.answer.try_recv().is_err());
        assert_eq!(pending.settle(&call, &id("b1"), Epoch(7), outcome()), Settled::Delivered);
        assert_eq!(pending.settle(&call, &id("b1"), Epoch(7), outcome()), Settled::Late);
        assert!(waiting.answer.try_recv().is_ok());
    }

    // what is sent again while a process that was paused has it as well is done twice.
    #[tokio::test]
    async fn r_19_the_word_of_a_newer_epoch_counts_only_from_the_one_listener_that_was_asked() {
        let pending = Arc::new(Pending::default());
        let old = || Err(Failure::OldEpoch);
        let mut waiting = pending.enter_routed(id("b1"), Epoch(7)).expect("room");
        let call = waiting.call.clone();
        assert_eq!(pending.settle(&call, &id("b2"), Epoch(8), old()), Settled::WrongNode);
        assert_eq!(pending.settle(&call, &id("b1"), Epoch(7), old()), Settled::WrongEpoch);
        assert!(waiting.answer(true).now_or_never().is_none());
        assert_eq!(pending.settle(&call, &id("b1"), Epoch(8), old()), Settled::Delivered);
        assert!(waiting.answer(false).now_or_never().is_none(), "two listened");
        assert!(matches!(waiting.answer(true).await, Ok(Err(Failure::OldEpoch))));
        assert_eq!(pending.settle(&call, &id("b9"), Epoch(1), Ok(RawValue::NULL.to_owned())), Settled::Delivered);
        assert!(matches!(waiting.answer(true).await, Ok(Ok(_))), "the other one answered after all");
    }

    #[test]
    fn msg_5_calls_that_wait_are_bounded_and_forgotten_when_dropped() {
        let pending = Arc::new(Pending::default());
        let mut all: Vec<Waiting> =
            (0..PENDING_MAX).map(|_| pending.enter(id("b1"), Epoch(7)).expect("room")).collect();
        assert!(pending.enter(id("b1"), Epoch(7)).is_none());
        all.pop();
        assert!(pending.enter(id("b1"), Epoch(7)).is_some());
        drop(all);
        assert_eq!(pending.len(), 0);
    }
}
