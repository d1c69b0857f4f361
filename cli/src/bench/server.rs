use std::ops::RangeInclusive;
use std::time::Duration;

use futures_util::future::try_join_all;
use indicatif::ProgressBar;
use tokio::time::sleep;

use crate::Failure;
use maitred::error::Result;
use maitred::ids::Role;
use maitred::store::{BareCall, Invocation, Store};
use maitred::token::{ReapOptions, reap};

use super::bare;
use super::calls::Life;
use super::figure::Figure;
use super::stage::{Stage, record};

/// Answers of calls that changed something.
const DONE: [&str; 6] = ["ISSUED", "CLAIMED", "CONSUMED", "ACQUIRED", "RENEWED", "RELEASED"];
/// Calls in one pipeline.
const BATCH: usize = 64;
/// Life of a token whose claim and consume follow at once.
const TTL_MS: u64 = 30_000;
/// Life of a token that the reaper is to find.
const SHORT_TTL_MS: u64 = 100;

/// Runs of scripts so far, on the server's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    calls: u64,
    usec: u64,
}

impl Account {
    /// Nothing where the server has run none yet, or keeps no account.
    pub async fn read(store: &Store) -> Result<Self> {
        let commands = store.info("commandstats").await?;
        let account = commands.iter().find(|(name, _)| name.eq_ignore_ascii_case("cmdstat_evalsha"));
        Ok(account.map_or(Self { calls: 0, usec: 0 }, |(_, fields)| Self::parse(fields)))
    }

    fn parse(fields: &str) -> Self {
        let field = |wanted: &str| {
            let value = fields.split(',').find_map(|field| field.strip_prefix(wanted)?.strip_prefix('='))?;
            value.parse().ok()
        };
        Self { calls: field("calls").unwrap_or(0), usec: field("usec").unwrap_or(0) }
    }

    /// Microseconds and number of the runs since `self`; none where nothing ran, or the account was reset.
    pub fn until(self, later: Self) -> Option<(f64, u32)> {
        let calls = u32::try_from(later.calls.checked_sub(self.calls)?).ok().filter(|calls| *calls > 0)?;
        let usec = u32::try_from(later.usec.checked_sub(self.usec)?).ok()?;
        Some((f64::from(usec), calls))
    }

    /// Microseconds of one run since `self`; none where there were others than the `expected` ones, which are somebody
    /// else's.
    pub fn each(self, later: Self, expected: RangeInclusive<usize>) -> Option<f64> {
        let (usec, calls) = self.until(later)?;
        usize::try_from(calls).is_ok_and(|calls| expected.contains(&calls)).then(|| usec / f64::from(calls))
    }
}

/// One figure's rounds.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub ours: Vec<f64>,
    pub floor: Vec<f64>,
}

/// Server time of every script in the life of a token, and of those of a membership.
pub(super) async fn measure(
    stage: &Stage,
    lives: usize,
    rounds: usize,
    bar: &ProgressBar,
) -> Result<Vec<Figure>, Failure> {
    let mut floors = Vec::new();
    for source in [bare::ISSUE, bare::CLAIM, bare::CONSUME] {
        floors.push(stage.store.load_bare(source).await?);
    }
    let mut life: [Rounds; 3] = Default::default();
    let mut sum = Rounds::default();
    let mut others: [(&str, Vec<f64>); 5] =
        ["release", "cancel", "reap, a token", "beat", "join"].map(|name| (name, Vec::new()));
    for round in 0..rounds {
        for floor_now in [round % 2 == 1, round % 2 == 0] {
            let batch = kinds(stage, lives)?;
            let mut whole = Some(0.0);
            for ((calls, sha), figure) in batch.iter().zip(&floors).zip(&mut life) {
                let micros = if floor_now {
                    let calls: Vec<BareCall> = calls.iter().map(|call| call.bare(sha)).collect();
                    bare_micros(&stage.store, &calls).await?
                } else {
                    script_micros(&stage.store, calls).await?
                };
                let side = if floor_now { &mut figure.floor } else { &mut figure.ours };
                side.extend(micros);
                whole = whole.zip(micros).map(|(whole, micros)| whole + micros);
            }
            let side = if floor_now { &mut sum.floor } else { &mut sum.ours };
            side.extend(whole);
        }
        let measured = [
            release_micros(stage).await?,
            cancel_micros(stage).await?,
            reap_micros(stage).await?,
            beat_micros(stage).await?,
            join_micros(stage, round).await?,
        ];
        for ((_, values), micros) in others.iter_mut().zip(measured) {
            values.extend(micros);
        }
        bar.inc(1);
    }
    let figures = ["issue", "claim", "consume"]
        .into_iter()
        .zip(&life)
        .chain([("issue + claim + consume", &sum)])
        .filter_map(|(name, rounds)| Figure::of(server(name), "us", &rounds.ours, &rounds.floor))
        .chain(others.iter().filter_map(|(name, ours)| Figure::of(server(name), "us", ours, &[])));
    Ok(figures.collect())
}

pub(super) fn server(name: &str) -> String {
    format!("server: {name}")
}

/// The calls of `lives` lives, one kind after the other, so that each kind is measured alone.
fn kinds(stage: &Stage, lives: usize) -> Result<[Vec<Invocation>; 3], Failure> {
    let mut kinds: [Vec<Invocation>; 3] = Default::default();
    for _ in 0..lives {
        for (kind, call) in kinds.iter_mut().zip(Life::fresh()?.calls(stage, TTL_MS)) {
            kind.push(call);
        }
    }
    Ok(kinds)
}

/// The server's time of one call; none where others ran scripts meanwhile.
pub(super) async fn script_micros(store: &Store, calls: &[Invocation]) -> Result<Option<f64>> {
    let before = Account::read(store).await?;
    for batch in calls.chunks(BATCH) {
        run_all(store, batch).await?;
    }
    each(before, store, calls.len()).await
}

pub(super) async fn bare_micros(store: &Store, calls: &[BareCall]) -> Result<Option<f64>> {
    let before = Account::read(store).await?;
    for batch in calls.chunks(BATCH) {
        store.run_bare_many(batch).await?;
    }
    each(before, store, calls.len()).await
}

async fn each(before: Account, store: &Store, calls: usize) -> Result<Option<f64>> {
    Ok(before.each(Account::read(store).await?, calls..=calls))
}

/// Runs calls that have to change something: a figure of refusals would be a wrong one.
async fn run_all(store: &Store, calls: &[Invocation]) -> Result<()> {
    for answer in store.run_many(calls).await? {
        let answer = answer?;
        if !DONE.contains(&answer.word()) {
            return Err(answer.unexpected());
        }
    }
    Ok(())
}

/// Lives that were issued and no more.
async fn issued(stage: &Stage, ttl_ms: u64) -> Result<Vec<Life>, Failure> {
    let lives = (0..BATCH).map(|_| Life::fresh()).collect::<std::result::Result<Vec<_>, _>>()?;
    let calls: Vec<Invocation> = lives.iter().map(|life| life.issue_call(stage, ttl_ms)).collect();
    run_all(&stage.store, &calls).await?;
    Ok(lives)
}

async fn release_micros(stage: &Stage) -> Result<Option<f64>, Failure> {
    let lives = issued(stage, TTL_MS).await?;
    let before = Account::read(&stage.store).await?;
    let calls = lives.iter().map(|life| stage.book.release_own(&life.id, &life.player, &stage.backend, "bench"));
    try_join_all(calls).await?;
    Ok(each(before, &stage.store, BATCH).await?)
}

async fn cancel_micros(stage: &Stage) -> Result<Option<f64>, Failure> {
    let lives = issued(stage, TTL_MS).await?;
    let servers = [stage.backend.id.clone()];
    let before = Account::read(&stage.store).await?;
    let calls = lives.iter().map(|life| stage.book.cancel(&life.player, &life.request, &stage.proxy, None, &servers));
    try_join_all(calls).await?;
    Ok(each(before, &stage.store, BATCH).await?)
}

async fn reap_micros(stage: &Stage) -> Result<Option<f64>, Failure> {
    let lives = (0..BATCH).map(|_| Life::fresh()).collect::<std::result::Result<Vec<_>, _>>()?;
    let calls: Vec<Invocation> = lives.iter().map(|life| life.issue_call(stage, SHORT_TTL_MS)).collect();
    // On a machine that stalls some are too late already: the others are measured.
    stage.store.run_many(&calls).await?;
    sleep(Duration::from_millis(SHORT_TTL_MS + 10)).await;
    let before = Account::read(&stage.store).await?;
    let report = reap(&stage.book, None, ReapOptions::default()).await?;
    let after = Account::read(&stage.store).await?;
    let tokens = u32::try_from(report.expired).ok().filter(|tokens| *tokens > 0);
    Ok(before.until(after).zip(tokens).map(|((usec, _), tokens)| usec / f64::from(tokens)))
}

async fn beat_micros(stage: &Stage) -> Result<Option<f64>, Failure> {
    let role = Role::new("bench")?;
    let mut member = stage.member("beater", role.clone())?;
    let record = record(&role)?;
    member.join(record.clone()).await?;
    let before = Account::read(&stage.store).await?;
    for _ in 0..BATCH {
        member.beat(record.clone(), stage.control()).await?;
    }
    let micros = each(before, &stage.store, BATCH).await?;
    member.leave().await?;
    Ok(micros)
}

async fn join_micros(stage: &Stage, round: usize) -> Result<Option<f64>, Failure> {
    let role = Role::new("bench")?;
    let mut members = (0..BATCH / 4)
        .map(|index| stage.member(&format!("joiner-{round}-{index}"), role.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let record = record(&role)?;
    let before = Account::read(&stage.store).await?;
    for member in &mut members {
        member.join(record.clone()).await?;
    }
    // The store may ask for another epoch, and the join comes again.
    let micros = before.each(Account::read(&stage.store).await?, members.len()..=2 * members.len());
    for member in &mut members {
        member.leave().await?;
    }
    Ok(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_round_without_strangers_counts() {
        let before = Account::parse("calls=2,usec=30,usec_per_call=15.00");
        let after = Account::parse("calls=12,usec=280,usec_per_call=23.33,rejected_calls=0");
        assert_eq!(after, Account { calls: 12, usec: 280 });
        assert_eq!(before.until(after), Some((250.0, 10)));
        assert_eq!(before.each(after, 10..=10), Some(25.0));
        assert_eq!(before.each(after, 9..=9), None, "one of them was somebody else's");
        assert_eq!(after.until(before), None, "the account was reset meanwhile");
    }
}
