//! The run itself: what is set up, in which order things happen, and what is read at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fleet::{Fleet, Hears, Member};
use super::ground::Ground;
use super::players::{ARENA, Guest, Plan, VICTIM, World, guests};
use super::report::{Evidence, Home, Left};
use super::tally::{Counts, Tally};
use crate::Failure;
use crate::view;
use maitred::agent::Setup;
use maitred::ids::{NodeId, Player};
use maitred::node::Control;
use maitred::store::{FeedChannel, FeedItem, Key, Store};
use maitred::token::{Book, TokenEvent, TokenRow, TokenState};

/// Times of the demo's fleet, so that what takes half a minute by default is over in seconds.
const NETWORK: &str = "\
zone: demo
heartbeat: { intervalMs: 500 }
directory: { refreshMs: 1000, suspectMs: 1250, offlineMs: 1750 }
tokens: { ttlMs: 8000, claimReanimateMs: 2000, auditMs: 300000, reapIntervalMs: 500 }
dispatch: { attemptTimeoutMs: 1000, cooldownMs: 200, staleAfterMs: 1500 }
";
/// Latest moment after the first held player at which the proxy is killed: well before their tokens end.
const KILL_MAX: Duration = Duration::from_secs(3);
/// How long the places may be short before the second half of them is opened.
const SHORT_MAX: Duration = Duration::from_millis(1_500);
/// After this time who has not landed counts as lost.
const RUN_MAX: Duration = Duration::from_secs(60);
/// Between two looks at whether everything has come to rest.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Everything that runs, in the order in which it ends.
pub(super) struct Stage {
    pub fleet: Fleet,
    tally: Tally,
    book: Book,
    stop: CancellationToken,
    say: fn(&str),
    ground: Ground,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Stage {
    /// Starts the store and the processes, and waits until they know each other.
    pub async fn set(say: fn(&str)) -> Result<Self, Failure> {
        let ground = Ground::lay(NETWORK).await?;
        let options = Setup::book_options(&ground.config);
        let book = Book::new(ground.store.clone(), ground.verifier.clone(), Control::default(), options);
        let fleet = Fleet::default();
        let (tally, stop) = (Tally::new(), CancellationToken::new());
        let mut stage = Self { fleet, tally, book, stop, say, ground };
        stage.listen().await?;
        let launch = stage.ground.launch();
        let ears: Arc<dyn Hears> = Arc::new(stage.tally.clone());
        for (id, port) in [("proxy-1", 25_577), ("proxy-2", 25_578)] {
            stage.fleet.proxies.push(Member::spawn(&launch, id, "proxy", port, Arc::clone(&ears))?);
        }
        for (id, port) in [("backend-1", 25_565), ("backend-2", 25_566)] {
            stage.fleet.backends.push(Member::spawn(&launch, id, "backend", port, Arc::clone(&ears))?);
        }
        Ok(stage)
    }

    fn store(&self) -> &Store {
        self.book.store()
    }

    /// Hears the token channel from now on.
    async fn listen(&self) -> Result<(), Failure> {
        let name = self.store().keys().token_events().to_string();
        let mut items = self.ground.listen(FeedChannel::Token, name, self.stop.clone()).await?;
        let tally = self.tally.clone();
        tokio::spawn(async move {
            while let Some(item) = items.recv().await {
                match item {
                    FeedItem::Message(_, bytes) => {
                        if let Some(TokenEvent::Reopened { id, .. }) = TokenEvent::read(&bytes) {
                            tally.change(|counts| {
                                counts.reopened.insert(id.to_string());
                            });
                        }
                    }
                    FeedItem::Gap => tally.change(|counts| counts.missed += 1),
                    FeedItem::Down => {}
                }
            }
        });
        Ok(())
    }

    /// Sends the players through, kills a proxy halfway, and collects what everybody says at the end.
    pub async fn play(&self, players: usize) -> Result<Evidence, Failure> {
        let started = Instant::now();
        let info = self.store().server_info().await?;
        let tokens = &self.ground.config.tokens;
        self.say(&format!(
            "{} {} runs on a private socket. Times are short: a token lives {}, a claim of the dead is reopened after {}.",
            info.name,
            info.version,
            view::ago(tokens.ttl_ms),
            view::ago(tokens.claim_reanimate_ms),
        ));
        for member in self.fleet.members() {
            member.ready().await?;
        }
        let mut given = BTreeMap::new();
        let (hall, arena) = (share(players, 35), share(players, 5));
        self.open("hall", hall, &mut given).await?;
        self.open(ARENA, arena, &mut given).await?;
        self.acquainted().await?;
        self.say(&format!(
            "proxy-1, proxy-2, backend-1 and backend-2 are up and know each other. {} places are open, fewer than players.",
            given.values().sum::<u64>()
        ));

        let (world, guests, in_flight) = self.world(players);
        self.say(&format!("{players} players ask for a place, half of them at each proxy, {in_flight} at a time."));
        let bar = view::progress(u64::try_from(players).unwrap_or(u64::MAX), "landed");
        bar.enable_steady_tick(Duration::from_millis(200));
        let mut owned = JoinSet::new();
        owned.spawn(show(bar.clone(), self.tally.clone()));
        let holding = guests.iter().filter(|guest| holds(guest)).count();
        owned.spawn(admit(Arc::clone(&world), guests.clone()));

        self.tally.until(RUN_MAX / 4, |counts| counts.holding > 0).await;
        self.tally
            .until(KILL_MAX, |counts| counts.holding >= holding && counts.landed.len() >= players.div_ceil(2))
            .await;
        let (killed, left) = self.kill().await?;
        let refusals = self.tally.now().refusals();
        bar.suspend(|| {
            self.say(&format!(
                "SIGKILL for proxy-2 with {} players landed; {} of its claims stand in the store.",
                self.tally.now().landed.len(),
                left.len()
            ));
        });
        self.tally.until(SHORT_MAX, |counts| counts.refusals() > refusals + 5).await;
        self.open("annex", share(players, 40), &mut given).await?;
        bar.suspend(|| {
            self.say("More places are open. Claims of the dead proxy are waited for, and places that nobody came for.")
        });

        let rest = RUN_MAX.saturating_sub(started.elapsed());
        self.tally.until(rest, |counts| counts.landed.len() >= players).await;
        let homes = self.come_to_rest(&given).await;
        world.over.cancel();
        bar.finish_and_clear();
        let rows = self.rows(&guests).await?;
        let open_servers = self.book.servers().await?.len();
        Ok(Evidence {
            players,
            counts: self.tally.now(),
            homes,
            rows: rows.0,
            bad_rows: rows.1,
            open_servers,
            victim: self.victim()?.id.clone(),
            left,
            killed,
            elapsed: started.elapsed(),
            info,
        })
    }

    fn say(&self, text: &str) {
        (self.say)(text);
    }

    fn victim(&self) -> Result<&Arc<Member>, Failure> {
        self.fleet.proxies.get(VICTIM).ok_or_else(|| Failure::Io("there is no second proxy".to_owned()))
    }

    /// Opens that many places in a region of each backend. Each region is set once, so that what was given adds up.
    async fn open(&self, region: &str, count: u64, given: &mut BTreeMap<String, u64>) -> Result<(), Failure> {
        for backend in &self.fleet.backends {
            let answer = backend.ask(json!({ "op": "places", "region": region, "count": count })).await;
            match answer {
                Ok(answer) if answer["outcome"] == "ok" => *given.entry(backend.id.clone()).or_default() += count,
                other => return Err(Failure::Io(format!("{} took no places: {other:?}", backend.id))),
            }
        }
        Ok(())
    }

    /// Waits until every proxy sees all nodes.
    async fn acquainted(&self) -> Result<(), Failure> {
        let seen = async {
            for proxy in &self.fleet.proxies {
                while !proxy.ask(json!({ "op": "status" })).await.is_ok_and(|status| status["online"] == 4) {
                    sleep(LOOK_EVERY).await;
                }
            }
        };
        let late = |_| Failure::Io("the nodes did not find each other within 15 s".to_owned());
        timeout(Duration::from_secs(15), seen).await.map_err(late)
    }

    fn world(&self, players: usize) -> (Arc<World>, Vec<Guest>, usize) {
        let in_flight = (players / 12).clamp(4, 96);
        let tokens = &self.ground.config.tokens;
        let world = World {
            proxies: self.fleet.proxies.clone(),
            backends: self.fleet.backends.iter().map(|backend| (backend.id.clone(), Arc::clone(backend))).collect(),
            tally: self.tally.clone(),
            room: Arc::new(Semaphore::new(in_flight)),
            over: CancellationToken::new(),
            home_max: Duration::from_millis(tokens.ttl_ms + 2 * tokens.reap_interval_ms + 1_000),
        };
        (Arc::new(world), guests(players), in_flight)
    }

    /// Kills the proxy and reads what it leaves behind.
    async fn kill(&self) -> Result<(u64, Vec<Left>), Failure> {
        let victim = self.victim()?;
        let killed = victim.kill();
        let mut left = Vec::new();
        for backend in &self.fleet.backends {
            for row in self.book.list(&NodeId::new(&backend.id)?).await? {
                if row.state == TokenState::Claimed && claimant(&row) == Some(&victim.id) {
                    left.push(Left { player: row.token.player.to_string(), token: row.token.id.to_string() });
                }
            }
        }
        Ok((u64::from(killed), left))
    }

    /// Asks the backends until no place is away any more, or for as long as a token could keep one.
    async fn come_to_rest(&self, given: &BTreeMap<String, u64>) -> Vec<Home> {
        let tokens = &self.ground.config.tokens;
        let end = Instant::now() + Duration::from_millis(tokens.ttl_ms + 3 * tokens.reap_interval_ms);
        loop {
            let mut homes = Vec::new();
            for backend in &self.fleet.backends {
                let status = backend.ask(json!({ "op": "status" })).await.unwrap_or_default();
                homes.push(Home {
                    server: backend.id.clone(),
                    given: given.get(&backend.id).copied().unwrap_or(0),
                    free: status["free"].as_u64(),
                    promised: status["promised"].as_u64(),
                });
            }
            let counts = self.tally.now();
            if homes.iter().all(|home| home.is_whole(&counts)) || Instant::now() >= end {
                return homes;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Every player's row, verified, and how many did not verify.
    async fn rows(&self, guests: &[Guest]) -> Result<(BTreeMap<String, TokenRow>, u64), Failure> {
        let players = guests.iter().map(|guest| Player::new(&guest.name)).collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<Key<'_>> = players.iter().map(|player| self.store().keys().token(player)).collect();
        let read = self.store().rows(&keys).await?;
        let (mut rows, mut bad) = (BTreeMap::new(), 0);
        for (player, row) in players.iter().zip(&read) {
            match TokenRow::from_row(&self.ground.verifier, player, row) {
                Ok(Some(row)) => {
                    rows.insert(player.to_string(), row);
                }
                Ok(None) => {}
                Err(_) => bad += 1,
            }
        }
        Ok((rows, bad))
    }
}

/// The node that holds a claim.
pub(super) fn claimant(row: &TokenRow) -> Option<&str> {
    row.claim.as_ref().map(|claim| claim.claimant.as_str())
}

/// Whether the player waits at the proxy that will be killed.
fn holds(guest: &Guest) -> bool {
    guest.home == VICTIM && matches!(guest.plan, Plan::Held | Plan::Late | Plan::Vanishes)
}

/// That many per cent of the players, rounded up.
fn share(players: usize, percent: usize) -> u64 {
    u64::try_from((players * percent).div_ceil(100)).unwrap_or(u64::MAX)
}

/// Lets the players in, in order, as fast as there is room.
async fn admit(world: Arc<World>, guests: Vec<Guest>) {
    let mut walks = JoinSet::new();
    for guest in guests {
        let Ok(permit) = Arc::clone(&world.room).acquire_owned().await else { return };
        walks.spawn(Arc::clone(&world).walk(guest, permit));
    }
    while let Some(walked) = walks.join_next().await {
        if let Err(error) = walked {
            world.tally.odd(format!("a player's task ended: {error}"));
        }
    }
}

async fn show(bar: indicatif::ProgressBar, tally: Tally) {
    let mut counts = tally.watch();
    loop {
        let landed = count(&counts.borrow_and_update());
        bar.set_position(landed);
        if counts.changed().await.is_err() {
            return;
        }
    }
}

fn count(counts: &Counts) -> u64 {
    u64::try_from(counts.landed.len()).unwrap_or(u64::MAX)
}
