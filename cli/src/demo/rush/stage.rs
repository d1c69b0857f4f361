//! The run itself: what is set up, in which order things happen, and what is read at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::super::fleet::{Fleet, Hears, Member};
use super::super::ground::Ground;
use super::check::Cap;
use super::ears::{Ears, now_us};
use super::history::History;
use super::players::{Guest, Walk, guests};
use super::report::Evidence;
use super::scale::{ARRIVE_MS, LEASE_MS, LINE, PASS_MS, Scale};
use super::story::{Cut, Story};
use super::watch::{Samples, Told, collect, sample, show};
use super::world::{Door, World, keep_reporting};
use crate::Failure;
use crate::view;
use maitred::ids::{LineName, NodeId};
use maitred::node::Control;
use maitred::queue::Line;
use maitred::store::FeedChannel;

/// Proxies; the last one takes no part in the admission.
pub(super) const PROXIES: usize = 4;
/// The proxy that will be killed: one that admits.
const VICTIM: usize = 1;
/// Longest time beyond the line's own after which who is on the way counts as lost.
const EXTRA_MAX: Duration = Duration::from_secs(60);
/// Between two looks at whether something has come about.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time until the fleet is ready for players.
const READY_MAX: Duration = Duration::from_secs(20);

/// Everything that runs, in the order in which it ends.
pub(in crate::demo) struct Stage {
    pub fleet: Fleet,
    scale: Scale,
    guests: Vec<Guest>,
    ears: Arc<Ears>,
    line: Line,
    stop: CancellationToken,
    say: fn(&str),
    ground: Ground,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What watches while players wait.
struct Watchers {
    told: JoinHandle<Told>,
    samples: JoinHandle<Samples>,
    others: JoinSet<()>,
}

impl Stage {
    /// Starts the store and the processes.
    pub async fn set(players: usize, say: fn(&str)) -> Result<Self, Failure> {
        let scale = Scale::of(players);
        let ground = Ground::lay(&scale.network()).await?;
        let name = LineName::new(LINE)?;
        let config = ground.config.lines.get(&name).ok_or_else(|| Failure::Io("the demo has no line".to_owned()))?;
        let options = config.options(&name);
        let line = Line::new(ground.store.clone(), ground.verifier.clone(), Control::default(), options)?;
        let guests = guests(players, PROXIES);
        let lease = Duration::from_millis(LEASE_MS);
        let ears = Arc::new(Ears::new(guests.iter().map(|guest| guest.name.clone()), lease));
        let (fleet, stop) = (Fleet::default(), CancellationToken::new());
        let mut stage = Self { fleet, scale, guests, ears, line, stop, say, ground };
        let launch = stage.ground.launch();
        for (number, port) in (1..).zip(25_577..).take(PROXIES) {
            let ears: Arc<dyn Hears> = Arc::<Ears>::clone(&stage.ears);
            stage.fleet.proxies.push(Member::spawn(&launch, &format!("proxy-{number}"), "proxy", port, ears)?);
        }
        for (number, port) in (1..).zip(25_565..).take(stage.scale.places.len()) {
            let ears: Arc<dyn Hears> = Arc::<Ears>::clone(&stage.ears);
            stage.fleet.backends.push(Member::spawn(&launch, &format!("backend-{number}"), "backend", port, ears)?);
        }
        Ok(stage)
    }

    /// Lets everybody come at once, kills a proxy in the middle, and collects what everybody says at the end.
    pub async fn play(&self) -> Result<Evidence, Failure> {
        let started = Instant::now();
        let info = self.ground.store.server_info().await?;
        let scale = &self.scale;
        self.say(&format!(
            "{} {} runs on a private socket. The gate lets {} a second through and {} more at once; {} places at {} \
             backends.",
            info.name,
            info.version,
            scale.rate,
            scale.burst,
            scale.places.iter().sum::<u64>(),
            scale.places.len(),
        ));
        let world = self.world();
        self.prepare(&world).await?;
        let admitting = PROXIES - 1;
        self.say(&format!("{PROXIES} proxies are up, and {admitting} of them admit. {} players come.", scale.players));
        let bar = view::progress(u64::try_from(scale.players).unwrap_or(u64::MAX), "");
        let mut watchers = self.watch(&world, &bar).await?;
        let mut walks: JoinSet<(String, Story)> = JoinSet::new();
        for guest in &self.guests {
            if let Some(walk) = Walk::new(&world, guest.clone()) {
                walks.spawn(walk.walk());
            }
        }
        let mut history = History { arrive_us: ARRIVE_MS * 1_000, ..History::default() };
        let all = u64::try_from(scale.players).unwrap_or(u64::MAX);
        let third = all / 3;
        self.until(|| world.entered.load(Ordering::Relaxed) >= all * 19 / 20).await;
        history.places = self.places().await?;
        self.until(|| world.admitted.load(Ordering::Relaxed) >= third).await;
        let (killed, stranded) = self.kill(&mut history).await?;
        bar.suspend(|| self.say(&format!("SIGKILL for proxy-{}, where {stranded} players wait.", VICTIM + 1)));

        let walked = async {
            let mut stories = BTreeMap::new();
            while let Some(walked) = walks.join_next().await {
                match walked {
                    Ok((name, story)) => drop(stories.insert(name, story)),
                    Err(error) => self.ears.odd(format!("a player's task ended: {error}")),
                }
            }
            stories
        };
        let late = async {
            sleep(self.scale.length() + EXTRA_MAX).await;
            // From now on every walk ends where it is.
            world.over.cancel();
            std::future::pending().await
        };
        history.stories = tokio::select! {
            stories = walked => stories,
            stories = late => stories,
        };
        bar.finish_and_clear();
        self.say("Everybody is through. What is left of the line has to end by itself now.");
        let keys_left = self.come_to_rest().await?;
        self.stop.cancel();
        while watchers.others.join_next().await.is_some() {}
        let failed = |error: tokio::task::JoinError| Failure::Io(format!("a watcher ended: {error}"));
        let told = watchers.told.await.map_err(failed)?;
        let samples = watchers.samples.await.map_err(failed)?;
        (history.seen, history.told) = (told.seen, told.told);
        let noted = self.ears.noted();
        history.cuts.extend(noted.lapses.iter().cloned());
        Ok(Evidence {
            guests: self.guests.clone(),
            history,
            caps: self.caps(),
            samples,
            noted,
            rate: scale.rate,
            burst: scale.burst,
            killed,
            stranded,
            keys_left,
            retries: world.retries.load(Ordering::Relaxed),
            missed: told.missed,
            elapsed: started.elapsed(),
            info,
        })
    }

    fn say(&self, text: &str) {
        (self.say)(text);
    }

    fn caps(&self) -> Vec<Cap> {
        let backends = self.fleet.backends.iter().zip(&self.scale.places);
        backends.map(|(backend, places)| Cap { server: backend.id.clone(), places: *places }).collect()
    }

    fn world(&self) -> Arc<World> {
        let backends = self.fleet.backends.iter().zip(&self.scale.places);
        Arc::new(World {
            line: LINE,
            proxies: self.fleet.proxies.clone(),
            doors: backends.map(|(one, places)| (one.id.clone(), Door::new(Arc::clone(one), *places))).collect(),
            ears: Arc::clone(&self.ears),
            over: CancellationToken::new(),
            rate: self.scale.rate,
            length: self.scale.length(),
            admitted: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        })
    }

    /// Waits until all are members, their places are published, and every proxy sees all nodes.
    async fn prepare(&self, world: &World) -> Result<(), Failure> {
        for member in self.fleet.members() {
            member.ready().await?;
        }
        for door in world.doors.values() {
            if !door.report().await {
                return Err(Failure::Io(format!("{} took no places", door.backend.id)));
            }
        }
        let last = self.fleet.proxies.last().ok_or_else(|| Failure::Io("there is no proxy".to_owned()))?;
        let answer = last.ask(json!({ "op": "admits", "on": false })).await;
        if !answer.is_ok_and(|answer| answer["outcome"] == "ok") {
            return Err(Failure::Io(format!("{} goes on admitting", last.id)));
        }
        let nodes = self.fleet.members().count();
        let seen = async {
            for (id, door) in &world.doors {
                let id = NodeId::new(id)?;
                let places = door.places.to_string();
                while self.ground.store.row(self.ground.store.keys().node(&id)).await?.text("soft_cap") != places {
                    sleep(LOOK_EVERY).await;
                }
            }
            for proxy in &self.fleet.proxies {
                while !proxy.ask(json!({ "op": "status" })).await.is_ok_and(|status| status["online"] == nodes) {
                    sleep(LOOK_EVERY).await;
                }
            }
            Ok::<(), Failure>(())
        };
        let late = |_| Failure::Io(format!("the nodes did not find each other within {} s", READY_MAX.as_secs()));
        timeout(READY_MAX, seen).await.map_err(late)?
    }

    async fn watch(&self, world: &Arc<World>, bar: &indicatif::ProgressBar) -> Result<Watchers, Failure> {
        let channel = self.ground.store.keys().line_events().to_string();
        let items = self.ground.listen(FeedChannel::Line, channel, self.stop.clone()).await?;
        let mut others = JoinSet::new();
        others.spawn(show(Arc::clone(world), self.line.clone(), bar.clone(), self.say, self.stop.clone()));
        for id in world.doors.keys() {
            others.spawn(keep_reporting(Arc::clone(world), id.clone(), self.stop.clone()));
        }
        Ok(Watchers {
            told: tokio::spawn(collect(self.line.clone(), items, self.stop.clone())),
            samples: tokio::spawn(sample(Arc::clone(world), self.ground.store.clone(), self.stop.clone())),
            others,
        })
    }

    /// Waits for something, as long as a whole run may take.
    async fn until(&self, condition: impl Fn() -> bool) {
        let end = Instant::now() + self.scale.length() + EXTRA_MAX;
        while !condition() && Instant::now() < end {
            sleep(LOOK_EVERY).await;
        }
    }

    /// The place of everybody who waits, as the store has it.
    async fn places(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let tickets = self.ground.store.scan_row(self.ground.store.keys().tickets(self.line.name())).await?;
        let place = |(player, text): (&str, &str)| Some((player.to_owned(), text.split(' ').next()?.parse().ok()?));
        Ok(tickets.fields().filter_map(place).collect())
    }

    /// Kills the proxy. How many processes that ended, and how many players it held the tickets of.
    async fn kill(&self, history: &mut History) -> Result<(u64, u64), Failure> {
        let victim = self.fleet.proxies.get(VICTIM);
        let victim = victim.ok_or_else(|| Failure::Io("there is no second proxy".to_owned()))?;
        history.cuts.push(Cut { node: victim.id.clone(), at_us: now_us(), for_good: true });
        let killed = victim.kill();
        let id = NodeId::new(&victim.id)?;
        let mut stranded = 0;
        let tickets = self.ground.store.scan_row(self.ground.store.keys().tickets(self.line.name())).await?;
        for (_, text) in tickets.fields() {
            stranded += u64::from(text.split(' ').nth(2) == Some(id.as_str()));
        }
        Ok((u64::from(killed), stranded))
    }

    /// Waits until no key of the line is left but its gate, or for as long as one may stay. What is left is answered.
    async fn come_to_rest(&self) -> Result<Vec<String>, Failure> {
        let end = Instant::now() + Duration::from_millis(PASS_MS + ARRIVE_MS + 2 * LEASE_MS);
        loop {
            let mut left = self.ground.store.key_names().await?;
            left.retain(|name| {
                let (kind, rest) = name.split_once(':').unwrap_or((name, ""));
                matches!(kind, "line" | "lines" | "tickets" | "away" | "via" | "vias" | "pass" | "held")
                    || (kind == "gate" && rest != LINE)
            });
            if left.is_empty() || Instant::now() >= end {
                return Ok(left);
            }
            sleep(LOOK_EVERY * 4).await;
        }
    }
}
