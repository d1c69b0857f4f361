use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::fleet::{Hears, Member, NoAnswer};
use super::ears::{Mail, now_us};
use super::story::{End, Entry, Heard, Stood, Story};
use super::world::{World, about};

/// How long a player stays inside, in ms.
const STAY_MS: u64 = 3_000;
/// How long it takes from the admission to the backend, in ms.
const TRAVEL_MS: u64 = 80;
/// Whoever hears nothing for this long beyond the whole line's time asks again.
const PATIENCE: Duration = Duration::from_secs(6);

/// What a player does besides waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    Comes,
    /// Drops while waiting, and returns through another proxy.
    Drops,
    /// The first transfer fails; for some of them the connection is lost with it.
    Fails {
        gone: bool,
    },
    /// Gives up while waiting.
    Quits,
    /// Drops while waiting, and never returns.
    Vanishes,
}

/// One player.
#[derive(Debug, Clone)]
pub(super) struct Guest {
    pub name: String,
    pub lane: u16,
    /// The proxy that they are connected to.
    pub home: usize,
    pub plan: Plan,
}

/// Every fourth player is in the second lane.
pub(super) fn guests(count: usize, proxies: usize) -> Vec<Guest> {
    let guest = |index: usize| {
        let plan = match index % 100 {
            3 | 29 | 54 | 80 => Plan::Drops,
            7 | 58 => Plan::Fails { gone: index % 100 == 7 },
            11 => Plan::Quits,
            14 => Plan::Vanishes,
            _ => Plan::Comes,
        };
        let lane = u16::from(index % 4 == 3);
        Guest { name: format!("player-{index:05}"), lane, home: index / 4 % proxies.max(1), plan }
    };
    (0..count).map(guest).collect()
}

/// What a player does next.
enum Turn {
    Wait,
    Go(Pass),
    /// Enter once more, after about this many ms.
    Again(u64),
    Done,
}

/// An admission that a player holds.
struct Pass {
    text: String,
    at: usize,
}

/// One player under way.
pub(super) struct Walk {
    world: Arc<World>,
    guest: Guest,
    story: Story,
    mail: watch::Receiver<Option<Mail>>,
    /// The proxy that answered the last entry.
    proxy: Option<Arc<Member>>,
    session: Value,
    /// When the plan is carried out, for those who go away while they wait.
    leaves_at: Instant,
}

impl Walk {
    pub fn new(world: &Arc<World>, guest: Guest) -> Option<Self> {
        let mail = world.ears.mail(&guest.name)?;
        let (world, story) = (Arc::clone(world), Story::default());
        Some(Self { world, guest, story, mail, proxy: None, session: Value::Null, leaves_at: Instant::now() })
    }

    /// From the first entry until the player is gone for good, or the run is over.
    pub async fn walk(mut self) -> (String, Story) {
        let world = Arc::clone(&self.world);
        tokio::select! {
            () = world.over.cancelled() => {}
            () = self.live() => {}
        }
        (self.guest.name, self.story)
    }

    async fn live(&mut self) {
        let mut turn = self.enter().await;
        loop {
            turn = match turn {
                Turn::Wait => self.wait().await,
                Turn::Go(pass) => self.go(pass).await,
                Turn::Again(pause_ms) => {
                    about(pause_ms).await;
                    self.enter().await
                }
                Turn::Done => return,
            };
        }
    }

    /// Goes to the next proxy.
    fn moves_on(&mut self, pause_ms: u64) -> Turn {
        self.guest.home += 1;
        self.story.changed += 1;
        Turn::Again(pause_ms)
    }

    fn about(&self, op: &str) -> Value {
        json!({ "op": op, "player": self.guest.name, "line": self.world.line })
    }

    async fn enter(&mut self) -> Turn {
        let Some(proxy) = self.world.proxy(self.guest.home).cloned() else { return Turn::Again(500) };
        self.proxy = Some(Arc::clone(&proxy));
        self.looks_back();
        if self.story.asked_us == 0 {
            self.story.asked_us = now_us();
        }
        let mut line = self.about("enter");
        line["lane"] = self.guest.lane.into();
        let Ok(answer) = proxy.ask(line).await else { return self.moves_on(300) };
        let told_us = now_us();
        let outcome = answer["outcome"].as_str().unwrap_or_default();
        if matches!(outcome, "waiting" | "admitted") && self.story.told_us.is_none() {
            self.story.told_us = Some(told_us);
            self.story.estimate_ms = if outcome == "admitted" { Some(0) } else { answer["estimate_ms"].as_u64() };
            // Not by the estimate: one that is too long would let everybody in who is to go away before.
            let ahead_ms = answer["position"].as_u64().map(|position| position * 1_000 / self.world.rate.max(1));
            let wait = ahead_ms.map_or(self.world.length, Duration::from_millis);
            self.leaves_at += wait.mul_f64(rand::rng().random_range(0.1..0.8));
            self.world.count(&self.world.entered);
        }
        match outcome {
            "waiting" => self.stands(&proxy, &answer, told_us),
            "admitted" => self.hears(&answer),
            _ => {
                if outcome == "error" {
                    self.world.count(&self.world.retries);
                } else {
                    self.world.ears.odd(format!("enter: {answer}"));
                }
                Turn::Again(300)
            }
        }
    }

    fn stands(&mut self, proxy: &Member, answer: &Value, told_us: u64) -> Turn {
        self.session = answer["session"].clone();
        let (node, after) = (proxy.id.clone(), self.story.heard.len());
        self.story.stood.push(Stood { node, after, from_us: told_us, until_us: None, gone_us: None });
        Turn::Wait
    }

    /// Notes an admission that was told while nobody waited for it any more.
    fn looks_back(&mut self) {
        let mail = self.mail.borrow_and_update().clone();
        if let Some(entry) = mail.as_ref().and_then(|mail| entry_of(&mail.line))
            && self.story.heard.iter().all(|heard| heard.entry.serial != entry.serial)
        {
            self.story.crossed.push(entry);
        }
    }

    /// Takes over an admission; one that was heard before is the same one again.
    fn hears(&mut self, told: &Value) -> Turn {
        let Some((entry, text)) = entry_of(told).zip(told["pass"].as_str().map(str::to_owned)) else {
            self.world.ears.odd(format!("an admission: {told}"));
            return Turn::Again(500);
        };
        let known = self.story.heard.iter().position(|heard| heard.entry.serial == entry.serial);
        let at = known.unwrap_or_else(|| {
            if self.story.heard.is_empty() {
                self.world.count(&self.world.admitted);
            }
            self.story.heard.push(Heard { entry, redeemed_us: None, freed_us: None });
            self.story.heard.len() - 1
        });
        Turn::Go(Pass { text, at })
    }

    async fn wait(&mut self) -> Turn {
        let Some(proxy) = self.proxy.clone() else { return Turn::Again(500) };
        let leaves = matches!(self.guest.plan, Plan::Drops | Plan::Quits | Plan::Vanishes);
        let patience = Instant::now() + self.world.length + PATIENCE;
        loop {
            tokio::select! {
                () = proxy.gone() => {
                    let pause_ms = rand::rng().random_range(200..4_000);
                    return self.moves_on(pause_ms);
                }
                changed = self.mail.changed() => {
                    let mail = self.mail.borrow_and_update().clone();
                    let (Ok(()), Some(mail)) = (changed, mail) else { return Turn::Done };
                    if mail.line["event"] == "admitted" {
                        let serial = mail.line["serial"].as_u64();
                        if self.story.heard.iter().all(|heard| Some(heard.entry.serial) != serial) {
                            return self.hears(&mail.line);
                        }
                    } else if mail.from == proxy.id && mail.line["session"] == self.session {
                        // Not by the player's own doing: what became of the place shows at the next entry.
                        self.world.count(&self.world.retries);
                        return Turn::Again(100);
                    }
                }
                () = sleep_until(self.leaves_at), if leaves => return self.leave(&proxy).await,
                () = sleep_until(patience) => return Turn::Again(100),
            }
        }
    }

    /// Goes away while waiting, as planned.
    async fn leave(&mut self, proxy: &Member) -> Turn {
        let plan = std::mem::replace(&mut self.guest.plan, Plan::Comes);
        if let Some(stood) = self.story.stood.last_mut() {
            stood.until_us = Some(now_us());
        }
        let mut line = self.about("left");
        line["session"] = self.session.clone();
        line["quit"] = (plan == Plan::Quits).into();
        let answer = proxy.ask(line).await;
        if let (Ok(_), Some(stood)) = (&answer, self.story.stood.last_mut()) {
            stood.gone_us = Some(now_us());
        }
        match (&answer, plan) {
            (Ok(answer), _) if !matches!(answer["outcome"].as_str(), Some("left" | "away" | "none")) => {
                self.world.ears.odd(format!("left: {answer}"));
                Turn::Again(300)
            }
            // The proxy is gone, or the player was admitted in this moment and that is over too.
            (_, Plan::Vanishes) => {
                self.story.end = End::Vanished;
                Turn::Done
            }
            (Ok(_), Plan::Quits) => {
                self.story.end = End::Quit;
                Turn::Done
            }
            (Err(NoAnswer), Plan::Quits) => {
                self.guest.plan = Plan::Quits;
                self.moves_on(300)
            }
            _ => {
                let pause_ms = rand::rng().random_range(200..2_000);
                self.moves_on(pause_ms)
            }
        }
    }

    /// The way from the admission to the backend.
    async fn go(&mut self, pass: Pass) -> Turn {
        let Some(proxy) = self.proxy.clone() else { return Turn::Again(500) };
        tokio::select! {
            () = proxy.gone() => return self.moves_on(300),
            () = about(TRAVEL_MS) => {}
        }
        if let Plan::Fails { gone } = self.guest.plan {
            self.guest.plan = Plan::Comes;
            return self.fails(&proxy, &pass, gone).await;
        }
        self.join(&proxy, pass).await
    }

    async fn fails(&mut self, proxy: &Member, pass: &Pass, gone: bool) -> Turn {
        if let Some(heard) = self.story.heard.get_mut(pass.at) {
            heard.freed_us = Some(now_us());
        }
        let mut line = self.about("failed");
        line["gone"] = gone.into();
        line["serial"] = self.story.heard.get(pass.at).map(|heard| heard.entry.serial).into();
        let Ok(answer) = proxy.ask(line).await else {
            // Whether it was taken over shows at the next entry.
            self.story.back += 1;
            return self.moves_on(300);
        };
        match answer["outcome"].as_str() {
            Some("back") => {
                self.story.back += 1;
                self.stands(proxy, &answer, now_us())
            }
            Some("away") => {
                self.story.back += 1;
                self.moves_on(400)
            }
            _ => {
                self.world.ears.odd(format!("failed: {answer}"));
                Turn::Again(500)
            }
        }
    }

    async fn join(&mut self, proxy: &Member, pass: Pass) -> Turn {
        let world = Arc::clone(&self.world);
        let server = self.story.heard.get(pass.at).map(|heard| heard.entry.server.clone()).unwrap_or_default();
        let Some(door) = world.doors.get(&server) else {
            world.ears.odd(format!("{} was sent to {server}, which nobody knows", self.guest.name));
            return Turn::Again(500);
        };
        door.comes(&self.guest.name);
        let redeem = json!({ "op": "redeem", "player": self.guest.name, "pass": pass.text });
        let answer = door.backend.ask(redeem.clone()).await;
        let told_us = now_us();
        match answer.as_ref().map(|answer| (answer["outcome"].as_str(), answer["reason"].as_str())) {
            Ok((Some("redeemed"), _)) => {
                door.came();
                self.story.redeemed += 1;
                if let Some(heard) = self.story.heard.get_mut(pass.at) {
                    heard.redeemed_us = Some(told_us);
                }
            }
            Ok((Some("refused"), Some("place_gone"))) => {
                door.goes(&self.guest.name);
                self.story.back += 1;
                return Turn::Again(100);
            }
            _ => {
                door.goes(&self.guest.name);
                if answer.as_ref().is_ok_and(|answer| answer["outcome"] == "error") {
                    // Whether the pass is spent is not known, and the same question gives the definite answer.
                    world.count(&world.retries);
                    return Turn::Go(pass);
                }
                world.ears.odd(format!("redeem: {answer:?}"));
                return Turn::Again(300);
            }
        }
        let mut line = self.about("arrived");
        line["serial"] = self.story.heard.get(pass.at).map(|heard| heard.entry.serial).into();
        let _ = proxy.ask(line).await;
        // Some knock a second time with the same pass, which must let nobody in.
        if self.guest.name.ends_with('5') {
            let again = door.backend.ask(redeem).await;
            if again.is_ok_and(|answer| answer["outcome"] != "refused" || answer["reason"] != "redeemed") {
                self.story.redeemed += 1;
            }
        }
        about(STAY_MS).await;
        if let Some(heard) = self.story.heard.get_mut(pass.at) {
            heard.freed_us = Some(now_us());
        }
        door.goes(&self.guest.name);
        self.story.end = End::Done;
        Turn::Done
    }
}

/// The admission that a line tells of; none where it tells of something else.
fn entry_of(line: &Value) -> Option<Entry> {
    Some(Entry {
        serial: line["serial"].as_u64()?,
        seq: line["seq"].as_u64()?,
        lane: u16::try_from(line["lane"].as_u64()?).ok()?,
        server: line["server"].as_str()?.to_owned(),
    })
}
