//! What has to hold once the storm is over: first what the processes say, then what the store says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::member::Member;
use super::world::{AMPLE, ANSWER_MAX, AUDIT, OPERATION, REAP, SCARCE, TTL, World};

/// A busy machine is no fault.
const SLACK: Duration = Duration::from_secs(5);
/// Longest time until every player has landed after the last fault: a token of an earlier try may have to expire first.
const LANDED_MAX: Duration = Duration::from_secs(20);
/// All that may stand in the store while the fleet runs and nobody is on the way.
const STANDING: [&str; 9] =
    ["epochs", "node:b1", "node:b2", "node:b3", "node:p1", "node:p2", "nodes:backend", "nodes:proxy", "roles"];

/// Lets everything come to rest, holds it against the invariants, and tells what is broken.
pub async fn everything(world: &World, mut players: JoinSet<()>) {
    let record = &world.record;
    let all_home = async { while players.join_next().await.transpose().expect("a player panicked").is_some() {} };
    if timeout(LANDED_MAX, all_home).await.is_err() {
        record.broken(&format!("{} players had not landed {LANDED_MAX:?} after the last fault", players.len()));
        players.shutdown().await;
    }
    for member in world.members() {
        answers_everything(world, member).await;
    }
    for backend in &world.backends {
        keeps_no_place(world, backend).await;
    }
    for member in world.members() {
        is_well(world, member).await;
    }
    record.judge(&world.members().map(|member| member.process()).collect::<Vec<_>>());
    let standing = leaves(world, &STANDING).await;
    if !standing.is_empty() {
        record.broken(&format!("STO-16: the store still holds {standing:?} although nobody is on the way"));
    }

    for member in world.members() {
        if !member.end().await {
            record.broken(&format!("{} did not end well", member.process()));
        }
    }
    let left = leaves(world, &["epochs"]).await;
    if !left.is_empty() {
        record.broken(&format!("STO-16: {left:?} is left after everybody left"));
    }
    if record.players_landed() < 10 {
        record.broken(&format!("{} players landed, which proves nothing", record.players_landed()));
    }
    for member in world.members() {
        record.note(&format!("{}: slowest answer {} ms", member.id, member.slowest_ms()));
        println!("chaos: {}: the slowest answer took {} ms", member.process(), member.slowest_ms());
    }
    record.verdict();
}

/// No line without an answer.
async fn answers_everything(world: &World, member: &Member) {
    let end = Instant::now() + ANSWER_MAX;
    while member.waiting() > 0 && Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
    }
    if member.waiting() > 0 {
        world.record.broken(&format!("{} never answered {} lines", member.process(), member.waiting()));
    }
}

async fn status(world: &World, member: &Member) -> Value {
    let answer = timeout(ANSWER_MAX, member.ask(&world.fresh_id(), json!({ "op": "status" }))).await;
    answer.ok().and_then(Result::ok).unwrap_or_default()
}

/// Every place is free or has somebody on it, at the latest when the last token has expired and was swept.
async fn keeps_no_place(world: &World, backend: &Arc<Member>) {
    let process = backend.process();
    let end = Instant::now() + TTL + REAP + OPERATION * 2 + SLACK;
    loop {
        let now = status(world, backend).await;
        let free = now["free"].as_u64().unwrap_or(u64::MAX);
        let landed = world.record.landings(&process);
        if now["promised"] == 0 && free + landed == SCARCE.1 + AMPLE.1 {
            return;
        }
        if Instant::now() > end {
            world.record.broken(&format!(
                "{process} does not have all places: {} set, {free} free, {landed} landed, {} promised",
                SCARCE.1 + AMPLE.1,
                now["promised"]
            ));
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Why a message of this run may be dropped: it was on its way to or from a process that has an heir by now.
const EXPLAINED: &str = "old_epoch";

/// A member that sees everybody and has dropped nothing that it should have believed.
async fn is_well(world: &World, member: &Arc<Member>) {
    let everybody = world.members().count();
    let end = Instant::now() + SLACK * 2;
    loop {
        let now = status(world, member).await;
        // A backend looks at proxies only.
        let seen = now["online"].as_u64().and_then(|online| usize::try_from(online).ok()).unwrap_or(0);
        let wanted = if world.backend(&member.id).is_some() { world.proxies.len() } else { everybody };
        let drops = now["audit"].as_object().cloned().unwrap_or_default();
        let audit = drops.keys().all(|reason| reason == EXPLAINED);
        if audit && seen >= wanted && now["stale"] == false && now["agent"]["status"] == "member" {
            drops
                .values()
                .filter_map(Value::as_u64)
                .for_each(|drops| world.record.add("dropped as of an old epoch", drops));
            return;
        }
        if !audit || Instant::now() > end {
            world.record.broken(&format!("{} is not well: {now}", member.process()));
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Keys of the zone besides `allowed`, once those that go by their time have gone.
async fn leaves(world: &World, allowed: &[&str]) -> Vec<String> {
    let mut store = world.store.conn().await;
    let end = Instant::now() + TTL + AUDIT + REAP + SLACK;
    loop {
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut store).await.expect("KEYS");
        let strange: Vec<String> = keys
            .into_iter()
            .filter(|key| key.strip_prefix("maitred:{eu}:").is_none_or(|name| !allowed.contains(&name)))
            .collect();
        if strange.is_empty() || Instant::now() > end {
            return strange;
        }
        sleep(Duration::from_millis(100)).await;
    }
}
