//! The faults: signals to the processes and to the store itself, and what the wires lose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maitred::store::scripts;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::member::Member;
use super::world::{LEASE, World};
use maitred_testkit::fault::{Action, FaultProxy};

/// Breaks things for as long as `length`, then mends everything that does not have to mend itself.
pub async fn rage(world: &Arc<World>, seed: u64, length: Duration) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut store = world.store.conn().await;
    let mut repairs = JoinSet::new();
    let store_is_frozen = Arc::new(AtomicBool::new(false));
    let end = Instant::now() + length;
    while Instant::now() < end {
        sleep_until(end.min(Instant::now() + millis(&mut rng, 100, 600))).await;
        while repairs.try_join_next().is_some() {}
        match rng.random_range(0..100) {
            0..22 => {
                let (member, pause) = (any(world, &mut rng), millis(&mut rng, 0, 1_500));
                if member.take_on() {
                    world.record.count("SIGKILL");
                    member.kill();
                    repairs.spawn(async move {
                        sleep(pause).await;
                        member.restart();
                        member.leave_alone();
                    });
                }
            }
            22..48 => {
                let long = rng.random_ratio(2, 5);
                let (from, to) = if long { (lease_ms() + 200, lease_ms() * 3) } else { (50, lease_ms() - 200) };
                let (member, pause) = (any(world, &mut rng), millis(&mut rng, from, to));
                if member.take_on() {
                    world.record.count(if long { "SIGSTOP past the lease" } else { "SIGSTOP" });
                    member.freeze(true);
                    repairs.spawn(async move {
                        sleep(pause).await;
                        member.freeze(false);
                        member.leave_alone();
                    });
                }
            }
            48..56 => {
                world.record.count("SCRIPT FLUSH");
                world.record.note("SCRIPT FLUSH");
                let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut store).await.expect("SCRIPT FLUSH");
            }
            56..63 => {
                let pause = millis(&mut rng, 500, 2_000);
                // One after the other: the end of one would be the end of both.
                if !store_is_frozen.swap(true, Ordering::SeqCst) {
                    world.record.count("SIGSTOP of the store");
                    world.record.note(&format!("the store SIGSTOP for {pause:?}"));
                    world.store.sigstop();
                    let (world, is_frozen) = (Arc::clone(world), Arc::clone(&store_is_frozen));
                    repairs.spawn(async move {
                        sleep(pause).await;
                        world.store.sigcont();
                        world.record.note("the store SIGCONT");
                        is_frozen.store(false, Ordering::SeqCst);
                    });
                }
            }
            _ => break_wire(world, &mut rng, &mut repairs),
        }
    }
    while repairs.join_next().await.is_some() {}
    // Connections that went silent stay silent: to notice that is the nodes' work.
    world.wires.iter().for_each(|(_, wire)| wire.pass());
    world.record.note("the storm is over");
    world.closing.cancel();
}

fn break_wire(world: &World, rng: &mut StdRng, repairs: &mut JoinSet<()>) {
    let (of, wire) = &world.wires[rng.random_range(0..world.wires.len())];
    let wire = Arc::clone(wire);
    let action = if rng.random() { Action::Cut } else { Action::Silent };
    let replies = rng.random_range(1..=3);
    let fault = match rng.random_range(0..10) {
        0..2 => {
            repairs.spawn(cut(wire));
            "cut".to_owned()
        }
        2..7 => {
            let names: Vec<_> = scripts::all()
                .iter()
                .filter(|script| script.name().starts_with("token/"))
                .map(|script| (script.name(), script.pinned()))
                .collect();
            let (name, sha) = names[rng.random_range(0..names.len())];
            wire.drop_replies_of(&format!("EVALSHA {sha}"), replies, action);
            format!("loses {replies} replies of {name}, then {action:?}")
        }
        7 => {
            wire.drop_replies(replies, action);
            format!("loses {replies} replies, then {action:?}")
        }
        8 => {
            let pause = millis(rng, 100, lease_ms() * 2);
            wire.hold();
            repairs.spawn(async move {
                sleep(pause).await;
                wire.resume();
            });
            format!("holds everything for {pause:?}")
        }
        _ => {
            let pause = millis(rng, 100, lease_ms() * 2);
            wire.refuse(true);
            repairs.spawn(async move {
                cut(Arc::clone(&wire)).await;
                sleep(pause).await;
                wire.refuse(false);
            });
            format!("cut, and refuses for {pause:?}")
        }
    };
    world.record.count(&format!("wire {}", fault.split([' ', ',']).next().unwrap_or_default()));
    world.record.note(&format!("wire of {of}: {fault}"));
}

async fn cut(wire: Arc<FaultProxy>) {
    // It waits until the connections are closed.
    tokio::task::spawn_blocking(move || wire.cut_all()).await.expect("the wire is cut");
}

fn any(world: &World, rng: &mut StdRng) -> Arc<Member> {
    let members: Vec<_> = world.members().collect();
    Arc::clone(members[rng.random_range(0..members.len())])
}

fn lease_ms() -> u64 {
    u64::try_from(LEASE.as_millis()).expect("a short time")
}

fn millis(rng: &mut StdRng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.random_range(from..to))
}
