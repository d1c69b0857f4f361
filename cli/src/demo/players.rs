use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::fleet::{Hears, Member, NoAnswer};
use super::tally::{Landing, Tally};

/// The proxy that will be killed, among the two.
pub(super) const VICTIM: usize = 1;
/// The small region that every fifth player asks for.
pub(super) const ARENA: &str = "arena";
/// How often a player asks for a place in the arena before any place will do.
const ARENA_TRIES: u32 = 3;
/// How often a join is repeated whose answer was not definite.
const JOIN_TRIES: u32 = 20;

/// What a player does with the first place that is found. All of them land in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// Goes there.
    Comes,
    /// Has not been moved yet when the proxy is killed, and comes in through the other one.
    Held,
    /// Was told where to go before the proxy was killed, and arrives after the token was reopened.
    Late,
    /// Goes away while the proxy still looks; comes back when the place is free again.
    Cancels,
    /// Cannot be moved, and the proxy says so; comes back when the place is free again.
    Fails,
    /// Goes away and nobody says so; comes back when the place has come home by expiry.
    Vanishes,
}

/// One player.
#[derive(Debug, Clone)]
pub(super) struct Guest {
    pub name: String,
    /// The proxy that they are connected to.
    pub home: usize,
    pub plan: Plan,
    pub wants_arena: bool,
}

/// The players of a run. Only the first of them have other plans than to come, so that these are under way when the
/// proxy is killed.
pub(super) fn guests(count: usize) -> Vec<Guest> {
    let early = count * 2 / 5;
    let guest = |index: usize| {
        let home = index % 2;
        let plan = match (index < early, home, index / 2 % 6) {
            (true, VICTIM, 0 | 3) => Plan::Held,
            (true, VICTIM, 1) => Plan::Late,
            (true, VICTIM, 4) => Plan::Vanishes,
            (true, 0, 1) => Plan::Cancels,
            (true, 0, 3) => Plan::Fails,
            (true, 0, 5) => Plan::Vanishes,
            _ => Plan::Comes,
        };
        Guest { name: format!("player-{index:04}"), home, plan, wants_arena: index % 5 == 4 }
    };
    (0..count).map(guest).collect()
}

/// What the players walk through.
pub(super) struct World {
    pub proxies: Vec<Arc<Member>>,
    pub backends: BTreeMap<String, Arc<Member>>,
    pub tally: Tally,
    /// Bounds how many are on their way at the same time; who waits for something does not count.
    pub room: Arc<Semaphore>,
    /// The run is over: who has not landed by now is lost.
    pub over: CancellationToken,
    /// Longest time that a token's place is away.
    pub home_max: Duration,
}

/// How one try of a player ended.
enum Step {
    Landed,
    /// Ask again after about this many milliseconds.
    Again(u64),
}

impl World {
    /// One player, from the first wish until they have landed or the run is over.
    pub async fn walk(self: Arc<Self>, mut guest: Guest, permit: OwnedSemaphorePermit) {
        let mut permit = Some(permit);
        let mut tries = 0;
        loop {
            let held = match permit.take() {
                Some(permit) => permit,
                None => match Arc::clone(&self.room).acquire_owned().await {
                    Ok(permit) => permit,
                    Err(_) => return,
                },
            };
            tries += 1;
            let pause = tokio::select! {
                () = self.over.cancelled() => return,
                step = self.one_try(&mut guest, tries, held) => match step {
                    Step::Landed => return,
                    Step::Again(pause_ms) => pause_ms,
                },
            };
            tokio::select! {
                () = self.over.cancelled() => return,
                () = about(pause) => {}
            }
        }
    }

    async fn one_try(&self, guest: &mut Guest, tries: u32, permit: OwnedSemaphorePermit) -> Step {
        let Some(proxy) = self.proxy(guest) else { return Step::Again(500) };
        let region = (guest.wants_arena && tries <= ARENA_TRIES).then_some(ARENA);
        let id = proxy.fresh_id();
        let line = json!({ "op": "dispatch", "player": guest.name, "region": region });
        if guest.plan == Plan::Cancels {
            guest.plan = Plan::Comes;
            let (answer, ()) = tokio::join!(proxy.ask_as(id.clone(), line), self.cancel(proxy, guest, &id));
            drop(permit);
            if let Ok(answer) = answer
                && let Some((_, token)) = transfer(&answer)
            {
                self.comes_home(&token).await;
            }
            return Step::Again(200);
        }
        let answer = match proxy.ask_as(id.clone(), line).await {
            Ok(answer) => answer,
            Err(NoAnswer) => return self.reconnect(),
        };
        let Some((server, token)) = transfer(&answer) else {
            self.not_transferred(&answer);
            return Step::Again(300);
        };
        let at_victim = guest.home == VICTIM && proxy.id == self.victim_id();
        match std::mem::replace(&mut guest.plan, Plan::Comes) {
            Plan::Held if at_victim => {
                drop(permit);
                self.tally.change(|counts| counts.holding += 1);
                proxy.gone().await;
                self.reconnect()
            }
            Plan::Late if at_victim => {
                drop(permit);
                self.tally.change(|counts| counts.holding += 1);
                self.tally.until(self.home_max, |counts| counts.reopened.contains(&token)).await;
                self.join(guest, &server).await
            }
            Plan::Vanishes => {
                drop(permit);
                if at_victim {
                    self.tally.change(|counts| counts.holding += 1);
                }
                if self.comes_home(&token).await {
                    self.tally.change(|counts| counts.vanished += 1);
                }
                Step::Again(100)
            }
            Plan::Fails => {
                let line = json!({ "op": "release", "player": guest.name, "request": id });
                if proxy.ask(line).await.is_ok() {
                    self.comes_home(&token).await;
                }
                Step::Again(100)
            }
            _ => {
                tokio::select! {
                    () = proxy.gone() => self.reconnect(),
                    () = about(60) => self.join(guest, &server).await,
                }
            }
        }
    }

    /// The proxy that the player is connected to, or the other one where that is gone.
    fn proxy(&self, guest: &Guest) -> Option<&Member> {
        let home = self.proxies.get(guest.home).filter(|proxy| !proxy.is_gone());
        home.or_else(|| self.proxies.iter().find(|proxy| !proxy.is_gone())).map(Arc::as_ref)
    }

    fn victim_id(&self) -> &str {
        self.proxies.get(VICTIM).map_or("", |victim| &victim.id)
    }

    fn reconnect(&self) -> Step {
        self.tally.change(|counts| counts.reconnects += 1);
        Step::Again(100)
    }

    fn not_transferred(&self, answer: &Value) {
        match (answer["outcome"].as_str(), answer["reason"].as_str()) {
            (Some("refused"), Some(reason)) => {
                self.tally.change(|counts| *counts.refused.entry(reason.to_owned()).or_default() += 1);
            }
            _ => self.tally.odd(format!("dispatch: {answer}")),
        }
    }

    async fn cancel(&self, proxy: &Member, guest: &Guest, request: &str) {
        loop {
            let line = json!({ "op": "cancel", "player": guest.name, "request": request });
            match proxy.ask(line).await {
                // The lines of one client are worked on side by side: this one may have been quicker.
                Ok(answer) if answer["outcome"] == "error" => sleep(Duration::from_millis(2)).await,
                Ok(_) | Err(NoAnswer) => return,
            }
        }
    }

    /// True once the token's place is back at its backend.
    async fn comes_home(&self, token: &str) -> bool {
        self.tally.until(self.home_max, |counts| counts.home.contains(token)).await
    }

    /// The player arrives at the backend.
    async fn join(&self, guest: &Guest, server: &str) -> Step {
        let Some(backend) = self.backends.get(server) else {
            self.tally.odd(format!("{} was sent to {server}, which nobody knows", guest.name));
            return Step::Again(300);
        };
        for _ in 0..JOIN_TRIES {
            let Ok(answer) = self.redeem(guest, backend).await else { return Step::Again(300) };
            match answer["outcome"].as_str() {
                Some("landed") => {
                    // Whoever knocks again with the same reservation must not get a second place.
                    about(30).await;
                    let _ = self.redeem(guest, backend).await;
                    return Step::Landed;
                }
                Some("error") => {}
                Some("refused") if answer["reason"] == "in_progress" => {}
                _ => return Step::Again(300),
            }
            about(100).await;
        }
        Step::Again(300)
    }

    async fn redeem(&self, guest: &Guest, backend: &Member) -> Result<Value, NoAnswer> {
        let answer = backend.ask(json!({ "op": "redeem", "player": guest.name })).await?;
        if answer["outcome"] == "landed" {
            let landing = Landing {
                server: backend.id.clone(),
                token: answer["token"].as_str().unwrap_or_default().to_owned(),
                place: (
                    answer["region"].as_str().unwrap_or_default().to_owned(),
                    answer["place"].as_u64().unwrap_or(u64::MAX),
                ),
            };
            self.tally.change(|counts| counts.landed.entry(guest.name.clone()).or_default().push(landing));
        }
        Ok(answer)
    }
}

/// Backend and token of a dispatch that found a place.
fn transfer(answer: &Value) -> Option<(String, String)> {
    if answer["outcome"] != "transfer" {
        return None;
    }
    Some((answer["server"].as_str()?.to_owned(), answer["token"].as_str()?.to_owned()))
}

/// Sleeps between half of the time and one and a half of it.
async fn about(ms: u64) {
    let time = Duration::from_millis(ms).mul_f64(rand::rng().random_range(0.5..1.5));
    sleep(time).await;
}
