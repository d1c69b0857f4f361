use std::collections::BTreeMap;
use std::sync::Arc;

use indicatif::ProgressBar;

use crate::Failure;
use maitred::error::{Error, Result};
use maitred::ids::{LineName, Player, Role, SessionId};
use maitred::node::{Liveness, Membership, NodeRecord, NodeView, Snapshot};
use maitred::queue::{Admitter, Attributes, Choice, GateOptions, Line, LineOptions};
use maitred::store::Key;

use super::figure::Figure;
use super::server::Account;
use super::stage::{Stage, record};

/// How many wait while it is measured.
pub(super) const SIZES: [u64; 3] = [1_000, 100_000, 1_000_000];
/// Entries in one pipeline.
const FILL: u64 = 512;
/// Calls of one kind in one round.
const CALLS: usize = 64;
/// Twenty bytes of an application's own.
const ATTRIBUTES: &str = "rank=vip;from=lobby2";

/// The server's time for a join, a position, a leave and an admission with more and more players waiting, each size against
/// the first one; then the memory of a waiting player, key by key. The sizes above `most` are left out.
pub(super) async fn measure(
    stage: &mut Stage,
    rounds: usize,
    most: u64,
    bar: &ProgressBar,
) -> Result<Vec<Figure>, Failure> {
    let gate = GateOptions { fixed_per_second: Some(1_000_000_000), burst: Some(1_000_000), ..GateOptions::default() };
    let options = LineOptions {
        max_waiting: u64::MAX,
        gate,
        pass_ms: 10_000,
        arrive_ms: 10_000,
        ..LineOptions::new(LineName::new("bench")?)
    };
    let line = Line::new(stage.store.clone(), stage.verifier().clone(), stage.control().clone(), options)?;
    let mut backend = stage.member("line-backend", Role::backend())?;
    let row = NodeRecord { soft_cap: 0, accepting: true, ..record(&Role::backend())? };
    let epoch = backend.join(row.clone()).await?;
    let row = NodeRecord { id: backend.identity().id.clone(), epoch, ..row };
    let view = NodeView { record: Arc::new(row), liveness: Liveness::Online, age_ms: 0 };
    let nodes = Snapshot { nodes: vec![view], as_of_ms: 0, stale: false };

    let outcome = sizes(stage, &line, &nodes, rounds, most, bar).await;
    clear(stage, &line, &mut backend).await?;
    outcome
}

async fn sizes(
    stage: &Stage,
    line: &Line,
    nodes: &Snapshot,
    rounds: usize,
    most: u64,
    bar: &ProgressBar,
) -> Result<Vec<Figure>, Failure> {
    let mut admitter = Admitter::new(line.clone(), Choice::Backend, 1);
    let before = used_memory(stage).await?;
    let mut figures = Vec::new();
    let mut first: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for size in SIZES.into_iter().filter(|size| *size <= most) {
        fill(stage, line, size, bar).await?;
        let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for _ in 0..rounds {
            round(stage, line, nodes, &mut admitter, &mut all).await?;
        }
        for name in ["join", "position", "leave", "admit, a player"] {
            let (Some(ours), figure) = (all.get(name), format!("line of {size}: {name}")) else { continue };
            let floor = first.entry(name).or_insert_with(|| ours.clone());
            figures.extend(Figure::of(figure, "us", ours, floor));
        }
        if size == SIZES[2].min(most) {
            fill(stage, line, size, bar).await?;
            figures.extend(memory(stage, line, size, before).await?);
        }
    }
    Ok(figures)
}

/// Lets players enter until `size` wait.
async fn fill(stage: &Stage, line: &Line, size: u64, bar: &ProgressBar) -> Result<(), Failure> {
    let attributes = Attributes::new(ATTRIBUTES)?;
    let mut waiting = line.view().await?.waiting;
    while waiting < size {
        let count = FILL.min(size - waiting);
        let mut calls = Vec::new();
        for _ in 0..count {
            calls.push(line.enter_call_for(&stage.proxy, &fresh()?, &SessionId::fresh(), &attributes));
        }
        for answer in stage.store.run_many(&calls).await? {
            let answer = answer?;
            if answer.word() != "WAITING" {
                return Err(answer.unexpected().into());
            }
        }
        waiting += count;
        bar.set_message(format!("{waiting} wait"));
    }
    Ok(())
}

/// A player with a name like a UUID's.
fn fresh() -> Result<Player, maitred::ids::InvalidId> {
    Player::new(uuid::Uuid::now_v7().to_string())
}

async fn round(
    stage: &Stage,
    line: &Line,
    nodes: &Snapshot,
    admitter: &mut Admitter,
    all: &mut BTreeMap<&'static str, Vec<f64>>,
) -> Result<(), Failure> {
    let attributes = Attributes::new(ATTRIBUTES)?;
    let holder = stage.proxy.clone();
    let mut guests = Vec::new();
    for _ in 0..CALLS {
        guests.push((fresh()?, SessionId::fresh()));
    }
    let mut each = |name: &'static str, before: Account, after: Account, calls: usize| {
        all.entry(name).or_default().extend(before.each(after, calls..=calls));
    };
    let begin = Account::read(&stage.store).await?;
    for (player, session) in &guests {
        line.enter(&stage.proxy, player, 0, session, &attributes, None).await?;
    }
    let entered = Account::read(&stage.store).await?;
    each("join", begin, entered, CALLS);
    for (player, _) in &guests {
        line.position(player).await?;
    }
    let looked = Account::read(&stage.store).await?;
    each("position", entered, looked, CALLS);
    for (player, session) in &guests {
        line.leave(&holder, player, session).await?;
    }
    let left = Account::read(&stage.store).await?;
    each("leave", looked, left, CALLS);
    let admitted = admitter.round(&stage.proxy, nodes).await?.admitted.len();
    let after = Account::read(&stage.store).await?;
    if let (Some((usec, 2)), Ok(admitted @ 1..)) = (left.until(after), u32::try_from(admitted)) {
        all.entry("admit, a player").or_default().push(usec / f64::from(admitted));
    }
    Ok(())
}

async fn used_memory(stage: &Stage) -> Result<f64, Failure> {
    let memory = stage.store.info("memory").await?;
    let used = memory.iter().find(|(name, _)| name.as_str() == "used_memory").and_then(|(_, value)| value.parse().ok());
    Ok(used.unwrap_or(0.0))
}

/// Bytes of one of `size` waiting players in each key of the line, then all that the server's memory grew by.
async fn memory(stage: &Stage, line: &Line, size: u64, before: f64) -> Result<Vec<Figure>, Failure> {
    let count = u32::try_from(size).map(f64::from).unwrap_or(f64::MAX);
    let mut figures = Vec::new();
    let (keys, name, via) = (stage.store.keys(), line.name(), via(stage, line));
    let parts: [(&str, Key<'_>); 5] = [
        ("line:", keys.line(name)),
        ("tickets:", keys.tickets(name)),
        ("via:", keys.via(&via)),
        ("gate:", keys.gate(name)),
        ("vias:", keys.vias(name)),
    ];
    for (part, key) in parts {
        // The server answers with an error or nothing where it does not tell.
        let answer = match stage.store.bare_command(&["MEMORY", "USAGE", &key.to_string(), "SAMPLES", "0"]).await {
            Ok(answer) => answer,
            Err(Error::Refused { .. } | Error::Protocol { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let Ok(bytes) = answer.parse::<f64>() else { continue };
        figures.extend(Figure::of(format!("a player of {size}: {part}"), "bytes", &[bytes / count], &[]));
    }
    let grown = (used_memory(stage).await? - before) / count;
    figures.extend(Figure::of(format!("a player of {size}: all keys"), "bytes", &[grown], &[500.0]));
    Ok(figures)
}

fn via(stage: &Stage, line: &Line) -> String {
    format!("{}:{}:{}", line.name(), stage.proxy.id, stage.proxy.epoch)
}

async fn clear(stage: &Stage, line: &Line, backend: &mut Membership) -> Result<(), Failure> {
    backend.leave().await?;
    let (keys, name, via) = (stage.store.keys(), line.name(), via(stage, line));
    let left = [
        keys.line(name),
        keys.tickets(name),
        keys.away(name),
        keys.via(&via),
        keys.vias(name),
        keys.gate(name),
        keys.lines(),
    ];
    for key in left {
        stage.store.bare_command(&["UNLINK", &key.to_string()]).await?;
    }
    Ok(())
}
