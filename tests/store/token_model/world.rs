//! The real side: members on a real store, driven by a list, compared with the oracle after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use maitred::ids::{OperationId, Player, Role, TokenId};
use maitred::token::{BookOptions, Claim, ReapOptions, Token, reap};

use super::backend::Backend;
use super::op::{Op, PLAYERS, PROXIES, SERVERS};
use super::oracle::{Due, Hold, Oracle};
use crate::fixtures::tokens::{Bench, Member, player, request, say};
use maitred_testkit::store::TestStore;

/// Time passes in units. No time of the book and no sum of two of them is a multiple of a unit, so whatever happens is
/// at least [`MARGIN_MS`] away from every moment at which something changes, and a list may take that long.
const UNIT_MS: u64 = 3 * MARGIN_MS;
const MARGIN_MS: u64 = 20_000;
/// A member that beats every unit keeps its lease; one that missed two has lost it.
const LEASE_MS: u64 = 4 * MARGIN_MS;
pub const TIMES: BookOptions =
    BookOptions { ttl_ms: 19 * MARGIN_MS, claim_reanimate_ms: 7 * MARGIN_MS, audit_ms: 13 * MARGIN_MS };

/// How often the store gave which answer, so that lists which never get anywhere are noticed.
pub static SEEN: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

pub type Step = Result<(), String>;

pub struct World {
    pub bench: Bench,
    pub oracle: Oracle,
    /// The proxies, then the backends.
    pub members: Vec<Member>,
    pub dead: BTreeSet<usize>,
    pub backends: Vec<Backend>,
    pub players: Vec<Player>,
    /// Every token that was issued, as it was signed, the newest last.
    pub tokens: Vec<Token>,
    /// The operation that a proxy last claimed a token under.
    pub claim_ops: BTreeMap<(usize, TokenId), OperationId>,
    /// Under which operation a token was consumed.
    pub consumed: BTreeMap<TokenId, OperationId>,
}

impl World {
    /// Lives through `list` in a zone of its own, then waits until everything is over. Errors with what does not fit.
    pub async fn live_through(server: &TestStore, zone: &str, list: &[Op]) -> Step {
        let mut world = Self::new(server, zone).await;
        let begin = std::time::Instant::now();
        for (step, op) in list.iter().enumerate() {
            let lived = match world.happen(op).await {
                Ok(()) => world.compare().await,
                failed => failed,
            };
            lived.map_err(|why| format!("step {step}, {op:?}: {why}"))?;
        }
        world.end().await.map_err(|why| format!("at the end: {why}"))?;
        assert!(begin.elapsed().as_millis() < u128::from(MARGIN_MS), "the machine is too slow for the margins");
        Ok(())
    }

    async fn new(server: &TestStore, zone: &str) -> Self {
        let mut bench = Bench::with_times(server, zone, TIMES).await;
        bench.lease_ms = LEASE_MS;
        let store = bench.lazy_store().await;
        let mut oracle = Oracle::new(TIMES, LEASE_MS);
        let mut members = Vec::new();
        for n in 0..PROXIES + SERVERS {
            let (id, role) =
                if n < PROXIES { (format!("p{n}"), Role::proxy()) } else { (format!("b{n}"), Role::backend()) };
            let member = bench.join_on(store.clone(), &id, role).await;
            oracle.beat(&id, member.who.epoch.0);
            members.push(member);
        }
        Self {
            bench,
            oracle,
            members,
            dead: BTreeSet::new(),
            backends: (0..SERVERS).map(|_| Backend::default()).collect(),
            players: (0..PLAYERS).map(|n| player(&format!("player-{n}"))).collect(),
            tokens: Vec::new(),
            claim_ops: BTreeMap::new(),
            consumed: BTreeMap::new(),
        }
    }

    pub fn server(&self, server: usize) -> &Member {
        &self.members[PROXIES + server]
    }

    pub fn token(&self, back: usize) -> Option<Token> {
        let from = self.tokens.len().checked_sub(1)?;
        Some(self.tokens[from - back % self.tokens.len()].clone())
    }

    async fn happen(&mut self, op: &Op) -> Step {
        match *op {
            Op::Issue { server, player, request: number, attempt, heard } => {
                let name = request(&format!("r{number}"));
                self.issue(server, player, &name, attempt, heard).await
            }
            Op::Claim { proxy, token, again } => self.claim(proxy, token, again).await,
            Op::ClaimAsRouter { token } => self.claim_as_router(token).await,
            Op::Arrive { server, player, heard } => self.arrive(server, player, heard).await,
            Op::ArriveWith { token, heard } => {
                let Some(token) = self.token(token) else { return Ok(()) };
                let server = (0..SERVERS).find(|n| self.server(*n).who.id == token.server).ok_or("no such server")?;
                let player = self.players.iter().position(|player| *player == token.player).ok_or("no such player")?;
                self.arrive(server, player, heard).await
            }
            Op::ConsumeForeign { server, token } => self.consume_foreign(server, token).await,
            Op::Settle { server } => self.settle(server).await,
            Op::Look { server } => self.look(server).await,
            Op::ReleaseClaim { .. } | Op::ReleaseOwn { .. } | Op::ReleaseByOperator { .. } => self.release(op).await,
            Op::Cancel { proxy, player, request: number } => {
                let (name, player) = (request(&format!("r{number}")), self.players[player].clone());
                let who = self.members[proxy].who.clone();
                let told = say(&self.members[proxy].book.cancel(&player, &name, &who, None, &[]).await);
                let want = self.oracle.cancel(player.as_str(), name.as_str(), (who.id.as_str(), who.epoch.0));
                answered("cancel", &told, &want)
            }
            Op::Reap { dry } => self.reap(dry).await,
            Op::Wait { units } => self.wait(units).await,
            Op::Die { node } => {
                self.dead.insert(node);
                Ok(())
            }
            Op::Abandon { token, units } => {
                let Some(token) = self.token(token) else { return Ok(()) };
                let entry = self.oracle.entry(token.player.as_str());
                let holder = entry.and_then(|entry| entry.claim).map(|claim| claim.by);
                self.dead.extend((0..PROXIES).filter(|n| Some(self.members[*n].who.id.as_str()) == holder.as_deref()));
                self.wait(units).await?;
                self.reap(false).await
            }
            Op::Revive { node, fresh } => self.revive(node, fresh).await,
            Op::Restart { server, keep } => self.restart(server, keep).await,
        }
    }

    async fn reap(&mut self, dry: bool) -> Step {
        let names: Vec<String> = self.players.iter().map(|player| player.as_str().to_owned()).collect();
        let due: Vec<Due> = names.iter().map(|name| self.oracle.due(name)).collect();
        let options = ReapOptions { dry_run: dry, ..ReapOptions::default() };
        let report = reap(&self.members[0].book, None, options).await.map_err(|error| error.to_string())?;
        let count = |what: Due| due.iter().filter(|due| **due == what).count() as u64;
        same("expired", &report.expired.to_string(), &count(Due::Expire).to_string())?;
        let (must, may) = (count(Due::Reopen), count(Due::MayReopen));
        *SEEN.lock().unwrap().entry("reap Reopened".to_owned()).or_default() += report.reopened;
        *SEEN.lock().unwrap().entry("reap Expired".to_owned()).or_default() += report.expired;
        if !(must..=must + may).contains(&report.reopened) {
            return Err(format!("{} were reopened; {must} had to be, {may} could be", report.reopened));
        }
        if dry {
            return Ok(());
        }
        for (name, due) in names.iter().zip(due) {
            match due {
                Due::Expire => self.oracle.expire(name),
                Due::Reopen => self.oracle.reopen(name),
                Due::MayReopen if self.bench.row(&player(name)).await["state"] == "PENDING" => self.oracle.reopen(name),
                Due::MayReopen | Due::Nothing => {}
            }
        }
        self.oracle.heal();
        Ok(())
    }

    async fn wait(&mut self, units: u64) -> Step {
        for _ in 0..units {
            self.bench.age(UNIT_MS).await;
            self.oracle.now += UNIT_MS;
            for node in 0..self.members.len() {
                if !self.dead.contains(&node) {
                    let member = &mut self.members[node];
                    member.beat().await;
                    self.oracle.beat(member.who.id.as_str(), member.who.epoch.0);
                }
            }
        }
        Ok(())
    }

    async fn revive(&mut self, node: usize, fresh: bool) -> Step {
        if fresh {
            return match node.checked_sub(PROXIES) {
                Some(server) => self.restart(server, false).await,
                None => self.replace(node).await,
            };
        }
        self.dead.remove(&node);
        let member = &mut self.members[node];
        let epoch = member.who.epoch;
        member.rejoin().await;
        self.oracle.beat(member.who.id.as_str(), member.who.epoch.0);
        same("R-7: the epoch of the same process", &member.who.epoch.to_string(), &epoch.to_string())
    }

    pub async fn restart(&mut self, server: usize, keep: bool) -> Step {
        self.replace(PROXIES + server).await?;
        if keep {
            self.leave_old_epoch(server)
        } else {
            // the places were the old process's, and went with it.
            self.backends[server] = Backend::default();
            Ok(())
        }
    }

    async fn replace(&mut self, node: usize) -> Step {
        self.dead.remove(&node);
        let new = self.bench.replace(&mut self.members[node]).await;
        if new.who.epoch <= self.members[node].who.epoch {
            return Err(format!("R-3: epoch {} is not above {}", new.who.epoch, self.members[node].who.epoch));
        }
        self.oracle.beat(new.who.id.as_str(), new.who.epoch.0);
        self.members[node] = new;
        Ok(())
    }

    /// The rows and the index are as the oracle says.
    async fn compare(&mut self) -> Step {
        let mut index = BTreeSet::new();
        for player in self.players.clone() {
            let row = self.members[0].book.find(&player).await.map_err(|error| error.to_string())?;
            let row = row.map(|row| {
                let token = row.token;
                let who = (token.id.to_string(), token.server.to_string(), token.server_epoch.0);
                (who, token.attempt, row.state.as_str().to_owned(), hold(row.claim), hold(row.last_claim))
            });
            let entry = self.oracle.entry(player.as_str()).map(|entry| {
                let who = (entry.id, entry.server, entry.epoch);
                (who, entry.attempt, entry.state.to_owned(), held(entry.claim), held(entry.last_claim))
            });
            if row != entry {
                return Err(format!("the store has {row:?}\nthe naive book {entry:?}"));
            }
            for server in 0..SERVERS {
                let id = self.server(server).who.id.clone();
                if self.bench.due_at(&id, &player).await.is_some() {
                    index.insert((id.to_string(), player.to_string()));
                }
            }
        }
        if index != self.oracle.index {
            return Err(format!("the index has {index:?}\nthe naive book {:?}", self.oracle.index));
        }
        let servers: BTreeSet<&str> = index.iter().map(|(server, _)| server.as_str()).collect();
        let listed = self.bench.due_servers().await;
        same("the servers with an index", &format!("{listed:?}"), &format!("{:?}", Vec::from_iter(servers)))
    }

    /// Everything ends: every place was used or is home, and nothing of any token is left.
    async fn end(&mut self) -> Step {
        // What is asked again may be issued only now, so it has its time too.
        for server in 0..SERVERS {
            self.settle(server).await?;
        }
        self.compare().await?;
        self.wait(TIMES.ttl_ms.div_ceil(UNIT_MS)).await?;
        self.reap(false).await?;
        self.compare().await?;
        for server in 0..SERVERS {
            self.look(server).await?;
            self.backends[server].settled()?;
        }
        self.wait(TIMES.audit_ms.div_ceil(UNIT_MS)).await?;
        same("the keys of tokens that are left", &format!("{:?}", self.bench.token_keys().await), "[]")?;
        self.bench.clear().await;
        Ok(())
    }
}

fn hold(claim: Option<Claim>) -> Option<(String, u64, String)> {
    claim.map(|claim| (claim.claimant.to_string(), claim.claimant_epoch.0, claim.claim_op.to_string()))
}

fn held(hold: Option<Hold>) -> Option<(String, u64, String)> {
    hold.map(|hold| (hold.by, hold.epoch, hold.op))
}

/// What an operation was answered.
pub fn answered(operation: &str, told: &str, want: &str) -> Step {
    *SEEN.lock().unwrap().entry(format!("{operation} {told}")).or_default() += 1;
    same(operation, told, want)
}

pub fn same(what: &str, told: &str, want: &str) -> Step {
    if told == want { Ok(()) } else { Err(format!("{what}: the store says {told}, the naive book {want}")) }
}
