//! The loop of a node that accepts more than one secret: what only an old one verifies is signed again.

use std::sync::Arc;

use rand::RngExt;
use rand::seq::SliceRandom;
use tokio::time::{Duration, Instant, sleep};

use crate::error::Result;
use crate::ids::ObjectKey;

use super::hub::Hub;
use super::receive::ROUTES;
use super::sign_again::{Signed, is_denied, sign_again};

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Steps of the walk over the keys in one round, each of about 1,000 keys.
const STEPS: usize = 20;
/// Time between the end of a walk and the next one.
const REST: Duration = Duration::from_secs(5);
/// Time between two looks at what this node owns.
const OWN_EVERY: Duration = Duration::from_secs(60);
/// Objects of its own that a node looks at in one round.
const OWN_MAX: usize = 20_000;

/// Runs until the node stops. Each node signs what it owns. All the rest, which nobody owns or whose owner is gone, no index
/// names: one node of the fleet walks over the keys for it.
pub(super) async fn run(hub: Arc<Hub>) {
    if hub.book.verifier().keyring().accepted_kids().len() < 2 {
        return;
    }
    let stop = hub.stop.clone();
    let mut rounds = Rounds { hub, cursor: 0, walk_due: Instant::now(), own_due: Instant::now() };
    loop {
        let wait = ROUND.mul_f64(rand::rng().random_range(0.75..1.0));
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(wait) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            done = rounds.round() => match done {
                Ok(0) => {}
                Ok(signed) => tracing::info!(signed, "routes and objects signed again with the present secret"),
                Err(error) => tracing::debug!(%error, "could not sign routes and objects again"),
            },
        }
    }
}

struct Rounds {
    hub: Arc<Hub>,
    /// Where the walk goes on; 0 at its beginning.
    cursor: u64,
    walk_due: Instant,
    own_due: Instant,
}

impl Rounds {
    async fn round(&mut self) -> Result<u64> {
        let now = Instant::now();
        if !self.hub.lease.is_valid() {
            return Ok(0);
        }
        let mut signed = 0;
        if now >= self.own_due {
            signed += self.own().await?;
            self.own_due = now + OWN_EVERY;
        }
        if now >= self.walk_due && self.walks() {
            signed += self.walk().await?;
        }
        Ok(signed)
    }

    async fn own(&self) -> Result<u64> {
        let (book, id) = (&self.hub.book, self.hub.lease.id());
        let mut members = book.store().members(book.store().keys().owned(id)).await?;
        // Others at each round, where there are too many for one.
        members.shuffle(&mut rand::rng());
        let objects = members.iter().filter_map(|member| ObjectKey::read(member).ok()).take(OWN_MAX);
        let all: Vec<Signed> =
            objects.flat_map(|object| [Signed::Route(object.clone()), Signed::Object(object)]).collect();
        sign_again(book, &all).await
    }

    /// True where this node is the one that walks, as far as it sees. Two that do disturb nobody.
    fn walks(&self) -> bool {
        let chosen = self.hub.ready_place(ROUTES, ROUTES, true, None);
        chosen.is_some_and(|owner| owner.id == *self.hub.lease.id())
    }

    async fn walk(&mut self) -> Result<u64> {
        let mut signed = 0;
        for _ in 0..STEPS {
            let (next, names) = match self.hub.book.store().names_from("", self.cursor).await {
                Err(error) if is_denied(&error) => {
                    tracing::warn!(
                        "the store does not let this user SCAN: objects that nobody owns keep their old signatures"
                    );
                    self.walk_due = Instant::now() + OWN_EVERY;
                    return Ok(signed);
                }
                walked => walked?,
            };
            let all: Vec<Signed> = names.iter().filter_map(|name| Signed::read(name)).collect();
            signed += sign_again(&self.hub.book, &all).await?;
            self.cursor = next;
            if next == 0 {
                self.walk_due = Instant::now() + REST;
                break;
            }
        }
        Ok(signed)
    }
}
